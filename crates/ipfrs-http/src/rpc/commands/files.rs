//! `files/*` and `filestore/*`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{FileList, FileReference, FileStat, FlushedFile, Reference};

use super::responses::{done, json, lines, octets};
use crate::rpc::command::{Command, command};
use crate::rpc::{files, filestore};

pub(super) static COMMANDS: &[Command] = &[
    command("files/chcid", Scope::Write, done, || any(files::chcid)),
    command("files/chmod", Scope::Write, done, || any(files::chmod)),
    command("files/cp", Scope::Write, done, || any(files::cp)),
    command("files/flush", Scope::Write, json::<FlushedFile>, || any(files::flush)),
    command("files/ls", Scope::Read, json::<FileList>, || any(files::ls)),
    command("files/mkdir", Scope::Write, done, || any(files::mkdir)),
    command("files/mv", Scope::Write, done, || any(files::mv)),
    command("files/read", Scope::Read, octets, || any(files::read)),
    command("files/rm", Scope::Write, done, || any(files::rm)),
    command("files/stat", Scope::Read, json::<FileStat>, || any(files::stat)),
    command("files/touch", Scope::Write, done, || any(files::touch)),
    command("files/write", Scope::Write, done, || any(files::write)),
    command("filestore/dups", Scope::Read, lines::<Reference>, || any(filestore::dups)).without_deadline(),
    command("filestore/ls", Scope::Read, lines::<FileReference>, || any(filestore::ls)).without_deadline(),
    command("filestore/verify", Scope::Write, lines::<FileReference>, || any(filestore::verify)).without_deadline(),
];
