//! `files/*` and `filestore/*`.

use super::definition::{Definition, command, file, text};
use super::option::Opt;

/// Option of all commands on mutable files.
const FLUSH: Opt = Opt::bool(&["flush", "f"]).default("true");
const GROUP: &[Opt] = &[FLUSH.help("Make the change durable; --flush=false defers that to `files flush`")];

/// The same for commands that it does not affect, as in Kubo.
const GROUP_WITHOUT_CHANGES: &[Opt] = &[FLUSH.unused()];

const PARENTS: Opt = Opt::bool(&["parents", "p"]);
const CID_VERSION: Opt = Opt::int(&["cid-version", "cid-ver"]).help("CID version of new nodes, 0 or 1");
const HASH: Opt = Opt::text(&["hash"]).help("Hash function of new nodes; makes the CID version 1");
const FILES_WRITE: &[Opt] = &[
    Opt::int64(&["offset", "o"]).help("Offset of the first byte"),
    Opt::bool(&["create", "e"]).help("Create the file if it does not exist"),
    PARENTS.help("Create missing directories above the file"),
    Opt::bool(&["truncate", "t"]).help("Truncate the file first"),
    Opt::int64(&["count", "n"]).help("Maximum number of bytes to write"),
    Opt::bool(&["raw-leaves"])
        .help("Use raw blocks for new leaves [default: as the daemon is configured, or if the CID version is 1]"),
    CID_VERSION,
    HASH,
];

pub(super) const COMMANDS: &[Definition] = &[
    command("files/chcid", "Change the content ID format of a mutable directory")
        .arguments(&[text("path")])
        .options(&[CID_VERSION, HASH])
        .in_group(GROUP),
    command("files/chmod", "Change the permissions of a mutable file")
        .arguments(&[text("mode"), text("path")])
        .in_group(GROUP_WITHOUT_CHANGES),
    command("files/cp", "Copy content or a mutable file into the mutable files")
        .arguments(&[text("source"), text("dest")])
        .options(&[
            Opt::bool(&["force"]).help("Replace an existing file"),
            PARENTS.help("Create missing directories above the copy"),
        ])
        .in_group(GROUP),
    command("files/flush", "Make a mutable file or directory durable")
        .arguments(&[text("path").optional()])
        .in_group(GROUP_WITHOUT_CHANGES),
    command("files/ls", "List a mutable directory")
        .arguments(&[text("path").optional()])
        .options(&[Opt::bool(&["long", "l"]).help("Print content IDs and sizes too"), Opt::bool(&["U"]).printed()])
        .in_group(GROUP_WITHOUT_CHANGES),
    command("files/mkdir", "Create a mutable directory")
        .arguments(&[text("path")])
        .options(&[PARENTS.help("Create missing directories above it, and accept an existing one"), CID_VERSION, HASH])
        .in_group(GROUP),
    command("files/mv", "Move a mutable file or directory").arguments(&[text("source"), text("dest")]).in_group(GROUP),
    command("files/read", "Read a mutable file")
        .arguments(&[text("path")])
        .options(&[
            Opt::int64(&["offset", "o"]).help("Number of bytes to skip"),
            Opt::int64(&["count", "n"]).help("Maximum number of bytes to read"),
        ])
        .in_group(GROUP_WITHOUT_CHANGES),
    command("files/rm", "Remove mutable files or directories")
        .arguments(&[text("path").repeated()])
        .options(&[
            Opt::bool(&["recursive", "r"]).help("Remove directories too"),
            Opt::bool(&["force"]).help("Remove directories too, and accept missing paths"),
        ])
        .in_group(GROUP),
    command("files/stat", "State of a file or directory")
        .arguments(&[text("path")])
        .options(&[
            // Affect only how a client prints the response, but exclude each other.
            Opt::text(&["format"]),
            Opt::bool(&["hash"]),
            Opt::bool(&["size"]),
            Opt::bool(&["with-local"]).help("Also print how much of it is stored here"),
        ])
        .in_group(GROUP_WITHOUT_CHANGES),
    command("files/touch", "Change the modification time of a mutable file")
        .arguments(&[text("path")])
        .options(&[
            Opt::int64(&["mtime"]).help("Time in seconds since 1970 [default: now]"),
            Opt::uint(&["mtime-nsecs"]).help("Nanoseconds of the time"),
        ])
        .in_group(GROUP_WITHOUT_CHANGES),
    command("files/write", "Write to a mutable file")
        .arguments(&[text("path"), file("data")])
        .options(FILES_WRITE)
        .in_group(GROUP),
    command("filestore/dups", "List blocks that are in files and in the packs"),
    command("filestore/ls", "List blocks that stay in files")
        .arguments(&[text("obj").optional().repeated()])
        .options(&[Opt::bool(&["file-order"]).help("Sort by file and offset")]),
    command("filestore/verify", "Check blocks that stay in files")
        .arguments(&[text("obj").optional().repeated()])
        .options(&[
            Opt::bool(&["file-order"]).help("Check in the order of files and offsets"),
            Opt::bool(&["remove-bad-blocks"])
                .help("Remove the references to blocks that cannot be read, even if they are pinned"),
        ]),
];
