//! `dag/*` and `object/*`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{DagStats, ImportedCar, ObjectChanges, PatchedObject, ResolvedNode, StoredNode};

use super::responses::{car, json, lines, never, node};
use super::shared::{ALLOW_BIG_BLOCK, DRAWN_PROGRESS, FAST_PROVIDE_DAG, FAST_PROVIDE_ROOT, FAST_PROVIDE_WAIT};
use crate::rpc::definition::{Command, command, file, text};
use crate::rpc::options::Opt;
use crate::rpc::{dag, object, unavailable};

pub(super) static COMMANDS: &[Command] = &[
    command("dag/export", Scope::Read, "Export a DAG as a CAR", car, || any(dag::export))
        .arguments(&[text("root").in_body()])
        .options(&[DRAWN_PROGRESS, Opt::bool(&["local-only"])]),
    command("dag/get", Scope::Read, "Read a node, or a value in it", node, || any(dag::get))
        .arguments(&[text("ref").in_body()])
        .options(&[Opt::text(&["output-codec"])]),
    command("dag/import", Scope::Write, "Import CARs", lines::<ImportedCar>, || any(dag::import))
        .arguments(&[file("path").repeated()])
        .options(&[
            Opt::bool(&["pin-roots"]),
            Opt::bool(&["local-only"]),
            // Affects only the output of command-line clients; other clients need to know whether roots were pinned.
            Opt::bool(&["silent"]).printed(),
            Opt::bool(&["stats"]),
            FAST_PROVIDE_ROOT,
            FAST_PROVIDE_DAG,
            FAST_PROVIDE_WAIT,
            ALLOW_BIG_BLOCK,
        ]),
    command("dag/put", Scope::Write, "Store nodes", lines::<StoredNode>, || any(dag::put))
        .arguments(&[file("object data").repeated()])
        .options(&[
            Opt::text(&["store-codec"]),
            Opt::text(&["input-codec"]),
            Opt::bool(&["pin"]),
            Opt::text(&["hash"]),
            ALLOW_BIG_BLOCK,
        ]),
    command("dag/resolve", Scope::Read, "Resolve a path to a block", json::<ResolvedNode>, || any(dag::resolve))
        .arguments(&[text("ref").in_body()]),
    command("dag/stat", Scope::Read, "Size of DAGs", lines::<DagStats>, || any(dag::stat))
        .arguments(&[text("root").repeated().in_body()])
        .options(&[Opt::bool(&["progress", "p"])]),
    command("object/data", Scope::Read, "Removed from Kubo: fails", never, || any(unavailable::removed_object)),
    command("object/diff", Scope::Read, "Differences between two DAGs", json::<ObjectChanges>, || any(object::diff))
        .arguments(&[text("obj_a"), text("obj_b")])
        .options(&[Opt::bool(&["verbose", "v"]).printed()]),
    command("object/get", Scope::Read, "Removed from Kubo: fails", never, || any(unavailable::removed_object)),
    command("object/links", Scope::Read, "Removed from Kubo: fails", never, || any(unavailable::removed_object)),
    command("object/new", Scope::Read, "Removed from Kubo: fails", never, || any(unavailable::removed_object)),
    command("object/patch/add-link", Scope::Write, "Add a link to a dag-pb node", json::<PatchedObject>, || {
        any(object::add_link)
    })
    .arguments(&[text("root"), text("name"), text("ref")])
    .options(&[Opt::bool(&["create", "p"]), Opt::bool(&["allow-non-unixfs"]), Opt::bool(&["allow-big-block"])]),
    command("object/patch/append-data", Scope::Write, "Removed from Kubo: fails", never, || {
        any(unavailable::removed_object)
    }),
    command("object/patch/rm-link", Scope::Write, "Remove a link of a dag-pb node", json::<PatchedObject>, || {
        any(object::remove_link)
    })
    .arguments(&[text("root"), text("name")])
    .options(&[Opt::bool(&["allow-non-unixfs"]), Opt::bool(&["allow-big-block"])]),
    command("object/patch/set-data", Scope::Write, "Removed from Kubo: fails", never, || {
        any(unavailable::removed_object)
    }),
    command("object/put", Scope::Read, "Removed from Kubo: fails", never, || any(unavailable::removed_object)),
    command("object/stat", Scope::Read, "Removed from Kubo: fails", never, || any(unavailable::removed_object)),
];
