//! A directory of small files, relayed as one archive by a gateway with an empty store, and block by block.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ipfrs_benches::{Bound, Client, Goal, Multipart, Profile, Series, Table, get, random};

use crate::Figures;
use crate::network::{Distance, Servers};
use crate::options::Options;

const FILE_BYTES: usize = 3_000;
const DISTANCE: Distance = Distance { round_trip: Duration::from_millis(40), mbit_per_second: Some(1_000) };
/// Number of blocks that are fetched one after the other. The time of all is extrapolated.
const SINGLE_BLOCKS: usize = 20;
/// Required speed-up.
const GOAL: f64 = 20.0;

/// Measures the archive and the single blocks.
pub(crate) fn measure(options: &Options, servers: &Servers) -> Result<Figures> {
    let mut form = Multipart::default();
    for number in 0..options.files {
        form.named(&number.to_string(), &random(1_000_000 + number as u64, FILE_BYTES));
    }
    let mut cids = form.send(&mut Client::connect(servers.origin.address())?, Profile::Directory)?;
    let root = cids.pop().context("the directory has no content ID")?;
    let origin = DISTANCE.to(servers.origin.address())?;
    let (mut archive, mut single) = (Series::default(), Series::default());
    for round in 0..options.rounds {
        eprintln!("retrieval: round {} of {}: a directory of {} files", round + 1, options.rounds, options.files);
        let seconds = servers.with_relay(origin, |relay| {
            let start = Instant::now();
            let mut client = Client::connect(relay.address())?;
            client.send(&get(&format!("/ipfs/{root}?format=tar")))?;
            client.discard(200)?;
            Ok(start.elapsed().as_secs_f64())
        })?;
        archive.push(seconds);
        let mut client = Client::connect(origin)?;
        let start = Instant::now();
        for cid in cids.iter().take(SINGLE_BLOCKS) {
            client.exchange(&get(&format!("/ipfs/{cid}?format=raw")), 200, FILE_BYTES as u64)?;
        }
        single.push(start.elapsed().as_secs_f64() / SINGLE_BLOCKS as f64 * (options.files + 1) as f64);
    }
    let gain = single.median() / archive.median();
    let rows = [
        vec!["relayed as TAR".to_owned(), archive.show(3), format!("{gain:.1}")],
        vec!["each block by itself".to_owned(), single.show(1), "1.0".to_owned()],
    ];
    let title = format!("A cold directory of {} files of 3 KB, {}", options.files, DISTANCE.name());
    let goal = Goal { what: format!("{title}: TAR / blocks one by one"), figure: gain, bound: Bound::AtLeast(GOAL) };
    let tables = vec![Table::new(title, ["how", "s", "times as fast"], rows)];
    Ok(Figures { goals: vec![goal], tables, charts: Vec::new() })
}
