//! Transports: TCP with Noise and Yamux, and QUIC.

use futures::future::Either;
use ipfrs_core::{Error, Result};
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::{Boxed, OrTransport};
use libp2p::core::upgrade::Version;
use libp2p::identity::Keypair;
use libp2p::pnet::{PnetConfig, PreSharedKey};
use libp2p::{PeerId, Transport, noise, quic, tcp, yamux};

use crate::config::BitswapConfig;

/// Maximum bytes that Yamux grants the streams of one connection, a constant of the library.
const YAMUX_CONNECTION_BYTES: usize = 1 << 30;
/// Bytes that Yamux grants each stream at first.
const YAMUX_STREAM_BYTES: usize = 256 << 10;
/// Maximum number of Yamux streams of one connection. The library enlarges the windows of streams by what this number
/// leaves of the limit of the connection: 768 KiB, so that no window exceeds 1 MiB. Implementations in JavaScript send
/// a whole window as one frame, and the library refuses frames above 1 MiB. The number of streams that wait to be read
/// has a lower limit of its own.
const MAX_YAMUX_STREAMS: usize = YAMUX_CONNECTION_BYTES / YAMUX_STREAM_BYTES - 3;
/// Maximum number of QUIC streams of one connection. The peer waits for permission to open more.
const MAX_QUIC_STREAMS: u32 = 128;
/// Bytes that QUIC buffers for one stream.
const QUIC_STREAM_BYTES: u32 = 4 << 20;
/// Bytes that QUIC buffers for one connection.
const QUIC_CONNECTION_BYTES: u32 = 16 << 20;
/// Time without packets after which a QUIC connection is closed, in milliseconds, as in Kubo.
const QUIC_IDLE_MILLIS: u32 = 30_000;

type Connections = Boxed<(PeerId, StreamMuxerBox)>;

/// Creates the transport. A private network has no QUIC, which has no private networks.
pub(super) fn create(config: &BitswapConfig, keypair: &Keypair) -> Result<Connections> {
    let tcp = tcp::tokio::Transport::new(tcp::Config::new().nodelay(true));
    let noise = noise::Config::new(keypair)
        .map_err(|e| Error::internal("the Noise keys could not be created").with_source(e))?;
    let mut yamux = yamux::Config::default();
    yamux.set_max_num_streams(MAX_YAMUX_STREAMS);
    if let Some(key) = &config.private_network_key {
        let key = PreSharedKey::new(*key.as_bytes());
        let secured = tcp.and_then(move |socket, _| PnetConfig::new(key).handshake(socket));
        let upgraded = secured.upgrade(Version::V1Lazy).authenticate(noise).multiplex(yamux);
        return Ok(upgraded.timeout(config.dial_timeout()).boxed());
    }
    let tcp = tcp.upgrade(Version::V1Lazy).authenticate(noise).multiplex(yamux).timeout(config.dial_timeout());
    let mut quic_config = quic::Config::new(keypair);
    quic_config.handshake_timeout = config.dial_timeout();
    quic_config.max_idle_timeout = QUIC_IDLE_MILLIS;
    quic_config.max_concurrent_stream_limit = MAX_QUIC_STREAMS;
    quic_config.max_stream_data = QUIC_STREAM_BYTES;
    quic_config.max_connection_data = QUIC_CONNECTION_BYTES;
    let quic = quic::tokio::Transport::new(quic_config);
    let both = OrTransport::new(quic, tcp).map(|connection, _| match connection {
        Either::Left((peer, muxer)) => (peer, StreamMuxerBox::new(muxer)),
        Either::Right((peer, muxer)) => (peer, StreamMuxerBox::new(muxer)),
    });
    Ok(both.boxed())
}
