//! `key/*`, `name/*` and `resolve`.

use super::definition::{Definition, command, file, text};
use super::option::Opt;
use super::shared::{IPNS_BASE, NO_DELEGATES, QUIET};

const LONG_KEYS: Opt = Opt::bool(&["l"]).printed().help("Also print IDs");
const KEY_LIST: &[Opt] = &[LONG_KEYS, IPNS_BASE];
const NAME_PUBLISH: &[Opt] = &[
    Opt::text(&["key", "k"]).default("self").help("Name or ID of the key"),
    Opt::bool(&["resolve"])
        .default("true")
        .help("Check that the content is stored here; --resolve=false skips the check"),
    Opt::text(&["lifetime", "t"]).help(
        "Validity of the record, such as 24h or 1h30m [default: ipns.record_lifetime_seconds of the \
         configuration]",
    ),
    Opt::text(&["ttl"]).help(
        "Time for which others may cache the record, such as 5m [default: ipns.record_ttl_seconds of the \
         configuration]",
    ),
    Opt::bool(&["quieter", "Q"]).printed().help("Print only the name"),
    Opt::bool(&["v1compat"])
        .default("true")
        .help("Include fields for implementations without V2 signatures; --v1compat=false makes the record shorter"),
    // The record is always stored locally only.
    Opt::bool(&["allow-offline"]).unused().help("For compatibility with Kubo: records are only stored here"),
    Opt::bool(&["allow-delegated"]).refused(NO_DELEGATES),
    Opt::uint64(&["sequence"])
        .help("Sequence number of the record, higher than that of the last one [default: the next number]"),
    // As in Kubo, the published name is still written in base 36.
    Opt::text(&["ipns-base"]).unused(),
];

pub(super) const COMMANDS: &[Definition] = &[
    command("key/gen", "Create a key").arguments(&[text("name")]).options(&[
        Opt::text(&["type", "t"]).default("ed25519").help("Type of the key: ed25519, rsa or secp256k1"),
        Opt::int(&["size", "s"]).help("Size of an RSA key in bits: 2048, 3072, 4096 or 8192 [default: 2048]"),
        IPNS_BASE,
    ]),
    command("key/import", "Store a key").arguments(&[text("name"), file("key")]).options(&[
        IPNS_BASE,
        Opt::text(&["format", "f"])
            .default("libp2p-protobuf-cleartext")
            .help("Format of the file: libp2p-protobuf-cleartext or pem-pkcs8-cleartext"),
        Opt::bool(&["allow-any-key-type"]).help("Also accept ECDSA keys, which few implementations support"),
    ]),
    command("key/list", "List the keys").options(KEY_LIST),
    command("key/ls", "List the keys").options(KEY_LIST),
    command("key/rename", "Rename a key")
        .arguments(&[text("name"), text("newName")])
        .options(&[Opt::bool(&["force", "f"]).help("Replace and lose an existing key with the new name"), IPNS_BASE]),
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
    command("name/inspect", "Show an IPNS record").arguments(&[file("record")]).options(&[
        Opt::text(&["verify"]).help("Name for which to check the signature and validity of the record"),
        Opt::bool(&["dump"]).default("true").help("Also print the bytes; --dump=false omits them"),
    ]),
    command("name/publish", "Publish a path under a name")
        .arguments(&[text("ipfs-path").in_body()])
        .options(NAME_PUBLISH),
    command("name/pubsub/cancel", "Not available: fails").arguments(&[text("name")]),
    command("name/pubsub/state", "Whether names are resolved over pubsub: no"),
    command("name/pubsub/subs", "Not available: fails").options(&[Opt::text(&["ipns-base"]).unused()]),
    command("name/put", "Store an IPNS record").arguments(&[text("name"), file("record")]).options(&[
        Opt::bool(&["force", "f"]).help("Do not require a higher sequence number; a newer record is still kept"),
        Opt::bool(&["allow-offline"]).unused().help("For compatibility with Kubo: records are only stored here"),
        Opt::bool(&["allow-delegated"]).refused(NO_DELEGATES),
        QUIET.help("Print nothing"),
    ]),
    command("name/resolve", "Resolve a name").arguments(&[text("name").optional()]).options(&[
        Opt::bool(&["recursive", "r"])
            .default("true")
            .help("Follow names recursively; --recursive=false prints the target of the first one"),
        Opt::bool(&["nocache", "n"]).help("Query DNS again, ignoring cached results"),
        // There is no network to query.
        Opt::uint(&["dht-record-count", "dhtrc"]).unused(),
        Opt::text(&["dht-timeout", "dhtt"]),
        Opt::bool(&["stream", "s"]),
    ]),
    command("resolve", "Resolve a path or name").arguments(&[text("name").in_body()]).options(&[
        Opt::bool(&["recursive", "r"])
            .default("true")
            .help("Follow names to content; --recursive=false prints the target of the first one"),
        Opt::int(&["dht-record-count", "dhtrc"]).unused(),
        Opt::text(&["dht-timeout", "dhtt"]),
    ]),
];
