//! `pin/*`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{Pins, RemotePin, RemoteServices, VerifiedPin};

use super::responses::{done, json, lines, listed_pins, pinned};
use crate::rpc::command::{Command, command};
use crate::rpc::{pin, remote_pin};

pub(super) static COMMANDS: &[Command] = &[
    command("pin/add", Scope::Pin, pinned, || any(pin::add)).without_deadline(),
    command("pin/ls", Scope::Read, listed_pins, || any(pin::ls)),
    command("pin/remote/add", Scope::Pin, json::<RemotePin>, || any(remote_pin::add)).without_deadline(),
    command("pin/remote/ls", Scope::Pin, lines::<RemotePin>, || any(remote_pin::ls)),
    command("pin/remote/rm", Scope::Pin, done, || any(remote_pin::rm)),
    command("pin/remote/service/add", Scope::Admin, done, || any(remote_pin::add_service)),
    command("pin/remote/service/ls", Scope::Pin, json::<RemoteServices>, || any(remote_pin::services)),
    command("pin/remote/service/rm", Scope::Admin, done, || any(remote_pin::remove_service)),
    command("pin/rm", Scope::Pin, json::<Pins>, || any(pin::rm)),
    command("pin/update", Scope::Pin, json::<Pins>, || any(pin::update)).without_deadline(),
    command("pin/verify", Scope::Read, lines::<VerifiedPin>, || any(pin::verify)).without_deadline(),
];
