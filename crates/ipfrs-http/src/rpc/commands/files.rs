//! `files/*` and `filestore/*`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{FileList, FileReference, FileStat, FlushedFile, Reference};

use super::responses::{done, json, lines, octets};
use crate::rpc::definition::{Command, command, file, text};
use crate::rpc::options::Opt;
use crate::rpc::{files, filestore};

/// Option of all commands on mutable files, with effect on those that write.
static GROUP: &[Opt] = &[Opt::bool(&["flush", "f"])];

const PARENTS: Opt = Opt::bool(&["parents", "p"]);
const CID_VERSION: Opt = Opt::int(&["cid-version", "cid-ver"]);
const HASH: Opt = Opt::text(&["hash"]);
static FILES_WRITE: &[Opt] = &[
    Opt::int64(&["offset", "o"]),
    Opt::bool(&["create", "e"]),
    PARENTS,
    Opt::bool(&["truncate", "t"]),
    Opt::int64(&["count", "n"]),
    Opt::bool(&["raw-leaves"]),
    CID_VERSION,
    HASH,
];

pub(super) static COMMANDS: &[Command] = &[
    command("files/chcid", Scope::Write, "Change the content ID format of a mutable directory", done, || {
        any(files::chcid)
    })
    .arguments(&[text("path")])
    .options(&[CID_VERSION, HASH])
    .in_group(GROUP),
    command("files/chmod", Scope::Write, "Change the permissions of a mutable file", done, || any(files::chmod))
        .arguments(&[text("mode"), text("path")])
        .in_group(GROUP),
    command("files/cp", Scope::Write, "Copy content or a mutable file into the mutable files", done, || any(files::cp))
        .arguments(&[text("source"), text("dest")])
        .options(&[Opt::bool(&["force"]), PARENTS])
        .in_group(GROUP),
    command("files/flush", Scope::Write, "Make a mutable file or directory durable", json::<FlushedFile>, || {
        any(files::flush)
    })
    .arguments(&[text("path").optional()])
    .in_group(GROUP),
    command("files/ls", Scope::Read, "List a mutable directory", json::<FileList>, || any(files::ls))
        .arguments(&[text("path").optional()])
        .options(&[Opt::bool(&["long", "l"]), Opt::bool(&["U"]).printed()])
        .in_group(GROUP),
    command("files/mkdir", Scope::Write, "Create a mutable directory", done, || any(files::mkdir))
        .arguments(&[text("path")])
        .options(&[PARENTS, CID_VERSION, HASH])
        .in_group(GROUP),
    command("files/mv", Scope::Write, "Move a mutable file or directory", done, || any(files::mv))
        .arguments(&[text("source"), text("dest")])
        .in_group(GROUP),
    command("files/read", Scope::Read, "Read a mutable file", octets, || any(files::read))
        .arguments(&[text("path")])
        .options(&[Opt::int64(&["offset", "o"]), Opt::int64(&["count", "n"])])
        .in_group(GROUP),
    command("files/rm", Scope::Write, "Remove mutable files or directories", done, || any(files::rm))
        .arguments(&[text("path").repeated()])
        .options(&[Opt::bool(&["recursive", "r"]), Opt::bool(&["force"])])
        .in_group(GROUP),
    command("files/stat", Scope::Read, "State of a file or directory", json::<FileStat>, || any(files::stat))
        .arguments(&[text("path")])
        .options(&[
            // Affect only how a client prints the response, but exclude each other.
            Opt::text(&["format"]),
            Opt::bool(&["hash"]),
            Opt::bool(&["size"]),
            Opt::bool(&["with-local"]),
        ])
        .in_group(GROUP),
    command("files/touch", Scope::Write, "Change the modification time of a mutable file", done, || any(files::touch))
        .arguments(&[text("path")])
        .options(&[Opt::int64(&["mtime"]), Opt::uint(&["mtime-nsecs"])])
        .in_group(GROUP),
    command("files/write", Scope::Write, "Write to a mutable file", done, || any(files::write))
        .arguments(&[text("path"), file("data")])
        .options(FILES_WRITE)
        .in_group(GROUP),
    command(
        "filestore/dups",
        Scope::Read,
        "List blocks that are in files and in the packs",
        lines::<Reference>,
        || any(filestore::dups),
    )
    .without_deadline(),
    command("filestore/ls", Scope::Read, "List blocks that stay in files", lines::<FileReference>, || {
        any(filestore::ls)
    })
    .arguments(&[text("obj").optional().repeated()])
    .options(&[Opt::bool(&["file-order"])])
    .without_deadline(),
    command("filestore/verify", Scope::Write, "Check blocks that stay in files", lines::<FileReference>, || {
        any(filestore::verify)
    })
    .arguments(&[text("obj").optional().repeated()])
    .options(&[Opt::bool(&["file-order"]), Opt::bool(&["remove-bad-blocks"])])
    .without_deadline(),
];
