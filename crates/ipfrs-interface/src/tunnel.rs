//! What a connection was asked for; and tunnels: after a CONNECT, what follows on it is HTTP again, from its beginning.

use axum::http::{Method, Request};
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::connection::FrontEnd;

/// What a connection has been asked for.
#[derive(Debug)]
pub(crate) struct Asked<F> {
    /// The front-end for what is in the tunnel that the last CONNECT opened.
    tunnel: Mutex<Option<F>>,
}

impl<F> Default for Asked<F> {
    fn default() -> Self {
        Self { tunnel: Mutex::new(None) }
    }
}

impl<F: FrontEnd> Asked<F> {
    /// Notes a request to `front_end`.
    pub(crate) fn note(&self, request: &Request<Incoming>, front_end: &F) {
        if request.method() == Method::CONNECT {
            *self.tunnel.lock() = front_end.tunnel(request);
        }
    }

    /// Takes the front-end for what is in the tunnel, where a CONNECT opened one.
    pub(crate) fn take_tunnel(&self) -> Option<F> {
        self.tunnel.lock().take()
    }
}
