//! `bench`.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::value;

/// Notes on how to read the results, printed after the options.
const READING: &str = "\
Without --rate each connection sends its next request when the last was answered: a server that stalls is asked less, \
and what would have waited meanwhile is not in the latencies. With --rate requests are due whether the server keeps up \
or not, and their latencies count from when they were due.

Every answer that arrived whole counts, whatever its status; redirects are not followed. Requests under way when the \
time is over are given up, and their number is told. Ctrl-C ends it early and prints what there is.

The client needs processors as the server does: measure from another machine, or leave it some of its own.";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Put a gateway under load with GET requests; print throughput, latencies and errors
    Http(BenchHttpArgs),
}

#[derive(Debug, Args)]
#[command(after_help = READING)]
pub(crate) struct BenchHttpArgs {
    /// Any gateway, as http://HOST:PORT, or the URL of what to fetch [default: the daemon that runs on the repo]
    pub(crate) url: Option<String>,
    /// What to fetch: CID, CID/name or /ipfs/CID/name; given several times, in turns
    #[arg(long = "cid", value_name = "IPFS-PATH", value_parser = value::ipfs_path)]
    pub(crate) cids: Vec<String>,
    /// Path to fetch as it stands, such as /ipns/NAME or "/ipfs/CID?format=raw"; given several times, in turns
    #[arg(long = "path", value_name = "PATH", value_parser = value::url_path)]
    pub(crate) paths: Vec<String>,
    /// Header of every request, such as "Accept: application/vnd.ipld.car"
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = value::header)]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Connections, which are kept alive: 1 to 10,000
    #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) connections: u16,
    /// How long to measure: 500ms, 10s, 5m, 1h [default: 10s, with --requests until they are through]
    #[arg(short, long, value_parser = value::duration)]
    pub(crate) duration: Option<Duration>,
    /// Requests to send, and no more
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// Requests that are due each second, over all connections [default: as many as are answered]
    #[arg(long, value_name = "PER-SECOND", value_parser = value::rate)]
    pub(crate) rate: Option<f64>,
    /// How long to send requests before they count
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    pub(crate) warmup: Option<Duration>,
    /// How long a request may take, and a connection to be opened
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = value::duration)]
    pub(crate) timeout: Duration,
    /// Ask for this many bytes of a file: 1000, 64KiB, 10MB
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub(crate) range: Option<u64>,
    /// Where in the file they are; without --range they are 64KiB [default: start]
    #[arg(long, value_name = "WHERE")]
    pub(crate) ranges: Option<Places>,
    /// Speak HTTP/2 from the first byte on (h2c)
    #[arg(long)]
    pub(crate) http2: bool,
    /// Requests at the same time on each connection of HTTP/2, 1 to 1,000
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "http2", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) streams: u16,
    /// Show how far it is [default: when standard error is a terminal, without --json]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

/// Positions of ranges in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Places {
    /// At the beginning of the file
    Start,
    /// One behind the other, from the beginning again after the last
    Sequential,
    /// Anywhere
    Random,
}
