//! `GET /ipfs/{cid}[/path]` and `GET /ipns/{name}[/path]`: the path gateway
//! (<https://specs.ipfs.tech/http-gateways/path-gateway/>), and the same content on other hosts ([`hosted`]).

mod address;
mod block;
mod car;
mod codec;
pub(crate) mod conditional;
mod content_response;
pub(crate) mod content_type;
pub(crate) mod cors;
mod deserialised;
pub(crate) mod disposition;
pub(crate) mod error_page;
pub(crate) mod escape;
pub(crate) mod format;
mod freshness;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub(crate) mod handler;
pub(crate) mod hosted;
pub(crate) mod hosts;
mod ipfs_uri;
pub(crate) mod ipns_record;
mod listing;
pub(crate) mod manifest;
mod name;
pub(crate) mod page;
pub(crate) mod path;
pub(crate) mod path_cache;
pub(crate) mod payload;
mod preview;
pub(crate) mod proxied;
pub(crate) mod range;
mod range_response;
#[cfg(not(fuzzing))]
mod redirects;
#[cfg(fuzzing)]
pub(crate) mod redirects;
pub(crate) mod request;
pub(crate) mod response_cache;
pub(crate) mod retrieval;
pub(crate) mod serialized_head;
pub(crate) mod site;
mod subdomain;
mod tar;
mod trustless;
pub(crate) mod welcome;
