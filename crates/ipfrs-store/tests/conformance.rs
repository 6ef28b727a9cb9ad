//! The contracts of `BlockStore`, tested on every engine.

use std::future::Future;
use std::sync::Arc;

use ipfrs_store::{BlockStore, Durability, Filestore, MemoryStore, PackOptions, PackStore};

use crate::fixture::small_packs;

async fn on_memory<F: Future<Output = ()>>(contract: impl FnOnce(Arc<dyn BlockStore>) -> F) {
    contract(Arc::new(MemoryStore::default())).await;
}

async fn on_packs<F: Future<Output = ()>>(contract: impl FnOnce(Arc<dyn BlockStore>) -> F) {
    with_options(PackOptions::default(), contract).await;
}

/// Packs that are full quickly, and syncs only at the end of each pack.
async fn on_small_packs_without_fsync<F: Future<Output = ()>>(contract: impl FnOnce(Arc<dyn BlockStore>) -> F) {
    with_options(PackOptions { durability: Durability::Os, ..small_packs() }, contract).await;
}

async fn with_options<F: Future<Output = ()>>(options: PackOptions, contract: impl FnOnce(Arc<dyn BlockStore>) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), options).unwrap();
    contract(Arc::new(store.clone())).await;
    store.close().await.unwrap();
}

/// Packs, and references to files, of which there are none.
async fn on_filestore<F: Future<Output = ()>>(contract: impl FnOnce(Arc<dyn BlockStore>) -> F) {
    let (dir, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let packs = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    contract(Arc::new(Filestore::open(packs.clone(), files.path(), false).unwrap())).await;
    packs.close().await.unwrap();
}

mod filestore {
    ipfrs_store::engine_tests!(super::on_filestore);
}

mod memory {
    ipfrs_store::engine_tests!(super::on_memory);
}

mod packs {
    ipfrs_store::engine_tests!(super::on_packs);
}

mod small_packs_without_fsync {
    ipfrs_store::engine_tests!(super::on_small_packs_without_fsync);
}
