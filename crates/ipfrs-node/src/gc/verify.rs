//! Verification of stored blocks against their content IDs.

use std::thread::available_parallelism;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use ipfrs_core::{Cid, Error, ErrorKind, Result, hash};
use ipfrs_store::{BlockStore, Scrubbed};
use tokio::sync::mpsc::Sender;

use crate::Node;

/// Number of blocks that are read and hashed together: at most 128 MiB, which are in mapped packs.
const BATCH_BLOCKS: usize = 64;

/// Progress event of [`Node::verify`].
#[derive(Debug)]
pub enum Verifying {
    /// Number of blocks that have been checked so far.
    Checked(u64),
    /// A block does not match its content ID or cannot be read.
    Corrupt(Cid, Error),
}

/// Result of [`Node::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Number of blocks checked.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Number of corrupt blocks.
    pub corrupt: u64,
}

/// Result for some blocks, with the corrupt ones.
type Checked = (Verified, Vec<(Cid, Error)>);

impl Node {
    /// Reads every block and checks its hash, on as many threads as there are cores. A corrupt block is reported and
    /// does not stop the check. Progress events are sent to `events`; the check waits while the channel is full and
    /// continues if the receiver is closed.
    ///
    /// # Errors
    /// If the store cannot list its blocks; [`ErrorKind::Timeout`] if a block is not read in time.
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
                // The receiver may be closed.
                let _ = events.send(Verifying::Corrupt(cid, why)).await;
            }
            if part.blocks > 0 {
                let _ = events.send(Verifying::Checked(verified.blocks)).await;
            }
        }
        Ok(verified)
    }
}

/// Splits the blocks to be read into batches of at most [`BATCH_BLOCKS`].
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
            // The block was deleted after it was listed.
            Some(Ok((_, None))) => {}
            // The time-out does not concern this block alone: the remaining blocks will not arrive either.
            Some(Err(e)) if e.kind() == ErrorKind::Timeout => return Err(e),
            Some(Err(e)) => read.push((cid, Err(e))),
            None => return Err(Error::internal("the store returned fewer results than requested")),
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
    let mismatches =
        parts.iter().zip(hash::verify_all(&parts)).filter_map(|((cid, _), checked)| Some((*cid, checked.err()?)));
    corrupt.extend(mismatches);
    verified.corrupt = corrupt.len() as u64;
    (verified, corrupt)
}
