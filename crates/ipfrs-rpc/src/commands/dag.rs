//! `dag/*` and `object/*`.

use super::definition::{Definition, command, file, text};
use super::option::Opt;
use super::shared::{ALLOW_BIG_BLOCK, DRAWN_PROGRESS, FAST_PROVIDE_DAG, FAST_PROVIDE_ROOT, FAST_PROVIDE_WAIT};

const OUTPUT_CODEC: Opt = Opt::text(&["output-codec"]).default("dag-json").help("Codec of the output");

pub(super) const COMMANDS: &[Definition] = &[
    command("dag/export", "Export a DAG as a CAR").arguments(&[text("root").in_body()]).options(&[
        DRAWN_PROGRESS.help("Show a progress bar [default: if standard error is a terminal]"),
        Opt::bool(&["local-only"])
            .help("Export only the blocks in the store of the daemon; leave out missing blocks and what is below them"),
    ]),
    command("dag/get", "Read a node, or a value in it").arguments(&[text("ref").in_body()]).options(&[OUTPUT_CODEC]),
    command("dag/import", "Import CARs").arguments(&[file("path").repeated()]).options(&[
        Opt::bool(&["pin-roots"])
            .help("Pin the roots of the files, and everything below them [default: true, with --local-only false]"),
        Opt::bool(&["local-only"]).help("Import parts of DAGs, without pins"),
        // Affects only the output of command-line clients; other clients need to know whether roots were pinned.
        Opt::bool(&["silent"]).printed().help("Print nothing"),
        Opt::bool(&["stats"]).help("Print the number of blocks and bytes in the files"),
        FAST_PROVIDE_ROOT,
        FAST_PROVIDE_DAG,
        FAST_PROVIDE_WAIT,
        ALLOW_BIG_BLOCK,
    ]),
    command("dag/put", "Store nodes").arguments(&[file("object data").repeated()]).options(&[
        Opt::text(&["store-codec"]).default("dag-cbor").help("Codec of the stored node"),
        Opt::text(&["input-codec"]).default("dag-json").help("Codec of the files"),
        Opt::bool(&["pin"]).help("Pin the nodes and everything below them"),
        Opt::text(&["hash"]).help("Hash function of the content ID [default: as the daemon is configured, sha2-256]"),
        ALLOW_BIG_BLOCK,
    ]),
    command("dag/resolve", "Resolve a path to a block").arguments(&[text("ref").in_body()]),
    command("dag/stat", "Size of DAGs")
        .arguments(&[text("root").repeated().in_body()])
        .options(&[
            Opt::bool(&["progress", "p"]).help("Show a progress bar [default: if standard error is a terminal]")
        ]),
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
