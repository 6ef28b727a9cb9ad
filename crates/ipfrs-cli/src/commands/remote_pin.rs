//! `pin remote add|ls|rm|service`.

use std::io;

use anyhow::{Context, Result};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{RemotePin, RemoteServices};

use crate::api::Api;
use crate::args::{RemotePinAddArgs, RemotePinCommand, RemotePinLsArgs, RemotePinRmArgs, RemoteServiceCommand};
use crate::output::{Output, printable};

/// Maximum size of an empty response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

pub(super) async fn run(api: &Api, command: RemotePinCommand, out: &mut Output) -> Result<()> {
    match command {
        RemotePinCommand::Add(args) => add(api, &args, out).await,
        RemotePinCommand::Ls(args) => ls(api, &args, out).await,
        RemotePinCommand::Rm(args) => rm(api, &args).await,
        RemotePinCommand::Service(RemoteServiceCommand::Add { name, endpoint, key }) => {
            let key = if key == "-" { read_key()? } else { key };
            done(api, Request::command("pin/remote/service/add").with_args([&name, &endpoint, &key])).await
        }
        RemotePinCommand::Service(RemoteServiceCommand::Rm { name }) => {
            done(api, Request::command("pin/remote/service/rm").with_arg(&name)).await
        }
        RemotePinCommand::Service(RemoteServiceCommand::Ls { stat }) => services(api, stat, out).await,
    }
}

fn read_key() -> Result<String> {
    let mut key = String::new();
    io::stdin().read_line(&mut key).context("cannot read the key from standard input")?;
    Ok(key.trim().to_owned())
}

async fn done(api: &Api, request: Request) -> Result<()> {
    api.call(request).await?.bytes(MAX_RESPONSE_BYTES).await?;
    Ok(())
}

async fn add(api: &Api, args: &RemotePinAddArgs, out: &mut Output) -> Result<()> {
    let request = Request::command("pin/remote/add")
        .with_arg(&args.path)
        .with("service", &args.service)
        .with_some("name", args.name.as_ref())
        .with("background", args.background);
    let pin: RemotePin = api.call(request).await?.json().await?;
    print(&pin, out)
}

fn print(pin: &RemotePin, out: &mut Output) -> Result<()> {
    match out.is_json() {
        true => out.object(pin),
        false => out.line(format!("{} {} {}", pin.cid, pin.status, printable(&pin.name)).trim_end()),
    }
}

/// Adds the selection of pins to a request.
fn selecting(request: Request, args: &RemotePinLsArgs) -> Request {
    let request = request.with("service", &args.service).with_some("name", args.name.as_ref());
    let request = args.cid.iter().fold(request, |request, cid| request.with("cid", cid));
    args.status.iter().fold(request, |request, status| request.with("status", status))
}

async fn ls(api: &Api, args: &RemotePinLsArgs, out: &mut Output) -> Result<()> {
    let mut response = api.call(selecting(Request::query("pin/remote/ls"), args)).await?;
    while let Some(pin) = response.line::<RemotePin>().await? {
        print(&pin, out)?;
    }
    Ok(())
}

async fn rm(api: &Api, args: &RemotePinRmArgs) -> Result<()> {
    done(api, selecting(Request::command("pin/remote/rm"), &args.which).with("force", args.force)).await
}

async fn services(api: &Api, stat: bool, out: &mut Output) -> Result<()> {
    let request = Request::query("pin/remote/service/ls").with("stat", stat);
    let listed: RemoteServices = api.call(request).await?.json().await?;
    for service in &listed.remote_services {
        if out.is_json() {
            out.object(service)?;
            continue;
        }
        let stat = service.stat.as_ref().map_or_else(String::new, |stat| match stat.pin_count {
            Some(count) => format!("{}/{}/{}/{}", count.queued, count.pinning, count.pinned, count.failed),
            None => stat.status.clone(),
        });
        let (name, endpoint) = (printable(&service.service), printable(&service.api_endpoint));
        out.line(format!("{name} {endpoint} {stat}").trim_end())?;
    }
    Ok(())
}
