//! How many connections this process may open.

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Files that are open beside the connections: standard streams, the runtime's, a log.
const OTHERS: u64 = 64;

/// Raises the limit of open files as far as `connections` need.
///
/// # Errors
/// When more are needed than the system lets this process have.
pub(super) fn make_room(connections: u64) -> Result<()> {
    let needed = connections + OTHERS;
    let mut limit = getrlimit(Resource::Nofile);
    // No value is no limit.
    let Some(current) = limit.current else { return Ok(()) };
    if current >= needed {
        return Ok(());
    }
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        bail!(
            "{connections} connections need {needed} open files, and this process may have {maximum}: raise the limit \
             (`ulimit -Hn`), or ask for fewer with --connections"
        );
    }
    limit.current = Some(needed);
    setrlimit(Resource::Nofile, limit).context("the limit of open files could not be raised")
}
