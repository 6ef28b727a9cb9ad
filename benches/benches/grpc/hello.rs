//! Reference server that responds to every `GetBlock` with one block in memory. It measures the cost of tonic itself.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use ipfrs_benches::config;
use ipfrs_proto::block::v1::{Block, GetBlockRequest, GetBlockResponse, block_service_server};
use tokio::runtime::Builder;
use tonic::body::Body;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// First argument of a child that runs this server.
pub(crate) const HELLO: &str = "hello";
/// Size of the block, in bytes.
pub(crate) const BLOCK_BYTES: usize = 1_024;

#[derive(Clone)]
struct Hello(Bytes);

impl NamedService for Hello {
    const NAME: &'static str = block_service_server::SERVICE_NAME;
}

impl UnaryService<GetBlockRequest> for Hello {
    type Response = GetBlockResponse;
    type Future = Ready<Result<Response<GetBlockResponse>, Status>>;

    fn call(&mut self, request: Request<GetBlockRequest>) -> Self::Future {
        let block = Block { cid: request.into_inner().cid, data: self.0.clone() };
        ready(Ok(Response::new(GetBlockResponse { block: Some(block) })))
    }
}

/// Service as in generated code, but without method dispatch.
impl tower::Service<http::Request<Body>> for Hello {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(tonic::server::Grpc::new(ProstCodec::default()).unary(this, request).await) })
    }
}

/// Runs the server until standard input ends. Prints its address twice, as HTTP and gRPC address.
pub(crate) fn serve() -> Result<()> {
    // As many threads as the gateway uses.
    let workers = config(None).server.worker_threads();
    let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    runtime.block_on(async {
        let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())?.with_nodelay(Some(true));
        let address = incoming.local_addr()?;
        writeln!(io::stdout(), "{address} {address}").context("cannot get the address")?;
        let input_ended = tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new()));
        let block = Hello(vec![7; BLOCK_BYTES].into());
        let ended = async { drop(input_ended.await) };
        Ok(Server::builder().add_service(block).serve_with_incoming_shutdown(incoming, ended).await?)
    })
}
