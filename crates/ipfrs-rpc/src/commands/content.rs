//! `add`, `cat`, `get`, `ls`, `refs` and `block/*`.

use super::definition::{Definition, command, file, text};
use super::option::Opt;
use super::shared::{ALLOW_BIG_BLOCK, DRAWN_PROGRESS, FAST_PROVIDE_DAG, FAST_PROVIDE_ROOT, FAST_PROVIDE_WAIT};

const REFS: &[Opt] = &[
    Opt::text(&["format"]),
    Opt::bool(&["edges", "e"]),
    Opt::bool(&["unique", "u"]),
    Opt::bool(&["recursive", "r"]),
    Opt::int(&["max-depth"]),
];
const ADD: &[Opt] = &[
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

pub(super) const COMMANDS: &[Definition] = &[
    command("add", "Add files and directories").arguments(&[file("path").repeated()]).options(ADD),
    command("block/get", "Read a block").arguments(&[text("cid").in_body()]),
    command("block/put", "Store blocks").arguments(&[file("data").repeated()]).options(&[
        Opt::text(&["cid-codec"]),
        Opt::text(&["mhtype"]),
        Opt::int(&["mhlen"]),
        Opt::bool(&["pin"]),
        ALLOW_BIG_BLOCK,
        Opt::text(&["format", "f"]),
    ]),
    command("block/rm", "Remove blocks")
        .arguments(&[text("cid").repeated()])
        .options(&[Opt::bool(&["force", "f"]), Opt::bool(&["quiet", "q"])]),
    command("block/stat", "Size of a block").arguments(&[text("cid").in_body()]),
    command("cat", "Read files").arguments(&[text("ipfs-path").repeated().in_body()]).options(&[
        Opt::int64(&["offset", "o"]),
        Opt::int64(&["length", "l"]),
        DRAWN_PROGRESS,
    ]),
    command("get", "Read a file or directory as an archive").arguments(&[text("ipfs-path").in_body()]).options(&[
        Opt::text(&["output", "o"]).unused(),
        Opt::bool(&["archive", "a"]),
        Opt::bool(&["compress", "C"]),
        Opt::int(&["compression-level", "l"]),
        DRAWN_PROGRESS,
    ]),
    command("ls", "List directories").arguments(&[text("ipfs-path").repeated().in_body()]).options(&[
        Opt::bool(&["headers", "v"]).printed(),
        Opt::bool(&["resolve-type"]),
        Opt::bool(&["size"]),
        Opt::bool(&["stream", "s"]),
        Opt::bool(&["long", "l"]).printed(),
    ]),
    command("refs", "List the links below blocks").arguments(&[text("ipfs-path").repeated().in_body()]).options(REFS),
    command("refs/local", "List the stored blocks"),
];
