//! What a connection was asked for; and tunnels: after a CONNECT, what follows on it is HTTP again, from its beginning.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{Method, Request};
use hyper::body::Incoming;
use ipfrs_http::opens_tunnel;
use parking_lot::Mutex;

/// What a connection has been asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    has_asked: AtomicBool,
    /// That it was a CONNECT, and whether it is answered by a tunnel.
    connect: Mutex<Option<bool>>,
}

impl Asked {
    /// Notes a request.
    pub(crate) fn note(&self, request: &Request<Incoming>) {
        self.has_asked.store(true, Ordering::Relaxed);
        if request.method() == Method::CONNECT {
            *self.connect.lock() = Some(opens_tunnel(request));
        }
    }

    /// Whether there was a request.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    /// Whether there was a CONNECT, and if so, whether it was answered by a tunnel.
    pub(crate) fn connect(&self) -> Option<bool> {
        *self.connect.lock()
    }
}
