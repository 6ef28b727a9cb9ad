//! `pin add|ls|rm|update|verify|remote`.

use anyhow::{Result, bail};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{PinLine, PinnedLine, Pins, VerifiedPin};
use serde::Serialize;

use super::remote_pin;
use crate::api::Api;
use crate::args::{PinAddArgs, PinCommand, PinLsArgs, PinRmArgs, PinUpdateArgs, PinVerifyArgs};
use crate::output::{Output, printable};
use crate::progress::{Progress, Watched};

/// A content ID that was pinned or unpinned, as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Cid<'a> {
    cid: &'a str,
}

pub(super) async fn run(api: &Api, command: PinCommand, out: &mut Output) -> Result<()> {
    match command {
        PinCommand::Add(args) => add(api, &args, out).await,
        PinCommand::Rm(args) => rm(api, &args, out).await,
        PinCommand::Ls(args) => ls(api, &args, out).await,
        PinCommand::Update(args) => update(api, &args, out).await,
        PinCommand::Verify(args) => verify(api, &args, out).await,
        PinCommand::Remote(command) => remote_pin::run(api, command, out).await,
    }
}

async fn add(api: &Api, args: &PinAddArgs, out: &mut Output) -> Result<()> {
    let progress = Progress::items(Watched { wanted: args.progress, is_silent: out.is_json() }, "blocks");
    let request = Request::command("pin/add")
        .with_args(&args.paths)
        .with("recursive", args.recursive)
        .with_some("name", args.name.as_ref())
        .with("progress", progress.is_shown());
    let mut response = api.call(request).await?;
    let how = if args.recursive { "recursively" } else { "directly" };
    while let Some(line) = response.line::<PinnedLine>().await? {
        match line {
            PinnedLine::Progress(walked) => progress.reached(walked.progress),
            PinnedLine::Pinned(Pins { pins }) => {
                progress.aside(|| print_all(&pins, |cid| format!("pinned {cid} {how}"), out))?;
            }
        }
    }
    Ok(())
}

async fn rm(api: &Api, args: &PinRmArgs, out: &mut Output) -> Result<()> {
    let request = Request::command("pin/rm").with_args(&args.paths);
    let unpinned: Pins = api.call(request.with_some("recursive", args.recursive)).await?.json().await?;
    print_all(&unpinned.pins, |cid| format!("unpinned {cid}"), out)
}

fn print_all(cids: &[String], text: impl Fn(&str) -> String, out: &mut Output) -> Result<()> {
    cids.iter().try_for_each(|cid| if out.is_json() { out.object(&Cid { cid }) } else { out.line(&text(cid)) })
}

async fn ls(api: &Api, args: &PinLsArgs, out: &mut Output) -> Result<()> {
    let request = Request::query("pin/ls")
        .with_args(&args.paths)
        .with("type", args.kind.name())
        .with("names", args.names)
        .with_some("name", args.name.as_ref())
        .with("stream", true);
    let mut response = api.call(request).await?;
    while let Some(pin) = response.line::<PinLine>().await? {
        match out.is_json() {
            true => out.object(&pin)?,
            false if args.quiet => out.line(&pin.cid)?,
            false => out.line(format!("{} {} {}", pin.cid, pin.r#type, printable(&pin.name)).trim_end())?,
        }
    }
    Ok(())
}

async fn update(api: &Api, args: &PinUpdateArgs, out: &mut Output) -> Result<()> {
    let request = Request::command("pin/update").with_args([&args.from, &args.to]);
    let updated: Pins = api.call(request.with_some("unpin", args.unpin)).await?.json().await?;
    let [from, to] = updated.pins.as_slice() else { bail!("the server's response does not name two pins") };
    if out.is_json() {
        return out.object(&serde_json::json!({ "From": from, "To": to }));
    }
    out.line(&format!("updated {from} to {to}"))
}

async fn verify(api: &Api, args: &PinVerifyArgs, out: &mut Output) -> Result<()> {
    let request = Request::query("pin/verify").with("verbose", args.verbose).with("quiet", args.quiet);
    let mut response = api.call(request).await?;
    let mut broken = 0;
    while let Some(pin) = response.line::<VerifiedPin>().await? {
        broken += u64::from(!pin.ok);
        match out.is_json() {
            true => out.object(&pin)?,
            false if args.quiet => out.line(&pin.cid)?,
            false => {
                out.line(&format!("{} {}", pin.cid, if pin.ok { "ok" } else { "broken" }))?;
                pin.bad_nodes
                    .iter()
                    .try_for_each(|bad| out.line(&format!("  {}: {}", bad.cid, printable(&bad.err))))?;
            }
        }
    }
    match broken {
        0 => Ok(()),
        1 => bail!("one pin is incomplete: add its missing blocks again, or unpin it"),
        _ => bail!("{broken} pins are incomplete: add their missing blocks again, or unpin them"),
    }
}
