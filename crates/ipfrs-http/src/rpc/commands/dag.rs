//! `dag/*` and `object/*`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{DagStats, ImportedCar, ObjectChanges, PatchedObject, ResolvedNode, StoredNode};

use super::responses::{car, json, lines, never, node};
use crate::rpc::command::{Command, command};
use crate::rpc::{dag, object, unavailable};

pub(super) static COMMANDS: &[Command] = &[
    command("dag/export", Scope::Read, car, || any(dag::export)),
    command("dag/get", Scope::Read, node, || any(dag::get)),
    command("dag/import", Scope::Write, lines::<ImportedCar>, || any(dag::import)),
    command("dag/put", Scope::Write, lines::<StoredNode>, || any(dag::put)),
    command("dag/resolve", Scope::Read, json::<ResolvedNode>, || any(dag::resolve)),
    command("dag/stat", Scope::Read, lines::<DagStats>, || any(dag::stat)),
    command("object/data", Scope::Read, never, || any(unavailable::removed_object)),
    command("object/diff", Scope::Read, json::<ObjectChanges>, || any(object::diff)),
    command("object/get", Scope::Read, never, || any(unavailable::removed_object)),
    command("object/links", Scope::Read, never, || any(unavailable::removed_object)),
    command("object/new", Scope::Read, never, || any(unavailable::removed_object)),
    command("object/patch/add-link", Scope::Write, json::<PatchedObject>, || any(object::add_link)),
    command("object/patch/append-data", Scope::Write, never, || any(unavailable::removed_object)),
    command("object/patch/rm-link", Scope::Write, json::<PatchedObject>, || any(object::remove_link)),
    command("object/patch/set-data", Scope::Write, never, || any(unavailable::removed_object)),
    command("object/put", Scope::Read, never, || any(unavailable::removed_object)),
    command("object/stat", Scope::Read, never, || any(unavailable::removed_object)),
];
