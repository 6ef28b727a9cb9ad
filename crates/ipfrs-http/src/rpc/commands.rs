//! The commands: the source of their routes, their arguments, and every option that Kubo defines for them.

mod content;
mod daemon;
mod dag;
mod files;
mod names;
mod network;
mod pins;
mod responses;
mod shared;

use std::collections::BTreeSet;

use super::definition::Command;

/// Returns all commands.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    [content::COMMANDS, dag::COMMANDS, files::COMMANDS, names::COMMANDS, pins::COMMANDS]
        .into_iter()
        .chain([network::COMMANDS, daemon::COMMANDS])
        .flatten()
}

/// Returns the prefixes of commands that are no commands.
pub(super) fn groups() -> BTreeSet<&'static str> {
    let prefixes = |command: &'static Command| command.path.match_indices('/').map(|(end, _)| &command.path[..end]);
    let is_command = |prefix: &&str| all().any(|command| command.path == *prefix);
    all().flat_map(prefixes).filter(|prefix| !is_command(prefix)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rpc::options::Opt;

    #[test]
    fn definitions_are_unambiguous() {
        let mut paths = BTreeSet::new();
        for command in all() {
            assert!(paths.insert(command.path), "{} is defined twice", command.path);
            let mut names = BTreeSet::new();
            for name in command.all_options().flat_map(Opt::names) {
                assert!(names.insert(*name), "{}: option {name} is defined twice", command.path);
            }
            let mut optional = command.texts().skip_while(|argument| argument.is_required);
            assert!(optional.all(|argument| !argument.is_required), "{}: an optional argument is first", command.path);
        }
    }
}
