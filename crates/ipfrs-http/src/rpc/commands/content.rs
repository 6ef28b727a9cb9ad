//! `add`, `cat`, `get`, `ls`, `refs` and `block/*`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{BlockStat, ImportedLine, Listings, Reference, RemovedBlock};

use super::responses::{archive, json, lines, octets, raw_block};
use super::shared::{ALLOW_BIG_BLOCK, DRAWN_PROGRESS, FAST_PROVIDE_DAG, FAST_PROVIDE_ROOT, FAST_PROVIDE_WAIT};
use crate::rpc::definition::{Command, command, file, text};
use crate::rpc::options::Opt;
use crate::rpc::{add, block, cat, get, ls, refs};

static REFS: &[Opt] = &[
    Opt::text(&["format"]),
    Opt::bool(&["edges", "e"]),
    Opt::bool(&["unique", "u"]),
    Opt::bool(&["recursive", "r"]),
    Opt::int(&["max-depth"]),
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
    Opt::bool(&["quiet", "q"]).unused(),
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
    Opt::bool(&["nocopy"]),
    Opt::bool(&["fscache"]),
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

pub(super) static COMMANDS: &[Command] = &[
    command("add", Scope::Write, "Add files and directories", lines::<ImportedLine>, || any(add::add))
        .arguments(&[file("path").repeated()])
        .options(ADD),
    command("block/get", Scope::Read, "Read a block", raw_block, || any(block::get))
        .arguments(&[text("cid").in_body()]),
    command("block/put", Scope::Write, "Store blocks", lines::<BlockStat>, || any(block::put))
        .arguments(&[file("data").repeated()])
        .options(&[
            Opt::text(&["cid-codec"]),
            Opt::text(&["mhtype"]),
            Opt::int(&["mhlen"]),
            Opt::bool(&["pin"]),
            ALLOW_BIG_BLOCK,
            Opt::text(&["format", "f"]),
        ]),
    command("block/rm", Scope::Write, "Remove blocks", lines::<RemovedBlock>, || any(block::rm))
        .arguments(&[text("cid").repeated()])
        .options(&[Opt::bool(&["force", "f"]), Opt::bool(&["quiet", "q"])]),
    command("block/stat", Scope::Read, "Size of a block", json::<BlockStat>, || any(block::stat))
        .arguments(&[text("cid").in_body()]),
    command("cat", Scope::Read, "Read files", octets, || any(cat::cat))
        .arguments(&[text("ipfs-path").repeated().in_body()])
        .options(&[Opt::int64(&["offset", "o"]), Opt::int64(&["length", "l"]), DRAWN_PROGRESS]),
    command("get", Scope::Read, "Read a file or directory as an archive", archive, || any(get::get))
        .arguments(&[text("ipfs-path").in_body()])
        .options(&[
            Opt::text(&["output", "o"]).unused(),
            Opt::bool(&["archive", "a"]),
            Opt::bool(&["compress", "C"]),
            Opt::int(&["compression-level", "l"]),
            DRAWN_PROGRESS,
        ]),
    command("ls", Scope::Read, "List directories", json::<Listings>, || any(ls::ls))
        .arguments(&[text("ipfs-path").repeated().in_body()])
        .options(&[
            Opt::bool(&["headers", "v"]).printed(),
            Opt::bool(&["resolve-type"]),
            Opt::bool(&["size"]),
            Opt::bool(&["stream", "s"]),
            Opt::bool(&["long", "l"]).printed(),
        ]),
    command("refs", Scope::Read, "List the links below blocks", lines::<Reference>, || any(refs::refs))
        .arguments(&[text("ipfs-path").repeated().in_body()])
        .options(REFS),
    command("refs/local", Scope::Read, "List the stored blocks", lines::<Reference>, || any(refs::local)),
];
