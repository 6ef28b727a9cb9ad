//! Round trips to a peer on demand: `/ipfs/ping/1.0.0`
//! (<https://github.com/libp2p/specs/blob/master/ping/ping.md>).

use std::fmt;
use std::hash::{BuildHasher, RandomState};
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

/// A stream for round trips to a peer.
pub struct Pinger(Stream);

impl fmt::Debug for Pinger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pinger")
    }
}

impl Pinger {
    pub(crate) async fn open(mut control: Control, peer: PeerId) -> Result<Self> {
        match timeout(PING_TIMEOUT, control.open_stream(peer, PROTOCOL)).await {
            Ok(Ok(stream)) => Ok(Self(stream)),
            Ok(Err(e)) => Err(failed(&e)),
            Err(e) => Err(failed(&e)),
        }
    }

    /// Returns the time of one round trip.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the peer does not respond in time, or with other bytes.
    pub async fn ping(&mut self) -> Result<Duration> {
        let mut sent = [0; PING_BYTES];
        for (at, bytes) in sent.chunks_mut(8).enumerate() {
            // Not secret, but different each time.
            bytes.copy_from_slice(&RandomState::new().hash_one(at).to_be_bytes());
        }
        let begun = Instant::now();
        let round_trip = async {
            self.0.write_all(&sent).await?;
            self.0.flush().await?;
            let mut received = [0; PING_BYTES];
            self.0.read_exact(&mut received).await?;
            Ok::<_, std::io::Error>(received)
        };
        match timeout(PING_TIMEOUT, round_trip).await {
            Ok(Ok(received)) if received == sent => Ok(begun.elapsed()),
            Ok(Ok(_)) => Err(failed(&"it sent other bytes back")),
            Ok(Err(e)) => Err(failed(&e)),
            Err(e) => Err(failed(&e)),
        }
    }
}

fn failed(why: &impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the peer does not respond to a ping: {why}"))
}
