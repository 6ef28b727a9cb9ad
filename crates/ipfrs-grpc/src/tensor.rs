//! `ipfrs.tensor.v1.TensorService`.

mod convert;
mod put;
use std::collections::HashSet;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::Error;
use ipfrs_middleware::MemoryPool;
use ipfrs_node::{
    Node, Slice, Span, Summary, TensorFile, TensorInfo as Tensor, TensorOperation, TensorPart, TensorRequest,
};
use ipfrs_proto::tensor::v1::get_tensor_response::Part;
use ipfrs_proto::tensor::v1::stream_tensors_response::Part as StreamPart;
use ipfrs_proto::tensor::v1::tensor_service_server::TensorService;
use ipfrs_proto::tensor::v1::{
    GetTensorInfoRequest, GetTensorInfoResponse, GetTensorRequest, GetTensorResponse, GetTensorStatsRequest,
    GetTensorStatsResponse, PutTensorRequest, PutTensorResponse, SliceTensorRequest, SliceTensorResponse,
    StreamTensorsRequest, StreamTensorsResponse, TensorInfo,
};
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status, Streaming};

use crate::call::Kept;
use crate::error::{Fault, in_field};
use crate::file::content_path;
use crate::inbound::Inbound;
use crate::{Limits, audit_target, payload};

/// Maximum size of a slice in one message, in bytes.
const MAX_SLICE_BYTES: u64 = 2 * 1024 * 1024;

/// Maximum size of the names, shapes and metadata in one list, in bytes.
const MAX_LIST_BYTES: usize = 16 * 1024 * 1024;

/// Maximum size of a list that is created on the current thread, in bytes.
const SMALL_LIST_BYTES: usize = 64 * 1024;

/// Maximum size of a list entry besides its name and shape or texts, in bytes.
const LISTED_BYTES: usize = 48;

/// Implementation of the service for a node.
#[derive(Debug, Clone)]
pub(crate) struct Tensors {
    pub(crate) node: Node,
    pub(crate) memory: MemoryPool,
    pub(crate) limits: Limits,
}

#[async_trait::async_trait]
impl TensorService for Tensors {
    type GetTensorStream = BoxStream<'static, Result<GetTensorResponse, Status>>;

    async fn get_tensor(&self, request: Request<GetTensorRequest>) -> Result<Response<Self::GetTensorStream>, Status> {
        let request = request.into_inner();
        let slice = convert::slice(request.slice).map_err(in_field("slice"))?;
        let format = convert::format(request.format).map_err(in_field("format"))?;
        let file = file(&self.node, &request.path).await?;
        let tensor = tensor(&file, &request.name)?;
        let info = described(tensor, &part(&file, tensor, &slice)?, slice.is_whole());
        let tensor_request = TensorRequest { names: vec![tensor.name.clone()], slice, format };
        let content = file.content(&tensor_request).map_err(in_field("format"))?;
        let head = GetTensorResponse { content_bytes: Some(content.size()), part: Some(Part::Info(info)) };
        let pieces = payload::outbound(self.node.read_tensors(&content, Span::whole(content.size())));
        let data = pieces.map_ok(|data| GetTensorResponse { content_bytes: None, part: Some(Part::Data(data)) });
        Ok(Response::new(stream::iter([Ok(head)]).chain(data).boxed()))
    }

    async fn put_tensor(
        &self,
        request: Request<Streaming<PutTensorRequest>>,
    ) -> Result<Response<PutTensorResponse>, Status> {
        self.node.check_tensors().map_err(Fault::from)?;
        let audited = audit_target::of(&request);
        let inbound = Inbound::new(request.into_inner(), self.limits.upload_idle);
        let response = put::put(&self.node, &self.memory, inbound).await?;
        audited.note(&response.get_ref().cid);
        Ok(response)
    }

    async fn get_tensor_info(
        &self,
        request: Request<GetTensorInfoRequest>,
    ) -> Result<Response<GetTensorInfoResponse>, Status> {
        let request = request.into_inner();
        let file = file(&self.node, &request.path).await?;
        let listed = listed(&file, request.name.as_deref())?;
        let bytes = list_bytes(listed, file.catalogue.metadata());
        if bytes > MAX_LIST_BYTES {
            let why = format!("the list is over {MAX_LIST_BYTES} bytes: name a tensor, or read the header of the file");
            return Err(Fault::from(Error::too_large(why)).into());
        }
        self.node.count_tensor(TensorOperation::List, 0);
        // The list exists twice, as a message and in encoded form.
        let mut memory = self.memory.reservation();
        if bytes > SMALL_LIST_BYTES {
            memory.grow_to(2 * bytes).map_err(Fault::from)?;
        }
        let listing = aside(bytes, move || Ok::<_, Fault>(list(&file, self::listed(&file, request.name.as_deref())?)));
        let mut response = Response::new(listing.await??);
        response.extensions_mut().insert(Kept::new(memory));
        Ok(response)
    }

    async fn slice_tensor(
        &self,
        request: Request<SliceTensorRequest>,
    ) -> Result<Response<SliceTensorResponse>, Status> {
        let request = request.into_inner();
        let slice = convert::slice(request.slice).map_err(in_field("slice"))?;
        let file = file(&self.node, &request.path).await?;
        let tensor = tensor(&file, &request.name)?;
        let part = part(&file, tensor, &slice)?;
        let info = described(tensor, &part, slice.is_whole());
        Ok(Response::new(SliceTensorResponse { info: Some(info), data: whole_part(&self.node, &part).await? }))
    }

    async fn get_tensor_stats(
        &self,
        request: Request<GetTensorStatsRequest>,
    ) -> Result<Response<GetTensorStatsResponse>, Status> {
        let request = request.into_inner();
        let file = file(&self.node, &request.path).await?;
        let tensor = tensor(&file, &request.name)?;
        let summary = self.node.tensor_stats(&file, tensor).await.map_err(Fault::from)?;
        let Summary { count, nan, infinite, zero, min, max, mean, std } = summary;
        let info = Some(whole(tensor));
        Ok(Response::new(GetTensorStatsResponse { info, count, nan, infinite, zero, min, max, mean, std }))
    }

    type StreamTensorsStream = BoxStream<'static, Result<StreamTensorsResponse, Status>>;

    async fn stream_tensors(
        &self,
        request: Request<StreamTensorsRequest>,
    ) -> Result<Response<Self::StreamTensorsStream>, Status> {
        let request = request.into_inner();
        let (node, file) = (self.node.clone(), file(&self.node, &request.path).await?);
        let selected = chosen(&file, &request.names)?;
        let message = |part| StreamTensorsResponse { part: Some(part) };
        let tensors = stream::iter(selected).map(move |index| {
            let tensor = &file.catalogue.tensors()[index];
            let part = part(&file, tensor, &Slice::default())?;
            let head = stream::iter([Ok(message(StreamPart::Info(whole(tensor))))]);
            let data = payload::outbound(node.read_tensor(&part));
            Ok::<_, Status>(head.chain(data.map_ok(move |data| message(StreamPart::Data(data)))))
        });
        Ok(Response::new(tensors.try_flatten().boxed()))
    }
}

/// Returns the tensors of the file at a path.
async fn file(node: &Node, path: &str) -> Result<TensorFile, Fault> {
    node.check_tensors()?;
    node.tensors(content_path(node, path).await?).await.map_err(in_field("path"))
}

/// Returns the tensor with this name. An empty name that matches no tensor means the only tensor.
fn tensor<'a>(file: &'a TensorFile, name: &str) -> Result<&'a Tensor, Fault> {
    match (file.catalogue.get(name), file.catalogue.tensors()) {
        (Ok(tensor), _) => Ok(tensor),
        (Err(_), [only]) if name.is_empty() => Ok(only),
        (Err(_), tensors) if name.is_empty() => {
            let why = format!("the file has {} tensors: name one; GetTensorInfo lists them", tensors.len());
            Err(in_field("name")(Error::invalid(why)))
        }
        (Err(e), _) => Err(e.into()),
    }
}

fn part(file: &TensorFile, tensor: &Tensor, slice: &Slice) -> Result<TensorPart, Fault> {
    file.part(tensor, slice).map_err(in_field("slice"))
}

/// Returns the indices of the tensors with these names, in the order of the file; all indices if `names` is empty.
fn chosen(file: &TensorFile, names: &[String]) -> Result<Vec<usize>, Fault> {
    let tensors = file.catalogue.tensors();
    if names.is_empty() {
        return Ok((0..tensors.len()).collect());
    }
    let names: HashSet<_> = names.iter().map(String::as_str).collect();
    names.iter().try_for_each(|name| file.catalogue.get(name).map(drop))?;
    Ok((0..tensors.len()).filter(|index| names.contains(tensors[*index].name.as_str())).collect())
}

/// Describes a whole tensor.
fn whole(tensor: &Tensor) -> TensorInfo {
    TensorInfo {
        name: tensor.name.clone(),
        dtype: convert::dtype_code(tensor.dtype),
        shape: tensor.shape.clone(),
        size_bytes: tensor.bytes,
        offset: Some(tensor.offset).filter(|_| tensor.is_as_sent()),
    }
}

/// Describes a part of a tensor.
fn described(tensor: &Tensor, part: &TensorPart, is_whole: bool) -> TensorInfo {
    let whole = whole(tensor);
    let offset = whole.offset.filter(|_| is_whole);
    TensorInfo { shape: part.shape.clone(), size_bytes: part.bytes, offset, ..whole }
}

/// Returns the bytes of a part that fits in one message.
async fn whole_part(node: &Node, part: &TensorPart) -> Result<Bytes, Fault> {
    if part.bytes > MAX_SLICE_BYTES {
        let why =
            format!("the slice has {} bytes, over the message limit of {MAX_SLICE_BYTES}: use GetTensor", part.bytes);
        return Err(Error::too_large(why).into());
    }
    let mut pieces = node.read_tensor(part);
    let first = pieces.try_next().await?.unwrap_or_default();
    if first.len() as u64 == part.bytes {
        return Ok(first);
    }
    let mut bytes = BytesMut::from(first);
    while let Some(piece) = pieces.try_next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

/// Returns the tensor with this name, or all tensors.
fn listed<'a>(file: &'a TensorFile, name: Option<&str>) -> Result<&'a [Tensor], Fault> {
    match name {
        Some(name) => Ok(std::slice::from_ref(file.catalogue.get(name)?)),
        None => Ok(file.catalogue.tensors()),
    }
}

/// Runs `make`, which creates a list of about `bytes` bytes, on a blocking thread if the list is large.
async fn aside<T: Send + 'static>(bytes: usize, make: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    if bytes <= SMALL_LIST_BYTES {
        return Ok(make());
    }
    spawn_blocking(make).await.map_err(|e| Error::internal("listing tensors failed").with_source(e).into())
}

/// Returns the maximum size of a list as a message, in bytes.
fn list_bytes<'a>(tensors: &[Tensor], metadata: impl IntoIterator<Item = (&'a String, &'a String)>) -> usize {
    let tensors = tensors.iter().map(|tensor| LISTED_BYTES + tensor.name.len() + 10 * tensor.shape.len());
    let metadata = metadata.into_iter().map(|(key, text)| LISTED_BYTES + key.len() + text.len());
    tensors.chain(metadata).sum()
}

fn list(file: &TensorFile, tensors: &[Tensor]) -> GetTensorInfoResponse {
    let metadata = file.catalogue.metadata().iter().map(|(key, text)| (key.clone(), text.clone()));
    GetTensorInfoResponse {
        cid: file.cid.to_string(),
        format: file.catalogue.format().name().to_owned(),
        tensors: tensors.iter().map(whole).collect(),
        metadata: metadata.collect(),
    }
}
