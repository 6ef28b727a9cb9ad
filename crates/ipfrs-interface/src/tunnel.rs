//! Tunnels: after a CONNECT, what follows on the connection is HTTP again, from its beginning.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use axum::http::{Method, Request};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::upgrade::downcast;
use ipfrs_http::opens_tunnel;
use ipfrs_stream::Socket;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;

/// What a connection has been asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    has_asked: AtomicBool,
    /// What becomes of the connection once a CONNECT is answered, and whether that is a tunnel.
    connect: Mutex<Option<(OnUpgrade, bool)>>,
}

impl Asked {
    /// Notes a request.
    pub(crate) fn note(&self, request: &mut Request<Incoming>) {
        self.has_asked.store(true, Ordering::Relaxed);
        if request.method() == Method::CONNECT {
            let is_tunnel = opens_tunnel(request);
            *self.connect.lock() = Some((hyper::upgrade::on(request), is_tunnel));
        }
    }

    /// Whether there was a request.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    /// The socket, where the connection has ended in a tunnel, with what was read of that already.
    pub(crate) async fn tunnel(&self) -> Option<Socket> {
        let (mut upgrade, is_tunnel) = self.connect.lock().take()?;
        // It is there at once or never: when the connection has ended with the answer.
        let upgraded = poll_fn(|cx| match Pin::new(&mut upgrade).poll(cx) {
            Poll::Ready(upgraded) => Poll::Ready(upgraded.ok()),
            Poll::Pending => Poll::Ready(None),
        });
        let parts = downcast::<TokioIo<Socket>>(upgraded.await?).ok()?;
        let mut socket = parts.io.into_inner();
        if is_tunnel {
            return Some(socket.with_unread(parts.read_buf));
        }
        // hyper hands over a connection whose CONNECT was refused as well, and leaves it to us to end it.
        if let Err(error) = socket.shutdown().await {
            tracing::trace!(%error, "the client was gone before its connection was closed");
        }
        None
    }
}
