//! The contracts of [`BlockStore`](crate::BlockStore) as tests for engines (see [`engine_tests`](crate::engine_tests)),
//! and stores that wait or fail, for tests of their callers.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "a contract that is broken panics")]

mod altered_store;
mod blocks;
#[allow(missing_docs, reason = "each function is named after its contract")]
pub mod contracts;

use std::io::Write as _;

pub use altered_store::{AlteredStore, Difference};
pub use blocks::{assert_holds, assert_lacks, block, cids, listed, numbered, put_all, random_block, sorted};

/// Reports a test that this machine cannot run. Fails if `IPFRS_REQUIRE_ALL_TESTS` is set, for machines that can run
/// all.
pub fn skipped(why: &str) {
    // Not `eprintln!`, whose output the test harness shows for failed tests only.
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why} (IPFRS_REQUIRE_ALL_TESTS makes this a failure)");
    assert!(std::env::var_os("IPFRS_REQUIRE_ALL_TESTS").is_none(), "{why}");
}

/// Creates one test for each contract of [`BlockStore`](crate::BlockStore). Its argument is an async function that
/// opens a new, empty engine, passes it to the contract and closes it. The tests need tokio with the features `macros`
/// and `rt-multi-thread`.
///
/// ```
/// # use std::{future::Future, sync::Arc};
/// # use ipfrs_store::{BlockStore, MemoryStore as MyEngine};
/// async fn on_my_engine<F: Future<Output = ()>>(contract: impl FnOnce(Arc<dyn BlockStore>) -> F) {
///     contract(Arc::new(MyEngine::default())).await;
/// }
///
/// ipfrs_store::engine_tests!(on_my_engine);
/// ```
#[macro_export]
macro_rules! engine_tests {
    ($with_engine:path) => {
        $crate::engine_tests! { @each $with_engine;
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
            iterate_after_continues_behind_a_block,
            iterate_lists_what_stays_while_blocks_come_and_go,
            many_small_blocks_in_one_call,
            stats_count_blocks_and_payload,
            writers_and_readers_at_the_same_time,
            dropped_futures_and_streams_leave_the_store_usable,
        }
    };
    (@each $with_engine:path; $($contract:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $contract() {
            $with_engine($crate::testing::contracts::$contract).await;
        })*
    };
}
