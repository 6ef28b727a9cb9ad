//! Whether every stored block is what its content ID says.

use std::thread::available_parallelism;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use ipfrs_core::{Cid, Error, ErrorKind, Result, hash};
use ipfrs_store::{BlockStore, Scrubbed};
use tokio::sync::mpsc::Sender;

use crate::Node;

/// Blocks that are read and hashed together: at most 128 MiB, which lie in mapped packs.
const BATCH_BLOCKS: usize = 64;

/// What [`Node::verify`] tells.
#[derive(Debug)]
pub enum Verifying {
    /// So many blocks have been looked at by now.
    Checked(u64),
    /// A block is not what its content ID says, or cannot be read.
    Corrupt(Cid, Error),
}

/// What [`Node::verify`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Blocks that were looked at.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them are corrupt.
    pub corrupt: u64,
}

/// What was found of some blocks, and those of them that are corrupt.
type Checked = (Verified, Vec<(Cid, Error)>);

impl Node {
    /// Reads every block and checks its hash, on as many threads as there are cores. A corrupt block is told and is not
    /// the end. `events` is told in turn; the work waits for whoever listens, and goes on when nobody does.
    ///
    /// # Errors
    /// When the store cannot say which blocks it has; [`ErrorKind::Timeout`] when one does not come in time.
    pub async fn verify(&self, events: Sender<Verifying>) -> Result<Verified> {
        let store = self.inner.store.clone();
        let parts = store.scrub().map_ok(in_batches).try_flatten();
        let checked = parts.map(move |part| {
            let store = store.clone();
            async move {
                match part? {
                    Scrubbed::Read { blocks, bytes, corrupt } => {
                        Ok((Verified { blocks, bytes, corrupt: corrupt.len() as u64 }, corrupt))
                    }
                    Scrubbed::Unread(cids) => read_and_hash(&*store, cids).await,
                }
            }
        });
        let mut checked = checked.buffer_unordered(available_parallelism().map_or(1, usize::from));
        let mut verified = Verified::default();
        while let Some(part) = checked.next().await {
            let (part, corrupt) = part?;
            verified.blocks += part.blocks;
            verified.bytes += part.bytes;
            verified.corrupt += part.corrupt;
            for (cid, why) in corrupt {
                // Nobody may listen.
                let _ = events.send(Verifying::Corrupt(cid, why)).await;
            }
            if part.blocks > 0 {
                let _ = events.send(Verifying::Checked(verified.blocks)).await;
            }
        }
        Ok(verified)
    }
}

/// The same, with no more blocks at a time to be read than [`BATCH_BLOCKS`].
fn in_batches(scrubbed: Scrubbed) -> impl Stream<Item = Result<Scrubbed>> {
    let batches = match scrubbed {
        Scrubbed::Unread(cids) => cids.chunks(BATCH_BLOCKS).map(|cids| Ok(Scrubbed::Unread(cids.to_vec()))).collect(),
        read => vec![Ok(read)],
    };
    stream::iter(batches)
}

async fn read_and_hash(store: &dyn BlockStore, cids: Vec<Cid>) -> Result<Checked> {
    let mut read = Vec::with_capacity(cids.len());
    let mut blocks = store.get_many(cids.clone());
    for cid in cids {
        match blocks.next().await {
            Some(Ok((_, Some(data)))) => read.push((cid, Ok(data))),
            // Deleted since it was listed.
            Some(Ok((_, None))) => {}
            // That says nothing of the block, and the others do not come either.
            Some(Err(e)) if e.kind() == ErrorKind::Timeout => return Err(e),
            Some(Err(e)) => read.push((cid, Err(e))),
            None => return Err(Error::internal("the store gave fewer answers than it was asked for")),
        }
    }
    let hashed = tokio::task::spawn_blocking(move || hash_all(read));
    hashed.await.map_err(|e| Error::internal("hashing blocks failed").with_source(e))
}

fn hash_all(blocks: Vec<(Cid, Result<Bytes>)>) -> Checked {
    let mut verified = Verified { blocks: blocks.len() as u64, ..Verified::default() };
    let (mut read, mut corrupt) = (Vec::with_capacity(blocks.len()), Vec::new());
    for (cid, data) in blocks {
        match data {
            Ok(data) => read.push((cid, data)),
            Err(e) => corrupt.push((cid, e)),
        }
    }
    verified.bytes = read.iter().map(|(_, data)| data.len() as u64).sum();
    let parts: Vec<(Cid, &[u8])> = read.iter().map(|(cid, data)| (*cid, data.as_ref())).collect();
    let wrong =
        parts.iter().zip(hash::verify_all(&parts)).filter_map(|((cid, _), checked)| Some((*cid, checked.err()?)));
    corrupt.extend(wrong);
    verified.corrupt = corrupt.len() as u64;
    (verified, corrupt)
}
