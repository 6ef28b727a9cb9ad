//! Reads arbitrary bytes as a chunked body. It must end where it ends for hyper.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tokio::runtime::Builder;

fuzz_target!(|bytes: &[u8]| {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    runtime.block_on(ipfrs_interface::fuzzing::http_chunks(bytes));
});
