//! Commands about the daemon, its repo and formats.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{
    BandwidthTotals, BitswapStat, CodeAndName, CommandTree, Dependency, FormattedCid, Id, InspectedCid, Lines,
    LoggedCommand, Reference, RemovedKey, RepoStat, RepoVersion, VerifyLine, Version,
};

use super::responses::{done, json, lines, list, never, nothing, octets, text_value, value};
use crate::rpc::command::{Command, command};
use crate::rpc::{cid, command_tree, config, diag, log, multibase, node, refs, repo, swarm, unavailable};

pub(super) static COMMANDS: &[Command] = &[
    command("cid/base32", Scope::Read, lines::<FormattedCid>, || any(cid::base32)),
    command("cid/bases", Scope::Read, list::<CodeAndName>, || any(cid::bases)),
    command("cid/codecs", Scope::Read, list::<CodeAndName>, || any(cid::codecs)),
    command("cid/format", Scope::Read, lines::<FormattedCid>, || any(cid::format)),
    command("cid/hashes", Scope::Read, list::<CodeAndName>, || any(cid::hashes)),
    command("cid/inspect", Scope::Read, json::<InspectedCid>, || any(cid::inspect)),
    command("commands", Scope::Read, json::<CommandTree>, || any(command_tree::commands)),
    command("config", Scope::Admin, value, || any(config::get)),
    command("config/profile/apply", Scope::Admin, value, || any(config::apply_profile)),
    command("config/replace", Scope::Admin, done, || any(config::replace)),
    command("config/show", Scope::Admin, value, || any(config::show)),
    command("diag/cmds", Scope::Admin, list::<LoggedCommand>, || any(diag::commands)),
    command("diag/cmds/clear", Scope::Admin, done, || any(diag::clear)),
    command("diag/cmds/set-time", Scope::Admin, done, || any(diag::set_time)),
    command("diag/healthy", Scope::Read, text_value, || any(diag::healthy)),
    command("diag/profile", Scope::Admin, never, || any(diag::profile)),
    command("diag/sys", Scope::Admin, value, || any(diag::system)),
    command("id", Scope::Read, json::<Id>, || any(node::id)),
    command("log/level", Scope::Admin, value, || any(log::level)),
    command("log/ls", Scope::Admin, json::<Lines>, || any(log::list)),
    command("log/tail", Scope::Admin, never, || any(log::tail)),
    command("mount", Scope::Admin, never, || any(unavailable::mount)),
    command("multibase/decode", Scope::Read, octets, || any(multibase::decode)),
    command("multibase/encode", Scope::Read, octets, || any(multibase::encode)),
    command("multibase/list", Scope::Read, list::<CodeAndName>, || any(cid::bases)),
    command("multibase/transcode", Scope::Read, octets, || any(multibase::transcode)),
    command("repo/gc", Scope::Admin, lines::<RemovedKey>, || any(repo::gc)).without_deadline(),
    command("repo/ls", Scope::Read, lines::<Reference>, || any(refs::local)),
    command("repo/stat", Scope::Read, json::<RepoStat>, || any(repo::stat)),
    command("repo/verify", Scope::Admin, lines::<VerifyLine>, || any(repo::verify)).without_deadline(),
    command("repo/version", Scope::Read, json::<RepoVersion>, || any(repo::version)),
    command("shutdown", Scope::Admin, nothing, || any(node::shutdown)),
    command("stats/bitswap", Scope::Read, json::<BitswapStat>, || any(swarm::stat)),
    command("stats/bw", Scope::Read, json::<BandwidthTotals>, || any(node::bandwidth)),
    command("stats/dht", Scope::Read, never, || any(unavailable::dht_stats)),
    command("stats/provide", Scope::Read, never, || any(unavailable::provide_stat)),
    command("stats/repo", Scope::Read, json::<RepoStat>, || any(repo::stat)),
    command("stats/reprovide", Scope::Read, never, || any(unavailable::provide_stat)),
    command("version", Scope::Read, json::<Version>, || any(node::version)),
    command("version/check", Scope::Read, never, || any(unavailable::check_version)),
    command("version/deps", Scope::Read, lines::<Dependency>, || any(command_tree::dependencies)),
];
