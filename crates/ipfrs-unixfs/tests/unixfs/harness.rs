//! An in-memory store, deterministic data, and a reader.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use ipfrs_core::{Block, Cid, Error, Result, hash};
use ipfrs_unixfs::{Attributes, BlockSink, BlockSource, Entry, FileNode, ImportOptions, Importer, Node, decode};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// An in-memory block store.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<Cid, Bytes>>);

impl Memory {
    pub(crate) fn insert(&self, block: Block) {
        let (cid, data) = block.into_parts();
        self.0.lock().unwrap().insert(cid, data);
    }

    pub(crate) fn remove(&self, cid: &Cid) {
        self.0.lock().unwrap().remove(cid);
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.0.lock().unwrap().values().map(|data| data.len() as u64).sum()
    }

    pub(crate) fn get(&self, cid: &Cid) -> Option<Bytes> {
        self.0.lock().unwrap().get(cid).cloned()
    }
}

#[async_trait]
impl BlockSink for Memory {
    async fn put(&self, blocks: Vec<Block>) -> Result<()> {
        blocks.into_iter().for_each(|block| self.insert(block));
        Ok(())
    }
}

#[async_trait]
impl BlockSource for Memory {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.get(cid).ok_or_else(|| Error::not_found(format!("block {cid} is not here")))
    }
}

/// Returns the first `len` bytes of a ChaCha20 keystream. The key is the hash of `seed`; nonce and counter are zero.
pub(crate) fn keystream(seed: &str, len: usize) -> Bytes {
    let key = hash::sha2_256(seed.as_bytes()).digest().try_into().unwrap();
    let mut bytes = vec![0; len];
    ChaCha20Rng::from_seed(key).fill_bytes(&mut bytes);
    bytes.into()
}

/// Returns `len` pseudorandom bytes.
pub(crate) fn random_bytes(len: usize) -> Bytes {
    keystream("ipfrs-unixfs", len)
}

/// Imports `content` in pieces of `piece` bytes.
pub(crate) async fn import(importer: &mut Importer, content: &Bytes, piece: usize) -> Entry {
    import_with(importer, Attributes::default(), content, piece).await
}

async fn import_with(importer: &mut Importer, attributes: Attributes, content: &Bytes, piece: usize) -> Entry {
    let pieces: Vec<_> = (0..content.len())
        .step_by(piece.max(1))
        .map(|start| Ok(content.slice(start..content.len().min(start + piece))))
        .collect();
    let mut reported = 0;
    let entry = importer.file(stream::iter(pieces), attributes, &mut |bytes| reported = bytes).await.unwrap();
    assert_eq!(reported, content.len() as u64, "progress reaches the size of the file");
    entry
}

/// Imports one file into a new store.
pub(crate) async fn import_file(options: ImportOptions, content: &Bytes, piece: usize) -> (Arc<Memory>, Entry) {
    import_file_with(options, Attributes::default(), content, piece).await
}

/// Imports one file with attributes into a new store.
pub(crate) async fn import_file_with(
    options: ImportOptions,
    attributes: Attributes,
    content: &Bytes,
    piece: usize,
) -> (Arc<Memory>, Entry) {
    let store = Arc::new(Memory::default());
    let mut importer = Importer::new(options, Arc::clone(&store) as _);
    let entry = import_with(&mut importer, attributes, content, piece).await;
    importer.flush().await.unwrap();
    (store, entry)
}

/// Reads the content of the file `cid`, and checks every declared size.
pub(crate) fn read_file(store: &Memory, cid: &Cid) -> Vec<u8> {
    let block = store.get(cid).unwrap_or_else(|| panic!("block {cid} was not stored"));
    hash::verify(cid, &block).unwrap();
    let Node::File(FileNode { size, inline, children, .. }) = decode(cid, &block).unwrap() else {
        panic!("{cid} is not a file");
    };
    let mut content = inline.to_vec();
    for child in children.iter_from(0) {
        let part = read_file(store, &child.cid);
        assert_eq!(part.len() as u64, child.size);
        content.extend(part);
    }
    assert_eq!(content.len() as u64, size);
    content
}
