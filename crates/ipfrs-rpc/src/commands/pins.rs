//! `pin/*`.

use super::definition::{Definition, command, text};
use super::option::Opt;
use super::shared::{FAST_PROVIDE_DAG, FAST_PROVIDE_ROOT, FAST_PROVIDE_WAIT, QUIET};

const SERVICE: Opt = Opt::text(&["service"]).help("Name of the service");
const REMOTE_NAME: Opt = Opt::text(&["name"]).help("Only pins with this name");
const REMOTE_CIDS: Opt = Opt::list(&["cid"]).help("Only pins of these content IDs, with commas between them");
const STATES: Opt =
    Opt::list(&["status"]).help("Only pins in these states: queued, pinning, pinned, failed [default: pinned]");
const UNPIN: &[Opt] = &[Opt::bool(&["recursive", "r"])
    .default("true")
    .help("Remove recursive pins too; --recursive=false removes only pins of single blocks")];

pub(super) const COMMANDS: &[Definition] = &[
    command("pin/add", "Pin content").arguments(&[text("ipfs-path").repeated().in_body()]).options(&[
        Opt::bool(&["recursive", "r"])
            .default("true")
            .help("Pin everything below them too; --recursive=false pins single blocks"),
        Opt::text(&["name", "n"]).help("Name of the pins"),
        Opt::bool(&["progress"]).help("Show a progress bar [default: if standard error is a terminal, without --json]"),
        FAST_PROVIDE_ROOT,
        FAST_PROVIDE_DAG,
        FAST_PROVIDE_WAIT,
    ]),
    command("pin/ls", "List pins").arguments(&[text("ipfs-path").optional().repeated()]).options(&[
        Opt::text(&["type", "t"]).default("all").help("Types of pins to list"),
        QUIET.help("Print only content IDs"),
        Opt::text(&["name", "n"]).help("List only pins whose name contains this text"),
        Opt::bool(&["stream", "s"]),
        Opt::bool(&["names"]).help("Print the names of pins"),
    ]),
    command("pin/remote/add", "Pin content at a pinning service").arguments(&[text("ipfs-path")]).options(&[
        SERVICE,
        Opt::text(&["name"]).help("Name of the pin"),
        Opt::bool(&["background"]).help("Return when the service has accepted the request"),
    ]),
    command("pin/remote/ls", "List pins at a pinning service").options(&[SERVICE, REMOTE_NAME, REMOTE_CIDS, STATES]),
    command("pin/remote/rm", "Remove pins at a pinning service").options(&[
        SERVICE,
        REMOTE_NAME,
        REMOTE_CIDS,
        STATES,
        Opt::bool(&["force"]).help("Remove more than one pin"),
    ]),
    command("pin/remote/service/add", "Add a pinning service").arguments(&[
        text("service"),
        text("endpoint"),
        text("key"),
    ]),
    command("pin/remote/service/ls", "List the pinning services").options(&[
        Opt::bool(&["stat"]).help("Ask each service for the number of its pins: queued/pinning/pinned/failed")
    ]),
    command("pin/remote/service/rm", "Remove a pinning service").arguments(&[text("service")]),
    command("pin/rm", "Remove pins").arguments(&[text("ipfs-path").repeated().in_body()]).options(UNPIN),
    command("pin/update", "Move a pin to other content").arguments(&[text("from-path"), text("to-path")]).options(&[
        Opt::bool(&["unpin"]).default("true").help("Remove the old pin; --unpin=false keeps both"),
        FAST_PROVIDE_ROOT,
        FAST_PROVIDE_DAG,
        FAST_PROVIDE_WAIT,
    ]),
    command("pin/verify", "Check that pinned content is complete").options(&[
        Opt::bool(&["verbose"]).help("Also print complete pins"),
        Opt::bool(&["quiet", "q"]).help("Print only the content IDs of incomplete pins"),
    ]),
];
