//! The commands: definitions of `ipfrs-rpc`, each with its access, its response and its handler.

mod content;
mod daemon;
mod dag;
mod files;
mod names;
mod network;
mod pins;
mod responses;

use std::collections::BTreeSet;

use ipfrs_rpc::commands::all as definitions;

use super::command::Command;

/// Returns all commands.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    [content::COMMANDS, dag::COMMANDS, files::COMMANDS, names::COMMANDS, pins::COMMANDS]
        .into_iter()
        .chain([network::COMMANDS, daemon::COMMANDS])
        .flatten()
}

/// Returns the prefixes of commands that are no commands.
pub(super) fn groups() -> BTreeSet<&'static str> {
    let prefixes = |path: &'static str| path.match_indices('/').map(move |(end, _)| &path[..end]);
    let paths = || definitions().map(|command| command.path);
    let is_command = |prefix: &&str| paths().any(|path| path == *prefix);
    paths().flat_map(prefixes).filter(|prefix| !is_command(prefix)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_definition_has_one_command() {
        let served: Vec<_> = all().map(|command| command.definition.path).collect();
        let (paths, defined): (BTreeSet<_>, BTreeSet<_>) =
            (served.iter().copied().collect(), definitions().map(|command| command.path).collect());
        assert_eq!(served.len(), paths.len(), "a command is served twice");
        assert_eq!(paths, defined);
    }
}
