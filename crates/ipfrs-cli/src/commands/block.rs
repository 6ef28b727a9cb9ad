//! `block get|put|rm|stat`.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::api::{Api, Query};
use crate::args::{BlockCommand, BlockPutArgs, BlockRmArgs};
use crate::multipart::{Source, Upload};
use crate::output::{Output, printable};

/// Content ID and size in bytes of a block.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BlockStat {
    key: String,
    size: u64,
}

pub(super) async fn run(api: &Api, command: BlockCommand, out: &mut Output) -> Result<()> {
    match command {
        BlockCommand::Get { cid } => {
            let mut response = api.call("block/get", Query::new().with("arg", cid), None).await?;
            while let Some(bytes) = response.next().await? {
                out.bytes(&bytes)?;
            }
            Ok(())
        }
        BlockCommand::Put(args) => put(api, &args, out).await,
        BlockCommand::Rm(args) => rm(api, &args, out).await,
        BlockCommand::Stat { cids } => {
            for cid in cids {
                let stat: BlockStat =
                    api.call("block/stat", Query::new().with("arg", cid), None).await?.whole().await?;
                print(&stat, &format!("Key: {}\nSize: {}", stat.key, stat.size), out)?;
            }
            Ok(())
        }
    }
}

async fn put(api: &Api, args: &BlockPutArgs, out: &mut Output) -> Result<()> {
    let query = Query::new().with_some("cid-codec", args.cid_codec.as_ref()).with_some("mhtype", args.mhtype.as_ref());
    let query = query.with("pin", args.pin);
    let mut upload = Upload::start(Source::of(&args.files, false)?, false);
    let mut response = api.call("block/put", query, Some(&mut upload)).await.map_err(|error| upload.explain(error))?;
    while let Some(stat) = response.next_object::<BlockStat>().await? {
        print(&stat, &stat.key, out)?;
    }
    Ok(())
}

/// Outcome of removing a block.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RemovedBlock {
    hash: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    error: String,
}

async fn rm(api: &Api, args: &BlockRmArgs, out: &mut Output) -> Result<()> {
    let query = Query::new().with_args(&args.cids).with("force", args.force).with("quiet", args.quiet);
    let mut response = api.call("block/rm", query, None).await?;
    let mut stayed = 0;
    while let Some(block) = response.next_object::<RemovedBlock>().await? {
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
