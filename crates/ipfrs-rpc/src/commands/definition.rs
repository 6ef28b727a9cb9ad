//! A command without its handler: path, arguments and options.

use super::option::Opt;

/// Options of every command.
const GLOBALS: &[Opt] = &[
    Opt::text(&["cid-base"]),
    Opt::bool(&["upgrade-cidv0-in-output"]),
    // The server processes the global ones before the command's own options.
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

/// Definition of an RPC command.
#[derive(Debug)]
pub struct Definition {
    /// Path after `/api/v0/`.
    pub path: &'static str,
    /// Summary for documentation.
    pub summary: &'static str,
    /// Arguments, in order.
    pub arguments: &'static [Argument],
    /// All options except those of its group and the global ones.
    pub options: &'static [Opt],
    /// Options of all commands of its group.
    pub group_options: &'static [Opt],
}

/// Returns the definition of a command without arguments and options.
pub(super) const fn command(path: &'static str, summary: &'static str) -> Definition {
    Definition { path, summary, arguments: &[], options: &[], group_options: &[] }
}

impl Definition {
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

    /// Returns the tables of its options: its own, those of its group, and the global ones.
    pub fn tables(&self) -> [&'static [Opt]; 3] {
        [self.options, self.group_options, GLOBALS]
    }

    /// Returns its options, the global ones at the end.
    pub fn all_options(&self) -> impl Iterator<Item = &'static Opt> {
        self.tables().into_iter().flatten()
    }

    /// Returns its options without the global ones.
    pub fn own_options(&self) -> impl Iterator<Item = &'static Opt> {
        [self.options, self.group_options].into_iter().flatten()
    }

    /// Returns the arguments in the query, in order.
    pub fn texts(&self) -> impl Iterator<Item = &'static Argument> {
        self.arguments.iter().filter(|argument| !argument.is_file)
    }

    /// Returns the argument that is the body, if there is one.
    pub fn file(&self) -> Option<&'static Argument> {
        self.arguments.iter().find(|argument| argument.is_file)
    }

    /// Returns the last argument if it may be in the body, in which Kubo's clients send standard input.
    pub fn argument_in_body(&self) -> Option<&'static Argument> {
        self.arguments.last().filter(|argument| argument.is_in_body)
    }
}

/// An argument of a command.
#[derive(Debug)]
pub struct Argument {
    /// Name in error messages.
    pub name: &'static str,
    /// Whether the command needs the argument.
    pub is_required: bool,
    /// Whether there may be several.
    pub is_repeated: bool,
    /// Whether the body is the argument. It is a file, or files if repeated.
    pub is_file: bool,
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
