//! `cid` and `refs`.

use anyhow::{Result, bail};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{CodeAndName, FormattedCid, InspectedCid, Reference};

use crate::api::Api;
use crate::args::{CidCommand, CidFormatTextArgs, RefsArgs};
use crate::output::{Output, printable};

/// Argument of `refs` that stands for all stored blocks.
const LOCAL: &str = "local";

pub(super) async fn run(api: &Api, command: CidCommand, out: &mut Output) -> Result<()> {
    match command {
        CidCommand::Format(args) => {
            let CidFormatTextArgs { cids, format, version, mc, base } = args;
            let request = Request::query("cid/format").with_args(cids).with_some("f", format).with_some("v", version);
            formatted(api, request.with_some("mc", mc).with_some("b", base), out).await
        }
        CidCommand::Base32 { cids } => formatted(api, Request::query("cid/base32").with_args(cids), out).await,
        CidCommand::Inspect { cid } => {
            let parts: InspectedCid = api.call(Request::query("cid/inspect").with_arg(cid)).await?.json().await?;
            if out.is_json() {
                out.object(&parts)?;
            }
            if !parts.error_msg.is_empty() {
                bail!("{}: {}", printable(&parts.cid), parts.error_msg);
            }
            if out.is_json() {
                return Ok(());
            }
            out.line(&format!("CID:        {}", parts.cid))?;
            out.line(&format!("version:    {}", parts.version))?;
            out.line(&format!("multibase:  {} ({})", parts.multibase.name, parts.multibase.prefix))?;
            out.line(&format!("codec:      {} (0x{:x})", parts.multicodec.name, parts.multicodec.code))?;
            let hash = parts.multihash;
            out.line(&format!("hash:       {} (0x{:x}), {} bytes", hash.name, hash.code, hash.length))?;
            out.line(&format!("digest:     {}", hash.digest))?;
            out.line(&format!("version 0:  {}", parts.cid_v0))?;
            out.line(&format!("version 1:  {}", parts.cid_v1))
        }
        CidCommand::Bases => names(api, "cid/bases", out).await,
        CidCommand::Codecs => names(api, "cid/codecs", out).await,
        CidCommand::Hashes => names(api, "cid/hashes", out).await,
    }
}

async fn formatted(api: &Api, request: Request, out: &mut Output) -> Result<()> {
    let (mut response, mut failed) = (api.call(request).await?, None);
    while let Some(cid) = response.line::<FormattedCid>().await? {
        if out.is_json() {
            out.object(&cid)?;
        } else if cid.error_msg.is_empty() {
            out.line(&cid.formatted)?;
        }
        if !cid.error_msg.is_empty() {
            failed.get_or_insert(format!("{}: {}", cid.cid_str, cid.error_msg));
        }
    }
    match failed {
        Some(failure) => bail!("{failure}"),
        None => Ok(()),
    }
}

async fn names(api: &Api, command: &str, out: &mut Output) -> Result<()> {
    let names: Vec<CodeAndName> = api.call(Request::query(command)).await?.json().await?;
    for name in names {
        if out.is_json() {
            out.object(&name)?;
        } else {
            out.line(&format!("0x{:<8x} {}", name.code, name.name))?;
        }
    }
    Ok(())
}

/// Runs `refs`.
pub(super) async fn refs(api: &Api, args: &RefsArgs, out: &mut Output) -> Result<()> {
    let request = match args.paths.as_slice() {
        [path] if path == LOCAL => Request::query("refs/local"),
        paths => Request::query("refs")
            .with_args(paths)
            .with_some("format", args.format.as_ref())
            .with("edges", args.edges)
            .with("unique", args.unique)
            .with("recursive", args.recursive)
            .with_some("max-depth", args.max_depth),
    };
    let (mut response, mut failed) = (api.call(request).await?, None);
    while let Some(line) = response.line::<Reference>().await? {
        if out.is_json() {
            out.object(&line)?;
        } else if line.err.is_empty() {
            out.line(&printable(&line.r#ref))?;
        }
        if !line.err.is_empty() {
            failed.get_or_insert(line.err);
        }
    }
    match failed {
        Some(failure) => bail!("{failure}"),
        None => Ok(()),
    }
}
