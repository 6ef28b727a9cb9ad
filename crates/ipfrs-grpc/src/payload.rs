//! Bytes of files and tensors on their way through messages.

use std::error::Error as _;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use ipfrs_core::{Error, Result};
use tonic::Status;

use crate::error::{self, Fault};
use crate::inbound::Inbound;

/// Most bytes of a file or tensor in one message that we send. Clients take 4 MiB by default; blocks of up to 2 MiB, and
/// what others interleave with them, should not wait long for each other.
const MAX_PIECE_BYTES: usize = 1024 * 1024;

/// What the Node reads, in pieces that fit messages. Nothing is copied.
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

/// The bytes of the messages that a client still has to send, for the Node to take in. It asks for the next message when it
/// can take it: HTTP/2 keeps the client waiting meanwhile. `bytes` gives those of a message, or says what is wrong with it.
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

/// A status, for where there are errors of ours: it is the source of one.
fn carried(status: Status) -> Error {
    Error::invalid(status.message().to_owned()).with_source(status)
}

/// The status for an error of an import: that which ended the client's stream, where it did.
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
    fn pieces_are_cut_to_what_fits_messages_and_nothing_is_lost() {
        for bytes in [0, 1, MAX_PIECE_BYTES, MAX_PIECE_BYTES + 1, 3 * MAX_PIECE_BYTES - 1] {
            let whole: Bytes = (0..bytes).map(|at| (at % 251) as u8).collect();
            let pieces: Vec<_> = cut(whole.clone()).collect();
            assert_eq!(pieces.concat(), whole);
            assert!(pieces.iter().all(|piece| (1..=MAX_PIECE_BYTES).contains(&piece.len())), "{bytes}");
        }
    }

    #[test]
    fn a_status_comes_back_out_of_an_import() {
        let status = import_status(carried(Status::deadline_exceeded("too slow")));
        assert_eq!((status.code(), status.message()), (tonic::Code::DeadlineExceeded, "too slow"));
        assert_eq!(import_status(Error::invalid("x")).code(), tonic::Code::InvalidArgument);
    }
}
