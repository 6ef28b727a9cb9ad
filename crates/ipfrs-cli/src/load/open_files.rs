//! Limit of open files, and thereby of connections.

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Open files other than connections: standard streams, those of the runtime, and a log.
const OTHERS: u64 = 64;

/// Raises the limit of open files to what `connections` require.
///
/// # Errors
/// Returns an error if they require more than the hard limit of this process.
pub(super) fn make_room(connections: u64) -> Result<()> {
    let needed = connections + OTHERS;
    let mut limit = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    let Some(current) = limit.current else { return Ok(()) };
    if current >= needed {
        return Ok(());
    }
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        bail!(
            "{connections} connections need {needed} open files, but this process may have only {maximum}: raise the limit \
             (`ulimit -Hn`), or use fewer with --connections"
        );
    }
    limit.current = Some(needed);
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")
}
