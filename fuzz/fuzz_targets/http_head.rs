//! Parses arbitrary bytes as the head of a request. What the fast path takes, and what the check of heads lets pass,
//! hyper must read in the same way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tokio::runtime::Builder;

fuzz_target!(|bytes: &[u8]| {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    runtime.block_on(ipfrs_interface::fuzzing::http_head(bytes));
});
