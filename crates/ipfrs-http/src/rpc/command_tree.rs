//! `commands` and `version/deps`: what this daemon serves, and what it was built from.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::Extension;
use futures::stream;
use ipfrs_rpc::commands::{Definition, Opt};
use ipfrs_rpc::types::{CommandOption, CommandTree, Dependency};

use super::args::Args;
use super::command_result::CommandResult;
use super::output;

/// Resolved packages of the workspace from which the daemon is built. The file is a symlink inside the crate, so that
/// source distributions contain it.
const LOCK_FILE: &str = include_str!("../../packages.lock");

/// `commands[?flags=]`: returns all commands as a tree with their options. As in Kubo, `flags` affects only how a
/// command line prints them.
pub(super) async fn commands(Extension(tree): Extension<Arc<CommandTree>>) -> CommandResult {
    Ok(output::object(&*tree))
}

/// Returns commands as a tree.
pub(super) fn tree(commands: impl Iterator<Item = &'static Definition>) -> CommandTree {
    let (mut root, mut globals) = (Branch::default(), [].as_slice());
    for command in commands {
        let [options, group_options, of_all] = command.tables();
        globals = of_all;
        let mut branch = &mut root;
        for (depth, name) in command.path.split('/').enumerate() {
            branch = branch.below.entry(name).or_default();
            if depth == 0 && !group_options.is_empty() {
                branch.options = group_options;
            }
        }
        branch.options = options;
    }
    root.tree("ipfs", globals)
}

/// A command, or a prefix of commands.
#[derive(Default)]
struct Branch {
    options: &'static [Opt],
    below: BTreeMap<&'static str, Branch>,
}

impl Branch {
    fn tree(&self, name: &str, options: &[Opt]) -> CommandTree {
        let names = |option: &Opt| CommandOption { names: option.names().iter().map(ToString::to_string).collect() };
        CommandTree {
            name: name.to_owned(),
            subcommands: self.below.iter().map(|(name, branch)| branch.tree(name, branch.options)).collect(),
            options: options.iter().map(names).collect(),
        }
    }
}

/// `version/deps`: sends a line for this program and for each package of its lock file.
pub(super) async fn dependencies(args: Args) -> CommandResult {
    let own = Dependency {
        path: "ipfrs".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        replaced_by: String::new(),
        sum: String::new(),
    };
    // Packages without a source belong to this repository.
    let others = LOCK_FILE.split("[[package]]").filter_map(package).filter(|package| !package.sum.is_empty());
    let lines = std::iter::once(own).chain(others).map(|package| output::line(&package)).collect::<Vec<_>>();
    Ok(output::objects(stream::iter(lines), args.takes_trailers))
}

/// Parses an entry of the lock file.
fn package(entry: &str) -> Option<Dependency> {
    let value = |key: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    let sum = value("checksum").map(|digest| format!("sha256:{digest}")).unwrap_or_default();
    Some(Dependency { path: value("name")?, version: value("version")?, replaced_by: String::new(), sum })
}
