//! `key/*`, `name/*` and `resolve`.

use super::definition::{Definition, command, file, text};
use super::option::Opt;
use super::shared::{IPNS_BASE, NO_DELEGATES, QUIET};

const LONG_KEYS: Opt = Opt::bool(&["l"]).printed();
const KEY_LIST: &[Opt] = &[LONG_KEYS, IPNS_BASE];
const NAME_PUBLISH: &[Opt] = &[
    Opt::text(&["key", "k"]),
    Opt::bool(&["resolve"]),
    Opt::text(&["lifetime", "t"]),
    Opt::text(&["ttl"]),
    Opt::bool(&["quieter", "Q"]).printed(),
    Opt::bool(&["v1compat"]),
    // The record is always stored locally only.
    Opt::bool(&["allow-offline"]).unused(),
    Opt::bool(&["allow-delegated"]).refused(NO_DELEGATES),
    Opt::uint64(&["sequence"]),
    // As in Kubo, the published name is still written in base 36.
    Opt::text(&["ipns-base"]).unused(),
];

pub(super) const COMMANDS: &[Definition] = &[
    command("key/gen", "Create a key").arguments(&[text("name")]).options(&[
        Opt::text(&["type", "t"]),
        Opt::int(&["size", "s"]),
        IPNS_BASE,
    ]),
    command("key/import", "Store a key").arguments(&[text("name"), file("key")]).options(&[
        IPNS_BASE,
        Opt::text(&["format", "f"]),
        Opt::bool(&["allow-any-key-type"]),
    ]),
    command("key/list", "List the keys").options(KEY_LIST),
    command("key/ls", "List the keys").options(KEY_LIST),
    command("key/rename", "Rename a key")
        .arguments(&[text("name"), text("newName")])
        .options(&[Opt::bool(&["force", "f"]), IPNS_BASE]),
    command("key/rm", "Remove keys").arguments(&[text("name").repeated().in_body()]).options(KEY_LIST),
    command("key/sign", "Sign data with a key")
        .arguments(&[file("data")])
        .options(&[Opt::text(&["key", "k"]), IPNS_BASE]),
    command("key/verify", "Verify a signature").arguments(&[file("data")]).options(&[
        Opt::text(&["key", "k"]),
        Opt::text(&["signature", "s"]),
        IPNS_BASE,
    ]),
    command("name/get", "Read the IPNS record of a name").arguments(&[text("name")]),
    command("name/inspect", "Show an IPNS record")
        .arguments(&[file("record")])
        .options(&[Opt::text(&["verify"]), Opt::bool(&["dump"])]),
    command("name/publish", "Publish a path under a name")
        .arguments(&[text("ipfs-path").in_body()])
        .options(NAME_PUBLISH),
    command("name/pubsub/cancel", "Not available: fails").arguments(&[text("name")]),
    command("name/pubsub/state", "Whether names are resolved over pubsub: no"),
    command("name/pubsub/subs", "Not available: fails").options(&[Opt::text(&["ipns-base"]).unused()]),
    command("name/put", "Store an IPNS record").arguments(&[text("name"), file("record")]).options(&[
        Opt::bool(&["force", "f"]),
        Opt::bool(&["allow-offline"]).unused(),
        Opt::bool(&["allow-delegated"]).refused(NO_DELEGATES),
        QUIET,
    ]),
    command("name/resolve", "Resolve a name").arguments(&[text("name").optional()]).options(&[
        Opt::bool(&["recursive", "r"]),
        Opt::bool(&["nocache", "n"]),
        // There is no network to query.
        Opt::uint(&["dht-record-count", "dhtrc"]).unused(),
        Opt::text(&["dht-timeout", "dhtt"]),
        Opt::bool(&["stream", "s"]),
    ]),
    command("resolve", "Resolve a path or name").arguments(&[text("name").in_body()]).options(&[
        Opt::bool(&["recursive", "r"]),
        Opt::int(&["dht-record-count", "dhtrc"]).unused(),
        Opt::text(&["dht-timeout", "dhtt"]),
    ]),
];
