//! Commands about the daemon, its repo and formats.

use super::definition::{Definition, command, file, text};
use super::option::Opt;
use super::shared::{NUMERIC, PROVIDE_STAT, QUIET, VERBOSE};

const ONLY_TOTALS: &str = "bytes are counted for all connections together, leave it out";
const BASES: &[Opt] = &[Opt::bool(&["prefix"]).printed(), Opt::bool(&["numeric"]).printed()];
const BITSWAP_STAT: &[Opt] = &[VERBOSE, Opt::bool(&["human"]).printed()];
const CID_FORMAT: &[Opt] = &[
    Opt::text(&["f"]).default("%s").help("Form with placeholders such as %s, %b, %v, %c, %h, %L and %D"),
    Opt::text(&["v"]).help("Version: 0 or 1"),
    Opt::text(&["mc"]).help("Codec"),
    Opt::text(&["b"]).help("Multibase"),
];
const REPO_STAT: &[Opt] = &[
    Opt::bool(&["size-only", "s"]).help("Print only sizes"),
    Opt::bool(&["human", "H"]).printed().help("Print sizes with units, such as 1.5 MiB"),
    Opt::bool(&["dead-bytes"]),
];

pub(super) const COMMANDS: &[Definition] = &[
    command("cid/base32", "Convert content IDs to version 1 in base32").arguments(&[text("cid").repeated().in_body()]),
    command("cid/bases", "List the multibases").options(BASES),
    command("cid/codecs", "List the IPLD codecs").options(&[NUMERIC, Opt::bool(&["supported", "s"])]),
    command("cid/format", "Convert and format content IDs")
        .arguments(&[text("cid").repeated().in_body()])
        .options(CID_FORMAT),
    command("cid/hashes", "List the hash functions of blocks")
        .options(&[NUMERIC, Opt::bool(&["supported", "s"]).unused()]),
    command("cid/inspect", "Show the parts of a content ID").arguments(&[text("cid").in_body()]),
    command("commands", "List the commands").options(&[Opt::bool(&["flags", "f"]).printed()]),
    command("config", "Show or set a configuration key")
        .arguments(&[text("key"), text("value").optional()])
        .options(&[Opt::bool(&["bool"]), Opt::bool(&["json"]), Opt::bool(&["expand-auto"])]),
    command("config/profile/apply", "Set what a profile sets")
        .arguments(&[text("profile")])
        .options(&[Opt::bool(&["dry-run"])]),
    command("config/replace", "Replace the configuration").arguments(&[file("file")]),
    command("config/show", "Effective configuration").options(&[Opt::bool(&["expand-auto"]).unused()]),
    command("diag/cmds", "Commands that run or ran lately").options(&[Opt::bool(&["verbose", "v"]).printed()]),
    command("diag/cmds/clear", "Forget the commands that have ended"),
    command("diag/cmds/set-time", "Time for which commands that have ended are kept").arguments(&[text("time")]),
    command("diag/healthy", "Whether the daemon works"),
    command("diag/profile", "Not available: fails").options(&[
        Opt::text(&["output", "o"]).unused(),
        Opt::list(&["collectors"]).unused(),
        Opt::text(&["profile-time"]).unused(),
        Opt::int(&["mutex-profile-fraction"]).unused(),
        Opt::text(&["block-profile-rate"]).unused(),
    ]),
    command("diag/sys", "State of the machine"),
    command("id", "Identity of the node")
        .arguments(&[text("peerid").optional()])
        .options(&[Opt::text(&["format", "f"]).printed(), Opt::text(&["peerid-base"])]),
    command("log/level", "Levels of the log").arguments(&[text("subsystem").optional(), text("level").optional()]),
    command("log/ls", "Parts of the daemon that log"),
    command("log/tail", "Not available: fails").options(&[Opt::text(&["log-level"]).unused()]),
    command("mount", "Not available: fails").options(&[
        Opt::text(&["ipfs-path", "f"]).unused(),
        Opt::text(&["ipns-path", "n"]).unused(),
        Opt::text(&["mfs-path", "m"]).unused(),
    ]),
    command("multibase/decode", "Decode multibase text").arguments(&[file("encoded_file")]),
    command("multibase/encode", "Encode bytes in a multibase").arguments(&[file("file")]).options(&[Opt::text(&["b"])]),
    command("multibase/list", "List the multibases").options(BASES),
    command("multibase/transcode", "Convert text to another multibase")
        .arguments(&[file("encoded_file")])
        .options(&[Opt::text(&["b"])]),
    command("repo/gc", "Collect garbage").options(&[
        Opt::bool(&["stream-errors"]),
        QUIET.help("Print only the content IDs of removed blocks"),
        Opt::bool(&["silent"]).help("Print only the summary"),
        // Extensions of ipfrs.
        Opt::bool(&["progress"])
            .help("Show a progress bar [default: if standard error is a terminal, without --json and --quiet]"),
        Opt::bool(&["force"])
            .help("Run garbage collection even though pins were lost; content without a pin is then lost too"),
    ]),
    command("repo/ls", "List the stored blocks"),
    command("repo/stat", "Size of the store").options(REPO_STAT),
    command("repo/verify", "Verify all blocks").options(&[
        Opt::bool(&["drop"]).help("Remove corrupt blocks"),
        Opt::bool(&["heal"]).help("Remove corrupt blocks and retrieve them from the sources of the daemon"),
        Opt::text(&["heal-timeout"])
            .default("30s")
            .help("Longest time to retrieve one block, such as 30s; 0 for no limit"),
    ]),
    command("repo/version", "Version of the repo").options(&[QUIET.help("Print the version alone")]),
    command("shutdown", "End the daemon"),
    command("stats/bitswap", "Blocks exchanged with all peers").options(BITSWAP_STAT),
    command("stats/bw", "Transferred bytes").options(&[
        Opt::text(&["peer", "p"]).refused(ONLY_TOTALS),
        Opt::text(&["proto", "t"]).refused(ONLY_TOTALS),
        Opt::bool(&["poll"]),
        Opt::text(&["interval", "i"]),
    ]),
    command("stats/dht", "Not available: fails").arguments(&[text("dht").optional().repeated()]),
    command("stats/provide", "Not available: fails").options(PROVIDE_STAT),
    command("stats/repo", "Size of the store").options(REPO_STAT),
    command("stats/reprovide", "Not available: fails").options(PROVIDE_STAT),
    command("version", "Version of the daemon").options(&[
        Opt::bool(&["number", "n"]).printed(),
        Opt::bool(&["commit"]).printed(),
        Opt::bool(&["repo"]).printed(),
        Opt::bool(&["all"]).printed(),
    ]),
    command("version/check", "Not available: fails").options(&[Opt::int(&["min-percent", "t"]).unused()]),
    command("version/deps", "Packages from which the daemon is built"),
];
