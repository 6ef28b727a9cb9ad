//! Requests of a connection, and tunnels: after a CONNECT, the connection starts again with HTTP.

use axum::http::{Method, Request};
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::conn::front_end::FrontEnd;

/// Record of the requests on a connection.
#[derive(Debug)]
pub(crate) struct Asked<F> {
    /// Front-end for the tunnel that the last CONNECT opened.
    tunnel: Mutex<Option<F>>,
}

impl<F> Default for Asked<F> {
    fn default() -> Self {
        Self { tunnel: Mutex::new(None) }
    }
}

impl<F: FrontEnd> Asked<F> {
    /// Records a request to `front_end`.
    pub(crate) fn note(&self, request: &Request<Incoming>, front_end: &F) {
        if request.method() == Method::CONNECT {
            *self.tunnel.lock() = front_end.tunnel(request);
        }
    }

    /// Takes the front-end for the tunnel, if a CONNECT opened one.
    pub(crate) fn take_tunnel(&self) -> Option<F> {
        self.tunnel.lock().take()
    }
}
