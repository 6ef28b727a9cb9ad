//! A peer without any logic: tests send and receive its messages. It uses libp2p-stream and prost, which the crate does
//! not.

use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use ipfrs_bitswap::{Multiaddr, PeerId};
use ipfrs_core::{Block, Cid};
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{Stream, StreamProtocol, SwarmBuilder, noise, tcp, yamux};
use libp2p_stream::Control;
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::harness::Node;
use crate::inbound_streams::InboundStreams;

pub(crate) const CURRENT: &str = "/ipfs/bitswap/1.2.0";

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Message {
    #[prost(message, optional, tag = "1")]
    pub wantlist: Option<Wantlist>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub blocks: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "3")]
    pub payload: Vec<Payload>,
    #[prost(message, repeated, tag = "4")]
    pub presences: Vec<Presence>,
    #[prost(int32, tag = "5")]
    pub pending_bytes: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Wantlist {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    #[prost(bool, tag = "2")]
    pub full: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Entry {
    #[prost(bytes = "vec", tag = "1")]
    pub cid: Vec<u8>,
    #[prost(int32, tag = "2")]
    pub priority: i32,
    #[prost(bool, tag = "3")]
    pub cancel: bool,
    /// 0 for the block, 1 for its presence.
    #[prost(int32, tag = "4")]
    pub kind: i32,
    #[prost(bool, tag = "5")]
    pub send_dont_have: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Payload {
    #[prost(bytes = "vec", tag = "1")]
    pub prefix: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Presence {
    #[prost(bytes = "vec", tag = "1")]
    pub cid: Vec<u8>,
    /// 0 for `HAVE`, 1 for `DONT_HAVE`.
    #[prost(int32, tag = "2")]
    pub kind: i32,
}

impl Message {
    pub(crate) fn wants(cids: &[Cid], kind: i32) -> Self {
        let entry = |cid: &Cid| Entry { cid: cid.to_bytes(), priority: 1, kind, send_dont_have: true, cancel: false };
        let entries = cids.iter().map(entry).collect();
        Self { wantlist: Some(Wantlist { entries, full: false }), ..Self::default() }
    }

    pub(crate) fn block(block: &Block) -> Self {
        Self::raw_block(block.data().to_vec())
    }

    pub(crate) fn raw_block(data: Vec<u8>) -> Self {
        Self { payload: vec![Payload { prefix: vec![1, 0x55, 0x12, 32], data }], ..Self::default() }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        self.wantlist.as_ref().map_or(&[], |list| &list.entries)
    }
}

#[derive(NetworkBehaviour)]
struct Streams {
    outbound: libp2p_stream::Behaviour,
    inbound: InboundStreams,
}

pub(crate) struct RawPeer {
    pub id: PeerId,
    pub address: Multiaddr,
    control: Control,
    protocol: StreamProtocol,
    /// Messages of all streams that nodes opened.
    pub messages: mpsc::UnboundedReceiver<Message>,
    /// Number of connections since the start.
    connections: watch::Receiver<usize>,
    dials: mpsc::UnboundedSender<DialOpts>,
    task: JoinHandle<()>,
}

impl Drop for RawPeer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RawPeer {
    /// Starts a peer that supports one version of the protocol and reads all messages.
    pub(crate) async fn start(protocol: &'static str) -> Self {
        Self::start_with(protocol, true).await
    }

    /// Starts a peer. Without `reads`, it accepts streams and reads nothing from them.
    pub(crate) async fn start_with(protocol: &'static str, reads: bool) -> Self {
        let protocol = StreamProtocol::new(protocol);
        let (accepted, mut incoming) = mpsc::unbounded_channel();
        let inbound = InboundStreams { protocol: protocol.clone(), streams: accepted };
        let mut swarm = SwarmBuilder::with_new_identity()
            .with_tokio()
            .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)
            .unwrap()
            .with_behaviour(|_| Streams { outbound: libp2p_stream::Behaviour::new(), inbound })
            .unwrap()
            .with_swarm_config(|config| config.with_idle_connection_timeout(Duration::from_secs(600)))
            .build();
        swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse().unwrap()).unwrap();
        let address = loop {
            if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                break address;
            }
        };
        let id = *swarm.local_peer_id();
        let control = swarm.behaviour().outbound.new_control();
        let (sender, messages) = mpsc::unbounded_channel();
        let streams = async move {
            let mut unread = Vec::new();
            while let Some(stream) = incoming.recv().await {
                if reads {
                    tokio::spawn(read_all(stream, sender.clone()));
                } else {
                    unread.push(stream);
                }
            }
        };
        let (connected, connections) = watch::channel(0);
        let (dials, mut dialed) = mpsc::unbounded_channel::<DialOpts>();
        let task = tokio::spawn(async move {
            let drive = async {
                loop {
                    tokio::select! {
                        event = swarm.select_next_some() => {
                            if let SwarmEvent::ConnectionEstablished { .. } = event {
                                connected.send_modify(|count| *count += 1);
                            }
                        }
                        Some(options) = dialed.recv() => swarm.dial(options).unwrap(),
                    }
                }
            };
            futures::future::join(drive, streams).await;
        });
        Self { id, address, control, protocol, messages, connections, dials, task }
    }

    /// Returns the peer ID and address, as a router would.
    pub(crate) fn provider(&self) -> (PeerId, Vec<Multiaddr>) {
        (self.id, vec![self.address.clone()])
    }

    /// Lets the node connect to this peer.
    pub(crate) async fn connect(&mut self, node: &Node) {
        node.bitswap.connect(&self.address.clone().with_p2p(self.id).unwrap()).await.unwrap();
        self.connections.wait_for(|count| *count > 0).await.unwrap();
    }

    /// Connects to a node once more.
    pub(crate) async fn dial(&mut self, node: &Node) {
        let before = *self.connections.borrow();
        let (id, addresses) = node.provider();
        let options = DialOpts::peer_id(id).addresses(addresses).condition(PeerCondition::Always);
        self.dials.send(options.allocate_new_port().build()).unwrap();
        self.connections.wait_for(|count| *count > before).await.unwrap();
    }

    /// Opens a stream to a node.
    pub(crate) async fn open(&mut self, node: PeerId) -> Stream {
        self.control.open_stream(node, self.protocol.clone()).await.unwrap()
    }

    /// Sends a message on a stream of its own.
    pub(crate) async fn send(&mut self, node: PeerId, message: &Message) {
        let mut stream = self.open(node).await;
        stream.write_all(&message.encode_length_delimited_to_vec()).await.unwrap();
        stream.close().await.unwrap();
    }

    /// Returns the next message.
    pub(crate) async fn receive(&mut self) -> Message {
        self.messages.recv().await.unwrap()
    }

    /// Disconnects from everyone.
    pub(crate) fn stop(&self) {
        self.task.abort();
    }
}

async fn read_all(mut stream: Stream, messages: mpsc::UnboundedSender<Message>) {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        bytes.extend_from_slice(&buffer[..count]);
        while let Ok((length, rest)) = unsigned_varint::decode::usize(&bytes) {
            if rest.len() < length {
                break;
            }
            let head = bytes.len() - rest.len();
            let message = Message::decode(&bytes[head..head + length]).unwrap();
            bytes.drain(..head + length);
            messages.send(message).ok();
        }
    }
}
