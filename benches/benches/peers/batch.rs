//! Blocks fetched one by one and in one batch, on one connection.

use anyhow::Result;
use ipfrs_benches::{Axis, Batch, Bound, Chart, Client, Cores, Goal, Line, Point, Series, Table, seconds_each};

use crate::figures::{Measurement, turns};
use crate::site::Site;

pub(crate) const KIB: usize = 1_024;
/// Block sizes. The first size is fetched with each placement of the client.
pub(crate) const SIZES: [usize; 3] = [KIB, 16 * KIB, 256 * KIB];
pub(crate) const COUNTS: [usize; 4] = [1, 10, 100, 1_000];
/// Required speed-ups over single GETs with the smallest blocks: number of blocks and factor.
pub(crate) const GOALS: [(usize, f64); 2] = [(100, 10.0), (1_000, 20.0)];
/// Required ratio of the MB/s of a CAR to those of JSON: number of blocks and factor.
const CAR_GOAL: (usize, f64) = (100, 2.0);

pub(crate) type Fetch = fn(&Batch, &mut Client) -> Result<()>;

/// Ways of fetching blocks. The first is the baseline of the others.
pub(crate) const WAYS: [(&str, Fetch); 3] = [
    ("a GET each", Batch::fetch_one_by_one),
    ("one batch, JSON", Batch::fetch_json),
    ("one batch, CAR", Batch::fetch_car),
];

/// Indices into [`WAYS`].
const JSON: usize = 1;
const CAR: usize = 2;

/// Placement of the client while it fetches.
#[derive(Clone, Copy)]
enum Place {
    /// On its own core if cores are pinned. Each response has to wake the client, as over a network.
    Apart,
    /// On the server's core, which shows the cost of the requests alone.
    Together,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Apart => "apart",
            Self::Together => "on the server's core",
        }
    }

    fn go(self, cores: &Cores) -> Result<()> {
        match self {
            Self::Apart => cores.for_clients(),
            Self::Together => cores.for_servers(),
        }
    }
}

pub(crate) struct Batches {
    sizes: Vec<Size>,
}

struct Size {
    batch: Batch,
    places: Vec<Placed>,
}

struct Placed {
    place: Place,
    /// Milliseconds for all blocks, for each of [`WAYS`].
    milliseconds: [Series; WAYS.len()],
}

impl Placed {
    /// Returns the speed-up over the first way.
    fn gain(&self, way: usize) -> f64 {
        self.milliseconds[0].median() / self.milliseconds[way].median()
    }
}

impl Size {
    fn name(&self) -> String {
        format!("{} KiB", self.batch.block_bytes() / KIB)
    }

    /// Returns the indices of the [`WAYS`] that can transfer this number of bytes.
    fn ways(&self) -> impl Iterator<Item = usize> + use<> {
        let fits_json = self.batch.fits_json();
        (0..WAYS.len()).filter(move |way| *way != JSON || fits_json)
    }
}

impl Batches {
    /// Stores the blocks and checks the response of each way.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let mut client = Client::connect(site.gateway.address())?;
        let mut sizes = Vec::new();
        for (block_bytes, count) in SIZES.into_iter().flat_map(|bytes| COUNTS.map(|count| (bytes, count))) {
            let is_twice = site.cores.is_pinned() && block_bytes == SIZES[0];
            let places: &[Place] = if is_twice { &[Place::Apart, Place::Together] } else { &[Place::Apart] };
            let places = places.iter().map(|place| Placed { place: *place, milliseconds: Default::default() });
            sizes.push(Size { batch: Batch::prepare(&mut client, count, block_bytes)?, places: places.collect() });
        }
        Ok(Self { sizes })
    }

    fn placed(&self) -> impl Iterator<Item = (&Size, &Placed)> {
        self.sizes.iter().flat_map(|size| size.places.iter().map(move |placed| (size, placed)))
    }
}

impl Measurement for Batches {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for size in &mut self.sizes {
            let ways: Vec<_> = size.ways().collect();
            for placed in &mut size.places {
                placed.place.go(&site.cores)?;
                for way in turns(round, ways.len()).map(|turn| ways[turn]) {
                    let mut client = Client::connect(site.gateway.address())?;
                    let (_, fetch) = WAYS[way];
                    let each = seconds_each(site.options.slice(), || fetch(&size.batch, &mut client))?;
                    placed.milliseconds[way].push(each * 1_000.0);
                }
            }
        }
        site.cores.for_clients()
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.placed().flat_map(|(size, placed)| {
            size.ways().map(move |way| {
                let series = &placed.milliseconds[way];
                vec![
                    size.name(),
                    size.batch.count().to_string(),
                    placed.place.name().to_owned(),
                    WAYS[way].0.to_owned(),
                    series.show(3),
                    format!("{:.0}", size.batch.payload_bytes() as f64 / 1e3 / series.median()),
                    format!("{:.1}", placed.gain(way)),
                ]
            })
        });
        vec![Table::new(
            "Blocks, one connection",
            ["of", "blocks", "client", "how", "ms for all", "MB/s of blocks", "times as fast as a GET each"],
            rows,
        )]
    }

    fn charts(&self) -> Vec<Chart> {
        let lines = SIZES.into_iter().enumerate().flat_map(|(color, bytes)| {
            (1..WAYS.len()).map(move |way| {
                let sizes = self.sizes.iter().filter(|size| size.batch.block_bytes() == bytes);
                let sizes = sizes.filter(|size| size.ways().any(|there| there == way));
                let points = sizes.map(|size| Point::one(size.batch.count() as f64, size.places[0].gain(way)));
                let name = format!("{} KiB: {}", bytes / KIB, WAYS[way].0);
                Line { name, color, is_dashed: way == JSON, points: points.collect() }
            })
        });
        vec![Chart {
            name: "batches".to_owned(),
            title: "Blocks in one batch, beside a GET each on one connection".to_owned(),
            x: Axis::logarithmic("blocks"),
            y: Axis::logarithmic("times as fast as a GET each"),
            lines: lines.collect(),
        }]
    }

    fn goals(&self) -> Vec<Goal> {
        let beside_gets = self.placed().flat_map(|(size, placed)| {
            let (count, is_smallest) = (size.batch.count(), size.batch.block_bytes() == SIZES[0]);
            let goal = GOALS.into_iter().find(|(of, _)| is_smallest && *of == count);
            goal.into_iter().flat_map(move |(_, minimum)| {
                size.ways().skip(1).map(move |way| Goal {
                    what: format!(
                        "{count} blocks of {}, client {}: {} / a GET each",
                        size.name(),
                        placed.place.name(),
                        WAYS[way].0
                    ),
                    figure: placed.gain(way),
                    bound: Bound::AtLeast(minimum),
                })
            })
        });
        let (count, minimum) = CAR_GOAL;
        let beside_json = self.sizes.iter().filter(|size| size.batch.count() == count).map(|size| Goal {
            what: format!("{count} blocks of {}, client apart, MB/s: CAR / JSON", size.name()),
            figure: size.places[0].milliseconds[JSON].median() / size.places[0].milliseconds[CAR].median(),
            bound: Bound::AtLeast(minimum),
        });
        beside_gets.chain(beside_json).collect()
    }
}
