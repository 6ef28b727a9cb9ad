//! `PutTensor`: receives options, then descriptions, then bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{StreamExt, stream};
use ipfrs_core::Error;
use ipfrs_middleware::MemoryPool;
use ipfrs_node::{NewTensor, Node, UploadOptions};
use ipfrs_proto::tensor::v1::put_tensor_request::Part;
use ipfrs_proto::tensor::v1::{PutTensorOptions, PutTensorRequest, PutTensorResponse, TensorInfo};
use tonic::{Response, Status};

use super::{MAX_LIST_BYTES, aside, convert, whole};
use crate::call::Kept;
use crate::error::{Fault, in_field};
use crate::inbound::Inbound;
use crate::payload;

/// Maximum number of tensors in a new file.
const MAX_TENSORS: usize = 100_000;

/// Approximate memory of a tensor besides its name and shape, in bytes.
const TENSOR_BYTES: usize = 128;

/// Options and descriptions, which precede the bytes.
#[derive(Default)]
struct Described {
    options: Option<PutTensorOptions>,
    tensors: Vec<NewTensor>,
    /// Approximate memory, in bytes.
    bytes: usize,
}

/// Stores the tensors that a client streams.
pub(super) async fn put(
    node: &Node,
    memory: &MemoryPool,
    mut inbound: Inbound<PutTensorRequest>,
) -> Result<Response<PutTensorResponse>, Status> {
    let (mut described, mut memory) = (Described::default(), memory.reservation());
    let first = loop {
        match inbound.next().await?.map(|message| message.part) {
            Some(Some(Part::Options(options))) => described.options(options)?,
            Some(Some(Part::Info(info))) => described.tensor(info)?,
            Some(Some(Part::Data(bytes))) => break bytes,
            Some(None) => {
                return Err(in_field("part")(Error::invalid("a message has no supported part")).into());
            }
            None => break Bytes::new(),
        }
        memory.grow_to(described.bytes).map_err(Fault::from)?;
    };
    let Described { options, tensors, bytes } = described;
    let PutTensorOptions { metadata, name, no_pin } = options.unwrap_or_default();
    let filename = Some(name).filter(|name| !name.is_empty());
    filename.as_deref().map_or(Ok(()), UploadOptions::check_name).map_err(in_field("options.name"))?;
    let options = UploadOptions { filename, pin: !no_pin, ..UploadOptions::default() };
    let rest = payload::content(inbound, |message| match message.part {
        Some(Part::Data(bytes)) => Ok(bytes),
        Some(Part::Info(_)) => Err(in_field("info")(Error::invalid(
            "a tensor is described after the first bytes: describe all tensors first",
        ))),
        Some(Part::Options(_)) => Err(late_options()),
        None => Err(in_field("data")(Error::invalid("a message after the first bytes has no data"))),
    });
    let content = stream::iter([Ok(first)]).chain(rest);
    let metadata: BTreeMap<_, _> = metadata.into_iter().collect();
    let put = node.put_tensors(tensors, metadata, &options, content).await;
    let (file, tensors) = put.map_err(payload::import_status)?;
    let tensors = aside(bytes, move || tensors.iter().map(whole).collect()).await?;
    let mut response = Response::new(PutTensorResponse { cid: file.cid.to_string(), size: file.size, tensors });
    response.extensions_mut().insert(Kept::new(memory));
    Ok(response)
}

impl Described {
    fn options(&mut self, options: PutTensorOptions) -> Result<(), Fault> {
        if self.options.is_some() || !self.tensors.is_empty() {
            return Err(late_options());
        }
        let metadata = options.metadata.iter().map(|(key, text)| TENSOR_BYTES + key.len() + text.len()).sum();
        self.options = Some(options);
        self.grow(metadata)
    }

    fn tensor(&mut self, info: TensorInfo) -> Result<(), Fault> {
        let dtype = convert::dtype(info.dtype).map_err(in_field("info.dtype"))?;
        let tensor = NewTensor { name: info.name, dtype, shape: info.shape };
        let bytes = tensor.bytes().map_err(in_field("info.shape"))?;
        if info.size_bytes != 0 && info.size_bytes != bytes {
            let why = format!("tensor {:?} has {bytes} bytes, not {}", tensor.name, info.size_bytes);
            return Err(in_field("info.size_bytes")(Error::invalid(why)));
        }
        let in_memory = TENSOR_BYTES + tensor.name.len() + 8 * tensor.shape.len();
        self.tensors.push(tensor);
        if self.tensors.len() > MAX_TENSORS {
            return Err(Error::too_large(format!("more than {MAX_TENSORS} tensors: use several files")).into());
        }
        self.grow(in_memory)
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes += bytes;
        match self.bytes > MAX_LIST_BYTES {
            true => {
                Err(Error::too_large(format!("descriptions of over {MAX_LIST_BYTES} bytes: use several files")).into())
            }
            false => Ok(()),
        }
    }
}

fn late_options() -> Fault {
    in_field("options")(Error::invalid("options are only allowed in the first message"))
}
