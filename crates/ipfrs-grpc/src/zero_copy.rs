//! Encoding of messages without copying their payload. Only the bytes before the payload are encoded, and the payload
//! follows as a slice, usually of a mapped pack. The encoder of tonic would copy the payload into its buffer.

mod messages;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as HttpBody, Frame};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use prost::{EncodeError, Message};
use tonic::Status;

/// Size below which a copy costs less than another HTTP/2 frame.
const COPY_BELOW_BYTES: usize = 8 * 1024;

/// Size up to which small messages are combined.
pub(crate) const GATHERED_BYTES: usize = 32 * 1024;

/// Initial capacity of the buffer for them.
const FIRST_BYTES: usize = 2 * 1024;

/// Size of the prefix of a message: whether it is compressed, and its length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// A message that can be encoded without its payload.
pub(crate) trait ZeroCopyEncoder {
    /// Writes everything except the payload, and returns the payload, which ends the message.
    ///
    /// # Errors
    /// The error of the encoder, which does not occur with a growing buffer.
    fn head(self, out: &mut BytesMut) -> Result<Bytes, EncodeError>;
}

/// Writes the part of a field before its content: its number and length.
fn open_field(number: u32, bytes: usize, out: &mut BytesMut) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes as u64, out);
}

/// Writes the field `number` with `message`, up to the content of its last field `inner`, the `payload`. `message`
/// must not contain that field yet.
///
/// # Errors
/// As [`ZeroCopyEncoder::head`].
fn open_message(
    number: u32,
    message: &impl Message,
    (inner, payload): (u32, &Bytes),
    out: &mut BytesMut,
) -> Result<(), EncodeError> {
    let last = key_len(inner) + encoded_len_varint(payload.len() as u64) + payload.len();
    open_field(number, message.encoded_len() + last, out);
    message.encode(out)?;
    open_field(inner, payload.len(), out);
    Ok(())
}

/// Writes a message with its prefix. Returns the payload if it is not part of the written bytes.
fn frame(message: impl ZeroCopyEncoder, out: &mut BytesMut) -> Result<Bytes, Status> {
    let start = out.len();
    out.put_bytes(0, PREFIX_BYTES);
    let unwritable = |e: EncodeError| Status::internal(format!("a message could not be encoded: {e}"));
    let mut payload = message.head(out).map_err(unwritable)?;
    let length = out.len() - start - PREFIX_BYTES + payload.len();
    let length = u32::try_from(length).map_err(|_| Status::resource_exhausted("a message is over 4 GiB"))?;
    out[start + 1..start + PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    if payload.len() < COPY_BELOW_BYTES {
        out.put(std::mem::take(&mut payload));
    }
    Ok(payload)
}

/// Returns a response with these messages.
pub(crate) fn response<M: ZeroCopyEncoder + 'static>(messages: BoxStream<'static, Result<M, Status>>) -> Response {
    let frames = Frames { messages: Some(messages), payload: Bytes::new(), status: None };
    let mut response = Response::new(Body::new(frames));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Messages as a body, with the status in the trailers.
struct Frames<M> {
    /// `None` after the last message.
    messages: Option<BoxStream<'static, Result<M, Status>>>,
    /// Payload of the message whose head was returned last.
    payload: Bytes,
    /// Status to send after the last message.
    status: Option<Status>,
}

impl<M: ZeroCopyEncoder> Frames<M> {
    /// Returns the next messages. Small messages that are ready are combined.
    fn poll_messages(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let mut out = BytesMut::new();
        while let Some(messages) = &mut self.messages {
            let message = match messages.poll_next_unpin(cx) {
                Poll::Ready(message) => message,
                Poll::Pending if out.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            };
            out.reserve(if out.is_empty() { FIRST_BYTES } else { 0 });
            let written = out.len();
            match message.map(|message| message.and_then(|message| frame(message, &mut out))) {
                Some(Ok(payload)) if payload.is_empty() && out.len() < GATHERED_BYTES => {}
                Some(Ok(payload)) => {
                    self.payload = payload;
                    break;
                }
                ended => {
                    // A message that failed to encode is removed from the buffer.
                    out.truncate(written);
                    self.messages = None;
                    self.status = Some(ended.and_then(Result::err).unwrap_or_else(|| Status::ok("")));
                }
            }
        }
        Poll::Ready(out.freeze())
    }
}

impl<M: ZeroCopyEncoder> HttpBody for Frames<M> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if !self.payload.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.payload)))));
        }
        let data = ready!(self.poll_messages(cx));
        if !data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let Some(status) = self.status.take() else { return Poll::Ready(None) };
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none() && self.status.is_none() && self.payload.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use ipfrs_proto::block::v1::batch_get_blocks_response::Result as Got;
    use ipfrs_proto::block::v1::stream_blocks_response::Result as Streamed;
    use ipfrs_proto::block::v1::{BatchGetBlocksResponse, Block, BlockError, GetBlockResponse, StreamBlocksResponse};
    use ipfrs_proto::dag::v1::TraverseDagResponse;
    use ipfrs_proto::file::v1::GetFileResponse;
    use ipfrs_proto::tensor::v1::get_tensor_response::Part as TensorPart;
    use ipfrs_proto::tensor::v1::stream_tensors_response::Part as StreamPart;
    use ipfrs_proto::tensor::v1::{GetTensorResponse, StreamTensorsResponse, TensorInfo};

    use super::*;

    /// Checks that an encoded message decodes to the same value, for any size of its payload.
    fn check<M: ZeroCopyEncoder + Message + Clone + PartialEq + Default + Debug>(message: M) {
        let mut head = BytesMut::new();
        let payload = frame(message.clone(), &mut head).unwrap();
        let frame = [head.freeze(), payload].concat();
        let length = u32::from_be_bytes(frame[1..PREFIX_BYTES].try_into().unwrap()) as usize;
        assert_eq!((frame[0], length), (0, frame.len() - PREFIX_BYTES));
        assert_eq!(M::decode(&frame[PREFIX_BYTES..]).unwrap(), message);
    }

    #[test]
    fn spliced_message_decodes_to_the_same_value() {
        for bytes in [0, 1, 127, 128, COPY_BELOW_BYTES - 1, COPY_BELOW_BYTES, 2 * 1024 * 1024] {
            let data = Bytes::from(vec![7; bytes]);
            let block = || Block { cid: "bafkqaaa".to_owned(), data: data.clone() };
            check(GetBlockResponse { block: Some(block()) });
            check(BatchGetBlocksResponse { index: 300, result: Some(Got::Block(block())) });
            check(StreamBlocksResponse { id: 300, result: Some(Streamed::Block(block())) });
            check(GetFileResponse { data: data.clone(), file_size: Some(5) });
            check(GetFileResponse { data: data.clone(), file_size: None });
            check(TraverseDagResponse { cid: "x".to_owned(), depth: 1, size: 2, data: data.clone() });
            check(GetTensorResponse { content_bytes: None, part: Some(TensorPart::Data(data.clone())) });
            check(StreamTensorsResponse { part: Some(StreamPart::Data(data)) });
        }
        let info = TensorInfo { name: "weights".to_owned(), ..TensorInfo::default() };
        check(GetTensorResponse { content_bytes: Some(7), part: Some(TensorPart::Info(info.clone())) });
        check(StreamTensorsResponse { part: Some(StreamPart::Info(info)) });
        check(GetBlockResponse::default());
        let error = BlockError { cid: "x".to_owned(), code: 5, message: "not here".to_owned() };
        check(BatchGetBlocksResponse { index: 0, result: Some(Got::Error(error)) });
    }

    #[test]
    fn large_payload_is_not_copied() {
        let data = Bytes::from(vec![7; COPY_BELOW_BYTES]);
        let message = GetFileResponse { data: data.clone(), file_size: None };
        let payload = frame(message, &mut BytesMut::new()).unwrap();
        assert_eq!(payload.as_ptr(), data.as_ptr());
    }

    #[tokio::test]
    async fn small_messages_are_combined_and_status_comes_last() {
        let message = |bytes| Ok(GetFileResponse { data: vec![7; bytes].into(), file_size: None });
        let messages = [message(100), message(100), message(1024 * 1024), message(100), Err(Status::data_loss("gone"))];
        let mut body = Box::pin(response(futures::stream::iter(messages).boxed()).into_body());
        let (mut pieces, mut trailers) = (Vec::new(), None);
        while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            match frame.unwrap().into_data() {
                Ok(data) => pieces.push(data.len()),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        let small = PREFIX_BYTES + 2 + 100;
        assert_eq!(pieces, [2 * small + PREFIX_BYTES + 4, 1024 * 1024, small]);
        assert_eq!(trailers.unwrap()["grpc-status"], "15");
    }
}
