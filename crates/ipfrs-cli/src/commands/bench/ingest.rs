//! `bench ingest`.

mod connection;
mod plot;
mod report;
mod rpc;
mod samples;
mod written_files;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;

use self::connection::{Connection, Credentials, Load};
use self::report::{Report, Row};
use self::samples::Samples;
use self::written_files::WrittenFiles;
use crate::api::Api;
use crate::args::{BenchIngestArgs, IngestStore};
use crate::load::Base;
use crate::output::Output;
use crate::runtime::{Interrupted, interrupted};
use crate::session::Session;

/// Number of bytes after which a connection begins another object: the daemon limits the memory of one client.
const OBJECT_BYTES: u64 = 96 * 1024 * 1024;

pub(super) async fn run(session: &Session, args: &BenchIngestArgs, out: &mut Output) -> Result<()> {
    // An interrupt drops the measurement, which removes the files.
    tokio::select! {
        measured = measure(session, args, out) => measured,
        interrupt = interrupted() => {
            interrupt?;
            Err(Interrupted("interrupted: objects that were being written stay").into())
        }
    }
}

async fn measure(session: &Session, args: &BenchIngestArgs, out: &mut Output) -> Result<()> {
    let url = match &args.url {
        Some(url) => url.clone(),
        None => session.require_daemon().await?.url().to_owned(),
    };
    let (base, api) = (Base::parse(&url)?, Api::remote(&url, None)?);
    let credentials = args.user.as_deref().map(Credentials::of_environment).transpose()?;
    let files = WrittenFiles::default();
    let mut report = Report::new(base.url(), args);
    if !out.is_json() {
        report.head().iter().try_for_each(|line| out.line(line))?;
    }
    for size in &args.sizes {
        let mut rows = Vec::new();
        for store in &args.stores {
            let load = Load {
                store: *store,
                bytes: *size,
                messages: u64::from(args.messages),
                in_flight: u64::from(args.in_flight),
                duration: args.duration,
            };
            let connections = (0..args.connections).map(|_| one(&base, &api, credentials.as_ref(), load, &files));
            let samples = Samples::joined(try_join_all(connections).await?);
            rows.push(Row::new(*size, store_name(*store), &samples));
        }
        for rpc in &args.rpcs {
            let samples = rpc::measure(rpc, *size, u64::from(args.messages), args.duration).await?;
            rows.push(Row::new(*size, &format!("files/write {rpc}"), &samples));
        }
        report.add(rows);
        if !out.is_json() {
            report.last_lines().iter().try_for_each(|line| out.line(line))?;
        }
    }
    if out.is_json() {
        out.object(&report)?;
    }
    if let Some(file) = &args.plot {
        fs::write(file, plot::svg(&report)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Measures one connection, with one object after the other.
async fn one(
    base: &Base,
    api: &Api,
    credentials: Option<&Credentials>,
    load: Load,
    files: &WrittenFiles,
) -> Result<Samples> {
    let mut samples = Samples::new(load.in_flight);
    let burst = load.bytes.saturating_mul(load.messages);
    let bursts_per_object = (OBJECT_BYTES / burst.max(1)).max(1);
    while samples.elapsed() < load.duration || samples.count() < MIN_SAMPLES {
        let mut connection = Connection::open(base, credentials, load).await?;
        let measured = connection.send_bursts(bursts_per_object, &mut samples).await;
        connection.end(api, files).await?;
        measured?;
        if samples.elapsed() > load.duration.max(Duration::from_secs(1)) * MAX_OVERRUN {
            break;
        }
    }
    Ok(samples)
}

/// Minimum number of samples, even if they take longer than the duration.
const MIN_SAMPLES: usize = 5;
/// Multiple of the duration after which a measurement ends with fewer samples.
const MAX_OVERRUN: u32 = 6;

fn store_name(store: IngestStore) -> &'static str {
    match store {
        IngestStore::Memory => "memory",
        IngestStore::Filesystem => "filesystem",
        IngestStore::Ipfs => "ipfs",
    }
}
