//! `dag/*` and `object/*`.

use super::definition::{Definition, command, file, text};
use super::option::Opt;
use super::shared::{ALLOW_BIG_BLOCK, DRAWN_PROGRESS, FAST_PROVIDE_DAG, FAST_PROVIDE_ROOT, FAST_PROVIDE_WAIT};

pub(super) const COMMANDS: &[Definition] = &[
    command("dag/export", "Export a DAG as a CAR")
        .arguments(&[text("root").in_body()])
        .options(&[DRAWN_PROGRESS, Opt::bool(&["local-only"])]),
    command("dag/get", "Read a node, or a value in it")
        .arguments(&[text("ref").in_body()])
        .options(&[Opt::text(&["output-codec"])]),
    command("dag/import", "Import CARs").arguments(&[file("path").repeated()]).options(&[
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
    command("dag/put", "Store nodes").arguments(&[file("object data").repeated()]).options(&[
        Opt::text(&["store-codec"]),
        Opt::text(&["input-codec"]),
        Opt::bool(&["pin"]),
        Opt::text(&["hash"]),
        ALLOW_BIG_BLOCK,
    ]),
    command("dag/resolve", "Resolve a path to a block").arguments(&[text("ref").in_body()]),
    command("dag/stat", "Size of DAGs")
        .arguments(&[text("root").repeated().in_body()])
        .options(&[Opt::bool(&["progress", "p"])]),
    command("object/data", "Removed from Kubo: fails"),
    command("object/diff", "Differences between two DAGs")
        .arguments(&[text("obj_a"), text("obj_b")])
        .options(&[Opt::bool(&["verbose", "v"]).printed()]),
    command("object/get", "Removed from Kubo: fails"),
    command("object/links", "Removed from Kubo: fails"),
    command("object/new", "Removed from Kubo: fails"),
    command("object/patch/add-link", "Add a link to a dag-pb node")
        .arguments(&[text("root"), text("name"), text("ref")])
        .options(&[Opt::bool(&["create", "p"]), Opt::bool(&["allow-non-unixfs"]), Opt::bool(&["allow-big-block"])]),
    command("object/patch/append-data", "Removed from Kubo: fails"),
    command("object/patch/rm-link", "Remove a link of a dag-pb node")
        .arguments(&[text("root"), text("name")])
        .options(&[Opt::bool(&["allow-non-unixfs"]), Opt::bool(&["allow-big-block"])]),
    command("object/patch/set-data", "Removed from Kubo: fails"),
    command("object/put", "Removed from Kubo: fails"),
    command("object/stat", "Removed from Kubo: fails"),
];
