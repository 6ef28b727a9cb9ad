//! `pin/*`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{Pins, RemotePin, RemoteServices, VerifiedPin};

use super::responses::{done, json, lines, listed_pins, pinned};
use super::shared::{FAST_PROVIDE_DAG, FAST_PROVIDE_ROOT, FAST_PROVIDE_WAIT, QUIET};
use crate::rpc::definition::{Command, command, text};
use crate::rpc::options::Opt;
use crate::rpc::{pin, remote_pin};

static REMOTE_PINS: &[Opt] =
    &[Opt::text(&["service"]), Opt::text(&["name"]), Opt::list(&["cid"]), Opt::list(&["status"])];

pub(super) static COMMANDS: &[Command] = &[
    command("pin/add", Scope::Pin, "Pin content", pinned, || any(pin::add))
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
    command("pin/remote/add", Scope::Pin, "Pin content at a pinning service", json::<RemotePin>, || {
        any(remote_pin::add)
    })
    .arguments(&[text("ipfs-path")])
    .options(&[Opt::text(&["service"]), Opt::text(&["name"]), Opt::bool(&["background"])])
    .without_deadline(),
    command("pin/remote/ls", Scope::Pin, "List pins at a pinning service", lines::<RemotePin>, || any(remote_pin::ls))
        .options(REMOTE_PINS),
    command("pin/remote/rm", Scope::Pin, "Remove pins at a pinning service", done, || any(remote_pin::rm)).options(&[
        Opt::text(&["service"]),
        Opt::text(&["name"]),
        Opt::list(&["cid"]),
        Opt::list(&["status"]),
        Opt::bool(&["force"]),
    ]),
    command("pin/remote/service/add", Scope::Admin, "Add a pinning service", done, || any(remote_pin::add_service))
        .arguments(&[text("service"), text("endpoint"), text("key")]),
    command("pin/remote/service/ls", Scope::Pin, "List the pinning services", json::<RemoteServices>, || {
        any(remote_pin::services)
    })
    .options(&[Opt::bool(&["stat"])]),
    command("pin/remote/service/rm", Scope::Admin, "Remove a pinning service", done, || {
        any(remote_pin::remove_service)
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
