//! Values that are checked when they are typed, by what the daemon reads them with.
//!
//! Most stay text: whoever answers is sent what was typed.

use std::str::FromStr;

use anyhow::Result;
use ipfrs_interface::{HashFunction, ServerConfig, codec};

/// A value that reads as a `T`.
pub(super) fn as_a<T: FromStr>(text: &str) -> Result<String, T::Err> {
    text.parse::<T>().map(|_| text.to_owned())
}

/// The name of a hash function.
pub(super) fn hash_function(text: &str) -> Result<String> {
    HashFunction::from_name(text)?;
    Ok(text.to_owned())
}

/// The name of a codec.
pub(super) fn codec(text: &str) -> Result<String> {
    codec::parse(text)?;
    Ok(text.to_owned())
}

/// A number of threads, as the configuration takes it.
pub(super) fn workers(text: &str) -> Result<usize> {
    let workers = text.parse()?;
    ServerConfig { workers: Some(workers), ..ServerConfig::default() }.validate()?;
    Ok(workers)
}
