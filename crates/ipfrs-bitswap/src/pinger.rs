//! Round trips to a peer on demand: `/ipfs/ping/1.0.0`
//! (<https://github.com/libp2p/specs/blob/master/ping/ping.md>).

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::{Duration, Instant};

use futures::{AsyncReadExt, AsyncWriteExt};
use ipfrs_core::{Error, ErrorKind, Result};
use libp2p::{PeerId, Stream, StreamProtocol};
use libp2p_stream::Control;
use tokio::time::timeout;

const PROTOCOL: StreamProtocol = StreamProtocol::new("/ipfs/ping/1.0.0");
/// Number of bytes that a peer sends back.
const PING_BYTES: usize = 32;
/// Longest time to open the stream, and for one round trip.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of streams that one round trip is tried on.
const MAX_STREAMS: usize = 3;

/// A stream for round trips to a peer. Peers with libp2p in Rust close it when another one is opened to them, as this
/// node does itself to notice connections that have broken off. A round trip then opens a new one.
pub struct Pinger {
    control: Control,
    peer: PeerId,
    stream: Stream,
}

impl fmt::Debug for Pinger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pinger")
    }
}

impl Pinger {
    pub(crate) async fn open(mut control: Control, peer: PeerId) -> Result<Self> {
        let stream = open_stream(&mut control, peer).await?;
        Ok(Self { control, peer, stream })
    }

    /// Returns the time of one round trip.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the peer does not respond in time, or with other bytes.
    pub async fn ping(&mut self) -> Result<Duration> {
        for _ in 1..MAX_STREAMS {
            match self.round_trip().await {
                Err(e) if !matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::InvalidData) => {
                    self.stream = open_stream(&mut self.control, self.peer).await?;
                }
                result => return result.map_err(|e| failed(&e)),
            }
        }
        self.round_trip().await.map_err(|e| failed(&e))
    }

    async fn round_trip(&mut self) -> io::Result<Duration> {
        let mut sent = [0; PING_BYTES];
        for (at, bytes) in sent.chunks_mut(8).enumerate() {
            // Not secret, but different each time.
            bytes.copy_from_slice(&RandomState::new().hash_one(at).to_be_bytes());
        }
        let begun = Instant::now();
        let received = async {
            self.stream.write_all(&sent).await?;
            self.stream.flush().await?;
            let mut received = [0; PING_BYTES];
            self.stream.read_exact(&mut received).await?;
            Ok::<_, io::Error>(received)
        };
        if timeout(PING_TIMEOUT, received).await?? != sent {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it sent other bytes back"));
        }
        Ok(begun.elapsed())
    }
}

async fn open_stream(control: &mut Control, peer: PeerId) -> Result<Stream> {
    match timeout(PING_TIMEOUT, control.open_stream(peer, PROTOCOL)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(e)) => Err(failed(&e)),
        Err(e) => Err(failed(&e)),
    }
}

fn failed(why: &impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the peer does not respond to a ping: {why}"))
}
