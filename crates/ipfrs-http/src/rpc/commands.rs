//! The table of commands: the source of their arguments, and every option that Kubo defines for them.

use super::options::Opt;

/// An RPC command.
#[derive(Debug)]
pub(super) struct Command {
    /// Path after `/api/v0/`.
    pub(super) path: &'static str,
    /// Arguments that may be in the body.
    pub(super) stdin: Stdin,
    /// All options except the global ones.
    pub(super) options: &'static [Opt],
}

/// Arguments that a command reads from a multipart body, in which Kubo's clients send standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stdin {
    /// None: the body is a file, or is ignored.
    No,
    /// The only argument of the command.
    One,
    /// Any number of arguments, following those of the query.
    Many,
}

/// Returns the command at a path.
pub(super) fn find(path: &str) -> Option<&'static Command> {
    all().find(|command| command.path == path)
}

/// Returns the options of a command, with the global ones at the end.
pub(crate) fn options_of(path: &str) -> impl Iterator<Item = &'static Opt> {
    find(path).map_or(&[][..], |command| command.options).iter().chain(GLOBALS)
}

fn all() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().chain(UNAVAILABLE)
}

/// Returns the paths of all commands.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    all().map(|command| command.path)
}

const fn command(path: &'static str, stdin: Stdin, options: &'static [Opt]) -> Command {
    Command { path, stdin, options }
}

const NO_BIG_BLOCKS: &str = "blocks of more than 2 MiB are not stored, split the content";
const NO_FILESTORE: &str = "there is no filestore, leave it out and the content is stored";
const NO_DELEGATES: &str =
    "no delegated publishers are configured, leave it out and put the record (name/get) where it is needed";
const ONLY_WHOLE_DAGS: &str = "leave it out, or export the available blocks one by one (block/get)";
const ONLY_TOTALS: &str = "bytes are counted for all connections together, leave it out";
const ONLY_TELLS: &str = "leave it out, remove the listed blocks (block/rm) and add their content again";

/// Options of every command.
pub(super) static GLOBALS: &[Opt] = &[
    Opt::text(&["cid-base"]),
    Opt::bool(&["upgrade-cidv0-in-output"]),
    // Processed by `globals` before the command's own options.
    Opt::text(&["timeout"]).unused(),
    Opt::text(&["encoding", "enc"]).unused(),
    Opt::bool(&["stream-channels"]).unused(),
    // Processed by `globals` too.
    Opt::bool(&["offline"]).unused(),
    Opt::bool(&["local", "L"]).unused(),
    Opt::bool(&["debug", "D"]).unused(),
    Opt::bool(&["help"]).unused(),
    Opt::bool(&["h"]).unused(),
    Opt::text(&["repo-dir"]).unused(),
    Opt::text(&["config-file"]).unused(),
    Opt::text(&["config", "c"]).unused(),
    Opt::text(&["api"]).unused(),
    Opt::text(&["api-auth"]).unused(),
];

// Shared by several commands, and without effect: the daemon announces nothing to a network.
const FAST_PROVIDE_ROOT: Opt = Opt::bool(&["fast-provide-root"]).unused();
const FAST_PROVIDE_DAG: Opt = Opt::bool(&["fast-provide-dag"]).unused();
const FAST_PROVIDE_WAIT: Opt = Opt::bool(&["fast-provide-wait"]).unused();
const ALLOW_BIG_BLOCK: Opt = Opt::bool(&["allow-big-block"]).refused(NO_BIG_BLOCKS);
const IPNS_BASE: Opt = Opt::text(&["ipns-base"]);
const QUIET: Opt = Opt::bool(&["quiet", "q"]).unused();
const DRAWN_PROGRESS: Opt = Opt::bool(&["progress", "p"]).unused();
const LONG_KEYS: Opt = Opt::bool(&["l"]).unused();

const FLUSH: Opt = Opt::bool(&["flush", "f"]);
const PARENTS: Opt = Opt::bool(&["parents", "p"]);
const CID_VERSION: Opt = Opt::int(&["cid-version", "cid-ver"]);
const HASH: Opt = Opt::text(&["hash"]);

// Affect only how a client prints the response.
const NUMERIC: Opt = Opt::bool(&["numeric", "n"]).unused();
const VERBOSE: Opt = Opt::bool(&["verbose", "v"]).unused();
// There are no placeholders to expand.
const EXPAND_AUTO: Opt = Opt::bool(&["expand-auto"]).unused();

static BASES: &[Opt] = &[Opt::bool(&["prefix"]).unused(), Opt::bool(&["numeric"]).unused()];
static BITSWAP_STAT: &[Opt] = &[VERBOSE, Opt::bool(&["human"]).unused()];
static BOOTSTRAP: &[Opt] = &[EXPAND_AUTO];
static CID_FORMAT: &[Opt] = &[Opt::text(&["f"]), Opt::text(&["v"]), Opt::text(&["mc"]), Opt::text(&["b"])];
static REFS: &[Opt] = &[
    Opt::text(&["format"]),
    Opt::bool(&["edges", "e"]),
    Opt::bool(&["unique", "u"]),
    Opt::bool(&["recursive", "r"]),
    Opt::int(&["max-depth"]),
];
static PROVIDE_STAT: &[Opt] = &[Opt::bool(&["lan"])];
static REPO_STAT: &[Opt] = &[Opt::bool(&["size-only", "s"]), Opt::bool(&["human", "H"]).unused()];
static KEY_LIST: &[Opt] = &[LONG_KEYS, IPNS_BASE];

static COMMANDS: &[Command] = &[
    command("add", Stdin::No, ADD),
    command("bitswap/ledger", Stdin::No, &[]),
    command("bitswap/stat", Stdin::No, BITSWAP_STAT),
    command("bitswap/wantlist", Stdin::No, &[Opt::text(&["peer", "p"])]),
    command(
        "block/put",
        Stdin::No,
        &[
            Opt::text(&["cid-codec"]),
            Opt::text(&["mhtype"]),
            Opt::int(&["mhlen"]),
            Opt::bool(&["pin"]),
            ALLOW_BIG_BLOCK,
            Opt::text(&["format", "f"]),
        ],
    ),
    command("block/get", Stdin::One, &[]),
    command("block/stat", Stdin::One, &[]),
    command("block/rm", Stdin::No, &[Opt::bool(&["force", "f"]), Opt::bool(&["quiet", "q"])]),
    command("cat", Stdin::Many, &[Opt::int64(&["offset", "o"]), Opt::int64(&["length", "l"]), DRAWN_PROGRESS]),
    command("dag/export", Stdin::One, &[DRAWN_PROGRESS, Opt::bool(&["local-only"]).refused(ONLY_WHOLE_DAGS)]),
    command("dag/get", Stdin::One, &[Opt::text(&["output-codec"])]),
    command(
        "dag/import",
        Stdin::No,
        &[
            Opt::bool(&["pin-roots"]),
            Opt::bool(&["local-only"]),
            // Affects only the output of command-line clients; other clients need to know whether roots were pinned.
            Opt::bool(&["silent"]).unused(),
            Opt::bool(&["stats"]),
            FAST_PROVIDE_ROOT,
            FAST_PROVIDE_DAG,
            FAST_PROVIDE_WAIT,
            ALLOW_BIG_BLOCK,
        ],
    ),
    command(
        "dag/put",
        Stdin::No,
        &[
            Opt::text(&["store-codec"]),
            Opt::text(&["input-codec"]),
            Opt::bool(&["pin"]),
            Opt::text(&["hash"]),
            ALLOW_BIG_BLOCK,
        ],
    ),
    command("dag/resolve", Stdin::One, &[]),
    command("dag/stat", Stdin::Many, &[Opt::bool(&["progress", "p"])]),
    command("files/chcid", Stdin::No, &[FLUSH, CID_VERSION, HASH]),
    command("files/chmod", Stdin::No, &[FLUSH.unused()]),
    command("files/cp", Stdin::No, &[FLUSH, Opt::bool(&["force"]), PARENTS]),
    command("files/flush", Stdin::No, &[FLUSH.unused()]),
    // Affects only how a client prints the response.
    command("files/ls", Stdin::No, &[FLUSH.unused(), Opt::bool(&["long", "l"]), Opt::bool(&["U"]).unused()]),
    command("files/mkdir", Stdin::No, &[FLUSH, PARENTS, CID_VERSION, HASH]),
    command("files/mv", Stdin::No, &[FLUSH]),
    command("files/read", Stdin::No, &[FLUSH.unused(), Opt::int64(&["offset", "o"]), Opt::int64(&["count", "n"])]),
    command("files/rm", Stdin::No, &[FLUSH, Opt::bool(&["recursive", "r"]), Opt::bool(&["force"])]),
    command(
        "files/stat",
        Stdin::No,
        &[
            FLUSH.unused(),
            // Affect only how a client prints the response, but exclude each other.
            Opt::text(&["format"]),
            Opt::bool(&["hash"]),
            Opt::bool(&["size"]),
            Opt::bool(&["with-local"]),
        ],
    ),
    command("files/touch", Stdin::No, &[FLUSH.unused(), Opt::int64(&["mtime"]), Opt::uint(&["mtime-nsecs"])]),
    command("files/write", Stdin::No, FILES_WRITE),
    command(
        "get",
        Stdin::One,
        &[
            Opt::text(&["output", "o"]).unused(),
            Opt::bool(&["archive", "a"]),
            Opt::bool(&["compress", "C"]),
            Opt::int(&["compression-level", "l"]),
            DRAWN_PROGRESS,
        ],
    ),
    command("id", Stdin::No, &[Opt::text(&["format", "f"]).unused(), Opt::text(&["peerid-base"])]),
    command("key/gen", Stdin::No, &[Opt::text(&["type", "t"]), Opt::int(&["size", "s"]), IPNS_BASE]),
    command("key/import", Stdin::No, &[IPNS_BASE, Opt::text(&["format", "f"]), Opt::bool(&["allow-any-key-type"])]),
    command("key/list", Stdin::No, KEY_LIST),
    command("key/ls", Stdin::No, KEY_LIST),
    command("key/rename", Stdin::No, &[Opt::bool(&["force", "f"]), IPNS_BASE]),
    command("key/rm", Stdin::Many, KEY_LIST),
    command("key/sign", Stdin::No, &[Opt::text(&["key", "k"]), IPNS_BASE]),
    command("key/verify", Stdin::No, &[Opt::text(&["key", "k"]), Opt::text(&["signature", "s"]), IPNS_BASE]),
    command(
        "ls",
        Stdin::Many,
        &[
            Opt::bool(&["headers", "v"]).unused(),
            Opt::bool(&["resolve-type"]),
            Opt::bool(&["size"]),
            Opt::bool(&["stream", "s"]),
            Opt::bool(&["long", "l"]).unused(),
        ],
    ),
    command("name/get", Stdin::No, &[]),
    command("name/inspect", Stdin::No, &[Opt::text(&["verify"]), Opt::bool(&["dump"])]),
    command("name/publish", Stdin::One, NAME_PUBLISH),
    command(
        "name/put",
        Stdin::No,
        &[
            Opt::bool(&["force", "f"]),
            Opt::bool(&["allow-offline"]).unused(),
            Opt::bool(&["allow-delegated"]).refused(NO_DELEGATES),
            QUIET,
        ],
    ),
    command(
        "name/resolve",
        Stdin::No,
        &[
            Opt::bool(&["recursive", "r"]),
            Opt::bool(&["nocache", "n"]),
            // There is no network to query.
            Opt::uint(&["dht-record-count", "dhtrc"]).unused(),
            Opt::text(&["dht-timeout", "dhtt"]),
            Opt::bool(&["stream", "s"]),
        ],
    ),
    command(
        "pin/add",
        Stdin::Many,
        &[
            Opt::bool(&["recursive", "r"]),
            Opt::text(&["name", "n"]),
            Opt::bool(&["progress"]),
            FAST_PROVIDE_ROOT,
            FAST_PROVIDE_DAG,
            FAST_PROVIDE_WAIT,
        ],
    ),
    command(
        "pin/ls",
        Stdin::No,
        &[
            Opt::text(&["type", "t"]),
            QUIET,
            Opt::text(&["name", "n"]),
            Opt::bool(&["stream", "s"]),
            Opt::bool(&["names"]),
        ],
    ),
    command("pin/rm", Stdin::Many, &[Opt::bool(&["recursive", "r"])]),
    command("pin/update", Stdin::No, &[Opt::bool(&["unpin"]), FAST_PROVIDE_ROOT, FAST_PROVIDE_DAG, FAST_PROVIDE_WAIT]),
    command("pin/verify", Stdin::No, &[Opt::bool(&["verbose"]), Opt::bool(&["quiet", "q"])]),
    command(
        "repo/gc",
        Stdin::No,
        &[
            Opt::bool(&["stream-errors"]),
            QUIET,
            Opt::bool(&["silent"]),
            // Extensions of ipfrs.
            Opt::bool(&["progress"]),
            Opt::bool(&["force"]),
        ],
    ),
    command("repo/stat", Stdin::No, REPO_STAT),
    command(
        "repo/verify",
        Stdin::No,
        &[
            Opt::bool(&["drop"]).refused(ONLY_TELLS),
            Opt::bool(&["heal"]).refused(ONLY_TELLS),
            Opt::text(&["heal-timeout"]).unused(),
        ],
    ),
    command("repo/version", Stdin::No, &[QUIET]),
    command(
        "resolve",
        Stdin::One,
        &[
            Opt::bool(&["recursive", "r"]),
            Opt::int(&["dht-record-count", "dhtrc"]).unused(),
            Opt::text(&["dht-timeout", "dhtt"]),
        ],
    ),
    command("routing/get", Stdin::No, &[]),
    command("routing/put", Stdin::No, &[Opt::bool(&["allow-offline"]).unused()]),
    command("shutdown", Stdin::No, &[]),
    command(
        "stats/bw",
        Stdin::No,
        &[
            Opt::text(&["peer", "p"]).refused(ONLY_TOTALS),
            Opt::text(&["proto", "t"]).refused(ONLY_TOTALS),
            Opt::bool(&["poll"]).refused("leave it out, and repeat the request"),
            Opt::text(&["interval", "i"]).unused(),
        ],
    ),
    command("stats/repo", Stdin::No, REPO_STAT),
    command("swarm/addrs", Stdin::No, &[]),
    command("swarm/addrs/listen", Stdin::No, &[]),
    command("swarm/addrs/local", Stdin::No, &[Opt::bool(&["id"])]),
    command("swarm/connect", Stdin::Many, &[]),
    command("swarm/disconnect", Stdin::Many, &[]),
    command("swarm/peering/ls", Stdin::No, &[]),
    command(
        "swarm/peers",
        Stdin::No,
        &[
            Opt::bool(&["verbose", "v"]),
            Opt::bool(&["streams"]),
            Opt::bool(&["latency"]),
            Opt::bool(&["direction"]),
            Opt::bool(&["identify"]),
        ],
    ),
    command(
        "version",
        Stdin::No,
        &[
            Opt::bool(&["number", "n"]).unused(),
            Opt::bool(&["commit"]).unused(),
            Opt::bool(&["repo"]).unused(),
            Opt::bool(&["all"]).unused(),
        ],
    ),
    // Commands about formats, the daemon and peers.
    command("bootstrap", Stdin::No, &[]),
    command("bootstrap/list", Stdin::No, BOOTSTRAP),
    command("cid/base32", Stdin::Many, &[]),
    command("cid/bases", Stdin::No, BASES),
    command("cid/codecs", Stdin::No, &[NUMERIC, Opt::bool(&["supported", "s"])]),
    command("cid/format", Stdin::Many, CID_FORMAT),
    command("cid/hashes", Stdin::No, &[NUMERIC, Opt::bool(&["supported", "s"]).unused()]),
    command("cid/inspect", Stdin::One, &[]),
    command("commands", Stdin::No, &[Opt::bool(&["flags", "f"]).unused()]),
    command("config", Stdin::No, &[Opt::bool(&["bool"]).unused(), Opt::bool(&["json"]).unused(), EXPAND_AUTO]),
    command("config/show", Stdin::No, &[EXPAND_AUTO]),
    command("multibase/decode", Stdin::No, &[]),
    command("multibase/encode", Stdin::No, &[Opt::text(&["b"])]),
    command("multibase/list", Stdin::No, BASES),
    command("multibase/transcode", Stdin::No, &[Opt::text(&["b"])]),
    command("refs", Stdin::Many, REFS),
    command("refs/local", Stdin::No, &[]),
    command("repo/ls", Stdin::No, &[]),
    command("routing/findpeer", Stdin::No, &[VERBOSE]),
    command("stats/bitswap", Stdin::No, BITSWAP_STAT),
    command("swarm/filters", Stdin::No, &[]),
    command("swarm/peering/add", Stdin::No, &[]),
    command("swarm/peering/rm", Stdin::No, &[]),
    command("version/deps", Stdin::No, &[]),
];

/// Commands of subsystems that this daemon does not have. Options that cannot affect the response are left out.
static UNAVAILABLE: &[Command] = &[
    command("bitswap/reprovide", Stdin::No, &[]),
    command("dht/findpeer", Stdin::No, &[]),
    command("dht/findprovs", Stdin::No, &[]),
    command("dht/get", Stdin::No, &[]),
    command("dht/provide", Stdin::No, &[]),
    command("dht/put", Stdin::No, &[]),
    command("dht/query", Stdin::No, &[]),
    command("filestore/dups", Stdin::No, &[]),
    command("filestore/ls", Stdin::No, &[]),
    command("filestore/verify", Stdin::No, &[]),
    command("object/data", Stdin::No, &[]),
    command("object/get", Stdin::No, &[]),
    command("object/links", Stdin::No, &[]),
    command("object/new", Stdin::No, &[]),
    command("object/put", Stdin::No, &[]),
    command("object/stat", Stdin::No, &[]),
    command("p2p/close", Stdin::No, &[]),
    command("p2p/forward", Stdin::No, &[]),
    command("p2p/listen", Stdin::No, &[]),
    command("p2p/ls", Stdin::No, &[]),
    command("p2p/stream/close", Stdin::No, &[]),
    command("p2p/stream/ls", Stdin::No, &[]),
    command("provide/stat", Stdin::No, PROVIDE_STAT),
    command("pubsub/ls", Stdin::No, &[]),
    command("pubsub/peers", Stdin::No, &[]),
    command("pubsub/pub", Stdin::No, &[]),
    command("pubsub/sub", Stdin::No, &[]),
    command("routing/provide", Stdin::No, &[]),
    command("routing/reprovide", Stdin::No, &[]),
    command("stats/dht", Stdin::No, &[]),
    command("stats/provide", Stdin::No, PROVIDE_STAT),
    command("stats/reprovide", Stdin::No, PROVIDE_STAT),
];

static ADD: &[Opt] = &[
    // Affect only how a client finds and prints files.
    Opt::bool(&["recursive", "r"]).unused(),
    Opt::bool(&["dereference-args"]).unused(),
    Opt::bool(&["dereference-symlinks"]).unused(),
    Opt::text(&["stdin-name"]).unused(),
    Opt::bool(&["hidden", "H"]).unused(),
    Opt::list(&["ignore"]).unused(),
    Opt::text(&["ignore-rules-path"]).unused(),
    QUIET,
    Opt::bool(&["quieter", "Q"]).unused(),
    Opt::bool(&["silent"]),
    Opt::bool(&["progress", "p"]),
    Opt::bool(&["empty-dirs", "E"]),
    Opt::bool(&["only-hash", "n"]),
    Opt::bool(&["wrap-with-directory", "w"]),
    Opt::bool(&["pin"]),
    Opt::text(&["pin-name"]),
    Opt::text(&["to-files"]),
    Opt::int(&["cid-version"]),
    Opt::text(&["hash"]),
    Opt::bool(&["raw-leaves"]),
    Opt::text(&["chunker", "s"]),
    Opt::bool(&["trickle", "t"]),
    Opt::int(&["max-file-links"]),
    Opt::int(&["max-directory-links"]),
    Opt::int(&["max-hamt-fanout"]),
    Opt::bool(&["inline"]),
    Opt::int(&["inline-limit"]),
    Opt::bool(&["nocopy"]).refused(NO_FILESTORE),
    Opt::bool(&["fscache"]).refused(NO_FILESTORE),
    Opt::bool(&["preserve-mode"]),
    Opt::bool(&["preserve-mtime"]),
    Opt::uint(&["mode"]),
    Opt::int64(&["mtime"]),
    Opt::uint(&["mtime-nsecs"]),
    FAST_PROVIDE_ROOT,
    FAST_PROVIDE_DAG,
    FAST_PROVIDE_WAIT,
    // Extension of ipfrs.
    Opt::text(&["profile"]),
];

static FILES_WRITE: &[Opt] = &[
    FLUSH,
    Opt::int64(&["offset", "o"]),
    Opt::bool(&["create", "e"]),
    PARENTS,
    Opt::bool(&["truncate", "t"]),
    Opt::int64(&["count", "n"]),
    Opt::bool(&["raw-leaves"]),
    CID_VERSION,
    HASH,
];

static NAME_PUBLISH: &[Opt] = &[
    Opt::text(&["key", "k"]),
    Opt::bool(&["resolve"]),
    Opt::text(&["lifetime", "t"]),
    Opt::text(&["ttl"]),
    Opt::bool(&["quieter", "Q"]).unused(),
    Opt::bool(&["v1compat"]),
    // The record is always stored locally only.
    Opt::bool(&["allow-offline"]).unused(),
    Opt::bool(&["allow-delegated"]).refused(NO_DELEGATES),
    Opt::uint64(&["sequence"]),
    // As in Kubo, the published name is still written in base 36.
    Opt::text(&["ipns-base"]).unused(),
];
