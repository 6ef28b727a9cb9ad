//! `GET /ws/ingest`: stores the binary messages of a WebSocket as one object. docs/API.md describes the messages.

pub(crate) mod memory;
mod messages;
mod session;
mod writer;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, Uri};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::Client;
use ipfrs_middleware::auth::{Auth, Basic};
use ipfrs_middleware::websocket::MessageLimits;
use ipfrs_node::{IngestConfig, IngestName, IngestStore};

use crate::access::SessionAudit;
use crate::error::Problem;
use crate::events::{message_limits, refused};
use crate::request_id::RequestId;
use crate::state::AppState;

/// Size of the buffer for arriving messages, in bytes.
const READ_BUFFER_BYTES: usize = 128 * 1024;

/// Place of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A buffer, which is dropped at the end. It shows what the connection itself costs.
    Memory,
    Durable(IngestStore),
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Durable(IngestStore::FileSystem) => "filesystem",
            Self::Durable(IngestStore::Ipfs) => "ipfs",
        }
    }
}

/// Query of the request.
#[derive(Debug)]
struct Target {
    place: Place,
    name: IngestName,
    append: bool,
}

/// Accepts a client.
pub(crate) async fn connect(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    let config = &state.node.config().ingest;
    let refuse = |error: Error| Problem::new(error, &id).into_response();
    if !config.enabled {
        return refuse(Error::not_found("the daemon accepts no objects: set ingest.enabled"));
    }
    let client = request.extensions().get::<Client>().copied().unwrap_or_default();
    match is_authentic(&state.auth, client, request.headers(), config) {
        Ok(true) => {}
        Ok(false) => {
            let text = "send the user and password of ingest.user with basic authentication (RFC 7617)";
            let mut response = refuse(Error::new(ErrorKind::Unauthenticated, text));
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"ingest\""));
            return response;
        }
        Err(error) => return refuse(error),
    }
    let target = match target(request.uri(), id.as_str()) {
        Ok(target) => target,
        Err(error) => return refuse(error),
    };
    let Ok(permit) = state.ingest_permits.take(client, 1) else {
        let most = config.max_connections;
        let text = format!(
            "as many connections of this client send objects as are left for all others, of {most} \
             (ingest.max_connections): try again when one has ended"
        );
        return refuse(Error::new(ErrorKind::RateLimited, text));
    };
    let messages = MessageLimits {
        max_message_bytes: config.max_message_bytes,
        read_buffer_bytes: READ_BUFFER_BYTES,
        key: "ingest.max_message_bytes",
    };
    let (shared, limits) = (state.clone(), message_limits(&state, &request));
    let audit = SessionAudit::default();
    let line = audit.clone();
    let accepted = state.websockets.accept_with(&request, &[], messages, move |mut socket, _| async move {
        socket.limit_rate(limits);
        session::run(shared, socket, client, target, line).await;
        drop(permit);
    });
    match accepted {
        Ok(response) => (Extension(audit), response.map(|()| Body::empty())).into_response(),
        Err(error) => refused(&error, &id),
    }
}

/// Returns whether a request has the configured user and password, or needs none. A password that is wrong counts as a
/// failed attempt of the client.
fn is_authentic(auth: &Auth, client: Client, headers: &HeaderMap, config: &IngestConfig) -> Result<bool> {
    match Basic::of(headers) {
        _ if !config.needs_password() => Ok(true),
        Some(basic) => auth.check_password(client, || config.is_authentic(basic.user(), basic.password())),
        None => Ok(false),
    }
}

/// Reads the query. An object without a name gets `default_name`.
fn target(uri: &Uri, default_name: &str) -> Result<Target> {
    let (mut place, mut name, mut append) = (None, None, None);
    for (key, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        let is_repeated = match &*key {
            "store" => place.replace(read_place(&value)?).is_some(),
            "name" => name.replace(value.parse()?).is_some(),
            "append" => append.replace(read_bool(&value)?).is_some(),
            _ => return Err(Error::invalid(format!("no parameter {key:?}: there are store, name and append"))),
        };
        if is_repeated {
            return Err(Error::invalid(format!("the parameter {key} is repeated")));
        }
    }
    let place = place.unwrap_or(Place::Durable(IngestStore::Ipfs));
    let append = append.unwrap_or(false);
    if append && (place == Place::Memory || name.is_none()) {
        return Err(Error::invalid("append=true continues an object: give its name, and a store other than memory"));
    }
    let name = match name {
        Some(name) => name,
        None => default_name.replace(|c: char| !c.is_ascii_alphanumeric(), "-").parse()?,
    };
    Ok(Target { place, name, append })
}

fn read_place(text: &str) -> Result<Place> {
    Ok(match text {
        "memory" => Place::Memory,
        "filesystem" => Place::Durable(IngestStore::FileSystem),
        "ipfs" => Place::Durable(IngestStore::Ipfs),
        _ => return Err(Error::invalid(format!("store = {text:?}: there are memory, filesystem and ipfs"))),
    })
}

fn read_bool(text: &str) -> Result<bool> {
    text.parse().map_err(|_| Error::invalid(format!("append = {text:?}: give true or false")))
}
