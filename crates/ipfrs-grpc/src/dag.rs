//! `ipfrs.dag.v1.DagService`.

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, ErrorKind, codec};
use ipfrs_node::{Node, PutBlockOptions, PutNode};
use ipfrs_proto::dag::v1::dag_service_server::DagService;
use ipfrs_proto::dag::v1::{
    GetDagRequest, GetDagResponse, GetDagStatsRequest, GetDagStatsResponse, PutDagRequest, PutDagResponse,
    ResolvePathRequest, ResolvePathResponse, TraverseDagRequest, TraverseDagResponse,
};
use tonic::{Request, Response, Status};

use crate::audit_target;
use crate::error::{self, Fault, in_field};
use crate::file::content_path;

/// Implementation of the service for a node.
#[derive(Debug, Clone)]
pub(crate) struct Dags {
    pub(crate) node: Node,
}

#[async_trait::async_trait]
impl DagService for Dags {
    async fn get_dag(&self, request: Request<GetDagRequest>) -> Result<Response<GetDagResponse>, Status> {
        Ok(Response::new(get(&self.node, request.into_inner()).await?))
    }

    async fn put_dag(&self, request: Request<PutDagRequest>) -> Result<Response<PutDagResponse>, Status> {
        let audited = audit_target::of(&request);
        let stored = put(&self.node, request.into_inner()).await?;
        audited.note(&stored.cid);
        Ok(Response::new(stored))
    }

    async fn resolve_path(
        &self,
        request: Request<ResolvePathRequest>,
    ) -> Result<Response<ResolvePathResponse>, Status> {
        Ok(Response::new(resolve(&self.node, request.into_inner()).await?))
    }

    type TraverseDagStream = BoxStream<'static, Result<TraverseDagResponse, Status>>;

    async fn traverse_dag(
        &self,
        request: Request<TraverseDagRequest>,
    ) -> Result<Response<Self::TraverseDagStream>, Status> {
        let request = request.into_inner();
        let path = content_path(&self.node, &request.path).await?;
        let blocks = self.node.traverse_dag(path, request.max_depth).await.map_err(error::status)?;
        let node = self.node.clone();
        let responses = blocks.map_err(error::status).map_ok(move |(block, depth)| {
            let (cid, data) = block.into_parts();
            let size = data.len() as u64;
            let data = if request.include_data { data } else { Bytes::new() };
            node.count_download(data.len());
            TraverseDagResponse { cid: cid.to_string(), depth, size, data }
        });
        Ok(Response::new(responses.boxed()))
    }

    async fn get_dag_stats(
        &self,
        request: Request<GetDagStatsRequest>,
    ) -> Result<Response<GetDagStatsResponse>, Status> {
        Ok(Response::new(stats(&self.node, request.into_inner()).await?))
    }
}

/// Parses the name of a codec; an empty name means the default.
fn codec_of(field: &'static str, name: &str, default: u64) -> Result<u64, Fault> {
    if name.is_empty() { Ok(default) } else { codec::parse(name).map_err(in_field(field)) }
}

async fn get(node: &Node, request: GetDagRequest) -> Result<GetDagResponse, Fault> {
    let output = codec_of("output_codec", &request.output_codec, codec::DAG_JSON)?;
    let path = content_path(node, &request.path).await?;
    let (found, data) = node.get_node(path, output).await?;
    let codec = codec::name(output).map_or_else(|| format!("{output:#x}"), str::to_owned);
    Ok(GetDagResponse { cid: found.cid.to_string(), remainder: found.remainder.join("/"), data, codec })
}

async fn put(node: &Node, request: PutDagRequest) -> Result<PutDagResponse, Fault> {
    let hash = match request.hash.as_str() {
        "" => HashFunction::default(),
        name => HashFunction::from_name(name).map_err(in_field("hash"))?,
    };
    let new = PutNode {
        data: request.data,
        input: codec_of("input_codec", &request.input_codec, codec::DAG_JSON)?,
        store: codec_of("store_codec", &request.store_codec, codec::DAG_CBOR)?,
        hash,
        options: PutBlockOptions { pin: request.pin, ..PutBlockOptions::default() },
    };
    let cid = node.put_node(new).await.map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => in_field("data")(error),
        _ => error.into(),
    })?;
    Ok(PutDagResponse { cid: cid.to_string() })
}

async fn resolve(node: &Node, request: ResolvePathRequest) -> Result<ResolvePathResponse, Fault> {
    let object = node.resolve(content_path(node, &request.path).await?).await?;
    Ok(ResolvePathResponse {
        cid: object.cid.to_string(),
        remainder: object.resolved.remainder.join("/"),
        roots: object.resolved.roots.split(',').map(str::to_owned).collect(),
    })
}

async fn stats(node: &Node, request: GetDagStatsRequest) -> Result<GetDagStatsResponse, Fault> {
    let mut stats = node.dag_stats(vec![content_path(node, &request.path).await?]).await?;
    while stats.advance().await? {}
    let counted = stats.begun().first().copied();
    let dag = counted.ok_or_else(|| Error::internal("the DAG has no statistics"))?;
    Ok(GetDagStatsResponse { cid: dag.root.to_string(), blocks: dag.blocks, size: dag.bytes })
}
