//! `add`, `cat`, `get`, `ls`, `refs` and `block/*`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{BlockStat, ImportedLine, Listings, Reference, RemovedBlock};

use super::responses::{archive, json, lines, octets, raw_block};
use crate::rpc::command::{Command, command};
use crate::rpc::{add, block, cat, get, ls, refs};

pub(super) static COMMANDS: &[Command] = &[
    command("add", Scope::Write, lines::<ImportedLine>, || any(add::add)),
    command("block/get", Scope::Read, raw_block, || any(block::get)),
    command("block/put", Scope::Write, lines::<BlockStat>, || any(block::put)),
    command("block/rm", Scope::Write, lines::<RemovedBlock>, || any(block::rm)),
    command("block/stat", Scope::Read, json::<BlockStat>, || any(block::stat)),
    command("cat", Scope::Read, octets, || any(cat::cat)),
    command("get", Scope::Read, archive, || any(get::get)),
    command("ls", Scope::Read, json::<Listings>, || any(ls::ls)),
    command("refs", Scope::Read, lines::<Reference>, || any(refs::refs)),
    command("refs/local", Scope::Read, lines::<Reference>, || any(refs::local)),
];
