//! Comparison of the options of the commands that the RPC also has with the definitions of the RPC.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, ArgAction, Command, CommandFactory};
use ipfrs_interface::{Config, Embedded};
use ipfrs_rpc::client::Request;
use serde_json::Value;

use super::Cli;
use crate::api::Api;

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
    ("files/chmod", &["flush", "f"], "the change is durable at once"),
    ("files/flush", &["flush", "f"], "it is what the command does"),
    ("files/ls", &["flush", "f"], "nothing is written"),
    ("files/ls", &["U"], "entries are always in order"),
    ("files/read", &["flush", "f"], "nothing is written"),
    ("files/rm", &["flush", "f"], "the change is durable at once"),
    ("files/stat", &["flush", "f"], "nothing is written"),
    ("files/stat", &["format", "hash", "size"], "everything is printed"),
    ("files/touch", &["flush", "f"], "the change is durable at once"),
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

/// An option as the RPC defines it.
struct Defined {
    kind: Kind,
    /// Whether the response depends on it.
    has_effect: bool,
}

type ByCommand<T> = BTreeMap<String, BTreeMap<String, T>>;

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

/// Adds the options of the commands below a command.
fn add_offered(command: &Command, path: &str, found: &mut ByCommand<Kind>) {
    for below in command.get_subcommands() {
        let name = below.get_name();
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        let options = below.get_arguments().filter(|option| !option.is_positional());
        let kinds = options.flat_map(|option| names(option).into_iter().map(move |name| (name, kind(option))));
        found.insert(path.clone(), kinds.collect());
        add_offered(below, &path, found);
    }
}

/// Returns the options of all commands of the RPC, from its OpenAPI document.
fn defined(document: &Value) -> ByCommand<Defined> {
    let parameters_of = |path: &Value| path["post"]["parameters"].as_array().cloned().unwrap_or_default();
    // The command has only the options of all commands.
    let of_all = parameters_of(&document["paths"]["/api/v0/shutdown"]);
    let is_of_all = |option: &&Value| of_all.iter().any(|known| known["name"] == option["name"]);
    let mut commands = ByCommand::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        let Some(command) = path.strip_prefix("/api/v0/") else { continue };
        let options = commands.entry(command.to_owned()).or_default();
        for option in parameters_of(item).iter().filter(|option| option["name"] != "arg" && !is_of_all(option)) {
            let kind = match option["schema"]["type"].as_str() {
                Some("boolean") => Kind::Flag,
                Some("integer") => Kind::Number,
                _ => Kind::Text,
            };
            let description = option["description"].as_str().unwrap_or_default();
            let has_effect = !["No effect", "Not supported"].iter().any(|text| description.contains(text));
            // The description begins with: Also `e`, `edge`.
            let others = description.strip_prefix("Also ").and_then(|rest| Some(rest.split_once('.')?.0));
            let others = others.into_iter().flat_map(|others| others.split(", ")).map(|name| name.trim_matches('`'));
            for name in option["name"].as_str().into_iter().chain(others) {
                options.insert(name.to_owned(), Defined { kind, has_effect });
            }
        }
    }
    commands
}

#[tokio::test(flavor = "multi_thread")]
async fn options_are_those_that_the_rpc_defines() {
    let repo = tempfile::tempdir().unwrap();
    let api = Api::local(Embedded::open(&Config::default(), repo.path(), "a test").await.unwrap());
    let document: Value = api.call(Request::get("/openapi.json")).await.unwrap().json().await.unwrap();
    api.close().await.unwrap();
    let mut offered = ByCommand::new();
    add_offered(&Cli::command(), "", &mut offered);
    let (mut left_out, mut own, mut other_type) = (pairs(LEFT_OUT), pairs(OWN), pairs(OTHER_TYPE));
    let (mut compared, mut differences) = (0, Vec::new());
    for (command, defined) in &defined(&document) {
        let Some(offered) = offered.get(command) else { continue };
        compared += 1;
        for (name, Defined { kind, has_effect }) in defined {
            let pair = (command.clone(), name.clone());
            match offered.get(name) {
                None if *has_effect && !left_out.remove(&pair) => {
                    differences.push(format!("{command}: {name} is not offered"));
                }
                Some(other) if other != kind && !other_type.remove(&pair) => {
                    differences.push(format!("{command}: {name} is a {other:?}, and the RPC has a {kind:?}"));
                }
                _ => {}
            }
        }
        for name in offered.keys().filter(|name| !defined.contains_key(*name)) {
            if !own.remove(&(command.clone(), name.clone())) {
                differences.push(format!("{command}: {name} is not an option of the RPC"));
            }
        }
    }
    assert!(compared > 60, "{compared}");
    assert!(differences.is_empty(), "{differences:#?}");
    let unused: Vec<_> = left_out.iter().chain(&own).chain(&other_type).collect();
    assert!(unused.is_empty(), "no longer exceptions: {unused:?}");
}
