//! Blocks of 1 KiB one by one and in one batch, on one connection.

use anyhow::Result;
use ipfrs_benches::{Batch, Client};

use crate::figures::{Goal, Measurement, Series, Table, seconds_each, turns};
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

pub(crate) struct Batches {
    sizes: Vec<Size>,
}

struct Size {
    batch: Batch,
    /// Milliseconds for all blocks, for each of [`WAYS`].
    milliseconds: [Series; WAYS.len()],
}

impl Size {
    /// How many times as fast as the first way.
    fn gain(&self, way: usize) -> f64 {
        self.milliseconds[0].median() / self.milliseconds[way].median()
    }
}

impl Batches {
    /// Stores the blocks and checks what each way gives.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let mut client = Client::connect(site.gateway.address())?;
        let sizes = COUNTS
            .map(|count| Ok(Size { batch: Batch::prepare(&mut client, count)?, milliseconds: Default::default() }));
        Ok(Self { sizes: sizes.into_iter().collect::<Result<_>>()? })
    }
}

impl Measurement for Batches {
    fn name(&self) -> &'static str {
        "batches"
    }

    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for size in &mut self.sizes {
            for way in turns(round, WAYS.len()) {
                let mut client = Client::connect(site.gateway.address())?;
                let (_, fetch) = WAYS[way];
                let each = seconds_each(site.options.slice(), || fetch(&size.batch, &mut client))?;
                size.milliseconds[way].push(each * 1_000.0);
            }
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.sizes.iter().flat_map(|size| {
            WAYS.iter().enumerate().map(move |(way, (name, _))| {
                let series = &size.milliseconds[way];
                vec![
                    size.batch.count().to_string(),
                    (*name).to_owned(),
                    series.show(3),
                    format!("{:.0}", size.batch.payload_bytes() as f64 / 1e3 / series.median()),
                    format!("{:.1}", size.gain(way)),
                ]
            })
        });
        vec![Table {
            title: "Blocks of 1 KiB, one connection".to_owned(),
            head: vec!["blocks", "how", "ms for all", "MB/s of blocks", "times as fast as a GET each"],
            rows: rows.collect(),
        }]
    }

    fn goals(&self) -> Vec<Goal> {
        let sizes = self.sizes.iter().filter(|size| size.batch.count() == GOAL_COUNT);
        sizes
            .flat_map(|size| {
                WAYS.iter().enumerate().skip(1).map(|(way, (name, _))| Goal {
                    what: format!("{GOAL_COUNT} blocks of 1 KiB: {name} / a GET each"),
                    ratio: size.gain(way),
                    least: GOAL,
                })
            })
            .collect()
    }
}
