//! `log/*`: levels of the log.

use axum::extract::State;
use ipfrs_core::Error;
use ipfrs_rpc::types::Lines;
use serde_json::json;

use super::args::Args;
use super::command_result::CommandResult;
use super::output;
use crate::state::AppState;

/// Parts of the daemon, by the names of their modules in the log.
const SUBSYSTEMS: [&str; 13] = [
    "ipfrs_bitswap",
    "ipfrs_cli",
    "ipfrs_core",
    "ipfrs_graphql",
    "ipfrs_grpc",
    "ipfrs_http",
    "ipfrs_interface",
    "ipfrs_ipns",
    "ipfrs_middleware",
    "ipfrs_node",
    "ipfrs_retrieval",
    "ipfrs_store",
    "ipfrs_stream",
];

/// Names of all parts, as Kubo's clients write them.
const ALL: [&str; 2] = ["all", "*"];

/// `log/ls`: returns the parts of the daemon that log.
pub(super) async fn list() -> CommandResult {
    Ok(output::object(Lines { strings: SUBSYSTEMS.map(str::to_owned).into() }))
}

/// `log/level[?arg=part][&arg=level]`: returns levels, or changes them until the daemon ends.
pub(super) async fn level(State(state): State<AppState>, args: Args) -> CommandResult {
    let no_log = || Error::unsupported("the program that embeds this gateway has its log");
    let log = state.log.get().ok_or_else(no_log)?;
    // As in Kubo, an empty argument at the end is none.
    let mut given = args.arguments();
    while let [rest @ .., last] = given
        && last.is_empty()
    {
        given = rest;
    }
    let Some(subsystem) = given.first() else {
        return Ok(output::object(json!({ "Levels": { "": log.default_level() } })));
    };
    let is_all = ALL.contains(&subsystem.as_str());
    if !is_all && subsystem != "(default)" && !SUBSYSTEMS.contains(&subsystem.as_str()) {
        let why = format!("error: No such logger: no part of the daemon is named {subsystem:?}, see log/ls");
        return Err(Error::not_found(why).into());
    }
    let Some(level) = given.get(1) else {
        let level_of = |name: &str| (name.to_owned(), json!(log.level(name)));
        let mut levels = serde_json::Map::new();
        if is_all {
            levels.insert("(default)".to_owned(), json!(log.default_level()));
            levels.extend(SUBSYSTEMS.map(level_of));
        } else {
            levels.extend([(subsystem.clone(), json!(log.level(subsystem)))]);
        }
        return Ok(output::object(json!({ "Levels": levels })));
    };
    let levels = ["error", "warn", "info", "debug", "trace", "off"];
    let (default, is_default) = (log.default_level(), level == "default");
    let level = if is_default { &default } else { level };
    let named = match level.to_ascii_lowercase().as_str() {
        // Levels of Kubo above error.
        "dpanic" | "panic" | "fatal" => "error",
        "warning" => "warn",
        name => levels
            .into_iter()
            .find(|known| *known == name)
            .ok_or_else(|| Error::invalid(format!("unrecognized level: {level:?}")))?,
    };
    log.set((!is_all && subsystem != "(default)").then_some(subsystem.as_str()), named)?;
    let shown = if is_all { "*" } else { subsystem };
    Ok(output::object(json!({ "Message": format!("Changed log level of '{shown}' to '{level}'\n") })))
}

/// `log/tail`: fails, since the log is written to standard error only.
pub(super) async fn tail() -> CommandResult {
    Err(Error::unsupported("the log is on standard error of the daemon, and events of the node are at /ws").into())
}
