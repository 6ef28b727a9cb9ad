//! `pin/*`.

use super::definition::{Definition, command, text};
use super::option::Opt;
use super::shared::{FAST_PROVIDE_DAG, FAST_PROVIDE_ROOT, FAST_PROVIDE_WAIT, QUIET};

const REMOTE_PINS: &[Opt] =
    &[Opt::text(&["service"]), Opt::text(&["name"]), Opt::list(&["cid"]), Opt::list(&["status"])];

pub(super) const COMMANDS: &[Definition] =
    &[
        command("pin/add", "Pin content").arguments(&[text("ipfs-path").repeated().in_body()]).options(&[
            Opt::bool(&["recursive", "r"]),
            Opt::text(&["name", "n"]),
            Opt::bool(&["progress"]),
            FAST_PROVIDE_ROOT,
            FAST_PROVIDE_DAG,
            FAST_PROVIDE_WAIT,
        ]),
        command("pin/ls", "List pins").arguments(&[text("ipfs-path").optional().repeated()]).options(&[
            Opt::text(&["type", "t"]),
            QUIET,
            Opt::text(&["name", "n"]),
            Opt::bool(&["stream", "s"]),
            Opt::bool(&["names"]),
        ]),
        command("pin/remote/add", "Pin content at a pinning service").arguments(&[text("ipfs-path")]).options(&[
            Opt::text(&["service"]),
            Opt::text(&["name"]),
            Opt::bool(&["background"]),
        ]),
        command("pin/remote/ls", "List pins at a pinning service").options(REMOTE_PINS),
        command("pin/remote/rm", "Remove pins at a pinning service").options(&[
            Opt::text(&["service"]),
            Opt::text(&["name"]),
            Opt::list(&["cid"]),
            Opt::list(&["status"]),
            Opt::bool(&["force"]),
        ]),
        command("pin/remote/service/add", "Add a pinning service").arguments(&[
            text("service"),
            text("endpoint"),
            text("key"),
        ]),
        command("pin/remote/service/ls", "List the pinning services").options(&[Opt::bool(&["stat"])]),
        command("pin/remote/service/rm", "Remove a pinning service").arguments(&[text("service")]),
        command("pin/rm", "Remove pins")
            .arguments(&[text("ipfs-path").repeated().in_body()])
            .options(&[Opt::bool(&["recursive", "r"])]),
        command("pin/update", "Move a pin to other content")
            .arguments(&[text("from-path"), text("to-path")])
            .options(&[Opt::bool(&["unpin"]), FAST_PROVIDE_ROOT, FAST_PROVIDE_DAG, FAST_PROVIDE_WAIT]),
        command("pin/verify", "Check that pinned content is complete")
            .options(&[Opt::bool(&["verbose"]), Opt::bool(&["quiet", "q"])]),
    ];
