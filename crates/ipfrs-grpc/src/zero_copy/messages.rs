//! The messages that have payloads. The field numbers are those in `proto/`; a test decodes each message.

use bytes::{Bytes, BytesMut};
use ipfrs_proto::block::v1::batch_get_blocks_response::Result as Got;
use ipfrs_proto::block::v1::stream_blocks_response::Result as Streamed;
use ipfrs_proto::block::v1::{BatchGetBlocksResponse, Block, GetBlockResponse, StreamBlocksResponse};
use ipfrs_proto::dag::v1::TraverseDagResponse;
use ipfrs_proto::file::v1::GetFileResponse;
use ipfrs_proto::tensor::v1::get_tensor_response::Part as TensorPart;
use ipfrs_proto::tensor::v1::stream_tensors_response::Part as StreamPart;
use ipfrs_proto::tensor::v1::{GetTensorResponse, StreamTensorsResponse};
use prost::{EncodeError, Message};

use super::{ZeroCopyEncoder, open_field, open_message};

/// Writes a block as the field `number`, without its payload.
fn block(number: u32, block: Block, out: &mut BytesMut) -> Result<Bytes, EncodeError> {
    let Block { cid, data } = block;
    open_message(number, &Block { cid, data: Bytes::new() }, (2, &data), out)?;
    Ok(data)
}

impl ZeroCopyEncoder for GetBlockResponse {
    fn head(self, out: &mut BytesMut) -> Result<Bytes, EncodeError> {
        self.block.map_or_else(|| Ok(Bytes::new()), |whole| block(1, whole, out))
    }
}

impl ZeroCopyEncoder for BatchGetBlocksResponse {
    fn head(mut self, out: &mut BytesMut) -> Result<Bytes, EncodeError> {
        match self.result.take() {
            Some(Got::Block(whole)) => {
                self.encode(out)?;
                block(2, whole, out)
            }
            result => {
                Self { result, ..self }.encode(out)?;
                Ok(Bytes::new())
            }
        }
    }
}

impl ZeroCopyEncoder for StreamBlocksResponse {
    fn head(mut self, out: &mut BytesMut) -> Result<Bytes, EncodeError> {
        match self.result.take() {
            Some(Streamed::Block(whole)) => {
                self.encode(out)?;
                block(2, whole, out)
            }
            result => {
                Self { result, ..self }.encode(out)?;
                Ok(Bytes::new())
            }
        }
    }
}

impl ZeroCopyEncoder for TraverseDagResponse {
    fn head(mut self, out: &mut BytesMut) -> Result<Bytes, EncodeError> {
        let data = std::mem::take(&mut self.data);
        self.encode(out)?;
        last_field(4, data, out)
    }
}

impl ZeroCopyEncoder for GetFileResponse {
    fn head(mut self, out: &mut BytesMut) -> Result<Bytes, EncodeError> {
        let data = std::mem::take(&mut self.data);
        self.encode(out)?;
        last_field(1, data, out)
    }
}

impl ZeroCopyEncoder for GetTensorResponse {
    fn head(mut self, out: &mut BytesMut) -> Result<Bytes, EncodeError> {
        match self.part.take() {
            Some(TensorPart::Data(data)) => {
                self.encode(out)?;
                last_field(2, data, out)
            }
            part => {
                Self { part, ..self }.encode(out)?;
                Ok(Bytes::new())
            }
        }
    }
}

impl ZeroCopyEncoder for StreamTensorsResponse {
    fn head(self, out: &mut BytesMut) -> Result<Bytes, EncodeError> {
        match self.part {
            Some(StreamPart::Data(data)) => last_field(2, data, out),
            part => {
                Self { part }.encode(out)?;
                Ok(Bytes::new())
            }
        }
    }
}

/// Writes the start of the payload field, and returns the payload.
fn last_field(number: u32, data: Bytes, out: &mut BytesMut) -> Result<Bytes, EncodeError> {
    open_field(number, data.len(), out);
    Ok(data)
}
