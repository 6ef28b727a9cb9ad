//! Verification of stored blocks against their content IDs.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use ipfrs_core::{Block, Cid, Error, ErrorKind, Result, cores, hash};
use ipfrs_store::{BlockStore, BlockStoreExt, Scrubbed};
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use crate::Node;

/// Number of blocks that are read and hashed together: at most 128 MiB, which are in mapped packs.
const BATCH_BLOCKS: usize = 64;

/// Number of corrupt blocks that are removed or retrieved at the same time.
const MAX_REPAIRS: usize = 16;

/// Treatment of corrupt blocks by [`Node::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repair {
    /// They stay.
    #[default]
    None,
    /// They are removed.
    Remove,
    /// They are removed, and retrieved from the sources of the node within this time, or in any time.
    Retrieve(Option<Duration>),
}

/// Outcome of the [`Repair`] of a corrupt block.
#[derive(Debug)]
pub enum Repaired {
    /// None was requested.
    No,
    /// The block could not be removed.
    NotRemoved(Error),
    /// The block was removed.
    Removed,
    /// The block was removed, and retrieved.
    Retrieved,
    /// The block was removed, but could not be retrieved.
    NotRetrieved(Error),
}

/// Progress event of [`Node::verify`].
#[derive(Debug)]
pub enum Verifying {
    /// Number of blocks that have been checked so far.
    Checked(u64),
    /// A block does not match its content ID, with the reason and what was done.
    Corrupt(Cid, Box<(Error, Repaired)>),
    /// A block cannot be read and may be intact, with the reason and what was done.
    Unreadable(Cid, Box<(Error, Repaired)>),
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
    /// Number of blocks that could not be read and may be intact.
    pub unreadable: u64,
    /// Number of corrupt blocks that were removed, including those that were retrieved.
    pub removed: u64,
    /// Number of corrupt blocks that could not be removed, and of unreadable blocks, which no repair removes.
    pub not_removed: u64,
    /// Number of corrupt blocks that were retrieved.
    pub retrieved: u64,
    /// Number of corrupt blocks that were removed and could not be retrieved.
    pub not_retrieved: u64,
}

impl Verified {
    fn count(&mut self, repaired: &Repaired) {
        match repaired {
            Repaired::No => {}
            Repaired::NotRemoved(_) => self.not_removed += 1,
            Repaired::Removed => self.removed += 1,
            Repaired::Retrieved => (self.removed, self.retrieved) = (self.removed + 1, self.retrieved + 1),
            Repaired::NotRetrieved(_) => {
                (self.removed, self.not_retrieved) = (self.removed + 1, self.not_retrieved + 1)
            }
        }
    }
}

/// Numbers of some blocks and of their bytes, with those that are corrupt or unreadable.
type Checked = (Verified, Vec<(Cid, Error)>);

impl Node {
    /// Reads every block and checks its hash, on as many threads as there are cores. A corrupt block is reported and
    /// does not stop the check. Progress events are sent to `events`; the check waits while the channel is full and
    /// continues if the receiver is closed. A pinned block is repaired like any other, so its pin may be incomplete
    /// afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] while another call verifies; if the store cannot list its blocks;
    /// [`ErrorKind::Timeout`] if a block is not read in time; [`ErrorKind::Forbidden`] for a repair of a repo that is
    /// open read-only; [`ErrorKind::Unsupported`] for [`Repair::Retrieve`] if nothing can be retrieved.
    pub async fn verify(&self, repair: Repair, events: Sender<Verifying>) -> Result<Verified> {
        if repair != Repair::None {
            self.check_writable()?;
        }
        if matches!(repair, Repair::Retrieve(_)) && !self.may_retrieve() {
            return Err(Error::unsupported(
                "this command must be run in online mode: configure a source (retrieval.gateways, retrieval.routers or \
                 retrieval.bitswap) or leave out heal",
            ));
        }
        let Ok(_verifying) = self.inner.verifying.try_lock() else {
            let why = "blocks are being verified already: wait until that has ended";
            return Err(Error::new(ErrorKind::Conflict, why));
        };
        let store = self.inner.store.clone();
        let parts = store.scrub().map_ok(in_batches).try_flatten();
        let checked = parts.map(move |part| {
            let store = store.clone();
            async move {
                match part? {
                    Scrubbed::Read { blocks, bytes, corrupt } => {
                        Ok((Verified { blocks, bytes, ..Verified::default() }, corrupt))
                    }
                    Scrubbed::Unread(cids) => read_and_hash(&*store, cids).await,
                }
            }
        });
        let mut checked = checked.buffer_unordered(cores());
        let mut verified = Verified::default();
        while let Some(part) = checked.next().await {
            let (part, failed) = part?;
            verified.blocks += part.blocks;
            verified.bytes += part.bytes;
            let mut repairs = stream::iter(failed)
                .map(|(cid, why)| async move { (cid, self.repair(&cid, &why, repair).await, why) })
                .buffer_unordered(MAX_REPAIRS);
            while let Some((cid, repaired, why)) = repairs.next().await {
                verified.count(&repaired);
                let event = match is_damage(&why) {
                    true => {
                        verified.corrupt += 1;
                        Verifying::Corrupt(cid, Box::new((why, repaired)))
                    }
                    false => {
                        verified.unreadable += 1;
                        Verifying::Unreadable(cid, Box::new((why, repaired)))
                    }
                };
                // The receiver may be closed.
                let _ = events.send(event).await;
            }
            if part.blocks > 0 {
                let _ = events.send(Verifying::Checked(verified.blocks)).await;
            }
        }
        Ok(verified)
    }

    async fn repair(&self, cid: &Cid, why: &Error, repair: Repair) -> Repaired {
        if repair == Repair::None {
            return Repaired::No;
        }
        if !is_damage(why) {
            return Repaired::NotRemoved(Error::new(why.kind(), "it cannot be read now, but may be intact"));
        }
        if let Err(e) = self.inner.store.delete_many(&[*cid]).await {
            return Repaired::NotRemoved(e);
        }
        let Repair::Retrieve(longest) = repair else { return Repaired::Removed };
        let retrieved = async {
            let data = self.get_block(cid).await?;
            // A block that sources sent is not always kept, and may be evicted.
            self.inner.served.put(Block::trusted(*cid, data)).await
        };
        let retrieved = match longest {
            Some(longest) => timeout(longest, retrieved).await.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Timeout, format!("context deadline exceeded: not found in {longest:?}")))
            }),
            None => retrieved.await,
        };
        match retrieved {
            Ok(_) => Repaired::Retrieved,
            Err(e) => Repaired::NotRetrieved(e),
        }
    }
}

/// Whether a block with this error is damaged. Otherwise it could not be read.
fn is_damage(why: &Error) -> bool {
    matches!(why.kind(), ErrorKind::Corrupt | ErrorKind::InvalidInput)
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
    let (mut read, mut failed) = (Vec::with_capacity(blocks.len()), Vec::new());
    for (cid, data) in blocks {
        match data {
            Ok(data) => read.push((cid, data)),
            Err(e) => failed.push((cid, e)),
        }
    }
    verified.bytes = read.iter().map(|(_, data)| data.len() as u64).sum();
    let parts: Vec<(Cid, &[u8])> = read.iter().map(|(cid, data)| (*cid, data.as_ref())).collect();
    let mismatches =
        parts.iter().zip(hash::verify_all(&parts)).filter_map(|((cid, _), checked)| Some((*cid, checked.err()?)));
    failed.extend(mismatches);
    (verified, failed)
}
