//! Panics in handlers.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// Awaits a handler. A panic in it is a defect of the daemon: it is logged, and `on_panic` creates the response.
pub async fn catch_panic<F: Future>(handler: F, on_panic: impl FnOnce() -> F::Output) -> F::Output {
    AssertUnwindSafe(handler).catch_unwind().await.unwrap_or_else(|panic| {
        log_panic(panic.as_ref());
        on_panic()
    })
}

/// Logs the message of a panic that was caught.
pub fn log_panic(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("unknown"), "a handler panicked: this is a defect");
}
