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
/// Part of the daemon's message about a block on a denylist.
const BLOCKED: &str = "is blocked";
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
        let total = cids.len() as u64;
        let missing = self.missing(cids).await?;
        let known = total - missing.len() as u64;
        self.known.fetch_add(known, Ordering::Relaxed);
        self.progress.done(known);
        let (mut waiting, mut bytes) = (Vec::new(), 0);
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
                bytes += block.data().len();
                waiting.push(block);
            }
            if bytes >= CAR_BYTES {
                self.put(&std::mem::take(&mut waiting)).await?;
                bytes = 0;
            }
        }
        self.put(&waiting).await
    }

    /// Returns those of `cids` that the daemon does not have. It may take fewer at once (`batch.max_batch_size`).
    async fn missing(&self, cids: Vec<Cid>) -> Result<Vec<Cid>> {
        let (mut rest, mut most, mut missing) = (&cids[..], cids.len(), Vec::new());
        while !rest.is_empty() {
            let (next, after) = rest.split_at(most.min(rest.len()));
            let list = CidList { cids: next.iter().map(ToString::to_string).collect() };
            let request =
                Request::post("/v1/block/batch/has").with_body("application/json", serde_json::to_vec(&list)?)?;
            let found: BlockExistences = match self.api.call(request).await {
                Err(e) if most > 1 && format!("{e:#}").contains("batch.max_batch_size") => {
                    most = most.div_ceil(2);
                    continue;
                }
                response => response?.json().await?,
            };
            if found.results.len() != next.len() {
                bail!("the daemon reports {} blocks in place of {}", found.results.len(), next.len());
            }
            missing.extend(next.iter().zip(found.results).filter(|(_, found)| !found.exists).map(|(cid, _)| *cid));
            rest = after;
        }
        Ok(missing)
    }

    /// Stores blocks durably. Those that a denylist blocks are reported.
    async fn put(&self, blocks: &[Block]) -> Result<()> {
        if blocks.is_empty() || self.put_all(blocks).await.is_ok() {
            return Ok(());
        }
        for block in blocks {
            match self.put_all(std::slice::from_ref(block)).await {
                Err(e) if format!("{e:#}").contains(BLOCKED) => self.fail(block.cid(), BLOCKED),
                stored => stored?,
            }
        }
        Ok(())
    }

    /// Stores the blocks of a CAR durably. Kubo's users may have allowed blocks over 2 MiB.
    async fn put_all(&self, blocks: &[Block]) -> Result<()> {
        let mut car = header(&[*blocks[0].cid()]).into();
        for block in blocks {
            car::put_section(&mut car, block.cid(), block.data().clone());
        }
        let request = Request::command("dag/import").with("pin-roots", false).with("allow-big-block", true);
        let request = request.with_body("application/vnd.ipld.car", car)?;
        self.api.call(request).await?.bytes(MAX_RESPONSE_BYTES).await?;
        let bytes = blocks.iter().map(|block| block.data().len() as u64).sum();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let count = blocks.len() as u64;
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
