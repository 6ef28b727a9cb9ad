//! Definitions of commands. Everything else about a command follows from its definition: its route, how its arguments
//! and options are parsed, and what `commands` and the OpenAPI document say about it.

use axum::routing::MethodRouter;
use ipfrs_middleware::auth::Scope;

use super::options::Opt;
use crate::openapi::operation::Described;
use crate::state::AppState;

/// Options of every command.
static GLOBALS: &[Opt] = &[
    Opt::text(&["cid-base"]),
    Opt::bool(&["upgrade-cidv0-in-output"]),
    // The global ones are processed by `globals` before the command's own options.
    Opt::text(&["timeout"]).global(),
    Opt::text(&["encoding", "enc"]).global(),
    Opt::bool(&["offline"]).global(),
    Opt::bool(&["stream-channels"]).unused(),
    Opt::bool(&["local", "L"]).global(),
    Opt::bool(&["debug", "D"]).unused(),
    Opt::bool(&["help"]).unused(),
    Opt::bool(&["h"]).unused(),
    Opt::text(&["repo-dir"]).unused(),
    Opt::text(&["config-file"]).unused(),
    Opt::text(&["config", "c"]).unused(),
    Opt::text(&["api"]).unused(),
    Opt::text(&["api-auth"]).unused(),
];

/// Adds the response of a command to its description.
pub(crate) type Respond = fn(Described) -> Described;

/// An RPC command.
#[derive(Debug)]
pub(crate) struct Command {
    /// Path after `/api/v0/`.
    pub(crate) path: &'static str,
    /// Scope that a caller needs.
    pub(crate) scope: Scope,
    pub(crate) summary: &'static str,
    pub(crate) respond: Respond,
    pub(crate) route: fn() -> MethodRouter<AppState>,
    pub(crate) arguments: &'static [Argument],
    /// All options except those of its group and the global ones.
    pub(crate) options: &'static [Opt],
    /// Options of all commands of its group.
    pub(crate) group_options: &'static [Opt],
    /// Whether the command is maintenance of an operator, which is exempt from the request deadline. It also ends if
    /// its output is not read.
    pub(crate) is_maintenance: bool,
}

/// Returns the definition of a command without arguments and options.
pub(super) const fn command(
    path: &'static str,
    scope: Scope,
    summary: &'static str,
    respond: Respond,
    route: fn() -> MethodRouter<AppState>,
) -> Command {
    Command {
        path,
        scope,
        summary,
        respond,
        route,
        arguments: &[],
        options: &[],
        group_options: &[],
        is_maintenance: false,
    }
}

impl Command {
    pub(super) const fn arguments(mut self, arguments: &'static [Argument]) -> Self {
        self.arguments = arguments;
        self
    }

    pub(super) const fn options(mut self, options: &'static [Opt]) -> Self {
        self.options = options;
        self
    }

    pub(super) const fn in_group(mut self, options: &'static [Opt]) -> Self {
        self.group_options = options;
        self
    }

    pub(super) const fn without_deadline(mut self) -> Self {
        self.is_maintenance = true;
        self
    }

    /// Returns the tables of its options: its own, those of its group, and the global ones.
    pub(crate) fn tables(&self) -> [&'static [Opt]; 3] {
        [self.options, self.group_options, GLOBALS]
    }

    /// Returns its options, the global ones at the end.
    pub(crate) fn all_options(&self) -> impl Iterator<Item = &'static Opt> {
        self.tables().into_iter().flatten()
    }

    /// Returns the arguments in the query, in order.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &'static Argument> {
        self.arguments.iter().filter(|argument| !argument.is_file)
    }

    /// Returns the argument that is the body, if there is one.
    pub(crate) fn file(&self) -> Option<&'static Argument> {
        self.arguments.iter().find(|argument| argument.is_file)
    }

    /// Returns the last argument if it may be in the body, in which Kubo's clients send standard input.
    pub(crate) fn argument_in_body(&self) -> Option<&'static Argument> {
        self.arguments.last().filter(|argument| argument.is_in_body)
    }
}

/// An argument of a command.
#[derive(Debug)]
pub(crate) struct Argument {
    /// Name in error messages.
    pub(crate) name: &'static str,
    pub(crate) is_required: bool,
    /// Whether there may be several.
    pub(crate) is_repeated: bool,
    /// Whether the body is the argument. It is a file, or files if repeated.
    pub(crate) is_file: bool,
    /// Whether a body may have the argument, one in each line.
    is_in_body: bool,
}

/// Returns a required argument in the query.
pub(super) const fn text(name: &'static str) -> Argument {
    Argument { name, is_required: true, is_repeated: false, is_file: false, is_in_body: false }
}

/// Returns a required argument that is the body.
pub(super) const fn file(name: &'static str) -> Argument {
    Argument { is_file: true, ..text(name) }
}

impl Argument {
    pub(super) const fn optional(mut self) -> Self {
        self.is_required = false;
        self
    }

    pub(super) const fn repeated(mut self) -> Self {
        self.is_repeated = true;
        self
    }

    pub(super) const fn in_body(mut self) -> Self {
        self.is_in_body = true;
        self
    }
}
