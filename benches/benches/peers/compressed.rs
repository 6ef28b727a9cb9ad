//! A text in each content coding at each level: the first request and repeated requests.

use std::io::Read;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::{
    Bound, Client, GatewayProcess, Goal, Multipart, Profile, Series, Settings, Table, get_with, seconds_each, text,
};

use crate::figures::{Measurement, turns};
use crate::site::Site;

const LEVELS: [&str; 3] = ["fastest", "balanced", "best"];
/// Content codings. The first is the text without compression.
const CODINGS: [&str; 4] = ["identity", "gzip", "br", "zstd"];
const TEXT_BYTES: usize = 1 << 20;
/// Bound of the time of a response that was compressed before, relative to an uncompressed response.
const GOAL: Bound = Bound::AtMost(1.2);

pub(crate) struct Compressed {
    levels: Vec<Level>,
}

/// A gateway with one compression level.
struct Level {
    name: &'static str,
    gateway: GatewayProcess,
    codings: Vec<Coding>,
}

#[derive(Default)]
struct Coding {
    /// MB of text per second if the response has to be compressed.
    first_mb_per_second: Series,
    /// Milliseconds of a response that was requested before.
    again_ms: Series,
    /// Compression ratio.
    ratio: Series,
}

impl Compressed {
    /// Starts the gateways, each on the server core.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        site.cores.for_servers()?;
        let start = |name: &'static str| {
            let repo = site.scratch(&format!("compressed-{name}"));
            let level = Some(name.to_owned());
            let settings = Settings { workers: Some(1), compression_level: level, ..Settings::default() };
            let gateway = GatewayProcess::start_with(&repo, &settings)?;
            let codings = CODINGS.iter().map(|_| Coding::default()).collect();
            Ok::<_, anyhow::Error>(Level { name, gateway, codings })
        };
        let levels = LEVELS.into_iter().map(start).collect::<Result<Vec<_>>>()?;
        site.cores.for_clients()?;
        Ok(Self { levels })
    }
}

impl Level {
    /// Requests a new text in each coding.
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        let mut client = Client::connect(self.gateway.address())?;
        let content = text(round as u64, TEXT_BYTES);
        let mut form = Multipart::default();
        form.file(&content);
        let target = format!("/ipfs/{}?filename=text.txt", form.send(&mut client, Profile::DagPb)?.concat());
        for turn in turns(round, CODINGS.len()) {
            let (name, coding) = (CODINGS[turn], &mut self.codings[turn]);
            let request = get_with(&target, &format!("Accept-Encoding: {name}\r\n"));
            let start = Instant::now();
            client.send(&request)?;
            let bytes = client.discard(200)?;
            coding.first_mb_per_second.push(TEXT_BYTES as f64 / 1e6 / start.elapsed().as_secs_f64());
            coding.ratio.push(TEXT_BYTES as f64 / bytes as f64);
            client.send(&request)?;
            let response = client.read(200)?;
            ensure!(decoded(name, &response)? == content, "{name} at {} decodes to a different text", self.name);
            let each = seconds_each(site.options.slice() / 3, || client.exchange(&request, 200, bytes))?;
            coding.again_ms.push(each * 1e3);
        }
        Ok(())
    }

    /// Returns the time of a repeated response, relative to an uncompressed response.
    fn again(&self, coding: &Coding) -> f64 {
        coding.again_ms.median() / self.codings[0].again_ms.median()
    }
}

fn decoded(coding: &str, response: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = match coding {
        "identity" => response.to_vec().as_slice().read_to_end(&mut text),
        "gzip" => flate2::read::GzDecoder::new(response).read_to_end(&mut text),
        "br" => brotli::Decompressor::new(response, 4_096).read_to_end(&mut text),
        "zstd" => zstd::Decoder::new(response)?.read_to_end(&mut text),
        other => bail!("{other} cannot be decoded here"),
    };
    read.with_context(|| format!("the response is not {coding}"))?;
    Ok(text)
}

impl Measurement for Compressed {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        turns(round, LEVELS.len()).try_for_each(|turn| self.levels[turn].round(site, round))
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.levels.iter().flat_map(|level| {
            CODINGS.into_iter().zip(&level.codings).map(move |(name, coding)| {
                vec![
                    level.name.to_owned(),
                    if name == CODINGS[0] { "as it is" } else { name }.to_owned(),
                    coding.first_mb_per_second.show(0),
                    format!("{:.2}", coding.ratio.median()),
                    coding.again_ms.show(3),
                    format!("{:.2}", level.again(coding)),
                ]
            })
        });
        vec![Table::new(
            "A text of 1 MiB in content codings, one connection",
            [
                "compression.level",
                "coding",
                "first request, MB/s of text",
                "times smaller",
                "repeated request, ms",
                "times as long as it is",
            ],
            rows,
        )]
    }

    fn goals(&self) -> Vec<Goal> {
        // The slowest level represents each coding.
        let goal = |(place, name): (usize, &str)| Goal {
            what: format!("text of 1 MiB, repeated request, ms: {name}, slowest of all levels / as it is"),
            figure: self.levels.iter().map(|level| level.again(&level.codings[place])).fold(0.0, f64::max),
            bound: GOAL,
        };
        CODINGS.into_iter().enumerate().skip(1).map(goal).collect()
    }
}
