//! Blocks of 1 KiB one by one and in one batch, on one connection.

use anyhow::Result;
use ipfrs_benches::{Batch, Client, Cores, Series, Table, seconds_each};

use crate::figures::{Goal, Measurement, turns};
use crate::site::Site;

const COUNTS: [usize; 2] = [100, 1_000];
/// The size of batch that the goal is for.
const GOAL_COUNT: usize = 100;
const GOAL: f64 = 10.0;

type Fetch = fn(&Batch, &mut Client) -> Result<()>;

/// The first is the one that the others are held against.
const WAYS: [(&str, Fetch); 3] = [
    ("a GET each", Batch::fetch_one_by_one),
    ("one batch, JSON", Batch::fetch_json),
    ("one batch, CAR", Batch::fetch_car),
];

/// Where the client is while it fetches.
#[derive(Clone, Copy)]
enum Place {
    /// On a core of its own, or wherever the system puts it. Each answer has to wake it, as over a network.
    Apart,
    /// On the server's core: what the requests cost, and nothing else.
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
    /// How many times as fast as the first way.
    fn gain(&self, way: usize) -> f64 {
        self.milliseconds[0].median() / self.milliseconds[way].median()
    }
}

impl Batches {
    /// Stores the blocks and checks what each way gives.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let mut client = Client::connect(site.gateway.address())?;
        let places: &[Place] = if site.cores.is_pinned() { &[Place::Apart, Place::Together] } else { &[Place::Apart] };
        let sizes = COUNTS.map(|count| {
            let places = places.iter().map(|place| Placed { place: *place, milliseconds: Default::default() });
            Ok(Size { batch: Batch::prepare(&mut client, count)?, places: places.collect() })
        });
        Ok(Self { sizes: sizes.into_iter().collect::<Result<_>>()? })
    }

    fn placed(&self) -> impl Iterator<Item = (&Size, &Placed)> {
        self.sizes.iter().flat_map(|size| size.places.iter().map(move |placed| (size, placed)))
    }
}

impl Measurement for Batches {
    fn name(&self) -> &'static str {
        "batches"
    }

    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for size in &mut self.sizes {
            for placed in &mut size.places {
                placed.place.go(&site.cores)?;
                for way in turns(round, WAYS.len()) {
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
            WAYS.iter().enumerate().map(move |(way, (name, _))| {
                let series = &placed.milliseconds[way];
                vec![
                    size.batch.count().to_string(),
                    placed.place.name().to_owned(),
                    (*name).to_owned(),
                    series.show(3),
                    format!("{:.0}", size.batch.payload_bytes() as f64 / 1e3 / series.median()),
                    format!("{:.1}", placed.gain(way)),
                ]
            })
        });
        vec![Table {
            title: "Blocks of 1 KiB, one connection".to_owned(),
            head: vec!["blocks", "client", "how", "ms for all", "MB/s of blocks", "times as fast as a GET each"],
            rows: rows.collect(),
        }]
    }

    fn goals(&self) -> Vec<Goal> {
        let placed = self.placed().filter(|(size, _)| size.batch.count() == GOAL_COUNT);
        let goals = placed.flat_map(|(_, placed)| {
            WAYS.iter().enumerate().skip(1).map(move |(way, (name, _))| Goal {
                what: format!("{GOAL_COUNT} blocks of 1 KiB, client {}: {name} / a GET each", placed.place.name()),
                ratio: placed.gain(way),
                least: GOAL,
            })
        });
        goals.collect()
    }
}
