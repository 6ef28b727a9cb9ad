//! GraphQL over HTTP (<https://graphql.github.io/graphql-over-http/draft/>).

mod media;
mod multipart;
mod parsed;
mod request;
mod response;
mod serialized;
mod sse;
mod websocket;

use std::sync::Arc;

use async_graphql::parser::types::OperationType;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures::StreamExt;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::auth::{Caller, Scope, challenge};
use ipfrs_middleware::websocket::{WebSockets, is_websocket};
use ipfrs_middleware::{Lifecycle, MemoryPool, Rules, request_id};
use ipfrs_node::Node;
use prometheus::{IntCounter, Registry};

use self::media::Media;
use self::parsed::Parsed;
use crate::GraphQlConfig;
use crate::error::{request_error, with_code};
use crate::operation::{Answer, Executor};

/// The GraphQL front-end. Clones share its state.
#[derive(Clone)]
pub struct GraphQl(Arc<Shared>);

struct Shared {
    executor: Executor,
    websockets: WebSockets,
    rules: Rules,
    /// Counter of messages over WebSockets.
    sent: IntCounter,
}

impl std::fmt::Debug for GraphQl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GraphQl").finish_non_exhaustive()
    }
}

impl GraphQl {
    /// Creates the front-end of a node.
    ///
    /// # Errors
    /// If its metrics are already registered.
    pub fn new(
        node: &Node,
        config: &GraphQlConfig,
        memory: &MemoryPool,
        websockets: &WebSockets,
        rules: &Rules,
        lifecycle: &Lifecycle,
        registry: &Registry,
    ) -> Result<Self> {
        let executor = Executor::new(node, config, memory, lifecycle, registry)?;
        let sent = websockets.sent("graphql");
        Ok(Self(Arc::new(Shared { executor, websockets: websockets.clone(), rules: rules.clone(), sent })))
    }

    /// Returns the routes: `/graphql`, `/graphql/ws` and `/graphql/schema.graphql`.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/graphql", any(serve))
            .route("/graphql/ws", get(websocket::connect))
            .route("/graphql/schema.graphql", get(schema_text))
            .method_not_allowed_fallback(only_get)
            .with_state(self.clone())
    }
}

/// `GET /graphql/schema.graphql`: the schema in the schema definition language.
async fn schema_text(State(graphql): State<GraphQl>, request: Request) -> Response {
    let caller = Caller::of(request.extensions());
    if let Err(error) = caller.require(Scope::Read).and_then(|()| caller.require_no_roots()) {
        return not_permitted(request.headers(), Media::Json, &error);
    }
    if !graphql.0.executor.config().introspection {
        return (StatusCode::NOT_FOUND, "the schema is not served (graphql.introspection = false)\n").into_response();
    }
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], crate::sdl()).into_response()
}

/// Refuses other methods on routes that have only GET.
async fn only_get(request: Request) -> Response {
    let error = with_code(request_error(&Error::invalid("use GET")), "method_not_allowed");
    not_allowed("GET, HEAD", Media::accepted(request.headers()), error)
}

/// `/graphql`: an operation, or a WebSocket.
async fn serve(State(graphql): State<GraphQl>, request: Request) -> Response {
    if is_websocket(&request) {
        return websocket::connect(State(graphql), request).await;
    }
    let media = Media::accepted(request.headers());
    let is_get = match *request.method() {
        Method::GET | Method::HEAD => true,
        Method::POST => false,
        _ => {
            let error = request_error(&Error::invalid("use GET or POST"));
            return not_allowed("GET, HEAD, POST", media, with_code(error, "method_not_allowed"));
        }
    };
    let executor = &graphql.0.executor;
    let caller = Caller::of(request.extensions());
    let asked = request.headers().clone();
    // Before the body is read. What the operation needs is known after it.
    if let Err(error) = caller.require_any() {
        return not_permitted(&asked, media, &error);
    }
    let if_none_match: Vec<_> = request.headers().get_all(http::header::IF_NONE_MATCH).iter().cloned().collect();
    let parsed = match is_get {
        true => request::of_query(request.uri()),
        false => request::of_body(executor, request).await,
    };
    let Parsed { request, files, memory } = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return response::unreadable(media, &error),
    };
    let operation = match executor.parse(request, &caller) {
        Ok(operation) => operation.with_request_id(&id_of(&asked)),
        Err(error) if media == Media::EventStream => return sse::refused(Answer::refused(error)).await,
        Err(error) => return response::refused(StatusCode::BAD_REQUEST, media, error),
    };
    if let Err(error) = operation.check(&caller) {
        return not_permitted(&asked, media, &error);
    }
    if is_get && operation.kind == OperationType::Mutation {
        let error = request_error(&Error::invalid("a mutation needs POST: GET must not change anything"));
        return not_allowed("POST", media, with_code(error, "method_not_allowed"));
    }
    let operation = match files {
        Some(files) => operation.with_files(files),
        None => operation,
    };
    if media == Media::EventStream {
        // A subscription ends with the credentials of its caller.
        let answers = executor.stream(operation).take_until(async move { caller.ended().await }).boxed();
        return sse::stream(answers, graphql.0.websockets.lifecycle().clone()).await;
    }
    if operation.kind == OperationType::Subscription {
        let why = "a subscription needs a WebSocket (graphql-transport-ws), or \"Accept: text/event-stream\"";
        return response::refused(StatusCode::BAD_REQUEST, media, request_error(&Error::invalid(why)));
    }
    let answer = executor.execute(operation).await;
    drop(memory);
    response::whole(answer, media, is_get, &if_none_match).await
}

/// Returns the ID of a request; empty if it has none.
fn id_of(headers: &HeaderMap) -> String {
    request_id::chosen(headers).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned()
}

fn not_permitted(asked: &HeaderMap, media: Media, error: &Error) -> Response {
    let status = match error.kind() {
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        _ => StatusCode::FORBIDDEN,
    };
    let mut response = response::refused(status, media, request_error(error));
    *response.status_mut() = status;
    challenge(asked, error, response.headers_mut());
    response
}

fn not_allowed(allow: &'static str, media: Media, error: async_graphql::ServerError) -> Response {
    let mut response = response::refused(StatusCode::METHOD_NOT_ALLOWED, media, error);
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}
