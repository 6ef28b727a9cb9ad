//! Requests of a connection that change its protocol: after a CONNECT, the connection starts again with HTTP; after a
//! WebSocket handshake, it belongs to a session.

use axum::http::header::UPGRADE;
use axum::http::{Method, Request};
use hyper::body::Incoming;
use ipfrs_middleware::websocket::{Session, Takeover};
use parking_lot::Mutex;

use crate::conn::front_end::FrontEnd;

/// Record of the requests on a connection.
#[derive(Debug)]
pub(crate) struct RequestRecord<F> {
    /// Front-end for the tunnel that the last CONNECT opened.
    tunnel: Mutex<Option<F>>,
    /// Session for the rest of the connection, which the handler of a WebSocket handshake sets.
    takeover: Takeover,
}

impl<F> Default for RequestRecord<F> {
    fn default() -> Self {
        Self { tunnel: Mutex::new(None), takeover: Takeover::default() }
    }
}

impl<F: FrontEnd> RequestRecord<F> {
    /// Records a request to `front_end`.
    pub(crate) fn note(&self, request: &mut Request<Incoming>, front_end: &F) {
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(self.takeover.clone());
        }
        if request.method() == Method::CONNECT {
            *self.tunnel.lock() = front_end.tunnel(request);
        }
    }

    /// Takes the front-end for the tunnel, if a CONNECT opened one.
    pub(crate) fn take_tunnel(&self) -> Option<F> {
        self.tunnel.lock().take()
    }

    /// Takes the session for the rest of the connection, if a WebSocket was opened.
    pub(crate) fn take_session(&self) -> Option<Session> {
        self.takeover.take()
    }
}
