//! Encoding of a tensor as an Arrow IPC stream: one record batch with one column, whose values are the unchanged
//! bytes of the tensor (<https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format>).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_ipc::{Buffer, FieldNode, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use flatbuffers::FlatBufferBuilder;
use ipfrs_core::{Error, Result};

use crate::info::bytes_of;
use crate::{Dtype, Framing};

/// Name of the column.
const COLUMN: &str = "tensor";

/// Alignment of message bodies, in bytes.
const ALIGNMENT: u64 = 8;

/// Returns the framing of a tensor of `dtype` and `shape`; see [`TensorFormat::Arrow`](crate::TensorFormat::Arrow).
///
/// # Errors
/// Returns [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for elements of less than a byte, and
/// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a row of more than 2^31 elements or a tensor of more than 2^63
/// bytes.
pub(crate) fn frame(dtype: Dtype, shape: &[u64]) -> Result<Framing> {
    let (value, parts) = value_type(dtype)?;
    let bytes = bytes_of(dtype, shape)?;
    let mut dims = shape.to_vec();
    if parts > 1 {
        dims.push(parts);
    }
    let (rows, row) = match dims.split_first() {
        None => (1, &[][..]),
        Some((rows, row)) => (*rows, row),
    };
    let too_large = |_| Error::too_large(format!("{shape:?} of {dtype} does not fit in an Arrow array: use raw"));
    let (rows, body) = (i64::try_from(rows).map_err(too_large)?, i64::try_from(bytes).map_err(too_large)?);
    let mut nodes = vec![FieldNode::new(rows, 0)];
    let mut buffers = vec![Buffer::new(0, 0)];
    let (mut metadata, mut column) = (HashMap::new(), value.clone());
    if !row.is_empty() {
        let width = row.iter().try_fold(1_u64, |all, dim| all.checked_mul(*dim)).unwrap_or(u64::MAX);
        let width = i32::try_from(width).map_err(too_large)?;
        column = DataType::FixedSizeList(Arc::new(Field::new("item", value, false)), width);
        let extension = serde_json::json!({ "shape": row }).to_string();
        metadata.insert(String::from("ARROW:extension:name"), String::from("arrow.fixed_shape_tensor"));
        metadata.insert(String::from("ARROW:extension:metadata"), extension);
        nodes.push(FieldNode::new(rows.checked_mul(i64::from(width)).unwrap_or(i64::MAX), 0));
        buffers.push(Buffer::new(0, 0));
    }
    buffers.push(Buffer::new(0, body));
    metadata.insert(String::from("dtype"), dtype.name().to_owned());
    metadata.insert(String::from("shape"), format!("{shape:?}"));
    let schema = Schema::new(vec![Field::new(COLUMN, column, false).with_metadata(metadata)]);
    let padding = bytes.next_multiple_of(ALIGNMENT) - bytes;
    let batch = batch_message(rows, &nodes, &buffers, bytes.saturating_add(padding));
    encode(&schema, batch, padding).map_err(|e| Error::internal("the Arrow head could not be written").with_source(e))
}

/// Returns the Arrow type of the elements, and the number of its values that form one element.
fn value_type(dtype: Dtype) -> Result<(DataType, u64)> {
    Ok(match dtype {
        Dtype::F4 | Dtype::F6E2M3 | Dtype::F6E3M2 => {
            let remedy = "use raw or safetensors";
            return Err(Error::unsupported(format!("Arrow cannot hold {dtype}, which is less than a byte: {remedy}")));
        }
        Dtype::Bool
        | Dtype::U8
        | Dtype::F8E5M2
        | Dtype::F8E4M3
        | Dtype::F8E8M0
        | Dtype::F8E4M3Fnuz
        | Dtype::F8E5M2Fnuz => (DataType::UInt8, 1),
        Dtype::I8 => (DataType::Int8, 1),
        Dtype::I16 => (DataType::Int16, 1),
        Dtype::U16 | Dtype::Bf16 => (DataType::UInt16, 1),
        Dtype::F16 => (DataType::Float16, 1),
        Dtype::I32 => (DataType::Int32, 1),
        Dtype::U32 => (DataType::UInt32, 1),
        Dtype::F32 => (DataType::Float32, 1),
        Dtype::C64 => (DataType::Float32, 2),
        Dtype::F64 => (DataType::Float64, 1),
        Dtype::C128 => (DataType::Float64, 2),
        Dtype::I64 => (DataType::Int64, 1),
        Dtype::U64 => (DataType::UInt64, 1),
    })
}

/// Returns the message of a record batch, without its body.
fn batch_message(rows: i64, nodes: &[FieldNode], buffers: &[Buffer], body: u64) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let nodes = builder.create_vector(nodes);
    let buffers = builder.create_vector(buffers);
    let mut batch = RecordBatchBuilder::new(&mut builder);
    batch.add_length(rows);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    let batch = batch.finish();
    let mut message = MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(MessageHeader::RecordBatch);
    message.add_bodyLength(i64::try_from(body).unwrap_or(i64::MAX));
    message.add_header(batch.as_union_value());
    let message = message.finish();
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

fn encode(schema: &Schema, batch: Vec<u8>, padding: u64) -> Result<Framing, ArrowError> {
    let options = IpcWriteOptions::default();
    let mut dictionaries = DictionaryTracker::new(false);
    let schema =
        IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut dictionaries, &options);
    let mut head = Vec::new();
    write_message(&mut head, schema, &options)?;
    write_message(&mut head, EncodedData { ipc_message: batch, arrow_data: Vec::new() }, &options)?;
    let mut tail = vec![0; usize::try_from(padding).unwrap_or(0)];
    // End of stream: a continuation marker and a length of 0.
    tail.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    Ok(Framing { head, tail })
}
