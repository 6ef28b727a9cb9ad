//! Messages on a stream: each has its length in front, as an unsigned varint.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::wire::{MAX_MESSAGE_BYTES, Malformed};

/// Step in which the buffer of a message grows, in bytes.
const STEP_BYTES: usize = 64 * 1024;
/// Time in which some bytes must arrive or be taken while a message is transferred.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a whole message must be transferred.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(120);

/// Failure of reading or writing a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("malformed message: {0}")]
    Malformed(#[from] Malformed),
    #[error("the peer was too slow")]
    TimedOut,
}

/// A received message with the memory that is reserved for it.
pub(crate) struct Frame {
    pub bytes: Bytes,
    pub permits: [OwnedSemaphorePermit; 2],
}

/// Memory for received messages.
pub(crate) struct ReceiveMemory {
    /// Bytes that messages of one peer may take.
    pub peer: std::sync::Arc<Semaphore>,
    /// Bytes that messages of all peers may take.
    pub total: std::sync::Arc<Semaphore>,
}

impl ReceiveMemory {
    /// Waits for memory. The peer's share comes first, so that a peer without a share takes nothing of the total.
    async fn reserve(&self, bytes: usize) -> io::Result<[OwnedSemaphorePermit; 2]> {
        let count = u32::try_from(bytes).map_err(io::Error::other)?;
        let peer = std::sync::Arc::clone(&self.peer).acquire_many_owned(count).await.map_err(io::Error::other)?;
        let total = std::sync::Arc::clone(&self.total).acquire_many_owned(count).await.map_err(io::Error::other)?;
        Ok([peer, total])
    }
}

/// Reads the next message. Returns `None` at the end of the stream, and if no message starts within `idle`.
pub(crate) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    memory: &ReceiveMemory,
    idle: Duration,
) -> Result<Option<Frame>, FrameError> {
    let mut byte = [0];
    match timeout(idle, stream.read(&mut byte)).await {
        Err(_) | Ok(Ok(0)) => return Ok(None),
        Ok(read) => read?,
    };
    let rest = async {
        let length = read_length(stream, byte[0]).await?;
        let permits = memory.reserve(length).await?;
        let bytes = read_body(stream, length).await?;
        Ok(Some(Frame { bytes, permits }))
    };
    timeout(MESSAGE_TIMEOUT, rest).await.map_err(|_| FrameError::TimedOut)?
}

async fn read_length(stream: &mut (impl AsyncRead + Unpin), first: u8) -> Result<usize, FrameError> {
    let mut length = usize::from(first & 0x7f);
    let mut last = first;
    let mut shift = 0;
    while last & 0x80 != 0 {
        shift += 7;
        if shift > 21 {
            return Err(Malformed::TooLong.into());
        }
        let mut byte = [0];
        stalls(stream.read_exact(&mut byte)).await?;
        last = byte[0];
        length |= usize::from(last & 0x7f) << shift;
    }
    if length > MAX_MESSAGE_BYTES { Err(Malformed::TooLong.into()) } else { Ok(length) }
}

async fn read_body(stream: &mut (impl AsyncRead + Unpin), length: usize) -> Result<Bytes, FrameError> {
    // Memory of the buffer is used only when bytes arrive.
    let mut buffer = BytesMut::with_capacity(length);
    let mut filled = 0;
    while filled < length {
        if filled == buffer.len() {
            buffer.resize(length.min(filled + STEP_BYTES), 0);
        }
        match stalls(stream.read(&mut buffer[filled..])).await? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            count => filled += count,
        }
    }
    Ok(buffer.freeze())
}

async fn stalls<T>(operation: impl Future<Output = io::Result<T>>) -> Result<T, FrameError> {
    match timeout(STALL_TIMEOUT, operation).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(FrameError::TimedOut),
    }
}

/// Writes the parts of a message and flushes the stream.
pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), parts: &[Bytes]) -> Result<(), FrameError> {
    let all = async {
        for part in parts {
            let mut rest = part.as_ref();
            while !rest.is_empty() {
                match stalls(stream.write(rest)).await? {
                    0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                    count => rest = &rest[count..],
                }
            }
        }
        stalls(stream.flush()).await
    };
    timeout(MESSAGE_TIMEOUT, all).await.map_err(|_| FrameError::TimedOut)?
}
