//! Conversion between streams of messages and the bytes of files and tensors.

use std::error::Error as _;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use ipfrs_core::{Error, Result};
use tonic::Status;

use crate::error::{self, Fault};
use crate::inbound::Inbound;

/// Maximum number of payload bytes in one message that the server sends. Clients accept 4 MiB by default. Smaller
/// messages reduce the delay of other streams on the connection.
const MAX_PIECE_BYTES: usize = 1024 * 1024;

/// Splits the pieces that the Node reads to the size of messages, without copying.
pub(crate) fn outbound(
    pieces: impl Stream<Item = Result<Bytes>> + Send + 'static,
) -> BoxStream<'static, std::result::Result<Bytes, Status>> {
    pieces.map_err(error::status).map_ok(|piece| stream::iter(cut(piece).map(Ok))).try_flatten().boxed()
}

fn cut(mut piece: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let bytes = piece.len().min(MAX_PIECE_BYTES);
        (bytes > 0).then(|| piece.split_to(bytes))
    })
}

/// Returns the bytes of the remaining messages of a client, for an import. The next message is requested only when
/// the Node is ready for it, and HTTP/2 flow control delays the client until then. `bytes` extracts the bytes of a
/// message, or returns an error.
pub(crate) fn content<T: Send + 'static>(
    inbound: Inbound<T>,
    bytes: fn(T) -> std::result::Result<Bytes, Fault>,
) -> BoxStream<'static, Result<Bytes>> {
    stream::try_unfold(inbound, move |mut inbound| async move {
        let Some(message) = inbound.next().await.map_err(carried)? else { return Ok(None) };
        let bytes = bytes(message).map_err(|fault| carried(fault.into()))?;
        Ok(Some((bytes, inbound)))
    })
    .boxed()
}

/// Wraps a status in an [`Error`], as its source.
fn carried(status: Status) -> Error {
    Error::invalid(status.message().to_owned()).with_source(status)
}

/// Returns the status for an error of an import: the status that ended the client's stream, if there is one.
pub(crate) fn import_status(error: Error) -> Status {
    match error.source().and_then(|source| source.downcast_ref::<Status>()) {
        Some(status) => status.clone(),
        None => error::status(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_pieces_are_split_to_message_size() {
        for bytes in [0, 1, MAX_PIECE_BYTES, MAX_PIECE_BYTES + 1, 3 * MAX_PIECE_BYTES - 1] {
            let whole: Bytes = (0..bytes).map(|at| (at % 251) as u8).collect();
            let pieces: Vec<_> = cut(whole.clone()).collect();
            assert_eq!(pieces.concat(), whole);
            assert!(pieces.iter().all(|piece| (1..=MAX_PIECE_BYTES).contains(&piece.len())), "{bytes}");
        }
    }

    #[test]
    fn import_status_keeps_the_stream_status() {
        let status = import_status(carried(Status::deadline_exceeded("too slow")));
        assert_eq!((status.code(), status.message()), (tonic::Code::DeadlineExceeded, "too slow"));
        assert_eq!(import_status(Error::invalid("x")).code(), tonic::Code::InvalidArgument);
    }
}
