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
/// Time in which a whole message must be sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time in which the body of a message must arrive, in addition to that of its bytes.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Rate at which the announced messages of a peer must arrive, in bytes per second.
const MIN_RATE: usize = 64 * 1024;

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
    /// Number of permits of `peer`.
    pub peer_bytes: usize,
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

    /// Returns the time in which the body of a message must arrive, for which memory has been reserved. Messages on
    /// other streams of the peer share its connection, so their bytes count too.
    fn body_timeout(&self) -> Duration {
        let announced = self.peer_bytes.saturating_sub(self.peer.available_permits());
        BODY_TIMEOUT + Duration::from_secs((announced / MIN_RATE) as u64)
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
    let length = timeout(STALL_TIMEOUT, read_length(stream, byte[0])).await.map_err(|_| FrameError::TimedOut)??;
    // The wait for memory is no fault of the peer.
    let permits = memory.reserve(length).await?;
    let limit = memory.body_timeout();
    let bytes = timeout(limit, read_body(stream, length)).await.map_err(|_| FrameError::TimedOut)??;
    Ok(Some(Frame { bytes, permits }))
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
    timeout(WRITE_TIMEOUT, all).await.map_err(|_| FrameError::TimedOut)?
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;
    use tokio_util::compat::TokioAsyncReadCompatExt;

    use super::*;

    fn memory(bytes: usize) -> ReceiveMemory {
        let semaphore = || Arc::new(Semaphore::new(bytes));
        ReceiveMemory { peer: semaphore(), peer_bytes: bytes, total: semaphore() }
    }

    #[tokio::test(start_paused = true)]
    async fn announced_body_holds_memory_for_a_bounded_time() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let memory = memory(1 << 20);
        let trickle = tokio::spawn(async move {
            // 256 KiB are announced, and a byte arrives every five seconds.
            tokio::io::AsyncWriteExt::write_all(&mut theirs, &[0x80, 0x80, 0x10]).await.unwrap();
            while tokio::io::AsyncWriteExt::write_all(&mut theirs, &[0]).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        let start = Instant::now();
        let result = read(&mut ours.compat(), &memory, Duration::from_secs(900)).await;
        assert!(matches!(result, Err(FrameError::TimedOut)));
        assert!(start.elapsed() <= Duration::from_secs(15), "{:?}", start.elapsed());
        assert_eq!(memory.total.available_permits(), 1 << 20);
        trickle.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_memory_does_not_time_out() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let memory = memory(10);
        let held = Arc::clone(&memory.total).acquire_many_owned(10).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut theirs, &[2, 7, 8]).await.unwrap();
        let release = async {
            tokio::time::sleep(Duration::from_secs(600)).await;
            drop(held);
        };
        let mut ours = ours.compat();
        let (frame, ()) = futures::future::join(read(&mut ours, &memory, Duration::from_secs(900)), release).await;
        assert_eq!(frame.unwrap().unwrap().bytes.as_ref(), [7, 8]);
    }
}
