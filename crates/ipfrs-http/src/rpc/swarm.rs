//! Commands about peers: `swarm/*` and `bitswap/*`.

use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_node::{ConnectedPeer, Node};
use ipfrs_rpc::duration;
use ipfrs_rpc::types::{
    AddressFilters, BitswapStat, CidLink, Id, Ledger, Lines, PeerAddresses, PeerIdentity, Peering, PeeringChange,
    SwarmAddresses, SwarmPeer, SwarmPeers, SwarmStream, Wantlist,
};

use super::args::Args;
use super::command_result::CommandResult;
use super::output;
use super::unavailable::{cannot_run_without_peers, needs_peers};
use crate::state::AppState;

/// Kubo's values of directions.
const INBOUND: u8 = 1;
const OUTBOUND: u8 = 2;

/// `swarm/peers[?verbose=][&streams=][&latency=][&direction=][&identify=]`: returns the connected peers.
pub(super) async fn peers(State(state): State<AppState>, args: Args) -> CommandResult {
    let verbose = args.is_set("verbose");
    let shows = |option: &str| verbose || args.is_set(option);
    let (latency, direction) = (shows("latency"), shows("direction"));
    let (streams, identify) = (shows("streams"), shows("identify"));
    let describe = |peer: ConnectedPeer| SwarmPeer {
        addr: peer.address.clone(),
        latency: if latency { peer.latency.map_or_else(|| "n/a".to_owned(), duration::format) } else { String::new() },
        direction: direction.then_some(if peer.is_outbound { OUTBOUND } else { INBOUND }),
        // Bitswap is the only protocol whose streams stay open.
        streams: streams.then(|| bitswap_protocol(&peer)).flatten().into_iter().collect(),
        identify: if identify { identity(&peer, peer.id.clone()).into() } else { PeerIdentity::default() },
        peer: peer.id,
    };
    let mut peers: Vec<_> = state.node.peers()?.into_iter().map(describe).collect();
    peers.sort_by(|a, b| a.addr.cmp(&b.addr));
    Ok(output::object(SwarmPeers { peers }))
}

fn bitswap_protocol(peer: &ConnectedPeer) -> Option<SwarmStream> {
    let protocols = peer.protocols.iter().filter(|protocol| protocol.starts_with("/ipfs/bitswap/"));
    protocols.max().map(|protocol| SwarmStream { protocol: protocol.clone() })
}

/// Returns what a peer says about itself. `id` is its ID in the requested form.
pub(super) fn identity(peer: &ConnectedPeer, id: String) -> Id {
    let with_id = |address: &String| format!("{address}/p2p/{}", peer.id);
    let mut addresses: Vec<_> = peer.listen_addresses.iter().map(with_id).collect();
    addresses.sort();
    let mut protocols = peer.protocols.clone();
    protocols.sort();
    let public_key = STANDARD.encode(&peer.public_key);
    Id { id, public_key, addresses, agent_version: peer.agent_version.clone(), protocols }
}

/// `swarm/connect?arg=address[&arg=...]`: connects to peers. The connections stay open.
pub(super) async fn connect(State(state): State<AppState>, args: Args) -> CommandResult {
    let addresses = args.required("address")?;
    // As in Kubo, a malformed address refuses all of them.
    state.node.check_peer_addresses(addresses)?;
    let mut strings = Vec::new();
    for address in addresses {
        let id = address.rsplit('/').next().unwrap_or_default();
        let failed = |e: Error| {
            let dialing = if e.kind() == ErrorKind::Unavailable { "failed to dial: " } else { "" };
            Error::new(e.kind(), format!("connect {id} failure: {dialing}{e}")).with_source(e)
        };
        let id = state.node.connect_peer(address).await.map_err(failed)?;
        strings.push(format!("connect {id} success"));
    }
    Ok(output::object(Lines { strings }))
}

/// `swarm/disconnect?arg=address[&arg=...]`: closes the connections to addresses, and all connections to a peer
/// for `/p2p/ID`. As in Kubo, a malformed address refuses all of them, and a missing connection is no error.
pub(super) async fn disconnect(State(state): State<AppState>, args: Args) -> CommandResult {
    let addresses = args.required("address")?;
    state.node.check_peer_addresses(addresses)?;
    if let Err(offline) = state.node.peers() {
        let failed = |address: &String| {
            let id = address.rsplit('/').next().unwrap_or_default();
            format!("disconnect {id} failure: {offline}")
        };
        return Ok(output::object(Lines { strings: addresses.iter().map(failed).collect() }));
    }
    let mut strings = Vec::new();
    for address in addresses {
        let (id, was_connected) = state.node.disconnect_peer(address).await?;
        let is_only_an_id = address.matches('/').count() == 2;
        let outcome = match was_connected {
            true => "success",
            false if is_only_an_id => "failure: not connected",
            false => "failure: conn not found",
        };
        strings.push(format!("disconnect {id} {outcome}"));
    }
    Ok(output::object(Lines { strings }))
}

/// `swarm/addrs`: returns the addresses of the connected peers.
pub(super) async fn addresses(State(state): State<AppState>) -> CommandResult {
    let of = |peer: ConnectedPeer| {
        let known = if peer.listen_addresses.is_empty() { vec![peer.address] } else { peer.listen_addresses };
        (peer.id, known)
    };
    let addrs = state.node.peers()?.into_iter().map(of).collect();
    Ok(output::object(SwarmAddresses { addrs }))
}

/// `swarm/addrs/local[?id=]`: returns the addresses that this node tells others.
pub(super) async fn local_addresses(State(state): State<AppState>, args: Args) -> CommandResult {
    state.node.peers()?;
    let strings = match args.is_set("id") {
        true => state.node.addresses_with_id(),
        false => state.node.announced_addresses(),
    };
    Ok(output::object(Lines { strings }))
}

/// `swarm/addrs/listen`: returns the addresses on which this node listens for peers.
pub(super) async fn listen_addresses(State(state): State<AppState>) -> CommandResult {
    state.node.peers()?;
    Ok(output::object(Lines { strings: state.node.listen_addresses() }))
}

/// `swarm/peering/ls`: returns the peers to which this node stays connected.
pub(super) async fn peering(State(state): State<AppState>) -> CommandResult {
    needs_peers(&state)?;
    let peers = steady_peers(&state.node);
    Ok(output::object(Peering { peers }))
}

/// Returns the peers to which a node stays connected.
pub(super) fn steady_peers(node: &Node) -> Vec<PeerAddresses> {
    let mut peers: Vec<PeerAddresses> = Vec::new();
    // Addresses of a peer follow each other.
    for address in node.steady_peers() {
        let (address, id) = address.rsplit_once("/p2p/").unwrap_or(("", &address));
        match peers.last_mut().filter(|last| last.id == id) {
            Some(last) => last.addrs.push(address.to_owned()),
            None => peers.push(PeerAddresses { id: id.to_owned(), addrs: vec![address.to_owned()] }),
        }
    }
    peers
}

/// `swarm/peering/add?arg=address[&arg=...]`: stays connected to peers until the daemon ends.
pub(super) async fn add_peering(State(state): State<AppState>, args: Args) -> CommandResult {
    let addresses = args.required("address")?;
    // As in Kubo, a malformed address is found first.
    state.node.check_peer_addresses(addresses)?;
    needs_peers(&state)?;
    let added = state.node.add_steady_peers(addresses)?;
    let lines: Vec<_> = added.into_iter().map(changed).collect();
    Ok(output::objects(stream::iter(lines), args.takes_trailers))
}

/// `swarm/peering/rm?arg=peer[&arg=...]`: no longer stays connected to peers. A failure after the first peer ends the
/// response.
pub(super) async fn remove_peering(State(state): State<AppState>, args: Args) -> CommandResult {
    needs_peers(&state)?;
    let mut lines = Vec::new();
    for id in args.required("ID")? {
        match state.node.remove_steady_peer(id) {
            Ok(id) => lines.push(changed(id)),
            Err(error) if lines.is_empty() => return Err(error.into()),
            Err(error) => {
                lines.push(Err(error));
                break;
            }
        }
    }
    Ok(output::objects(stream::iter(lines), args.takes_trailers))
}

fn changed(id: String) -> Result<Bytes> {
    output::line(&PeeringChange { id, status: "success".to_owned() })
}

/// `swarm/filters`: returns the filters of addresses, of which there are none.
pub(super) async fn filters(State(state): State<AppState>) -> CommandResult {
    needs_peers(&state)?;
    Ok(output::object(AddressFilters { strings: None }))
}

fn links(cids: &[Cid], args: &Args) -> Result<Vec<CidLink>> {
    cids.iter().map(|cid| args.render.link(cid)).collect()
}

/// `bitswap/stat`: returns what was exchanged with all peers.
pub(super) async fn stat(State(state): State<AppState>, args: Args) -> CommandResult {
    cannot_run_without_peers(&state)?;
    let totals = state.node.exchange_totals()?;
    Ok(output::object(BitswapStat {
        wantlist: links(&totals.wanted, &args)?,
        peers: totals.peers,
        blocks_received: totals.received_blocks,
        data_received: totals.received_bytes,
        dup_blks_received: totals.unneeded_blocks,
        dup_data_received: totals.unneeded_bytes,
        messages_received: totals.received_messages,
        blocks_sent: totals.sent_blocks,
        data_sent: totals.sent_bytes,
    }))
}

/// `bitswap/wantlist[?peer=]`: returns the blocks that this node or a peer wants.
pub(super) async fn wantlist(State(state): State<AppState>, args: Args) -> CommandResult {
    needs_peers(&state)?;
    let cids = state.node.wanted_blocks(args.text("peer"))?;
    Ok(output::object(Wantlist { keys: links(&cids, &args)? }))
}

/// `bitswap/ledger?arg=peer`: returns what was exchanged with a peer.
pub(super) async fn ledger(State(state): State<AppState>, args: Args) -> CommandResult {
    needs_peers(&state)?;
    let ledger = state.node.peer_ledger(args.one("peer")?)?;
    Ok(output::object(Ledger {
        peer: ledger.peer,
        value: ledger.debt_ratio,
        sent: ledger.sent_bytes,
        recv: ledger.received_bytes,
        exchanged: ledger.blocks,
    }))
}

/// Returns the connected peer with an ID in any form.
pub(super) fn find(node: &Node, id: &str) -> Result<Option<ConnectedPeer>> {
    Ok(node.peers()?.into_iter().find(|peer| peer.id == id))
}
