//! `gateway start|status|stop`.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Result, bail};
use indicatif::HumanBytes;
use ipfrs_core::Error;
use ipfrs_interface::{
    Config, Flag, Gateway, ServerConfig, Signals, inherit_sockets, run_until_signalled, running_url,
    survive_file_length_limit,
};
use ipfrs_rpc::client::Request;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::api::Api;
use crate::args::{GatewayCommand, Globals, StartArgs};
use crate::output::Output;
use crate::runtime;
use crate::session::{Session, Unserved, config_file, config_path, settings};

/// Time that a daemon may need to stop, in addition to its grace period.
const STOP_MARGIN: Duration = Duration::from_secs(15);
/// Interval between checks whether a daemon has stopped.
const STOP_POLL: Duration = Duration::from_millis(50);

pub(super) fn run(globals: &Globals, command: &GatewayCommand, out: &mut Output) -> Result<()> {
    let session = match command {
        GatewayCommand::Start(args) => return start(globals, args, out),
        GatewayCommand::Status { .. } | GatewayCommand::Stop => Session::open_for_daemon(globals)?,
    };
    session.start_quiet_log()?;
    runtime::run(&session.config.server, async {
        if matches!(command, GatewayCommand::Stop) && session.gateway_of_repo().is_some() {
            // It may be starting, or stopping already.
            return stop_holder(&session, out).await;
        }
        let api = session.require_daemon().await?;
        match command {
            GatewayCommand::Stop => stop(&session, &api, out).await,
            GatewayCommand::Status { ready: true } if !api.is_ready().await? => {
                bail!("the gateway at {} is not ready: see {}/health/ready", api.url(), api.url())
            }
            _ => status(&api, out).await,
        }
    })
}

fn start(globals: &Globals, args: &StartArgs, out: &mut Output) -> Result<()> {
    if globals.api.is_some() {
        bail!(
            "gateway start runs a daemon and uses none: omit --api (--host, --port and --api-port are its addresses)"
        );
    }
    let flags = [
        ("--host", ("server", "host"), args.host.clone()),
        ("--port", ("server", "port"), args.port.map(|port| port.to_string())),
        ("--grpc-port", ("grpc", "port"), args.grpc_port.map(|port| port.to_string())),
        ("--api-port", ("api", "port"), args.api_port.map(|port| port.to_string())),
        ("--workers", ("server", "workers"), args.workers.map(|workers| workers.to_string())),
        ("--read-only", ("store", "read_only"), args.read_only.then(|| "true".to_owned())),
    ];
    let flags = flags.into_iter().filter_map(|(flag, key, value)| Some(Flag { flag, key, value: value? }));
    let flags: Vec<_> = flags.collect();
    // While there is only this thread.
    inherit_sockets()?;
    let had_file = Cell::new(config_file(globals)?.is_some());
    let session = Session::open(globals, flags.clone())?;
    let Config { grpc, api, .. } = &session.config;
    for (port, flag, is_enabled, key) in [
        (args.grpc_port, "--grpc-port", grpc.enabled, "grpc.enabled"),
        (args.api_port, "--api-port", api.enabled, "api.enabled"),
    ] {
        if port.is_some() && !is_enabled {
            bail!("{flag} has no effect with {key} = false: omit it, or set {key} = true");
        }
    }
    runtime::run(&session.config.server, async {
        // Dropped before the runtime ends, which exports the last traces.
        let _logging = session.config.log.start()?;
        survive_file_length_limit()?;
        let mut gateway = Gateway::bind(&session.config, &session.repo).await?;
        let signals = Signals::listen()?;
        if let Err(error) = announce(&session, &gateway, out) {
            tracing::warn!("the addresses cannot be printed: {error:#}");
        }
        let read = || read_again(globals, &flags, &had_file).map_err(|error| Error::invalid(format!("{error:#}")));
        Ok(run_until_signalled(&mut gateway, signals, read).await?)
    })
}

/// Reads the configuration for a reload. A file that was there before may be absent for a moment, while a program
/// replaces it.
fn read_again(globals: &Globals, flags: &[Flag], had_file: &Cell<bool>) -> Result<Config> {
    let has_file = config_file(globals)?.is_some();
    if had_file.get() && !has_file {
        bail!("the configuration {} is missing: restart to continue without it", config_path(globals)?.display());
    }
    let config = settings(globals, flags.to_vec())?.config()?;
    had_file.set(has_file);
    Ok(config)
}

fn announce(session: &Session, gateway: &Gateway, out: &mut Output) -> Result<()> {
    let (urls, grpc, api) = (gateway.urls(), gateway.grpc_addresses(), gateway.api_addresses());
    if out.is_json() {
        let pid = std::process::id();
        let public = gateway.public_addresses();
        return out.object(
            &json!({ "repo": session.repo, "urls": urls, "grpc": grpc, "api": api, "public": public, "pid": pid }),
        );
    }
    let scheme = if session.config.tls.enabled { "https" } else { "http" };
    out.line(&format!("Repo: {}", session.repo.display()))?;
    for url in urls {
        out.line(&format!("Gateway: {url}"))?;
    }
    for address in api {
        out.line(&format!("API: {scheme}://{address}"))?;
    }
    for address in grpc {
        out.line(&format!("gRPC: {address}"))?;
    }
    for address in gateway.public_addresses() {
        out.line(&format!("Public: {scheme}://{address}"))?;
    }
    out.line("Ready")
}

async fn status(api: &Api, out: &mut Output) -> Result<()> {
    let version = api.version().await?;
    let is_ready = api.is_ready().await?;
    let listeners = api.listeners().await?;
    let repo = api.repo_stat().await?;
    if out.is_json() {
        return out.object(&json!({
            "url": api.url(),
            "grpc": listeners.grpc,
            "api": listeners.api,
            "ready": is_ready,
            "version": version,
            "repo": repo.repo_path,
            "blocks": repo.num_objects,
            "disk_bytes": repo.repo_size,
        }));
    }
    out.line(&format!("Gateway: {} ({})", api.url(), if is_ready { "ready" } else { "not ready" }))?;
    let scheme = api.url().split("://").next().unwrap_or("http");
    for address in listeners.api {
        out.line(&format!("API: {scheme}://{address}"))?;
    }
    for address in listeners.grpc {
        out.line(&format!("gRPC: {address}"))?;
    }
    out.line(&format!("Version: {version}"))?;
    out.line(&format!("Repo: {}", repo.repo_path.unwrap_or_default()))?;
    out.line(&format!("Blocks: {}", repo.num_objects.unwrap_or(0)))?;
    out.line(&format!("On disk: {}", HumanBytes(repo.repo_size)))
}

async fn stop(session: &Session, api: &Api, out: &mut Output) -> Result<()> {
    api.call(Request::command("shutdown")).await?;
    let deadline = Instant::now() + grace(session);
    while is_there(session, api).await? {
        if Instant::now() > deadline {
            bail!("the gateway at {} did not stop in time: see its log", api.url());
        }
        sleep(STOP_POLL).await;
    }
    if out.is_json() {
        return out.object(&json!({ "url": api.url(), "stopped": true }));
    }
    out.line(&format!("stopped {}", api.url()))
}

/// Stops the gateway that has the repo, as soon as it accepts requests, or waits until it has ended.
async fn stop_holder(session: &Session, out: &mut Output) -> Result<()> {
    let deadline = Instant::now() + grace(session);
    while let Some(holder) = session.gateway_of_repo() {
        match session.find_daemon().await? {
            Ok(api) => return stop(session, &api, out).await,
            Err(Unserved::Busy(how)) => bail!("{how}: try again later, or send SIGTERM to {holder}"),
            Err(Unserved::Absent) if Instant::now() > deadline => {
                bail!("{holder} accepts no requests, and did not stop in time: see its log")
            }
            Err(Unserved::Absent) => sleep(STOP_POLL).await,
        }
    }
    if out.is_json() {
        return out.object(&json!({ "stopped": true }));
    }
    out.line("stopped")
}

/// Returns the time that a daemon may take to stop.
fn grace(session: &Session) -> Duration {
    let ServerConfig { shutdown_grace_seconds, .. } = session.config.server;
    Duration::from_secs(shutdown_grace_seconds) + STOP_MARGIN
}

/// Whether the daemon is still running. The daemon of this session's repo removes its URL file when it has stopped. A
/// daemon of another repo is only visible through its port.
async fn is_there(session: &Session, api: &Api) -> Result<bool> {
    match running_url(&session.repo)? {
        Some(url) if url == api.url() => Ok(true),
        _ => Ok(api.version().await.is_ok()),
    }
}
