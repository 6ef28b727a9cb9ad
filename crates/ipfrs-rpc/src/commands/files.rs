//! `files/*` and `filestore/*`.

use super::definition::{Definition, command, file, text};
use super::option::Opt;

/// Option of all commands on mutable files, with effect on those that write.
const GROUP: &[Opt] = &[Opt::bool(&["flush", "f"])];

const PARENTS: Opt = Opt::bool(&["parents", "p"]);
const CID_VERSION: Opt = Opt::int(&["cid-version", "cid-ver"]);
const HASH: Opt = Opt::text(&["hash"]);
const FILES_WRITE: &[Opt] = &[
    Opt::int64(&["offset", "o"]),
    Opt::bool(&["create", "e"]),
    PARENTS,
    Opt::bool(&["truncate", "t"]),
    Opt::int64(&["count", "n"]),
    Opt::bool(&["raw-leaves"]),
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
        .in_group(GROUP),
    command("files/cp", "Copy content or a mutable file into the mutable files")
        .arguments(&[text("source"), text("dest")])
        .options(&[Opt::bool(&["force"]), PARENTS])
        .in_group(GROUP),
    command("files/flush", "Make a mutable file or directory durable")
        .arguments(&[text("path").optional()])
        .in_group(GROUP),
    command("files/ls", "List a mutable directory")
        .arguments(&[text("path").optional()])
        .options(&[Opt::bool(&["long", "l"]), Opt::bool(&["U"]).printed()])
        .in_group(GROUP),
    command("files/mkdir", "Create a mutable directory")
        .arguments(&[text("path")])
        .options(&[PARENTS, CID_VERSION, HASH])
        .in_group(GROUP),
    command("files/mv", "Move a mutable file or directory").arguments(&[text("source"), text("dest")]).in_group(GROUP),
    command("files/read", "Read a mutable file")
        .arguments(&[text("path")])
        .options(&[Opt::int64(&["offset", "o"]), Opt::int64(&["count", "n"])])
        .in_group(GROUP),
    command("files/rm", "Remove mutable files or directories")
        .arguments(&[text("path").repeated()])
        .options(&[Opt::bool(&["recursive", "r"]), Opt::bool(&["force"])])
        .in_group(GROUP),
    command("files/stat", "State of a file or directory")
        .arguments(&[text("path")])
        .options(&[
            // Affect only how a client prints the response, but exclude each other.
            Opt::text(&["format"]),
            Opt::bool(&["hash"]),
            Opt::bool(&["size"]),
            Opt::bool(&["with-local"]),
        ])
        .in_group(GROUP),
    command("files/touch", "Change the modification time of a mutable file")
        .arguments(&[text("path")])
        .options(&[Opt::int64(&["mtime"]), Opt::uint(&["mtime-nsecs"])])
        .in_group(GROUP),
    command("files/write", "Write to a mutable file")
        .arguments(&[text("path"), file("data")])
        .options(FILES_WRITE)
        .in_group(GROUP),
    command("filestore/dups", "List blocks that are in files and in the packs"),
    command("filestore/ls", "List blocks that stay in files")
        .arguments(&[text("obj").optional().repeated()])
        .options(&[Opt::bool(&["file-order"])]),
    command("filestore/verify", "Check blocks that stay in files")
        .arguments(&[text("obj").optional().repeated()])
        .options(&[Opt::bool(&["file-order"]), Opt::bool(&["remove-bad-blocks"])]),
];
