//! Blocks fetched one by one and in one batch over a long distance, which a delaying proxy simulates.

use std::time::Duration;

use anyhow::Result;
use ipfrs_benches::{Batch, Bound, Client, DelayingProxy, Goal, Series, Table, seconds_each};

use crate::batch::WAYS;
use crate::figures::{Measurement, turns};
use crate::site::Site;

const BLOCK_BYTES: usize = 1_024;
const COUNT: usize = 100;
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// Required speed-up of a batch over single GETs.
const GOAL: f64 = 80.0;

pub(crate) struct FarBatches {
    proxy: DelayingProxy,
    batch: Batch,
    /// Milliseconds for all blocks, for each of [`WAYS`].
    milliseconds: [Series; WAYS.len()],
}

impl FarBatches {
    /// Starts the proxy in front of the gateway and checks the response of each way through it.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let proxy = DelayingProxy::start(site.gateway.address(), ROUND_TRIP)?;
        let batch = Batch::prepare(&mut Client::connect(proxy.address())?, COUNT, BLOCK_BYTES)?;
        Ok(Self { proxy, batch, milliseconds: Default::default() })
    }

    /// Returns the speed-up over the first way.
    fn gain(&self, way: usize) -> f64 {
        self.milliseconds[0].median() / self.milliseconds[way].median()
    }
}

impl Measurement for FarBatches {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for way in turns(round, WAYS.len()) {
            let mut client = Client::connect(self.proxy.address())?;
            let (_, fetch) = WAYS[way];
            let each = seconds_each(site.options.slice(), || fetch(&self.batch, &mut client))?;
            self.milliseconds[way].push(each * 1_000.0);
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let rows = WAYS.iter().enumerate().map(|(way, (name, _))| {
            vec![(*name).to_owned(), self.milliseconds[way].show(2), format!("{:.1}", self.gain(way))]
        });
        let milliseconds = ROUND_TRIP.as_millis();
        vec![Table::new(
            format!("{COUNT} blocks of 1 KiB, one connection, {milliseconds} ms further away and back"),
            ["how", "ms for all", "times as fast as a GET each"],
            rows,
        )]
    }

    fn goals(&self) -> Vec<Goal> {
        let goal = |(way, (name, _)): (usize, &(&str, _))| Goal {
            what: format!("{COUNT} blocks of 1 KiB, {} ms away and back: {name} / a GET each", ROUND_TRIP.as_millis()),
            figure: self.gain(way),
            bound: Bound::AtLeast(GOAL),
        };
        WAYS.iter().enumerate().skip(1).map(goal).collect()
    }
}
