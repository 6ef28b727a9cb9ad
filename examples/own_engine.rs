//! A storage engine of your own: blocks in an SQL table, an object store or, here, one file per block in a directory.
//! `cargo run --package ipfrs-examples --example own_engine [DIRECTORY]`.
//!
//! The tests at the end check that it satisfies the contracts of engines: `cargo test --package ipfrs-examples`.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use ipfrs_node::{
    AddOptions, Admission, Block, BlockStore, Cid, CompactOptions, Compacted, Error, Node, PutMode, Result, Spared,
    Stats, StoreEpoch, Stored, admit, identity_payload, refuse_all,
};
use tokio::task::spawn_blocking;

/// A directory with one file per block. The name of a file is the multihash in hexadecimal and the CID.
#[derive(Debug, Clone)]
struct Files(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    /// Held by writers, so that no put can occur between a decision to delete a block and its deletion. It is locked by
    /// the thread that writes, which continues when a future is dropped.
    writer: Mutex<()>,
    /// Number of deleted blocks.
    deleted: AtomicU64,
}

impl Files {
    fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self(Arc::new(Inner { dir: dir.to_owned(), writer: Mutex::new(()), deleted: AtomicU64::new(0) })))
    }

    /// Runs `work`, which waits for the disk, on a thread that may block.
    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> Result<T> + Send + 'static) -> Result<T> {
        let inner = Arc::clone(&self.0);
        spawn_blocking(move || work(&inner)).await.map_err(|e| Error::internal("a thread failed").with_source(e))?
    }
}

impl Inner {
    fn path(&self, cid: &Cid) -> PathBuf {
        let key: String = cid.hash().to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(key)
    }

    /// Returns the content of a block's file: the length of the CID, the CID as first put, and the data.
    fn read(&self, cid: &Cid) -> Result<Option<Bytes>> {
        if let Some(payload) = identity_payload(cid) {
            return Ok(Some(Bytes::copy_from_slice(payload)));
        }
        match fs::read(self.path(cid)) {
            Ok(content) => {
                let start = 1 + cid_length(&content)?;
                Ok(Some(Bytes::from(content).slice(start..)))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(format_args!("cannot read block {cid}"), e)),
        }
    }

    fn size(&self, cid: &Cid) -> Result<Option<u64>> {
        if let Some(payload) = identity_payload(cid) {
            return Ok(Some(payload.len() as u64));
        }
        let Some(mut file) = found(File::open(self.path(cid)))? else { return Ok(None) };
        let mut length = [0];
        file.read_exact(&mut length)?;
        Ok(Some(file.metadata()?.len() - 1 - u64::from(length[0])))
    }

    /// Writes a block, which becomes visible as a whole.
    fn write(&self, block: &Block) -> Result<Stored> {
        let path = self.path(block.cid());
        if path.exists() {
            return Ok(Stored::Present);
        }
        let draft = path.with_extension("draft");
        let (cid, mut file) = (block.cid().to_bytes(), File::create(&draft)?);
        file.write_all(&[u8::try_from(cid.len()).map_err(io::Error::other)?])?;
        file.write_all(&cid)?;
        file.write_all(block.data())?;
        file.sync_all()?;
        fs::rename(draft, path)?;
        Ok(Stored::New)
    }

    /// Removes the new blocks of an atomic put in which one could not be written, and returns its outcomes.
    fn undo(&self, blocks: &[Block], outcomes: Vec<Result<Stored>>) -> Result<Vec<Result<Stored>>> {
        for (block, outcome) in blocks.iter().zip(&outcomes) {
            if matches!(outcome, Ok(Stored::New)) {
                fs::remove_file(self.path(block.cid()))?;
                self.deleted.fetch_add(1, Ordering::SeqCst);
            }
        }
        Ok(refuse_all(outcomes))
    }

    /// Makes new and deleted files durable.
    fn sync(&self) -> Result<()> {
        Ok(File::open(&self.dir)?.sync_all()?)
    }

    fn cids(&self) -> Result<Vec<Cid>> {
        let mut cids = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_none() {
                // The block may have been deleted meanwhile.
                let Some(content) = found(fs::read(path))? else { continue };
                let cid = Cid::try_from(&content[1..=cid_length(&content)?]);
                cids.push(cid.map_err(|e| Error::corrupt("a file has no CID").with_source(e))?);
            }
        }
        Ok(cids)
    }
}

/// Returns `None` for a file that does not exist.
fn found<T>(outcome: io::Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn cid_length(content: &[u8]) -> Result<usize> {
    let length = content.first().map(|length| usize::from(*length)).filter(|length| *length < content.len());
    length.ok_or_else(|| Error::corrupt("a file is too short for a block"))
}

#[async_trait]
impl BlockStore for Files {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        let cid = *cid;
        self.blocking(move |files| files.read(&cid)).await
    }

    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        let this = self.clone();
        let read = move |cid| {
            let this = this.clone();
            async move { Ok((cid, this.get(&cid).await?)) }
        };
        stream::iter(cids).then(read).boxed()
    }

    async fn put_many(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        let admissions: Vec<_> = blocks.iter().map(admit).collect();
        if mode.is_atomic() && admissions.iter().any(Result::is_err) {
            return refuse_all(admissions);
        }
        let count = blocks.len();
        let written = self.blocking(move |files| {
            let _writer = files.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let stored = blocks.iter().zip(admissions).map(|(block, admission)| match admission? {
                Admission::Identity => Ok(Stored::Present),
                Admission::Store => files.write(block),
            });
            let mut stored: Vec<Result<Stored>> = stored.collect();
            if mode.is_atomic() && stored.iter().any(Result::is_err) {
                stored = files.undo(&blocks, stored)?;
            }
            files.sync()?;
            Ok(stored)
        });
        let failed = |e: Error| (0..count).map(|_| Err(Error::new(e.kind(), e.message()))).collect();
        written.await.unwrap_or_else(failed)
    }

    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        let cids = cids.to_vec();
        self.blocking(move |files| cids.iter().map(|cid| files.size(cid)).collect()).await
    }

    async fn delete_unless(&self, cids: &[Cid], spared: Spared) -> Result<Vec<bool>> {
        let cids = cids.to_vec();
        let delete = move |files: &Inner| {
            let _writer = files.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let mut deleted = Vec::new();
            for cid in cids {
                let path = files.path(&cid);
                let is_wanted = !path.exists() || spared(cid.hash());
                if !is_wanted {
                    fs::remove_file(path)?;
                    files.deleted.fetch_add(1, Ordering::SeqCst);
                }
                deleted.push(!is_wanted);
            }
            files.sync()?;
            Ok(deleted)
        };
        self.blocking(delete).await
    }

    fn iterate(&self) -> BoxStream<'static, Result<Cid>> {
        let this = self.clone();
        // An engine for many blocks would list them in pages.
        let cids = async move {
            match this.blocking(Inner::cids).await {
                Ok(cids) => stream::iter(cids.into_iter().map(Ok)).boxed(),
                Err(e) => stream::iter([Err(e)]).boxed(),
            }
        };
        stream::once(cids).flatten().boxed()
    }

    async fn compact(&self, options: CompactOptions) -> Result<Compacted> {
        options.check()?;
        Ok(Compacted::default())
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    async fn stats(&self) -> Result<Stats> {
        let count = |files: &Inner| {
            let cids: BTreeSet<_> = files.cids()?.into_iter().collect();
            let sizes = cids.iter().map(|cid| Ok(files.size(cid)?.unwrap_or(0)));
            let payload_bytes = sizes.sum::<Result<u64>>()?;
            Ok(Stats { blocks: cids.len() as u64, payload_bytes, ..Stats::default() })
        };
        self.blocking(count).await
    }

    fn epoch(&self) -> StoreEpoch {
        StoreEpoch::new(self.0.deleted.load(Ordering::SeqCst))
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let dir = std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("ipfrs-own-engine"), PathBuf::from);
    let engine = Arc::new(Files::open(&dir.join("blocks"))?);
    let node = Node::builder(&dir).engine(engine).open().await?;
    let added = node.add_path("examples/own_engine.rs", AddOptions::default()).await?;
    let bytes = node.read_range(added.cid, 4..32).await?;
    println!("{}: {}", added.cid, String::from_utf8_lossy(&bytes));
    node.close().await
}

#[cfg(test)]
mod tests {
    use ipfrs_node::{HashFunction, codec};

    use super::*;

    async fn on_files<F: Future<Output = ()>>(contract: impl FnOnce(Arc<dyn BlockStore>) -> F) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        contract(Arc::new(Files::open(dir.path()).expect("an engine"))).await;
    }

    ipfrs_node::engine_tests!(on_files);

    #[tokio::test]
    async fn atomic_put_that_cannot_be_written_leaves_no_block() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let files = Files::open(dir.path()).expect("an engine");
        let blocks = ["first", "second"].map(|data| {
            Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::from_static(data.as_bytes())).expect("a block")
        });
        // No file can have this name any more.
        fs::create_dir(files.0.path(blocks[1].cid()).with_extension("draft")).expect("a directory");
        let outcomes = files.put_many(blocks.to_vec(), PutMode::Atomic).await;
        assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
        assert_eq!(files.get(blocks[0].cid()).await.expect("no block"), None);
        let outcomes = files.put_many(blocks.to_vec(), PutMode::BestEffort).await;
        assert!(outcomes[0].is_ok() && outcomes[1].is_err(), "{outcomes:?}");
    }
}
