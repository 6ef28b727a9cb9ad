//! `add`, `cat`, `get`, `ls`, `refs` and `block/*`.

use super::definition::{Definition, command, file, text};
use super::option::Opt;
use super::shared::{ALLOW_BIG_BLOCK, DRAWN_PROGRESS, FAST_PROVIDE_DAG, FAST_PROVIDE_ROOT, FAST_PROVIDE_WAIT};

const REFS: &[Opt] = &[
    Opt::text(&["format"]).help("Form of a line, with <src>, <dst> and <linkname>"),
    Opt::bool(&["edges", "e"]).help("Print edges: SOURCE -> TARGET"),
    Opt::bool(&["unique", "u"]).help("Print each link once"),
    Opt::bool(&["recursive", "r"]).help("List the links of linked blocks too"),
    Opt::int(&["max-depth"]).help("Maximum depth of a recursive list"),
];
const ADD: &[Opt] = &[
    // Affect only how a client finds and prints files.
    Opt::bool(&["recursive", "r"]).unused().help(
        "Add directories with all their contents; a pipe, socket or device in one is an error, as for `ipfs add`",
    ),
    Opt::bool(&["dereference-args"]).unused().help("Add the target of each symlink that is a PATH"),
    Opt::bool(&["dereference-symlinks"]).unused().help("Add the targets of all symlinks instead of the symlinks"),
    Opt::text(&["stdin-name"]).unused().help("Name of standard input"),
    Opt::bool(&["hidden", "H"]).unused().help("Include hidden files of directories"),
    Opt::list(&["ignore"])
        .unused()
        .help("Leave out entries of directories that match a rule as in .gitignore; may be repeated"),
    Opt::text(&["ignore-rules-path"]).unused().help("File with rules for --ignore, which apply before those"),
    Opt::bool(&["quiet", "q"]).unused().help("Print only content IDs"),
    Opt::bool(&["quieter", "Q"]).unused().help("Print only the content ID of the last root"),
    Opt::bool(&["silent"]).help("Print nothing"),
    Opt::bool(&["progress", "p"])
        .help("Show a progress bar [default: if standard error is a terminal, without --json and --quiet]"),
    Opt::bool(&["empty-dirs", "E"]).default("true").help("Include empty directories"),
    Opt::bool(&["only-hash", "n"]).help("Compute content IDs without storing anything"),
    Opt::bool(&["wrap-with-directory", "w"]).help("Wrap everything in a directory, which preserves names"),
    Opt::bool(&["pin"]).default("true").help("Pin the content, so that garbage collection keeps it"),
    Opt::text(&["pin-name"]).help("Name of the pins"),
    Opt::text(&["to-files"]).help(
        "Also put the root into the mutable files, at this path; into the directory if the path ends with a slash",
    ),
    Opt::int(&["cid-version"]).help("Version of content IDs: 0 or 1 [default: set by the profile]"),
    Opt::text(&["hash"]).help(
        "Hash function of content IDs: sha2-256, sha2-512, sha3-256, keccak-256, blake2b-256 or blake3; any but \
         sha2-256 requires version 1 [default: as the daemon is configured, sha2-256]",
    ),
    Opt::bool(&["raw-leaves"])
        .help("Store the leaves of files as raw blocks [default: set by the profile, and true for CID version 1]"),
    Opt::text(&["chunker", "s"]).help(
        "Chunking of files: size-BYTES for chunks of a fixed size; rabin, rabin-AVG, rabin-MIN-AVG-MAX or buzhash \
         for content-defined chunks [default: set by the profile]",
    ),
    Opt::bool(&["trickle", "t"]).help(
        "Use the trickle layout, in which the beginning of a file is near the root [default: as the daemon is \
         configured]",
    ),
    Opt::int(&["max-file-links"]).help(
        "Maximum number of links of a file's inner nodes [default: 174, or 1024 with the profile unixfs-v1-2025]",
    ),
    Opt::int(&["max-directory-links"])
        .help("Maximum number of entries of a directory that is not sharded [default: unlimited]"),
    Opt::int(&["max-hamt-fanout"])
        .help("Fan-out of the shards of large directories: a power of two, 8 to 1024 [default: 256]"),
    Opt::bool(&["inline"]).help("Store small blocks inside the content IDs that refer to them, instead of in the repo"),
    Opt::int(&["inline-limit"]).default("32").help("Maximum size of blocks for --inline, up to 128"),
    Opt::bool(&["nocopy"]).help(
        "Leave the content in the files, and store only references to them; needs store.filestore_root in the \
         configuration of the daemon, which must see the files under the same paths",
    ),
    Opt::bool(&["fscache"]).help("Do not store blocks that --nocopy has stored references to"),
    Opt::bool(&["preserve-mode"])
        .help("Store the permissions of files and directories; leaves are then not raw blocks"),
    Opt::bool(&["preserve-mtime"])
        .help("Store the modification times of files, directories and symlinks; leaves are then not raw blocks"),
    Opt::uint(&["mode"]).help("Permissions in octal to store for every file and directory, such as 0644"),
    Opt::int64(&["mtime"]).help("Modification time to store for every file and directory, in seconds since 1970"),
    Opt::uint(&["mtime-nsecs"]).help("Nanoseconds after --mtime"),
    FAST_PROVIDE_ROOT,
    FAST_PROVIDE_DAG,
    FAST_PROVIDE_WAIT,
    // Extension of ipfrs.
    Opt::text(&["profile"]).help(
        "Set of import parameters: unixfs-v0-2015 or unixfs-v1-2025 [default: import.profile of the \
         configuration]",
    ),
];

pub(super) const COMMANDS: &[Definition] = &[
    command("add", "Add files and directories").arguments(&[file("path").repeated()]).options(ADD),
    command("block/get", "Read a block").arguments(&[text("cid").in_body()]),
    command("block/put", "Store blocks").arguments(&[file("data").repeated()]).options(&[
        Opt::text(&["cid-codec"]).help("Codec of the block: raw, dag-pb, dag-cbor, ... [default: raw]"),
        Opt::text(&["mhtype"]).help(
            "Hash function of the content ID, as for `add --hash` [default: as the daemon is configured, \
             sha2-256]",
        ),
        Opt::int(&["mhlen"]),
        Opt::bool(&["pin"]).help("Pin the blocks and everything below them"),
        ALLOW_BIG_BLOCK,
        Opt::text(&["format", "f"]),
    ]),
    command("block/rm", "Remove blocks").arguments(&[text("cid").repeated()]).options(&[
        Opt::bool(&["force", "f"]).help("Ignore blocks that do not exist"),
        Opt::bool(&["quiet", "q"]).help("Print only the blocks that could not be removed"),
    ]),
    command("block/stat", "Size of a block").arguments(&[text("cid").in_body()]),
    command("cat", "Read files").arguments(&[text("ipfs-path").repeated().in_body()]).options(&[
        Opt::int64(&["offset", "o"]).help("Number of bytes to skip at the beginning"),
        Opt::int64(&["length", "l"]).help("Maximum number of bytes to write"),
        DRAWN_PROGRESS
            .help("Show a progress bar [default: if standard error is a terminal and standard output is not]"),
    ]),
    command("get", "Read a file or directory as an archive").arguments(&[text("ipfs-path").in_body()]).options(&[
        Opt::text(&["output", "o"]).unused().help(
            "Target path; an existing file is replaced, an existing directory receives the content under its own \
             name, and - is standard output [default: the last component of the path, in the current directory]",
        ),
        Opt::bool(&["archive", "a"]).help("Save a TAR archive, with the extension \".tar\""),
        Opt::bool(&["compress", "C"])
            .help("Compress the output with gzip, with the extension \".gz\"; directories become archives"),
        Opt::int(&["compression-level", "l"]).help("Compression level, from 1 to 9 [default: 6]"),
        DRAWN_PROGRESS.help("Show a progress bar [default: if standard error is a terminal, without --json]"),
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
