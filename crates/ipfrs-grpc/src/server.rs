//! Assembly of the gRPC services.

use std::convert::Infallible;
use std::future::ready;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use http::header::ORIGIN;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version};
use http_body::Body as HttpBody;
use ipfrs_core::limits::MAX_BLOCK_BYTES;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::auth::{Caller, Need};
use ipfrs_middleware::{
    Client, Lifecycle, MemoryPool, Protection, RequestIds, RequestPermits, Requests, TrustedProxies,
};
use ipfrs_node::{Limit, Node};
use ipfrs_proto::block::v1::GetBlockResponse;
use ipfrs_proto::block::v1::block_service_server::{self, BlockService, BlockServiceServer};
use ipfrs_proto::dag::v1::dag_service_server::{self, DagService, DagServiceServer};
use ipfrs_proto::file::v1::file_service_server::{self, FileService, FileServiceServer};
use ipfrs_proto::tensor::v1::tensor_service_server::{self, TensorService, TensorServiceServer};
use prometheus::Registry;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_web::GrpcWebLayer;
use tower::Service as _;

use crate::access;
use crate::block::{self, Blocks};
use crate::call::{self, Calls, OwnListener};
use crate::compression::Coder;
use crate::dag::Dags;
use crate::error;
use crate::file::{self, Files};
use crate::health::Readiness;
use crate::limits::Limits;
use crate::metrics::GrpcMetrics;
use crate::not_a_call::no_call;
use crate::request_id::{self, X_REQUEST_ID};
use crate::shortcut::Shortcuts;
use crate::tensor::Tensors;

/// Names of the services, except health and reflection.
const SERVICES: &[&str] = &[
    block_service_server::SERVICE_NAME,
    dag_service_server::SERVICE_NAME,
    file_service_server::SERVICE_NAME,
    tensor_service_server::SERVICE_NAME,
];

/// Reason why a call is refused whose connection should have TLS.
const LACKS_TLS: &str = "this daemon takes calls from other machines only over TLS";

/// Header with the client addresses from a proxy.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Allowance in a message for all fields except the payload.
const MESSAGE_ROOM_BYTES: usize = 4 * 1024;
/// Maximum message size for a node. Its text form is larger than the block that is created from it.
const MAX_NODE_BYTES: usize = 2 * MAX_BLOCK_BYTES + MESSAGE_ROOM_BYTES;
/// Maximum message size for bytes of a file or a tensor.
const MAX_CHUNK_MESSAGE_BYTES: usize = file::MAX_CHUNK_BYTES + MESSAGE_ROOM_BYTES;
/// Allowance in a message for one CID as text. Most CIDs take half of it.
const CID_ROOM_BYTES: usize = 128;

/// Creates a function that calls a service method, for a shortcut.
macro_rules! answers {
    ($service:expr, $method:ident) => {{
        let service = $service.clone();
        move |message| {
            let service = service.clone();
            async move { Ok(service.$method(tonic::Request::new(message)).await?.into_inner()) }
        }
    }};
}

/// Returns the shortcuts for methods whose responses have payloads. Requests for blocks have at most `most` bytes.
fn shortcuts(blocks: &Blocks, most: usize, dags: &Dags, files: &Files, tensors: &Tensors) -> Shortcuts {
    let node = blocks.node.clone();
    let get_block = move |message| {
        let node = node.clone();
        async move {
            let block = block::get(&node, message).await?;
            Ok(stream::once(ready(Ok(GetBlockResponse { block: Some(block) }))).boxed())
        }
    };
    let mut shortcuts = Shortcuts::default();
    shortcuts.add("/ipfrs.block.v1.BlockService/GetBlock", most, get_block);
    shortcuts.add("/ipfrs.block.v1.BlockService/BatchGetBlocks", most, answers!(blocks, batch_get_blocks));
    let streams = blocks.clone();
    let stream_blocks = move |requests| {
        let streams = streams.clone();
        async move { Ok(streams.stream_blocks(requests).await?.into_inner()) }
    };
    shortcuts.add_stream("/ipfrs.block.v1.BlockService/StreamBlocks", most, stream_blocks);
    shortcuts.add("/ipfrs.dag.v1.DagService/TraverseDag", MAX_NODE_BYTES, answers!(dags, traverse_dag));
    shortcuts.add("/ipfrs.file.v1.FileService/GetFile", MAX_CHUNK_MESSAGE_BYTES, answers!(files, get_file));
    shortcuts.add("/ipfrs.tensor.v1.TensorService/GetTensor", MAX_CHUNK_MESSAGE_BYTES, answers!(tensors, get_tensor));
    let stream_tensors = answers!(tensors, stream_tensors);
    shortcuts.add("/ipfrs.tensor.v1.TensorService/StreamTensors", MAX_CHUNK_MESSAGE_BYTES, stream_tensors);
    shortcuts
}

/// The gRPC front-end. Clones share its state.
#[derive(Debug, Clone)]
pub struct Grpc {
    /// All methods, without the common handling in `calls`.
    router: Router,
    calls: Arc<Calls>,
    permits: RequestPermits,
    proxies: TrustedProxies,
    /// How the connection is protected.
    protection: Protection,
}

impl Grpc {
    /// Creates the services for a node.
    ///
    /// # Errors
    /// The metrics are already registered.
    pub fn new(
        node: &Node,
        memory: &MemoryPool,
        limits: Limits,
        lifecycle: &Lifecycle,
        registry: &Registry,
    ) -> Result<Self> {
        let descriptors = [ipfrs_proto::FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET];
        let reflection =
            [tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET, tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET];
        let metrics = GrpcMetrics::register(registry, &[descriptors.as_slice(), reflection.as_slice()].concat())?;
        let broken = |e| Error::internal("the reflection service cannot be created").with_source(e);
        // Includes the messages for error details, so that clients can decode them.
        let all = [descriptors.as_slice(), &[tonic_types::pb::FILE_DESCRIPTOR_SET]].concat();
        let reflected = || {
            all.iter().fold(tonic_reflection::server::Builder::configure(), |builder, bytes| {
                builder.register_encoded_file_descriptor_set(bytes)
            })
        };
        let readiness = Readiness { node: node.clone(), lifecycle: lifecycle.clone(), services: SERVICES };
        let blocks =
            Blocks { node: node.clone(), memory: memory.clone(), limits: limits.clone(), lifecycle: lifecycle.clone() };
        let dags = Dags { node: node.clone() };
        let files = Files { node: node.clone(), limits: limits.clone() };
        let tensors = Tensors { node: node.clone(), memory: memory.clone(), limits: limits.clone() };
        let block_bytes = MAX_BLOCK_BYTES.max(node.config().batch.max_batch_size * CID_ROOM_BYTES) + MESSAGE_ROOM_BYTES;
        let shortcuts = shortcuts(&blocks, block_bytes, &dags, &files, &tensors);
        let routes = Routes::new(HealthServer::new(readiness))
            .add_service(BlockServiceServer::new(blocks).max_decoding_message_size(block_bytes))
            .add_service(DagServiceServer::new(dags).max_decoding_message_size(MAX_NODE_BYTES))
            .add_service(FileServiceServer::new(files).max_decoding_message_size(MAX_CHUNK_MESSAGE_BYTES))
            .add_service(TensorServiceServer::new(tensors).max_decoding_message_size(MAX_CHUNK_MESSAGE_BYTES))
            .add_service(reflected().build_v1().map_err(broken)?)
            // Clients from before 2023 support only this version.
            .add_service(reflected().build_v1alpha().map_err(broken)?);
        let calls = Arc::new(Calls {
            node: node.clone(),
            rules: limits.rules.clone(),
            memory: memory.clone(),
            metrics,
            shortcuts,
            ids: RequestIds::new(),
            upload_idle: limits.upload_idle,
            max_message_bytes: block_bytes.max(MAX_NODE_BYTES).max(MAX_CHUNK_MESSAGE_BYTES),
            coder: Coder::new(limits.compression),
        });
        let (most, per_client) = limits.calls;
        let permits = RequestPermits::new(node, Requests::Grpc, calls.metrics.calls_active.clone(), most, per_client);
        Ok(Self {
            router: routes.into_axum_router(),
            calls,
            permits,
            proxies: limits.proxies,
            protection: Protection::Plain,
        })
    }

    /// Returns the permits of calls in progress, whose number can be changed.
    #[must_use]
    pub fn permits(&self) -> RequestPermits {
        self.permits.clone()
    }

    /// Responds to a request on the gRPC listener. `peer` is the address of the sender.
    pub fn answer<B>(&self, request: Request<B>, peer: Option<IpAddr>) -> Answering
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    {
        if let Some(refusal) = refusal(&request) {
            return Answering::Ready(Some(refusal));
        }
        let hops = request.headers().get_all(X_FORWARDED_FOR).iter();
        let client = self.proxies.client(peer, hops.map(HeaderValue::as_bytes));
        // Not `Watch`, which has no end.
        let is_probe = access::need(request.uri().path()) == Need::Nothing;
        if matches!(self.protection, Protection::Missing { .. }) && !is_probe {
            let error = Error::new(ErrorKind::Forbidden, LACKS_TLS);
            return Answering::Ready(Some(self.refused(error, &request, client)));
        }
        // Health checks need no permit, so that an operator can inspect a busy daemon.
        let permit = (!is_probe).then(|| self.permits.take(client)).transpose();
        let permit = match permit {
            Ok(permit) => permit,
            Err(refused) => {
                return Answering::Ready(Some(self.refused(self.permits.refusal(refused), &request, client)));
            }
        };
        let mut router = self.router.clone();
        let routed = async move |request| {
            let Ok(response) = router.call(request).await;
            response
        };
        let mut request = request;
        request.extensions_mut().insert(client);
        request.extensions_mut().insert(OwnListener);
        if let Protection::Tls(over_tls) = &self.protection {
            request.extensions_mut().insert(over_tls.clone());
        }
        let observed = call::observed(self.calls.clone(), request, routed, permit);
        Answering::Pending(Box::pin(client.scope(observed)))
    }

    /// Returns the same front-end for one connection, which is protected in this way.
    #[must_use]
    pub fn protected(&self, protection: Protection) -> Self {
        Self { protection, ..self.clone() }
    }

    /// Returns whether an address belongs to a trusted proxy.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.proxies.contains(peer)
    }

    /// Counts a request whose head is refused because of `limit`. Returns its request ID: the one in `headers`, or a
    /// new one.
    pub fn count_refused(&self, limit: Option<Limit>, headers: &HeaderMap) -> HeaderValue {
        limit.into_iter().for_each(|limit| self.calls.node.count_refusal(limit));
        request_id::of(headers, &self.calls.ids)
    }

    /// Returns the services as routes for a shared listener: gRPC-Web over HTTP/1.1 and HTTP/2, and gRPC over HTTP/2.
    /// The listener must enforce access rules and limits on concurrent calls.
    pub fn web_routes(&self) -> Router {
        let observe = from_fn_with_state(self.calls.clone(), call::observe);
        self.router.clone().reset_fallback().layer(observe).layer(GrpcWebLayer::new())
    }

    /// Returns whether a call of the method with this path changes something, and belongs into the audit log.
    #[must_use]
    pub fn is_change(path: &str) -> bool {
        access::need(path).is_change()
    }

    /// Refuses a call whose caller is not known yet.
    fn refused<B>(&self, error: Error, request: &Request<B>, client: Client) -> Response {
        let id = request_id::of(request.headers(), &self.calls.ids);
        if let Some(line) = self.calls.audit_line(request, client, &Caller::anonymous(), &id) {
            line.write(error.kind().code());
        }
        let status = request_id::within(&id, || error::status(error));
        self.calls.metrics.of(request.uri().path()).ended(status.code(), std::time::Instant::now());
        let mut response = status.into_http::<Body>();
        response.headers_mut().insert(X_REQUEST_ID, id);
        response
    }
}

/// Returns a response that refuses a request on the gRPC listener: one that is not a call, or is sent by a web page.
fn refusal<B>(request: &Request<B>) -> Option<Response> {
    let headers = request.headers();
    if request.method() == Method::POST && request.version() != Version::HTTP_2 {
        let text = "this port serves gRPC, which requires HTTP/2; gRPC-Web is on the gateway's own port\n";
        return Some((StatusCode::HTTP_VERSION_NOT_SUPPORTED, text).into_response());
    }
    if let Some(refusal) = no_call(request) {
        return Some(refusal);
    }
    // gRPC clients send none of these headers. The prefix includes future ones.
    if headers.contains_key(ORIGIN) || headers.keys().any(|name| name.as_str().starts_with("sec-fetch-")) {
        return Some(
            (StatusCode::FORBIDDEN, "requests from web pages are not allowed (Origin, Sec-Fetch)\n").into_response(),
        );
    }
    None
}

/// Future of a response.
pub enum Answering {
    /// A response that is available immediately.
    Ready(Option<Response>),
    /// A response that a method creates.
    Pending(BoxFuture<'static, Response>),
}

impl Future for Answering {
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(response) => Poll::Ready(Ok(response.take().unwrap_or_default())),
            Self::Pending(answer) => answer.as_mut().poll(cx).map(Ok),
        }
    }
}
