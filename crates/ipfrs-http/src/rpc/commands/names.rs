//! `key/*`, `name/*` and `resolve`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{
    InspectedRecord, Key, Keys, PublishedName, PubsubState, RenamedKey, ResolvedPath, SignatureCheck, Signed,
};

use super::responses::{json, never, record};
use super::shared::{IPNS_BASE, NO_DELEGATES, QUIET};
use crate::rpc::definition::{Command, command, file, text};
use crate::rpc::options::Opt;
use crate::rpc::{key, name, resolve, unavailable};

const LONG_KEYS: Opt = Opt::bool(&["l"]).printed();
static KEY_LIST: &[Opt] = &[LONG_KEYS, IPNS_BASE];
static NAME_PUBLISH: &[Opt] = &[
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

pub(super) static COMMANDS: &[Command] = &[
    command("key/gen", Scope::Names, "Create a key", json::<Key>, || any(key::generate))
        .arguments(&[text("name")])
        .options(&[Opt::text(&["type", "t"]), Opt::int(&["size", "s"]), IPNS_BASE]),
    command("key/import", Scope::Names, "Store a key", json::<Key>, || any(key::import))
        .arguments(&[text("name"), file("key")])
        .options(&[IPNS_BASE, Opt::text(&["format", "f"]), Opt::bool(&["allow-any-key-type"])]),
    command("key/list", Scope::Names, "List the keys", json::<Keys>, || any(key::list)).options(KEY_LIST),
    command("key/ls", Scope::Names, "List the keys", json::<Keys>, || any(key::list)).options(KEY_LIST),
    command("key/rename", Scope::Names, "Rename a key", json::<RenamedKey>, || any(key::rename))
        .arguments(&[text("name"), text("newName")])
        .options(&[Opt::bool(&["force", "f"]), IPNS_BASE]),
    command("key/rm", Scope::Names, "Remove keys", json::<Keys>, || any(key::rm))
        .arguments(&[text("name").repeated().in_body()])
        .options(KEY_LIST),
    command("key/sign", Scope::Names, "Sign data with a key", json::<Signed>, || any(key::sign))
        .arguments(&[file("data")])
        .options(&[Opt::text(&["key", "k"]), IPNS_BASE]),
    command("key/verify", Scope::Names, "Verify a signature", json::<SignatureCheck>, || any(key::verify))
        .arguments(&[file("data")])
        .options(&[Opt::text(&["key", "k"]), Opt::text(&["signature", "s"]), IPNS_BASE]),
    command("name/get", Scope::Read, "Read the IPNS record of a name", record, || any(name::get))
        .arguments(&[text("name")]),
    command("name/inspect", Scope::Read, "Show an IPNS record", json::<InspectedRecord>, || any(name::inspect))
        .arguments(&[file("record")])
        .options(&[Opt::text(&["verify"]), Opt::bool(&["dump"])]),
    command("name/publish", Scope::Names, "Publish a path under a name", json::<PublishedName>, || any(name::publish))
        .arguments(&[text("ipfs-path").in_body()])
        .options(NAME_PUBLISH),
    command("name/pubsub/cancel", Scope::Names, "Not available: fails", never, || any(unavailable::name_pubsub))
        .arguments(&[text("name")]),
    command(
        "name/pubsub/state",
        Scope::Read,
        "Whether names are resolved over pubsub: no",
        json::<PubsubState>,
        || any(unavailable::name_pubsub_state),
    ),
    command("name/pubsub/subs", Scope::Names, "Not available: fails", never, || any(unavailable::name_pubsub))
        .options(&[Opt::text(&["ipns-base"]).unused()]),
    command("name/put", Scope::Names, "Store an IPNS record", json::<PublishedName>, || any(name::put))
        .arguments(&[text("name"), file("record")])
        .options(&[
            Opt::bool(&["force", "f"]),
            Opt::bool(&["allow-offline"]).unused(),
            Opt::bool(&["allow-delegated"]).refused(NO_DELEGATES),
            QUIET,
        ]),
    command("name/resolve", Scope::Read, "Resolve a name", json::<ResolvedPath>, || any(name::resolve))
        .arguments(&[text("name").optional()])
        .options(&[
            Opt::bool(&["recursive", "r"]),
            Opt::bool(&["nocache", "n"]),
            // There is no network to query.
            Opt::uint(&["dht-record-count", "dhtrc"]).unused(),
            Opt::text(&["dht-timeout", "dhtt"]),
            Opt::bool(&["stream", "s"]),
        ]),
    command("resolve", Scope::Read, "Resolve a path or name", json::<ResolvedPath>, || any(resolve::resolve))
        .arguments(&[text("name").in_body()])
        .options(&[
            Opt::bool(&["recursive", "r"]),
            Opt::int(&["dht-record-count", "dhtrc"]).unused(),
            Opt::text(&["dht-timeout", "dhtt"]),
        ]),
];
