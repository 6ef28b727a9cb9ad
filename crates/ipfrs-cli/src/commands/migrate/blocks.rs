//! Moving of blocks. Each is verified before it is sent, and again where it is stored.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use bytes::Bytes;
use futures::stream::{StreamExt, unfold};
use ipfrs_core::limits::MAX_BIG_BLOCK_BYTES;
use ipfrs_core::{Block, Cid};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{BlockExistences, CidList};
use ipfrs_stream::car::header;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::source::{Listed, Source};
use super::{Report, car};
use crate::api::Api;
use crate::progress::{Progress, Watched};

/// Size in bytes of a CAR above which it is sent.
const CAR_BYTES: usize = 8 * 1024 * 1024;
/// Number of batches that are moved at the same time.
const CONCURRENT_BATCHES: usize = 4;
/// Number of blocks that are read together.
const READ_BLOCKS: usize = 32;
/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

/// Number of blocks.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct MovedBlocks {
    /// Blocks that were moved.
    pub(super) blocks: u64,
    /// Their size.
    pub(super) block_bytes: u64,
    /// Blocks that were already stored.
    pub(super) known_blocks: u64,
}

/// A running migration of blocks.
struct Moving<'a> {
    source: &'a Source,
    api: &'a Api,
    progress: Progress,
    moved: AtomicU64,
    bytes: AtomicU64,
    known: AtomicU64,
    failures: Mutex<Vec<String>>,
}

/// Moves all blocks that are not stored yet.
pub(super) async fn copy(
    source: &Source,
    api: &Api,
    wanted: Option<bool>,
    is_silent: bool,
    report: &mut Report,
) -> Result<()> {
    let progress = Progress::items(Watched { wanted, is_silent }, "blocks");
    if let Some(count) = source.count().await? {
        progress.expect(count);
    }
    let (moved, bytes, known) = Default::default();
    let moving = Moving { source, api, progress, moved, bytes, known, failures: Mutex::default() };
    let Listed { batches, task } = source.list().await?;
    let batches = unfold(batches, |mut batches| async move { Some((batches.recv().await?, batches)) });
    let mut batches = batches.map(|cids| moving.batch(cids)).buffer_unordered(CONCURRENT_BATCHES).boxed();
    while let Some(outcome) = batches.next().await {
        outcome?;
    }
    drop(batches);
    let invalid = task.await??;
    moving.progress.over();
    let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
    report.blocks = MovedBlocks {
        blocks: load(&moving.moved),
        block_bytes: load(&moving.bytes),
        known_blocks: load(&moving.known),
    };
    moving.failures.into_inner().into_iter().for_each(|failure| report.fail(failure));
    invalid.into_iter().for_each(|name| report.fail(format!("block {name}: its name is no key of a block")));
    Ok(())
}

impl Moving<'_> {
    async fn batch(&self, cids: Vec<Cid>) -> Result<()> {
        let list = CidList { cids: cids.iter().map(ToString::to_string).collect() };
        let request = Request::post("/v1/block/batch/has").with_body("application/json", serde_json::to_vec(&list)?)?;
        let found: BlockExistences = self.api.call(request).await?.json().await?;
        if found.results.len() != cids.len() {
            bail!("the daemon reports {} blocks in place of {}", found.results.len(), cids.len());
        }
        let total = cids.len() as u64;
        let missing: Vec<_> =
            cids.into_iter().zip(found.results).filter(|(_, found)| !found.exists).map(|(cid, _)| cid).collect();
        let known = total - missing.len() as u64;
        self.known.fetch_add(known, Ordering::Relaxed);
        self.progress.done(known);
        let (mut body, mut count) = (Vec::new(), 0);
        for cids in missing.chunks(READ_BLOCKS) {
            let read = self.source.read(cids.to_vec()).await?;
            let (blocks, failed): (Vec<_>, Vec<_>) = read.into_iter().partition(|(_, read)| read.is_ok());
            for (cid, error) in failed {
                self.fail(&cid, &error.err().map(|e| format!("{e:#}")).unwrap_or_default());
            }
            let blocks: Vec<(Cid, Bytes)> =
                blocks.into_iter().filter_map(|(cid, block)| Some((cid, block.ok()?))).collect();
            let names: Vec<_> = blocks.iter().map(|(cid, _)| *cid).collect();
            let verified = spawn_blocking(move || Block::verify_all(blocks, MAX_BIG_BLOCK_BYTES)).await?;
            for (cid, block) in names.into_iter().zip(verified) {
                let block = match block {
                    Ok(block) => block,
                    Err(e) => {
                        self.fail(&cid, &e.to_string());
                        continue;
                    }
                };
                if body.is_empty() {
                    body = header(&[cid]).into();
                }
                car::put_section(&mut body, &cid, block.data().clone());
                self.bytes.fetch_add(block.data().len() as u64, Ordering::Relaxed);
                count += 1;
            }
            if body.len() >= CAR_BYTES {
                self.put(std::mem::take(&mut body), std::mem::take(&mut count)).await?;
            }
        }
        if !body.is_empty() {
            self.put(body, count).await?;
        }
        Ok(())
    }

    /// Stores the blocks of a CAR durably. Kubo's users may have allowed blocks over 2 MiB.
    async fn put(&self, car: Vec<u8>, count: u64) -> Result<()> {
        let request = Request::command("dag/import").with("pin-roots", false).with("allow-big-block", true);
        let request = request.with_body("application/vnd.ipld.car", car)?;
        self.api.call(request).await?.bytes(MAX_RESPONSE_BYTES).await?;
        self.moved.fetch_add(count, Ordering::Relaxed);
        self.progress.done(count);
        Ok(())
    }

    fn fail(&self, cid: &Cid, why: &str) {
        let mut failures = self.failures.lock();
        if failures.len() < super::MAX_FAILURES {
            failures.push(format!("block {cid}: {why}"));
        }
        drop(failures);
        self.progress.done(1);
    }
}
