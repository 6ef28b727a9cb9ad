//! `block get|put|rm|stat`.

use anyhow::{Result, bail};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{BlockStat, RemovedBlock};

use crate::api::Api;
use crate::args::{BlockCommand, BlockPutArgs, BlockRmArgs};
use crate::output::{Output, printable};
use crate::sources::Sources;

pub(super) async fn run(api: &Api, command: BlockCommand, out: &mut Output) -> Result<()> {
    match command {
        BlockCommand::Get { cid } => {
            let mut response = api.call(Request::query("block/get").with_arg(cid)).await?;
            while let Some(bytes) = response.next().await? {
                out.bytes(&bytes)?;
            }
            Ok(())
        }
        BlockCommand::Put(args) => put(api, &args, out).await,
        BlockCommand::Rm(args) => rm(api, &args, out).await,
        BlockCommand::Stat { cids } => {
            for cid in cids {
                let stat: BlockStat = api.call(Request::query("block/stat").with_arg(cid)).await?.json().await?;
                print(&stat, &format!("Key: {}\nSize: {}", stat.key, stat.size), out)?;
            }
            Ok(())
        }
    }
}

async fn put(api: &Api, args: &BlockPutArgs, out: &mut Output) -> Result<()> {
    let request = Request::command("block/put")
        .with_some("cid-codec", args.cid_codec.as_ref())
        .with_some("mhtype", args.mhtype.as_ref())
        .with("allow-big-block", args.allow_big_block)
        .with("pin", args.pin);
    let mut response = api.call(Sources::files(&args.files)?.upload(request, |_| {})?).await?;
    while let Some(stat) = response.line::<BlockStat>().await? {
        print(&stat, &stat.key, out)?;
    }
    Ok(())
}

async fn rm(api: &Api, args: &BlockRmArgs, out: &mut Output) -> Result<()> {
    let request = Request::command("block/rm").with_args(&args.cids);
    let mut response = api.call(request.with("force", args.force).with("quiet", args.quiet)).await?;
    let mut stayed = 0;
    while let Some(block) = response.line::<RemovedBlock>().await? {
        stayed += u64::from(!block.error.is_empty());
        match (out.is_json(), block.error.as_str()) {
            (true, _) => out.object(&block)?,
            (false, "") => out.line(&format!("removed {}", block.hash))?,
            (false, error) => out.line(&format!("cannot remove {}: {}", block.hash, printable(error)))?,
        }
    }
    if stayed > 0 {
        bail!("{stayed} of {} blocks were not removed", args.cids.len());
    }
    Ok(())
}

fn print(stat: &BlockStat, text: &str, out: &mut Output) -> Result<()> {
    if out.is_json() { out.object(stat) } else { out.line(text) }
}
