use std::convert::Infallible;
use std::future::{Pending, pending, poll_fn};
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response};
use ipfrs_http::SerializedResponse;
use ipfrs_node::{MemoryStore, NodeConfig};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::conn::deadlines::Drain;
use crate::tls::Alpn;
use hyper::body::Incoming;
use ipfrs_middleware::Protection;

use crate::conn::front_end::Received;

/// A front-end without responses, which counts its lookups.
#[derive(Clone, Default)]
struct Asked(Arc<AtomicUsize>);

impl FrontEnd for Asked {
    const SENDS_AT_ONCE: bool = false;

    const WEBSOCKET_PATHS: &'static [&'static str] = &[];

    const ALPN: Alpn = &[];

    type Answering = Pending<Result<Response<Body>, Infallible>>;

    fn protected(&self, _: Protection) -> Self {
        self.clone()
    }

    fn trusts(&self, _: IpAddr) -> bool {
        false
    }

    fn answer(&self, _: Request<Received>, _: IpAddr) -> Self::Answering {
        pending()
    }

    fn tunnel(&self, _: &Request<Incoming>) -> Option<Self> {
        None
    }

    fn cacheable_request(&self, _: &HeaderMap, _: IpAddr) -> Option<CacheableRequest> {
        self.0.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn serialized_response(&self, _: &str, _: &CacheableRequest, _: &mut Vec<u8>) -> Option<SerializedResponse> {
        None
    }

    fn count_refused(&self, _: &Refusal) -> HeaderValue {
        HeaderValue::from_static("id")
    }
}

#[tokio::test]
async fn draining_disables_the_fast_path() {
    let (repo, config) = (tempfile::tempdir().unwrap(), NodeConfig::default());
    let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).config(config).open().await.unwrap();
    let settings = Settings {
        node,
        max_request: Duration::from_secs(3_600),
        is_fast_path_enabled: true,
        max_header_bytes: 8_192,
        busy_poll: Duration::ZERO,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let mut socket = Socket::new(listener.accept().await.unwrap().0, None, ipfrs_stream::Bandwidth::default());
    let drain = Drain::default();
    let (started, cut) = (pin!(drain.started.cancelled()), pin!(drain.cut.cancelled()));
    let deadlines = Deadlines::new(&drain, started, cut, Duration::from_secs(3_600));
    let front_end = Asked::default();
    let mut idle = IdleConnection::new(front_end.clone(), IpAddr::V4(Ipv4Addr::LOCALHOST), false, settings.into());
    let request = b"GET /ipfs/a HTTP/1.1\r\nHost: x\r\n\r\n";
    for is_begun in [true, false] {
        client.write_all(request).await.unwrap();
        let wakeup = poll_fn(|cx| idle.poll(&mut socket, &deadlines, cx)).await.unwrap();
        let extent = Extent::new(request.len(), BodyLength::Bytes(0));
        assert_eq!(wakeup, Wakeup::Asks(Asks::Http1(extent)));
        let mut left = vec![0; request.len()];
        socket.read_exact(&mut left).await.unwrap();
        assert_eq!(left, request);
        // After draining has begun, the response must state that it is the last one.
        assert_eq!(idle.take_begun().is_some(), is_begun);
        assert_eq!(front_end.0.load(Ordering::Relaxed), 1);
        drain.start();
    }
}
