//! Retrieval of blocks that the node does not have.
//!
//! A [`Retriever`] fetches blocks from trustless gateways (<https://specs.ipfs.tech/http-gateways/trustless-gateway/>):
//! the configured ones, and those that routers name. Each root that is being fetched has one session, which all
//! requests for it share. It requests whole parts of a DAG as CARs, and single blocks where a CAR lacks them. All
//! blocks are verified before they are passed on. [`RetrievingStore`] is a view of a store that fetches what it does
//! not have.

mod address;
mod attempt;
mod candidates;
mod car_stream;
mod config;
mod deliveries;
mod expected;
mod fetch;
mod http;
mod metrics;
#[cfg(not(feature = "bitswap"))]
#[path = "no_peers.rs"]
mod peers;
#[cfg(feature = "bitswap")]
mod peers;
mod provider_search;
mod race;
mod readers;
mod retriever;
mod routing;
mod running_attempt;
mod session;
mod shared;
mod source;
mod store;
mod want;

pub use address::is_public;
pub use attempt::{Attempt, Outcome, SourceKind, Unretrieved};
pub use config::RetrievalConfig;
pub use peers::{BitswapConfig, Exchange};
pub use retriever::{Requester, Retriever};
pub use shared::{Admits, Ended, OnEnd};
pub use store::{RetrievingStore, Wanted};
pub use want::Want;

/// The reader of records from routers, for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Reads a response of a router; see `fuzz/fuzz_targets/router_response.rs`.
    pub fn router_response(bytes: &[u8]) {
        crate::routing::fuzzing::read(bytes);
    }
}
