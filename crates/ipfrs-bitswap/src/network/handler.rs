//! Streams of one connection.
//!
//! Inbound streams go directly from the connection to the task that reads them, and tasks ask the connection directly
//! for outbound streams. libp2p-stream does neither: it drops inbound streams that arrive faster than one task takes
//! them, and other implementations open one for each message.

use std::array;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use libp2p::core::upgrade::{InboundUpgrade, OutboundUpgrade, UpgradeInfo};
use libp2p::swarm::handler::{
    ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound, StreamUpgradeError,
};
use libp2p::swarm::{ConnectionHandler, ConnectionHandlerEvent, SubstreamProtocol};
use libp2p::{Stream, StreamProtocol};
use tokio::sync::mpsc;

use crate::engine::Engine;
use crate::peer::{OpenError, OpenRequest, Peer};
use crate::wire::Version;

/// Time in which the protocol of a stream must be negotiated.
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts and opens the streams of one connection.
pub(crate) struct Handler {
    engine: Engine,
    peer: Arc<Peer>,
    requests: mpsc::Receiver<OpenRequest>,
}

impl Handler {
    pub(super) fn new(engine: Engine, peer: Arc<Peer>, requests: mpsc::Receiver<OpenRequest>) -> Self {
        Self { engine, peer, requests }
    }
}

impl ConnectionHandler for Handler {
    type FromBehaviour = Infallible;
    type ToBehaviour = Infallible;
    type InboundProtocol = Protocols;
    type OutboundProtocol = Protocols;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = OpenRequest;

    fn listen_protocol(&self) -> SubstreamProtocol<Protocols> {
        SubstreamProtocol::new(Protocols, ()).with_timeout(NEGOTIATION_TIMEOUT)
    }

    fn connection_keep_alive(&self) -> bool {
        self.peer.is_used()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionHandlerEvent<Protocols, OpenRequest, Infallible>> {
        match self.requests.poll_recv(cx) {
            Poll::Ready(Some(request)) => {
                let protocol = SubstreamProtocol::new(Protocols, request).with_timeout(NEGOTIATION_TIMEOUT);
                Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol })
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn on_behaviour_event(&mut self, event: Infallible) {
        match event {}
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<Protocols, Protocols, (), OpenRequest>) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol: (mut stream, _), .. }) => {
                stream.ignore_for_keep_alive();
                self.engine.accept(&self.peer, stream);
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound {
                protocol: (mut stream, version),
                info,
            }) => {
                stream.ignore_for_keep_alive();
                info.send(Ok((stream, version))).ok();
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                let error = match error {
                    StreamUpgradeError::NegotiationFailed => OpenError::Unsupported,
                    other => OpenError::Failed(other.to_string()),
                };
                info.send(Err(error)).ok();
            }
            _ => {}
        }
    }
}

/// Negotiates one of the versions of the protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocols;

impl UpgradeInfo for Protocols {
    type Info = StreamProtocol;
    type InfoIter = array::IntoIter<StreamProtocol, 3>;

    fn protocol_info(&self) -> Self::InfoIter {
        Version::ALL.map(Version::protocol).into_iter()
    }
}

impl InboundUpgrade<Stream> for Protocols {
    type Output = (Stream, Version);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_inbound(self, stream: Stream, protocol: StreamProtocol) -> Self::Future {
        ready(Ok((stream, version(&protocol))))
    }
}

impl OutboundUpgrade<Stream> for Protocols {
    type Output = (Stream, Version);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_outbound(self, stream: Stream, protocol: StreamProtocol) -> Self::Future {
        ready(Ok((stream, version(&protocol))))
    }
}

fn version(protocol: &StreamProtocol) -> Version {
    let found = Version::ALL.into_iter().find(|version| version.protocol() == *protocol);
    // Only protocols of the list are negotiated.
    found.unwrap_or(Version::V1_2)
}
