//! Response formats: one JSON object, a stream of objects, or a stream of bytes.

mod batches;

use std::sync::{Arc, LazyLock};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use futures::{Stream, StreamExt};
use http::header::{CONTENT_TYPE, TRAILER};
use http::{HeaderName, HeaderValue};
use ipfrs_core::{Base, Error, Result, cores};
use ipfrs_middleware::RequestMemory;
use ipfrs_node::LinkName;
use serde::Serialize;
use tokio::sync::Semaphore;

use self::batches::batched;
use crate::body::{Chunked, Sized, X_STREAM_OUTPUT};
use crate::error::{RpcError, rpc_failure};

/// Size of a part of a response up to which it is rendered or converted on the runtime worker, in bytes.
pub(super) const RENDERED_INLINE_BYTES: usize = 64 * 1024;

/// One permit for each large part that is being rendered or converted, as many as there are cores. More at the same
/// time would end no sooner.
static RENDERING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(cores())));

pub(super) const X_CHUNKED_OUTPUT: HeaderName = HeaderName::from_static("x-chunked-output");
const X_CONTENT_LENGTH: HeaderName = HeaderName::from_static("x-content-length");
const ONE: HeaderValue = HeaderValue::from_static("1");
const STREAM_ERROR: (HeaderName, HeaderValue) = (TRAILER, HeaderValue::from_static("X-Stream-Error"));

/// Returns the bytes of a name in base64 if the name is not UTF-8. JSON cannot represent such a name, so the text has
/// replacement characters, as in Kubo.
pub(super) fn name_bytes(name: &LinkName) -> Option<String> {
    name.to_str().is_none().then(|| Base::Base64Pad.encode(name))
}

/// Returns a response with one JSON object, on one line.
pub(super) fn object(value: impl Serialize) -> Response {
    match line(&value) {
        Ok(line) => ([(CONTENT_TYPE, "application/json")], line).into_response(),
        Err(e) => RpcError::from(e).into_response(),
    }
}

/// Renders a part of a response that has about this many bytes. A large one is rendered on a blocking thread, because
/// it would take the time of other requests on the runtime worker.
///
/// # Errors
/// Those of `render`.
pub(super) async fn rendered<T: Send + 'static>(
    bytes: usize,
    render: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if bytes <= RENDERED_INLINE_BYTES {
        return render();
    }
    on_blocking_thread(render).await?
}

/// Runs `work`, which renders or converts a large part of a response, on a blocking thread. Waits until fewer threads
/// than the machine has cores do such work.
///
/// # Errors
/// If `work` panics.
pub(super) async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let failed = || Error::internal("rendering a response failed");
    let permit = Arc::clone(&RENDERING).acquire_owned().await.map_err(|e| failed().with_source(e))?;
    let working = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    working.await.map_err(|e| failed().with_source(e))
}

/// Same as [`object`], for a large value. `memory` is that of the value, and then holds the response until it is sent.
///
/// # Errors
/// If there is not enough memory for the response.
pub(super) fn large_object<T: Serialize>(value: T, mut memory: RequestMemory) -> Result<Response> {
    let json = json_line(&value)?;
    drop(value);
    memory.grow_to(json.capacity())?;
    memory.shrink_to(json.capacity());
    Ok(([(CONTENT_TYPE, "application/json")], memory.hold(json)).into_response())
}

/// Returns the empty response of a path that is only the beginning of commands.
pub(super) async fn nothing() -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json")), (X_CHUNKED_OUTPUT, ONE)], ()).into_response()
}

/// Serializes a line of NDJSON.
pub(super) fn line(value: &impl Serialize) -> Result<Bytes> {
    json_line(value).map(Bytes::from)
}

fn json_line(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line =
        serde_json::to_vec(value).map_err(|e| Error::internal("a response is not valid JSON").with_source(e))?;
    line.push(b'\n');
    Ok(line)
}

/// Returns a response with a stream of JSON objects, one per line. If the stream fails, the last line is Kubo's error
/// object, and the body ends with the trailer `X-Stream-Error` for clients that accept it, else with a reset
/// connection.
pub(super) fn objects<S>(lines: S, takes_trailers: bool) -> Response
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
{
    let lines = lines.flat_map(|item| {
        let last = item.as_ref().err().map(|error| line(&rpc_failure(error)));
        stream::iter(last.into_iter().chain([item]))
    });
    plain_objects(lines, takes_trailers)
}

/// Returns the same response as [`objects`] for a single object. Kubo also sends results of some commands that are
/// always one object as a stream.
pub(super) fn only_object(value: &impl Serialize, takes_trailers: bool) -> Response {
    objects(stream::iter([line(value)]), takes_trailers)
}

/// Same as [`objects`], but only the trailer states an error, as in Kubo. Kubo's Go client fails at Kubo's error object
/// if the `Type` of the other objects is a number.
pub(super) fn plain_objects<S>(lines: S, takes_trailers: bool) -> Response
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
{
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json")), (X_CHUNKED_OUTPUT, ONE), STREAM_ERROR];
    (headers, Chunked::body(batched(lines), takes_trailers)).into_response()
}

/// Returns a response with one JSON object that is written while it is streamed.
pub(super) fn streamed_object<S>(pieces: S, takes_trailers: bool) -> Response
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
{
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json")), STREAM_ERROR];
    (headers, Chunked::body(batched(pieces), takes_trailers)).into_response()
}

/// Returns a response with a stream of `length` bytes.
pub(super) fn bytes<S>(pieces: S, length: u64, takes_trailers: bool) -> Response
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
{
    stream_of("text/plain", pieces, Some(length), takes_trailers)
}

/// Returns a response with a stream of bytes of a media type, whose length may be known. A body with a
/// `Content-Length` cannot have a trailer, so clients that accept trailers get the length only in `X-Content-Length`.
pub(super) fn stream_of<S>(content_type: &'static str, pieces: S, length: Option<u64>, takes_trailers: bool) -> Response
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
{
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(content_type)), (X_STREAM_OUTPUT, ONE), STREAM_ERROR];
    let body = match length {
        Some(length) if !takes_trailers => Sized::body(pieces, length),
        _ => Chunked::body(pieces, takes_trailers),
    };
    let mut response = (headers, body).into_response();
    if let Some(length) = length {
        response.headers_mut().insert(X_CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn large_parts_are_rendered_on_another_thread() {
        let here = thread::current().id();
        let thread_for = async |bytes| rendered(bytes, || Ok(thread::current().id())).await.unwrap();
        assert_eq!(thread_for(RENDERED_INLINE_BYTES).await, here);
        assert_ne!(thread_for(RENDERED_INLINE_BYTES + 1).await, here);
        let failed = rendered(usize::MAX, || Err::<(), _>(Error::invalid("no"))).await;
        assert_eq!(failed.unwrap_err().message(), "no");
    }

    #[test]
    fn large_part_waits_until_fewer_are_rendered() {
        // One thread, so that its work runs in order.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let others = RENDERING.acquire_many(u32::try_from(cores()).unwrap()).await.unwrap();
            let has_run = Arc::new(AtomicBool::new(false));
            let work = Arc::clone(&has_run);
            let mut large = Box::pin(rendered(RENDERED_INLINE_BYTES + 1, move || {
                work.store(true, Ordering::Relaxed);
                Ok(())
            }));
            assert!(poll!(&mut large).is_pending());
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert!(!has_run.load(Ordering::Relaxed));
            rendered(1, || Ok(())).await.unwrap();
            drop(others);
            large.await.unwrap();
            assert!(has_run.load(Ordering::Relaxed));
        });
    }
}
