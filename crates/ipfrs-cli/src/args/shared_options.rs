//! Options that a command shares with the RPC. Names, defaults and help come from the definition of the RPC. The field
//! has one of the names, by which the definition is found, the Rust type of the value, and checks.

use clap::{Arg, ArgAction, Command};
use ipfrs_rpc::commands::{self, Definition, Kind, Opt};

/// Completes the options of a command and of all commands below it.
pub(super) fn complete(command: Command) -> Command {
    complete_below(command, "")
}

fn complete_below(command: Command, parent: &str) -> Command {
    let path = path(parent, command.get_name());
    let command = match commands::find(&path) {
        Some(definition) => command.mut_args(|option| match defined(&option, definition) {
            Some(defined) => completed(option, defined),
            None => option,
        }),
        None => command,
    };
    command.mut_subcommands(|below| complete_below(below, &path))
}

/// Returns the path of a command in the RPC.
pub(super) fn path(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") }
}

/// Returns the definition of an option, if the RPC has it.
pub(super) fn defined(option: &Arg, definition: &Definition) -> Option<&'static Opt> {
    definition.own_options().find(|defined| defined.names().iter().any(|name| has_name(option, name)))
}

fn has_name(option: &Arg, name: &str) -> bool {
    let is_short = option.get_short().is_some_and(|short| name.chars().eq([short]));
    is_short || option.get_long() == Some(name)
}

fn completed(option: Arg, defined: &'static Opt) -> Arg {
    debug_assert!(option.get_help().is_none(), "{}: the help of the RPC is used", defined.name());
    debug_assert!(option.get_default_values().is_empty(), "{}: the default of the RPC is used", defined.name());
    let option = defined.names().iter().copied().fold(option, named);
    let takes_value = matches!(option.get_action(), ArgAction::Set);
    let option = match defined.kind() {
        // As in Kubo, `--name` stands for `--name=true`.
        Kind::Bool if takes_value => {
            option.value_name("BOOL").num_args(0..=1).require_equals(true).default_missing_value("true")
        }
        _ => option,
    };
    let help = defined.help_text().unwrap_or_default();
    match defined.default_value() {
        None => option.help(help),
        Some(default) if option.is_required_set() => option.help(help).required(false).default_value(default),
        // The daemon applies the default, so that the request has only what the user gives.
        Some(default) => option.help(format!("{help} [default: {default}]")),
    }
}

/// Adds a name to those of an option.
fn named(option: Arg, name: &'static str) -> Arg {
    if has_name(&option, name) {
        return option;
    }
    let mut letters = name.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if option.get_short().is_none() => option.short(letter),
        (Some(letter), None) => option.short_alias(letter),
        _ if option.get_long().is_none() => option.long(name),
        _ => option.alias(name),
    }
}
