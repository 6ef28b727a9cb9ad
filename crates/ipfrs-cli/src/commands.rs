//! One module per command.

mod add;
mod attributes;
mod auth;
mod bench;
mod block;
mod cat;
mod cid;
mod completions;
mod config;
mod dag;
mod denylist;
mod doctor;
mod files;
mod filestore;
mod gateway;
mod get;
mod key;
mod ls;
mod migrate;
mod name;
mod network;
mod pin;
mod reads;
mod remote_pin;
mod repo;
mod retrieve;
mod stage;
mod tensor;

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;

use crate::api::Api;
use crate::args::{Cli, Command, Globals, KeyCommand};
use crate::output::Output;
use crate::runtime;
use crate::session::Session;

/// Runs the command given on the command line.
pub(crate) fn run(cli: Cli) -> Result<()> {
    let Cli { globals, command } = cli;
    let mut out = Output::new(globals.json)?;
    let needs_repo = reads::needs_repo(&command);
    match command {
        Command::Gateway(command) => gateway::run(&globals, &command, &mut out),
        Command::Config(command) => config::run(&globals, &command, &mut out),
        Command::Bench(command) => bench::run(&globals, &command, &mut out),
        Command::Doctor => doctor::run(&globals, &mut out),
        Command::Denylist(command) => denylist::run(&command, &mut out),
        Command::Completions { shell } => completions::run(shell, &mut out),
        Command::Man { directory } => man(&directory, &mut out),
        Command::Version => version(&mut out),
        Command::Add(args) => in_session(&globals, needs_repo, "add", async |api| add::run(api, &args, &mut out).await),
        Command::Cat(args) => in_session(&globals, needs_repo, "cat", async |api| cat::run(api, &args, &mut out).await),
        Command::Get(args) => in_session(&globals, needs_repo, "get", async |api| get::run(api, &args, &mut out).await),
        Command::Ls(args) => in_session(&globals, needs_repo, "ls", async |api| ls::run(api, &args, &mut out).await),
        Command::Tensor(command) => {
            in_session(&globals, needs_repo, "tensor", async |api| tensor::run(api, command, &mut out).await)
        }
        Command::Files(command) => {
            in_session(&globals, needs_repo, "files", async |api| files::run(api, command, &mut out).await)
        }
        Command::Filestore(command) => {
            in_session(&globals, needs_repo, "filestore", async |api| filestore::run(api, command, &mut out).await)
        }
        Command::Pin(command) => {
            in_session(&globals, needs_repo, "pin", async |api| pin::run(api, command, &mut out).await)
        }
        Command::Key(KeyCommand::Export(args)) => key::export(&globals, &args, &mut out),
        Command::Key(command) => {
            in_session(&globals, needs_repo, "key", async |api| key::run(api, command, &mut out).await)
        }
        Command::Name(command) => {
            in_session(&globals, needs_repo, "name", async |api| name::run(api, command, &mut out).await)
        }
        Command::Resolve(args) => {
            in_session(&globals, needs_repo, "resolve", async |api| name::resolve(api, &args, &mut out).await)
        }
        Command::Retrieve(args) => {
            in_session(&globals, needs_repo, "retrieve", async |api| retrieve::run(api, &args, &mut out).await)
        }
        Command::Auth(command) => {
            in_session(&globals, needs_repo, "auth", async |api| auth::run(api, command, &mut out).await)
        }
        Command::Repo(command) => repo::run(&globals, &command, &mut out),
        Command::Cid(command) => {
            in_session(&globals, needs_repo, "cid", async |api| cid::run(api, command, &mut out).await)
        }
        Command::Refs(args) => {
            in_session(&globals, needs_repo, "refs", async |api| cid::refs(api, &args, &mut out).await)
        }
        Command::Swarm(command) => {
            in_session(&globals, needs_repo, "swarm", async |api| network::swarm(api, command, &mut out).await)
        }
        Command::Ping(args) => {
            in_session(&globals, needs_repo, "ping", async |api| network::ping(api, &args, &mut out).await)
        }
        Command::Stats(command) => {
            in_session(&globals, needs_repo, "stats", async |api| network::stats(api, command, &mut out).await)
        }
        Command::Migrate(command) => {
            migrate::check_source(&command)?;
            in_session(&globals, needs_repo, "migrate", async |api| {
                migrate::run(api, &globals, command, &mut out).await
            })
        }
        Command::Block(command) => {
            in_session(&globals, needs_repo, "block", async |api| block::run(api, command, &mut out).await)
        }
        Command::Dag(command) => {
            in_session(&globals, needs_repo, "dag", async |api| dag::run(api, command, &mut out).await)
        }
    }
}

/// Runs a command against the daemon, or against the repo itself if no daemon is running. Always releases the repo,
/// even if the command fails. If the command `needs_repo`, no repo is created.
fn in_session(
    globals: &Globals,
    needs_repo: bool,
    command: &str,
    run: impl AsyncFnOnce(&Api) -> Result<()>,
) -> Result<()> {
    let session = Session::open_for_daemon(globals)?;
    if needs_repo {
        session.require_repo_or_configuration()?;
    }
    session.start_quiet_log()?;
    runtime::run(&session.config.server, async {
        let api = session.connect(command).await?;
        let outcome = run(&api).await;
        let closed = api.close().await;
        outcome.and(closed)
    })
}

/// Writes one manual page for each command.
fn man(directory: &Path, out: &mut Output) -> Result<()> {
    if !directory.is_dir() {
        bail!("{} is not a directory: create it first", directory.display());
    }
    let written = clap_mangen::generate_to(Cli::command(), directory);
    written.with_context(|| format!("cannot write the pages to {}", directory.display()))?;
    let pages = std::fs::read_dir(directory)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pages = pages.filter(|name| name.starts_with("ipfrs-cli") && name.ends_with(".1")).count();
    match out.is_json() {
        true => out.object(&serde_json::json!({ "pages": pages })),
        false => out.line(&format!("wrote {pages} pages")),
    }
}

fn version(out: &mut Output) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    if out.is_json() {
        return out.object(&serde_json::json!({ "version": version }));
    }
    out.line(&format!("ipfrs-cli {version}"))
}
