//! Definitions of the commands of Kubo's RPC: their arguments, and every option that Kubo defines for them. The server
//! adds access, response and handler to each. The command line takes names, defaults and help of options from here.

mod content;
mod daemon;
mod dag;
mod definition;
mod files;
mod names;
mod network;
mod option;
mod pins;
mod shared;

pub use self::definition::{Argument, Definition};
pub use self::option::{Effect, Kind, Opt};

const GROUPS: [&[Definition]; 7] = [
    content::COMMANDS,
    dag::COMMANDS,
    files::COMMANDS,
    names::COMMANDS,
    pins::COMMANDS,
    network::COMMANDS,
    daemon::COMMANDS,
];

/// Returns all definitions.
pub fn all() -> impl Iterator<Item = &'static Definition> {
    GROUPS.into_iter().flatten()
}

/// Returns the definition of the command at a path after `/api/v0/`. The server calls it for constants, in which a
/// command without a definition is then a compile error.
pub const fn find(path: &str) -> Option<&'static Definition> {
    let mut group = 0;
    while group < GROUPS.len() {
        let commands = GROUPS[group];
        let mut index = 0;
        while index < commands.len() {
            if is_same(commands[index].path, path) {
                return Some(&commands[index]);
            }
            index += 1;
        }
        group += 1;
    }
    None
}

/// Compares texts in constants, in which `==` is not available.
const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

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

    #[test]
    fn commands_are_found_by_their_whole_path() {
        for command in all() {
            assert_eq!(find(command.path).map(|found| found.path), Some(command.path));
        }
        for unknown in ["", "ad", "adds", "files", "pin/addd"] {
            assert!(find(unknown).is_none(), "{unknown}");
        }
    }
}
