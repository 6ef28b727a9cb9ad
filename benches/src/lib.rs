//! Common parts of the benchmarks: a client that needs very little CPU time compared with the server that it
//! measures, content to serve, and a gateway that serves it.
//!
//! The measurements themselves are bench targets. Some write reports: `peers` compares the gateway with nginx and dd,
//! each in its own process; `grpc` compares it with a tonic server and with HTTP; `stores` measures the effect of the
//! amount of stored data; `hostile` attacks the gateway. `kubo`, in a package of its own, compares a built `ipfrs-cli`
//! with Kubo. The other targets compare one version with the next: `http_benchmarks` (the gateway alone, in this
//! process), `store_benchmarks`, `unixfs_benchmarks` and `hash_benchmarks`.
//! docs/PERFORMANCE.md describes how to run them.

mod add;
mod arguments;
mod batch;
mod car;
mod certificate;
mod chart;
mod client;
mod content;
mod cores;
mod crowd;
mod delay;
mod document;
mod figures;
#[cfg(feature = "gateway")]
mod gateway;
mod goal;
mod kubo;
mod latency;
mod load;
mod micro;
pub mod nginx;
pub mod process;
mod report;
#[cfg(feature = "gateway")]
mod serve;
mod settle;

pub use add::{Multipart, Profile, add_directory, add_file};
pub use arguments::{Arguments, Asked, number};
pub use batch::Batch;
pub use car::{CarFile, import_car, import_unpinned_car, raw_cid};
pub use certificate::Certificate;
pub use chart::{Axis, Chart, Line, Point};
pub use client::{Client, get, get_range, get_with, post};
pub use content::{Offsets, random, text, write_random_file};
pub use cores::Cores;
pub use crowd::{Answered, Crowd, Served, send_and_receive};
pub use delay::DelayingProxy;
pub use figures::{Series, Table, seconds_each};
#[cfg(feature = "gateway")]
pub use gateway::{Gateway, config};
pub use goal::{Bound, Goal};
pub use kubo::{Kubo, KuboDaemon};
pub use latency::Latencies;
pub use load::{Fetch, Loaded, load, load_varied};
pub use micro::must;
pub use report::{Section, check, machine, publish};
#[cfg(feature = "gateway")]
pub use serve::{GatewayProcess, SERVE, Settings, serve};
pub use settle::settle;
