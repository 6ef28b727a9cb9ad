//! Commands about the daemon, its repo and formats.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{
    BandwidthTotals, BitswapStat, CodeAndName, CommandTree, Dependency, FormattedCid, Id, InspectedCid, Lines,
    LoggedCommand, Reference, RemovedKey, RepoStat, RepoVersion, VerifyLine, Version,
};

use super::responses::{done, json, lines, list, never, nothing, octets, text_value, value};
use super::shared::{NUMERIC, PROVIDE_STAT, QUIET, VERBOSE};
use crate::rpc::definition::{Command, command, file, text};
use crate::rpc::options::Opt;
use crate::rpc::{cid, command_tree, config, diag, log, multibase, node, refs, repo, swarm, unavailable};

const ONLY_TOTALS: &str = "bytes are counted for all connections together, leave it out";
static BASES: &[Opt] = &[Opt::bool(&["prefix"]).printed(), Opt::bool(&["numeric"]).printed()];
static BITSWAP_STAT: &[Opt] = &[VERBOSE, Opt::bool(&["human"]).printed()];
static CID_FORMAT: &[Opt] = &[Opt::text(&["f"]), Opt::text(&["v"]), Opt::text(&["mc"]), Opt::text(&["b"])];
static REPO_STAT: &[Opt] =
    &[Opt::bool(&["size-only", "s"]), Opt::bool(&["human", "H"]).printed(), Opt::bool(&["dead-bytes"])];

pub(super) static COMMANDS: &[Command] = &[
    command("cid/base32", Scope::Read, "Convert content IDs to version 1 in base32", lines::<FormattedCid>, || {
        any(cid::base32)
    })
    .arguments(&[text("cid").repeated().in_body()]),
    command("cid/bases", Scope::Read, "List the multibases", list::<CodeAndName>, || any(cid::bases)).options(BASES),
    command("cid/codecs", Scope::Read, "List the IPLD codecs", list::<CodeAndName>, || any(cid::codecs))
        .options(&[NUMERIC, Opt::bool(&["supported", "s"])]),
    command("cid/format", Scope::Read, "Convert and format content IDs", lines::<FormattedCid>, || any(cid::format))
        .arguments(&[text("cid").repeated().in_body()])
        .options(CID_FORMAT),
    command("cid/hashes", Scope::Read, "List the hash functions of blocks", list::<CodeAndName>, || any(cid::hashes))
        .options(&[NUMERIC, Opt::bool(&["supported", "s"]).unused()]),
    command("cid/inspect", Scope::Read, "Show the parts of a content ID", json::<InspectedCid>, || any(cid::inspect))
        .arguments(&[text("cid").in_body()]),
    command("commands", Scope::Read, "List the commands", json::<CommandTree>, || any(command_tree::commands))
        .options(&[Opt::bool(&["flags", "f"]).printed()]),
    command("config", Scope::Admin, "Show or set a configuration key", value, || any(config::get))
        .arguments(&[text("key"), text("value").optional()])
        .options(&[Opt::bool(&["bool"]), Opt::bool(&["json"]), Opt::bool(&["expand-auto"])]),
    command("config/profile/apply", Scope::Admin, "Set what a profile sets", value, || any(config::apply_profile))
        .arguments(&[text("profile")])
        .options(&[Opt::bool(&["dry-run"])]),
    command("config/replace", Scope::Admin, "Replace the configuration", done, || any(config::replace))
        .arguments(&[file("file")]),
    command("config/show", Scope::Admin, "Effective configuration", value, || any(config::show))
        .options(&[Opt::bool(&["expand-auto"]).unused()]),
    command("diag/cmds", Scope::Admin, "Commands that run or ran lately", list::<LoggedCommand>, || {
        any(diag::commands)
    })
    .options(&[Opt::bool(&["verbose", "v"]).printed()]),
    command("diag/cmds/clear", Scope::Admin, "Forget the commands that have ended", done, || any(diag::clear)),
    command("diag/cmds/set-time", Scope::Admin, "Time for which commands that have ended are kept", done, || {
        any(diag::set_time)
    })
    .arguments(&[text("time")]),
    command("diag/healthy", Scope::Read, "Whether the daemon works", text_value, || any(diag::healthy)),
    command("diag/profile", Scope::Admin, "Not available: fails", never, || any(diag::profile)).options(&[
        Opt::text(&["output", "o"]).unused(),
        Opt::list(&["collectors"]).unused(),
        Opt::text(&["profile-time"]).unused(),
        Opt::int(&["mutex-profile-fraction"]).unused(),
        Opt::text(&["block-profile-rate"]).unused(),
    ]),
    command("diag/sys", Scope::Admin, "State of the machine", value, || any(diag::system)),
    command("id", Scope::Read, "Identity of the node", json::<Id>, || any(node::id))
        .arguments(&[text("peerid").optional()])
        .options(&[Opt::text(&["format", "f"]).printed(), Opt::text(&["peerid-base"])]),
    command("log/level", Scope::Admin, "Levels of the log", value, || any(log::level))
        .arguments(&[text("subsystem").optional(), text("level").optional()]),
    command("log/ls", Scope::Admin, "Parts of the daemon that log", json::<Lines>, || any(log::list)),
    command("log/tail", Scope::Admin, "Not available: fails", never, || any(log::tail))
        .options(&[Opt::text(&["log-level"]).unused()]),
    command("mount", Scope::Admin, "Not available: fails", never, || any(unavailable::mount)).options(&[
        Opt::text(&["ipfs-path", "f"]).unused(),
        Opt::text(&["ipns-path", "n"]).unused(),
        Opt::text(&["mfs-path", "m"]).unused(),
    ]),
    command("multibase/decode", Scope::Read, "Decode multibase text", octets, || any(multibase::decode))
        .arguments(&[file("encoded_file")]),
    command("multibase/encode", Scope::Read, "Encode bytes in a multibase", octets, || any(multibase::encode))
        .arguments(&[file("file")])
        .options(&[Opt::text(&["b"])]),
    command("multibase/list", Scope::Read, "List the multibases", list::<CodeAndName>, || any(cid::bases))
        .options(BASES),
    command("multibase/transcode", Scope::Read, "Convert text to another multibase", octets, || {
        any(multibase::transcode)
    })
    .arguments(&[file("encoded_file")])
    .options(&[Opt::text(&["b"])]),
    command("repo/gc", Scope::Admin, "Collect garbage", lines::<RemovedKey>, || any(repo::gc))
        .options(&[
            Opt::bool(&["stream-errors"]),
            QUIET,
            Opt::bool(&["silent"]),
            // Extensions of ipfrs.
            Opt::bool(&["progress"]),
            Opt::bool(&["force"]),
        ])
        .without_deadline(),
    command("repo/ls", Scope::Read, "List the stored blocks", lines::<Reference>, || any(refs::local)),
    command("repo/stat", Scope::Read, "Size of the store", json::<RepoStat>, || any(repo::stat)).options(REPO_STAT),
    command("repo/verify", Scope::Admin, "Verify all blocks", lines::<VerifyLine>, || any(repo::verify))
        .options(&[Opt::bool(&["drop"]), Opt::bool(&["heal"]), Opt::text(&["heal-timeout"])])
        .without_deadline(),
    command("repo/version", Scope::Read, "Version of the repo", json::<RepoVersion>, || any(repo::version))
        .options(&[QUIET]),
    command("shutdown", Scope::Admin, "End the daemon", nothing, || any(node::shutdown)),
    command("stats/bitswap", Scope::Read, "Blocks exchanged with all peers", json::<BitswapStat>, || any(swarm::stat))
        .options(BITSWAP_STAT),
    command("stats/bw", Scope::Read, "Transferred bytes", json::<BandwidthTotals>, || any(node::bandwidth)).options(&[
        Opt::text(&["peer", "p"]).refused(ONLY_TOTALS),
        Opt::text(&["proto", "t"]).refused(ONLY_TOTALS),
        Opt::bool(&["poll"]),
        Opt::text(&["interval", "i"]),
    ]),
    command("stats/dht", Scope::Read, "Not available: fails", never, || any(unavailable::dht_stats))
        .arguments(&[text("dht").optional().repeated()]),
    command("stats/provide", Scope::Read, "Not available: fails", never, || any(unavailable::provide_stat))
        .options(PROVIDE_STAT),
    command("stats/repo", Scope::Read, "Size of the store", json::<RepoStat>, || any(repo::stat)).options(REPO_STAT),
    command("stats/reprovide", Scope::Read, "Not available: fails", never, || any(unavailable::provide_stat))
        .options(PROVIDE_STAT),
    command("version", Scope::Read, "Version of the daemon", json::<Version>, || any(node::version)).options(&[
        Opt::bool(&["number", "n"]).printed(),
        Opt::bool(&["commit"]).printed(),
        Opt::bool(&["repo"]).printed(),
        Opt::bool(&["all"]).printed(),
    ]),
    command("version/check", Scope::Read, "Not available: fails", never, || any(unavailable::check_version))
        .options(&[Opt::int(&["min-percent", "t"]).unused()]),
    command("version/deps", Scope::Read, "Packages from which the daemon is built", lines::<Dependency>, || {
        any(command_tree::dependencies)
    }),
];
