//! Paths of gateway URLs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use ipfrs_rpc::client::escape_path;

/// Returns the gateway path for user input of the form `CID/name` or `/ipfs/CID/name`, with each segment encoded.
pub(crate) fn gateway_path(path: &OsStr) -> Result<String> {
    let path = escape_path(path.as_bytes())?;
    let root = if path.starts_with("ipns/") { "/" } else { "/ipfs/" };
    Ok(format!("{root}{path}"))
}
