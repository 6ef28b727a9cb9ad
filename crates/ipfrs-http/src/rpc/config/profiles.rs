//! Profiles of Kubo's configuration that set the parameters of imports. Others set what has no equivalent here.

use ipfrs_core::{Error, Result};
use ipfrs_rpc::kubo_config::Change;

/// Keys of `[import]` that override its profile.
const OVERRIDES: [&str; 10] = [
    "cid_version",
    "raw_leaves",
    "chunker",
    "hash",
    "layout",
    "max_file_links",
    "sharding_threshold_bytes",
    "directory_size",
    "max_directory_links",
    "max_hamt_fanout",
];

/// Returns what a profile changes.
pub(super) fn changes(name: &str) -> Result<Vec<Change>> {
    let profile = match name {
        "unixfs-v0-2015" | "legacy-cid-v0" => "unixfs-v0-2015",
        "unixfs-v1-2025" => "unixfs-v1-2025",
        _ => {
            return Err(Error::unsupported(format!(
                "{name} is not a profile here: unixfs-v0-2015, legacy-cid-v0 and unixfs-v1-2025 are, which set the \
                 parameters of imports"
            )));
        }
    };
    let of = |key: &str| vec!["import".to_owned(), key.to_owned()];
    let removed = OVERRIDES.iter().map(|key| Change { key: of(key), value: None });
    Ok([Change { key: of("profile"), value: Some(profile.into()) }].into_iter().chain(removed).collect())
}
