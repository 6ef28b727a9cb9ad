//! Comparison of the options of the commands that the RPC also has with the definitions of the RPC.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, ArgAction, Command, CommandFactory};
use ipfrs_rpc::commands::{self, Effect, Opt};

use super::Cli;
use super::shared_options::{defined, path};

/// A command, names of options, and the reason why they differ.
type Exception = (&'static str, &'static [&'static str], &'static str);

/// Options of the RPC that commands do not have. Those without an effect need not be here.
const LEFT_OUT: &[Exception] = &[
    ("block/put", &["format", "f"], "an older form of --cid-codec"),
    ("block/put", &["mhlen"], "truncated digests are for special cases"),
    ("cid/bases", &["prefix", "numeric"], "everything is printed"),
    ("cid/codecs", &["numeric", "n", "supported", "s"], "everything is printed"),
    ("cid/hashes", &["numeric", "n"], "everything is printed"),
    ("config", &["bool", "json", "expand-auto"], "the command is about config.toml"),
    ("files/ls", &["U"], "entries are always in order"),
    ("files/rm", &["flush", "f"], "the change is durable at once"),
    ("files/stat", &["format", "hash", "size"], "everything is printed"),
    ("ls", &["headers", "v", "resolve-type", "size", "long", "l"], "there is one form of output"),
    ("ls", &["stream", "s"], "entries are always printed as they arrive"),
    ("name/resolve", &["dht-timeout", "dhtt"], "there is no DHT"),
    ("name/resolve", &["stream", "s"], "there is one result"),
    ("pin/ls", &["stream", "s"], "pins are always printed as they arrive"),
    ("repo/gc", &["stream-errors"], "errors are always printed"),
    ("repo/stat", &["dead-bytes"], "always printed"),
    ("resolve", &["dht-timeout", "dhtt"], "there is no DHT"),
    ("stats/bitswap", &["verbose", "v", "human"], "there is one form of output"),
    ("stats/bw", &["poll", "interval", "i"], "totals are printed once"),
    ("stats/repo", &["size-only", "s", "human", "H", "dead-bytes"], "options of repo stat"),
    ("swarm/peers", &["streams", "latency", "direction", "identify"], "--verbose stands for all of them"),
    ("version", &["number", "n", "commit", "repo", "all"], "there is one version"),
];

/// Options that the RPC does not have.
const OWN: &[Exception] = &[
    ("cid/format", &["format", "version"], "long names of -f and -v"),
    ("dag/export", &["output", "o"], "a file that is replaced when it is complete"),
    ("dag/import", &["progress", "p"], "drawn here"),
    ("pin/add", &["p"], "short name of --progress everywhere"),
    ("repo/gc", &["p"], "short name of --progress everywhere"),
    ("repo/verify", &["progress", "p", "quiet", "q"], "drawn and printed here"),
];

/// Options whose values have another type.
const OTHER_TYPE: &[Exception] = &[("add", &["mode"], "octal also without a leading zero")];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flag,
    Number,
    Text,
}

/// Commands by their paths.
type Commands = BTreeMap<String, Command>;

fn pairs(exceptions: &[Exception]) -> BTreeSet<(String, String)> {
    let each = exceptions.iter().flat_map(|(command, names, _)| names.iter().map(move |name| (*command, *name)));
    each.map(|(command, name)| (command.to_owned(), name.to_owned())).collect()
}

/// Returns all names of an option, without dashes.
fn names(option: &Arg) -> Vec<String> {
    let long = option.get_long().into_iter().chain(option.get_all_aliases().into_iter().flatten()).map(str::to_owned);
    let short = option.get_short().into_iter().chain(option.get_all_short_aliases().into_iter().flatten());
    long.chain(short.map(String::from)).collect()
}

fn kind(option: &Arg) -> Kind {
    let parsed = option.get_value_parser().type_id();
    let is_one_of = |types: &[TypeId]| types.iter().any(|known| parsed == *known);
    if matches!(option.get_action(), ArgAction::SetTrue) || is_one_of(&[TypeId::of::<bool>()]) {
        return Kind::Flag;
    }
    let unsigned = [TypeId::of::<u8>(), TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>()];
    let is_number = is_one_of(&unsigned) || is_one_of(&[TypeId::of::<i32>(), TypeId::of::<i64>()]);
    if is_number { Kind::Number } else { Kind::Text }
}

/// Adds the commands below a command.
fn add_offered(command: &Command, parent: &str, found: &mut Commands) {
    for below in command.get_subcommands() {
        let path = path(parent, below.get_name());
        add_offered(below, &path, found);
        found.insert(path, below.clone());
    }
}

fn offered() -> Commands {
    let mut found = Commands::new();
    add_offered(&Cli::command(), "", &mut found);
    found
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|option| !option.is_positional())
}

/// Returns the kind of value of an option of the RPC.
fn kind_in_rpc(option: &Opt) -> Kind {
    match option.kind() {
        commands::Kind::Bool => Kind::Flag,
        commands::Kind::Int | commands::Kind::Int64 | commands::Kind::Uint | commands::Kind::Uint64 => Kind::Number,
        commands::Kind::Text | commands::Kind::List => Kind::Text,
    }
}

#[test]
fn options_are_those_that_the_rpc_defines() {
    let by_path = offered();
    let (mut left_out, mut own, mut other_type) = (pairs(LEFT_OUT), pairs(OWN), pairs(OTHER_TYPE));
    let (mut compared, mut differences) = (0, Vec::new());
    for definition in commands::all() {
        let Some(command) = by_path.get(definition.path) else { continue };
        compared += 1;
        let path = definition.path;
        let offered: BTreeMap<_, _> = options(command)
            .flat_map(|option| names(option).into_iter().map(move |name| (name, kind(option))))
            .collect();
        for option in definition.own_options() {
            let has_effect = !matches!(option.effect(), Effect::Unused | Effect::Refused(_));
            let kind = kind_in_rpc(option);
            for name in option.names() {
                let pair = (path.to_owned(), (*name).to_owned());
                match offered.get(*name) {
                    None if has_effect && !left_out.remove(&pair) => {
                        differences.push(format!("{path}: {name} is not offered"));
                    }
                    Some(other) if *other != kind && !other_type.remove(&pair) => {
                        differences.push(format!("{path}: {name} is a {other:?}, and the RPC has a {kind:?}"));
                    }
                    _ => {}
                }
            }
        }
        let in_rpc: BTreeSet<_> = definition.own_options().flat_map(Opt::names).copied().collect();
        for name in offered.keys().filter(|name| !in_rpc.contains(name.as_str())) {
            if !own.remove(&(path.to_owned(), name.clone())) {
                differences.push(format!("{path}: {name} is not an option of the RPC"));
            }
        }
    }
    assert!(compared > 60, "{compared}");
    assert!(differences.is_empty(), "{differences:#?}");
    let unused: Vec<_> = left_out.iter().chain(&own).chain(&other_type).collect();
    assert!(unused.is_empty(), "no longer exceptions: {unused:?}");
}

#[test]
fn shared_options_are_described_by_the_rpc() {
    let (by_path, mut shared) = (offered(), 0);
    for definition in commands::all() {
        for option in by_path.get(definition.path).into_iter().flat_map(options) {
            let Some(defined) = defined(option, definition) else { continue };
            shared += 1;
            let place = format!("{}: {}", definition.path, defined.name());
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            let described = defined.help_text().unwrap_or_else(|| panic!("{place} has no help"));
            let rest = help.strip_prefix(described).unwrap_or_else(|| panic!("{place}: {help}"));
            let defaults: Vec<_> = option.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
            match defined.default_value() {
                None => assert!(rest.is_empty() && defaults.is_empty(), "{place}: {help}, {defaults:?}"),
                Some(default) if defaults.is_empty() => assert_eq!(rest, format!(" [default: {default}]"), "{place}"),
                Some(default) => assert!(rest.is_empty() && defaults == [default], "{place}: {help}, {defaults:?}"),
            }
        }
    }
    assert!(shared > 140, "{shared}");
}
