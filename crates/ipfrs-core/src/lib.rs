//! Types that every ipfrs crate shares: [`Cid`], [`Block`], hashes, [`Error`] and limits.
//!
//! This crate performs no I/O and contains no asynchronous code.

mod base58;
mod block;
mod cid;
mod cid_list;
mod cid_text;
pub mod codec;
mod content_uri;
mod cores;
mod error;
pub mod fair_pool;
mod file_offset;
pub mod hash;
pub mod limits;
pub mod multiformats;
pub mod timestamp;
pub mod turns;
mod url_credentials;

pub use block::{Block, check_block_size};
pub use cid::{Cid, Multihash, as_v1};
pub use cid_list::{CidList, CidListIter};
pub use cid_text::{cid_from_bytes, cid_text, cid_to_string, identity_payload, new_cid, parse_cid, to_base};
pub use content_uri::uri_as_path;
pub use cores::cores;
pub use error::{Error, ErrorKind, NotUnixfs, Result};
pub use file_offset::FileOffset;
pub use multibase::Base;
pub use url_credentials::{without_credentials, without_queries};
