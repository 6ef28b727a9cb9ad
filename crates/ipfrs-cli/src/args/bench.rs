//! `bench`.

use std::path::PathBuf;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::value;

/// Notes on how to read the results, printed after the options.
const READING: &str = "\
Without --rate each connection sends its next request after the response to its last one: a server that stalls gets fewer requests, \
and the latencies do not include the requests that would have waited. With --rate requests are due whether the server keeps up \
or not, and their latencies are measured from when they were due.

Every complete response counts, whatever its status; redirects are not followed. Requests in progress when the \
time is over are aborted, and their number is reported. Ctrl-C ends the run early and prints the results so far.

The client needs CPU time too: measure from another machine, or reserve some cores for the client.";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Put a gateway under load with GET requests; print throughput, latencies and errors
    Http(BenchHttpArgs),
    /// Send bursts of messages over a WebSocket; print how many the daemon stores per second
    Ingest(BenchIngestArgs),
}

#[derive(Debug, Args)]
#[command(after_help = READING)]
pub(crate) struct BenchHttpArgs {
    /// URL of a gateway, http://HOST:PORT, or of the content to fetch [default: the daemon that runs on the repo]
    pub(crate) url: Option<String>,
    /// Content to fetch: CID, CID/name or /ipfs/CID/name; can be repeated, and is then fetched in rotation
    #[arg(long = "cid", value_name = "IPFS-PATH", value_parser = value::ipfs_path)]
    pub(crate) cids: Vec<String>,
    /// Path to fetch unchanged, such as /ipns/NAME or "/ipfs/CID?format=raw"; can be repeated, as --cid
    #[arg(long = "path", value_name = "PATH", value_parser = value::url_path)]
    pub(crate) paths: Vec<String>,
    /// Header to send with every request, such as "Accept: application/vnd.ipld.car"
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = value::header)]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Number of persistent connections, 1 to 10,000
    #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) connections: u16,
    /// Duration of the measurement: 500ms, 10s, 5m, 1h [default: 10s, or until all --requests are done]
    #[arg(short, long, value_parser = value::duration)]
    pub(crate) duration: Option<Duration>,
    /// Number of requests to send
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// Requests due per second, over all connections [default: as many as the server completes]
    #[arg(long, value_name = "PER-SECOND", value_parser = value::rate)]
    pub(crate) rate: Option<f64>,
    /// Duration of the warm-up, in which requests do not count
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    pub(crate) warmup: Option<Duration>,
    /// Timeout of a request, and of opening a connection
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = value::duration)]
    pub(crate) timeout: Duration,
    /// Fetch ranges of this size: 1000, 64KiB, 10MB
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub(crate) range: Option<u64>,
    /// Positions of the ranges in the file; without --range they are 64KiB [default: start]
    #[arg(long, value_name = "WHERE")]
    pub(crate) ranges: Option<Places>,
    /// Use HTTP/2 with prior knowledge (h2c)
    #[arg(long)]
    pub(crate) http2: bool,
    /// Concurrent requests on each HTTP/2 connection, 1 to 1,000
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "http2", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) streams: u16,
    /// Show a progress bar [default: if standard error is a terminal, without --json]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

/// Positions of ranges in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Places {
    /// At the beginning of the file
    Start,
    /// One after the other, starting again after the last
    Sequential,
    /// At pseudorandom positions
    Random,
}

/// Notes on how to read the results, printed after the options.
const READING_INGEST: &str = "\
An operation is a burst of messages that the daemon has acknowledged: with filesystem and ipfs it is on the disk. Each object has many \
bursts. The margin is that of the mean with 95 % confidence.

With --in-flight, bursts are sent before earlier ones are acknowledged, and the daemon makes several durable at once. That measures \
throughput; with 1, the wait for the disk counts in full.

The objects are removed at the end, those in the file system only if the daemon runs on this machine. Until then, up to 6 GiB of \
files stay there, as the blocks of ipfs do. Otherwise, each file would get the page cache that the one before has freed. Blocks stay \
until garbage collection.";

#[derive(Debug, Args)]
#[command(after_help = READING_INGEST)]
pub(crate) struct BenchIngestArgs {
    /// URL of the daemon, http://HOST:PORT [default: the daemon that runs on the repo]
    pub(crate) url: Option<String>,
    /// Sizes of messages, separated by commas
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "1,1KiB,1MiB,10MiB", value_parser = value::size)]
    pub(crate) sizes: Vec<u64>,
    /// Stores to measure, separated by commas
    #[arg(long, value_name = "STORE", value_delimiter = ',', default_value = "memory,filesystem,ipfs")]
    pub(crate) stores: Vec<IngestStore>,
    /// Messages in a burst, 1 to 1,000
    #[arg(short, long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) messages: u16,
    /// Bursts that are sent before one is acknowledged, 1 to 1,000
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) in_flight: u16,
    /// Number of connections, each with an object of its own, 1 to 1,000
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) connections: u16,
    /// Duration of each measurement: 500ms, 5s
    #[arg(short, long, default_value = "5s", value_parser = value::duration)]
    pub(crate) duration: Duration,
    /// Also measure files/write of this RPC, one call per message: http://127.0.0.1:5001 for Kubo; can be repeated
    #[arg(long = "rpc", value_name = "URL")]
    pub(crate) rpcs: Vec<String>,
    /// User for basic authentication; the password is read from the environment variable IPFRS_INGEST_PASSWORD
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Write a chart of the results to an SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// Place in which the daemon stores an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IngestStore {
    /// A buffer, which is dropped
    Memory,
    /// A file below the repo
    Filesystem,
    /// A mutable file
    Ipfs,
}
