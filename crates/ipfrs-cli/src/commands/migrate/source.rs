//! The repo that a migration reads.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use ipfrs_core::limits::MAX_BIG_BLOCK_BYTES;
use ipfrs_core::{Cid, parse_cid};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::Reference;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::api::Api;
use crate::kubo::flatfs::Flatfs;
use crate::kubo::repo::KuboRepo;

/// Number of content IDs that are looked up at a time, unless the daemon takes fewer.
pub(super) const BATCH_BLOCKS: usize = 500;
/// Number of batches that are listed ahead.
const BATCHES_AHEAD: usize = 4;
/// Number of blocks that are requested from a daemon at the same time.
const CONCURRENT_REQUESTS: usize = 16;

fn is_url(from: &str) -> bool {
    from.contains("://")
}

/// Returns the directory of a repo, by default as Kubo does.
fn directory(from: Option<&str>) -> Result<PathBuf> {
    if let Some(path) = from.map(PathBuf::from).or_else(|| std::env::var_os("IPFS_PATH").map(PathBuf::from)) {
        return Ok(path);
    }
    let home = std::env::home_dir().ok_or_else(|| anyhow!("there is no home directory: pass --from"))?;
    Ok(home.join(".ipfs"))
}

/// A repo of Kubo.
#[derive(Debug)]
pub(super) enum Source {
    Repo(KuboRepo, Flatfs),
    Rpc(Api),
}

/// A list of blocks that is being produced.
pub(super) struct Listed {
    pub(super) batches: mpsc::Receiver<Vec<Cid>>,
    /// Ends with the names of files that are no blocks.
    pub(super) task: tokio::task::JoinHandle<Result<Vec<String>>>,
}

impl Source {
    /// Checks that there is a repo with blocks at a path. A URL is not checked.
    pub(super) fn check(from: Option<&str>) -> Result<()> {
        match from {
            Some(url) if is_url(url) => Ok(()),
            path => KuboRepo::open(&directory(path)?)?.blocks().map(drop),
        }
    }

    /// Opens a URL or a path.
    pub(super) fn open(from: Option<&str>) -> Result<Self> {
        let path = match from {
            Some(url) if is_url(url) => return Ok(Self::Rpc(Api::remote(url, None)?)),
            path => directory(path)?,
        };
        let repo = KuboRepo::open(&path)?;
        let blocks = repo.blocks()?;
        repo.check_filestore()?;
        Ok(Self::Repo(repo, blocks))
    }

    /// Returns the number of blocks, if it is known.
    pub(super) async fn count(&self) -> Result<Option<u64>> {
        match self {
            Self::Repo(_, blocks) => {
                let blocks = blocks.clone();
                Ok(Some(spawn_blocking(move || blocks.count()).await??))
            }
            Self::Rpc(_) => Ok(None),
        }
    }

    /// Lists all blocks.
    pub(super) async fn list(&self) -> Result<Listed> {
        let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
        let task = match self {
            Self::Repo(_, blocks) => {
                let blocks = blocks.clone();
                spawn_blocking(move || {
                    let mut waiting = Vec::new();
                    let send = |cids: &mut Vec<Cid>, least: usize| {
                        while cids.len() >= least.max(1) {
                            let rest = cids.split_off(cids.len().min(BATCH_BLOCKS));
                            if sender.blocking_send(std::mem::replace(cids, rest)).is_err() {
                                return false;
                            }
                        }
                        true
                    };
                    let invalid = blocks.list(|cids| {
                        waiting.extend(cids);
                        send(&mut waiting, BATCH_BLOCKS)
                    })?;
                    send(&mut waiting, 1);
                    Ok(invalid)
                })
            }
            Self::Rpc(api) => {
                let mut response = api.call(Request::query("refs/local")).await?;
                tokio::spawn(async move {
                    let (mut waiting, mut invalid) = (Vec::new(), Vec::new());
                    while let Some(line) = response.line::<Reference>().await? {
                        match parse_cid(&line.r#ref) {
                            Ok(cid) => waiting.push(cid),
                            Err(_) => invalid.push(line.r#ref),
                        }
                        if waiting.len() == BATCH_BLOCKS && sender.send(std::mem::take(&mut waiting)).await.is_err() {
                            return Ok(invalid);
                        }
                    }
                    if !waiting.is_empty() {
                        let _ = sender.send(waiting).await;
                    }
                    Ok(invalid)
                })
            }
        };
        Ok(Listed { batches, task })
    }

    /// Reads blocks, which are not verified. The result has the blocks in any order, or why one cannot be read.
    pub(super) async fn read(&self, cids: Vec<Cid>) -> Result<Vec<(Cid, Result<Bytes>)>> {
        match self {
            Self::Repo(_, blocks) => {
                let blocks = blocks.clone();
                let read = move |cid: Cid| {
                    let block = blocks.read(&cid).and_then(|block| block.context("its file was removed"));
                    (cid, block.map(Bytes::from))
                };
                Ok(spawn_blocking(move || cids.into_iter().map(read).collect()).await?)
            }
            Self::Rpc(api) => {
                let read = |cid: Cid| async move {
                    let request = Request::query("block/get").with_arg(cid.to_string()).with("offline", true);
                    let block = async { Ok(api.call(request).await?.bytes(MAX_BIG_BLOCK_BYTES).await?.into()) };
                    (cid, block.await)
                };
                Ok(stream::iter(cids).map(read).buffer_unordered(CONCURRENT_REQUESTS).collect().await)
            }
        }
    }
}
