//! Commands as the server has them: each definition with its access, its response and its handler. Everything else
//! about a command follows from its definition: its route, how its arguments and options are parsed, and what
//! `commands` and the OpenAPI document say about it.

use axum::routing::MethodRouter;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::commands::{self, Definition};

use crate::openapi::operation::Described;
use crate::state::AppState;

/// Adds the response of a command to its description.
pub(crate) type Respond = fn(Described) -> Described;

/// An RPC command.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) definition: &'static Definition,
    /// Scope that a caller needs.
    pub(crate) scope: Scope,
    pub(crate) respond: Respond,
    pub(crate) route: fn() -> MethodRouter<AppState>,
    /// Whether the command is maintenance of an operator, which is exempt from the request deadline. It also ends if
    /// its output is not read.
    pub(crate) is_maintenance: bool,
}

/// Returns the command at a path after `/api/v0/`.
///
/// # Panics
/// If the path has no definition: in a constant, this is a compile error.
pub(super) const fn command(
    path: &str,
    scope: Scope,
    respond: Respond,
    route: fn() -> MethodRouter<AppState>,
) -> Command {
    let Some(definition) = commands::find(path) else { panic!("a command has no definition") };
    Command { definition, scope, respond, route, is_maintenance: false }
}

impl Command {
    pub(super) const fn without_deadline(mut self) -> Self {
        self.is_maintenance = true;
        self
    }
}
