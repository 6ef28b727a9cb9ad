//! The conformance suite, which runs on every engine. Each function of `suite` tests one contract of `BlockStore`.

mod suite;

use std::future::Future;
use std::sync::Arc;

use ipfrs_store::{BlockStore, Durability, MemoryStore, PackOptions, PackStore};

use crate::fixture::small_packs;

async fn on_pack<F: Future<Output = ()>>(options: PackOptions, test: impl FnOnce(Arc<dyn BlockStore>) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), options).unwrap();
    test(Arc::new(store.clone())).await;
    store.close().await.unwrap();
}

macro_rules! conformance {
    ($($name:ident,)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::suite::$name(super::Arc::new(super::MemoryStore::default())).await;
            })*
        }
        mod pack {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::on_pack(super::PackOptions::default(), super::suite::$name).await;
            })*
        }
        /// Packs that are full quickly, and syncs only at the end of each pack.
        mod small_packs_without_fsync {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let options = super::PackOptions {
                    durability: super::Durability::Os,
                    ..super::small_packs()
                };
                super::on_pack(options, super::suite::$name).await;
            })*
        }
    };
}

conformance! {
    blocks_of_every_size_come_back,
    an_absent_block_is_none_and_seen_as_soon_as_it_is_put,
    a_block_is_found_under_every_codec_and_version_and_listed_as_first_put,
    identity_blocks_are_always_there_and_never_stored,
    get_many_keeps_the_order_and_marks_what_is_missing,
    batches_give_the_same_and_what_stands_before_the_data_is_of_its_block,
    a_block_is_new_once,
    an_atomic_put_with_a_refused_block_stores_nothing_and_removes_nothing,
    a_best_effort_put_stores_what_can_be_stored,
    what_no_engine_keeps_is_refused,
    a_batch_larger_than_every_internal_bound_is_stored,
    deleted_blocks_are_gone_and_can_be_put_again,
    blocks_that_are_spared_stay,
    a_deletion_that_asks_at_the_last_moment_loses_no_block_that_is_wanted,
    bytes_in_use_outlive_their_deletion,
    compaction_changes_nothing_that_can_be_read,
    iterate_lists_what_stays_while_blocks_come_and_go,
    many_small_blocks_in_one_call,
    stats_count_blocks_and_payload,
    writers_and_readers_at_the_same_time,
    dropped_futures_and_streams_leave_the_store_usable,
}
