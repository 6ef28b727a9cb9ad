//! `diag/*`: commands of the daemon, and its machine.

use std::collections::BTreeMap;

use axum::extract::State;
use ipfrs_core::{Error, ErrorKind, cores, parse_cid};
use ipfrs_rpc::duration;
use serde_json::json;

use super::args::Args;
use super::command_result::CommandResult;
use super::output;
use crate::state::AppState;

/// Content ID of the empty directory.
const EMPTY_DIRECTORY: &str = "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn";

/// `diag/cmds`: returns the commands that run, and those that ended lately.
pub(super) async fn commands(State(state): State<AppState>) -> CommandResult {
    Ok(output::object(state.command_log.entries()))
}

/// `diag/cmds/clear`: forgets the commands that have ended.
pub(super) async fn clear(State(state): State<AppState>) -> CommandResult {
    state.command_log.clear();
    Ok(output::nothing().await)
}

/// `diag/cmds/set-time?arg=duration`: sets how long commands that have ended are kept.
pub(super) async fn set_time(State(state): State<AppState>, args: Args) -> CommandResult {
    let text = args.text_at(0);
    let time = duration::parse(text).ok_or_else(|| Error::invalid(format!("time: invalid duration {text:?}")))?;
    state.command_log.keep_for(time);
    Ok(output::nothing().await)
}

/// `diag/healthy`: returns `ok`, unless the daemon is about to end or cannot look up a block. Kubo reads the block of
/// the empty directory; here it need not be stored.
pub(super) async fn healthy(State(state): State<AppState>) -> CommandResult {
    if state.lifecycle.is_draining() {
        return Err(Error::new(ErrorKind::Unavailable, "daemon is shutting down").into());
    }
    let failed = |e: Error| Error::new(e.kind(), format!("probe fetch: {e}")).with_source(e);
    state.node.batch_has(&[parse_cid(EMPTY_DIRECTORY)?]).await.map_err(failed)?;
    Ok(output::object("ok"))
}

/// `diag/profile`: fails, since profilers of the system show more.
pub(super) async fn profile() -> CommandResult {
    Err(Error::unsupported("the daemon collects no profiles: use perf of Linux, or the metrics at /metrics").into())
}

/// `diag/sys`: returns the state of the machine, in the form of Kubo. Of the environment it has only the names of
/// variables that concern the daemon, since values may be secret.
pub(super) async fn system(State(state): State<AppState>) -> CommandResult {
    let environment: BTreeMap<_, _> =
        std::env::var("IPFRS_PATH").into_iter().map(|path| ("IPFRS_PATH", path)).collect();
    let space = state.node.disk_space().await?;
    let memory = process_memory();
    Ok(output::object(json!({
        "diskinfo": { "free_space": space.free, "total_space": space.total, "fstype": space.file_system },
        "environment": environment,
        "ipfs_version": state.api.reported_version(),
        "ipfs_commit": "",
        "memory": { "swap": 0, "virt": memory },
        "net": { "interface_addresses": [], "online": state.node.peers().is_ok() },
        "runtime": {
            "arch": super::node::architecture(),
            "compiler": "rustc",
            "gomaxprocs": 0,
            "numcpu": cores(),
            "numgoroutines": 0,
            "os": std::env::consts::OS,
            "version": env!("CARGO_PKG_VERSION"),
        },
    })))
}

/// Returns the virtual memory of the process, in bytes; 0 if it is not known.
fn process_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    size.and_then(|kibibytes| kibibytes.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1_024)
}
