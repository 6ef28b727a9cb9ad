//! `bench http|ingest`.

mod ingest;
mod report;

use std::time::Duration;

use anyhow::{Result, bail};

use self::report::Report;
use crate::args::{BenchCommand, BenchHttpArgs, Globals, Places};
use crate::load::{Base, Load, Span, Targets};
use crate::output::Output;
use crate::progress::{Progress, Watched};
use crate::runtime::{self, Interrupted};
use crate::session::Session;
use crate::uri::gateway_path;

/// Default duration of a measurement.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
/// Default size of a range if only its position is given, in bytes.
const DEFAULT_RANGE_BYTES: u64 = 64 * 1024;

pub(super) fn run(globals: &Globals, command: &BenchCommand, out: &mut Output) -> Result<()> {
    let session = Session::open(globals, Vec::new())?;
    session.start_quiet_log()?;
    match command {
        BenchCommand::Http(args) => runtime::run(&session.config.server, http(&session, args, out)),
        BenchCommand::Ingest(args) => runtime::run(&session.config.server, ingest::run(&session, args, out)),
    }
}

async fn http(session: &Session, args: &BenchHttpArgs, out: &mut Output) -> Result<()> {
    let base = match &args.url {
        Some(url) => Base::parse(url)?,
        None => Base::parse(session.require_daemon().await?.url())?,
    };
    let paths = paths(args, &base)?;
    let span = (args.range.is_some() || args.ranges.is_some()).then(|| Span {
        bytes: args.range.unwrap_or(DEFAULT_RANGE_BYTES),
        places: args.ranges.unwrap_or(Places::Start),
    });
    let load = Load {
        connections: usize::from(args.connections),
        streams: usize::from(args.streams),
        is_http2: args.http2,
        rate: args.rate,
        duration: args.duration.or_else(|| args.requests.is_none().then_some(DEFAULT_DURATION)),
        requests: args.requests,
        warmup: args.warmup.unwrap_or_default(),
        timeout: args.timeout,
    };
    let targets = Targets::new(&base, paths.clone(), &args.headers, span, args.http2)?;
    let watched = Watched { wanted: args.progress, is_silent: out.is_json() };
    let progress = match (load.requests, load.duration) {
        (None, Some(duration)) => Progress::timed(watched, duration, "requests"),
        (requests, _) => {
            let progress = Progress::items(watched, "requests");
            progress.expect(requests.unwrap_or_default());
            progress
        }
    };
    let outcome = load.run(&base, targets, &progress).await?;
    progress.over();
    let report = Report::new(&base.url(), paths, &load, span, &outcome);
    if out.is_json() {
        out.object(&report)?;
    } else {
        report.lines(&load).iter().try_for_each(|line| out.line(line))?;
    }
    let finished = outcome.tally.answers() + outcome.tally.failures();
    if outcome.is_interrupted {
        return Err(Interrupted("interrupted: the report covers only the time until then").into());
    }
    match finished {
        0 => bail!("no request completed: use a longer duration"),
        _ if outcome.tally.successes() > 0 => Ok(()),
        _ if args.http2 => {
            bail!("no request succeeded: does the server speak HTTP/2 without TLS?")
        }
        _ => bail!("no request succeeded"),
    }
}

/// Returns the paths to fetch: those of the options, or else the path of the URL.
fn paths(args: &BenchHttpArgs, base: &Base) -> Result<Vec<String>> {
    let cids = args.cids.iter().map(|cid| Ok(base.below(&gateway_path(cid.as_ref())?)));
    let paths = cids.chain(args.paths.iter().map(|path| Ok(base.below(path)))).collect::<Result<Vec<_>>>()?;
    match (paths.is_empty(), &args.url) {
        (false, _) => Ok(paths),
        (true, Some(_)) => Ok(vec![base.path().to_owned()]),
        (true, None) => bail!("nothing to fetch: pass --cid, --path or a URL"),
    }
}
