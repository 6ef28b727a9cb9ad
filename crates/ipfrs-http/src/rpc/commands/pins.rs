//! `pin/*`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{Pins, RemoteServices, VerifiedPin};

use super::responses::{done, json, lines, listed_pins, never};
use super::shared::{FAST_PROVIDE_DAG, FAST_PROVIDE_ROOT, FAST_PROVIDE_WAIT, QUIET};
use crate::rpc::definition::{Command, command, text};
use crate::rpc::options::Opt;
use crate::rpc::{pin, unavailable};

pub(super) static COMMANDS: &[Command] = &[
    command("pin/add", Scope::Pin, "Pin content", json::<Pins>, || any(pin::add))
        .arguments(&[text("ipfs-path").repeated().in_body()])
        .options(&[
            Opt::bool(&["recursive", "r"]),
            Opt::text(&["name", "n"]),
            Opt::bool(&["progress"]),
            FAST_PROVIDE_ROOT,
            FAST_PROVIDE_DAG,
            FAST_PROVIDE_WAIT,
        ])
        .without_deadline(),
    command("pin/ls", Scope::Read, "List pins", listed_pins, || any(pin::ls))
        .arguments(&[text("ipfs-path").optional().repeated()])
        .options(&[
            Opt::text(&["type", "t"]),
            QUIET,
            Opt::text(&["name", "n"]),
            Opt::bool(&["stream", "s"]),
            Opt::bool(&["names"]),
        ]),
    command("pin/remote/add", Scope::Pin, "Not available: fails", never, || any(unavailable::remote_pin))
        .arguments(&[text("ipfs-path")])
        .options(&[Opt::text(&["service"]), Opt::text(&["name"]).unused(), Opt::bool(&["background"]).unused()]),
    command("pin/remote/ls", Scope::Read, "Not available: fails", never, || any(unavailable::remote_pins)).options(&[
        Opt::text(&["service"]),
        Opt::text(&["name"]).unused(),
        Opt::list(&["cid"]).unused(),
        Opt::list(&["status"]).unused(),
    ]),
    command("pin/remote/rm", Scope::Pin, "Not available: fails", never, || any(unavailable::remote_pins)).options(&[
        Opt::text(&["service"]),
        Opt::text(&["name"]).unused(),
        Opt::list(&["cid"]).unused(),
        Opt::list(&["status"]).unused(),
        Opt::bool(&["force"]).unused(),
    ]),
    command("pin/remote/service/add", Scope::Admin, "Not available: fails", never, || {
        any(unavailable::add_pin_service)
    })
    .arguments(&[text("service"), text("endpoint"), text("key")]),
    command(
        "pin/remote/service/ls",
        Scope::Read,
        "List pinning services: there are none",
        json::<RemoteServices>,
        || any(unavailable::pin_services),
    )
    .options(&[Opt::bool(&["stat"]).unused()]),
    command("pin/remote/service/rm", Scope::Admin, "Remove a pinning service: there are none", done, || {
        any(unavailable::remove_pin_service)
    })
    .arguments(&[text("service")]),
    command("pin/rm", Scope::Pin, "Remove pins", json::<Pins>, || any(pin::rm))
        .arguments(&[text("ipfs-path").repeated().in_body()])
        .options(&[Opt::bool(&["recursive", "r"])]),
    command("pin/update", Scope::Pin, "Move a pin to other content", json::<Pins>, || any(pin::update))
        .arguments(&[text("from-path"), text("to-path")])
        .options(&[Opt::bool(&["unpin"]), FAST_PROVIDE_ROOT, FAST_PROVIDE_DAG, FAST_PROVIDE_WAIT])
        .without_deadline(),
    command("pin/verify", Scope::Read, "Check that pinned content is complete", lines::<VerifiedPin>, || {
        any(pin::verify)
    })
    .options(&[Opt::bool(&["verbose"]), Opt::bool(&["quiet", "q"])])
    .without_deadline(),
];
