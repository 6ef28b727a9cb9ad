//! Entry points for fuzzing the parsers of HTTP/1.1, with hyper as the oracle.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;

use super::get_head::Get;
use super::one_request::Chunks;
use super::request_head::{BodyLength, check};

/// Largest head, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The first request on a connection, as hyper reads it.
struct Read {
    head: Request<()>,
    /// The body, or `None` if it is malformed or incomplete.
    body: Option<Vec<u8>>,
}

/// Returns the first request in `bytes`, after which the client closes the connection.
async fn by_hyper(bytes: &[u8]) -> Option<Read> {
    let (mut client, server) = tokio::io::duplex(bytes.len().max(1) + 1024);
    client.write_all(bytes).await.expect("the buffer has room");
    client.shutdown().await.expect("the buffer has room");
    let first: Arc<Mutex<Option<Read>>> = Arc::default();
    let noted = Arc::clone(&first);
    let service = service_fn(move |request: Request<Incoming>| {
        let noted = Arc::clone(&noted);
        async move {
            let (parts, body) = request.into_parts();
            let body = to_bytes(Body::new(body), usize::MAX).await.ok().map(|body| body.to_vec());
            noted.lock().get_or_insert(Read { head: Request::from_parts(parts, ()), body });
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    let mut http = http1::Builder::new();
    http.half_close(true).max_buf_size(MAX_HEAD_BYTES);
    // The responses are not read. The first request is known before they fill the buffer.
    let served = http.serve_connection(TokioIo::new(server), service);
    let _ended = tokio::time::timeout(std::time::Duration::from_secs(5), served).await;
    first.lock().take()
}

/// Parses a head in all ways. What the fast path takes, and what the check lets pass, hyper must read in the same way.
pub(crate) async fn head(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    let checked = check(bytes, MAX_HEAD_BYTES);
    let get = Get::parse(bytes, &mut headers);
    if let Some(get) = &get {
        let extent = checked.as_ref().expect("the check lets it pass").expect("it is complete");
        assert_eq!((extent.head, extent.body), (get.len, BodyLength::Bytes(0)));
        let read = by_hyper(&bytes[..get.len]).await.expect("hyper reads it");
        assert_eq!((read.head.method(), read.head.uri().to_string().as_str()), (&get.method, get.target));
        assert_eq!(read.head.headers(), &headers);
        assert_eq!(read.body.as_deref(), Some(&[][..]));
        if get.is_cacheable {
            let like = Get::like(bytes, get.lines);
            assert_eq!(like.is_some(), !get.lines.is_empty());
            assert!(like.is_none_or(|like| (like.target, like.len) == (get.target, get.len)));
        }
    } else if let Ok(Some(extent)) = checked {
        let read = by_hyper(&bytes[..extent.head]).await.expect("hyper reads it");
        match extent.body {
            BodyLength::Bytes(0) => assert_eq!(read.body.as_deref(), Some(&[][..])),
            BodyLength::Bytes(_) | BodyLength::Chunked => assert_eq!(read.body, None, "it is incomplete"),
        }
    }
}

/// Reads a chunked body. If hyper reads one in the same bytes, both must find the same end.
pub(crate) async fn chunks(body: &[u8]) {
    const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut chunks = Chunks::default();
    let Some(length) = chunks.take(body).filter(|_| chunks.is_ended()) else { return };
    let whole = by_hyper(&[HEAD, &body[..length]].concat()).await.expect("the head is sound");
    if whole.body.is_some() {
        let shorter = by_hyper(&[HEAD, &body[..length - 1]].concat()).await.expect("the head is sound");
        assert_eq!(shorter.body, None, "the body ends before {length} bytes");
    }
}
