//! `routing/get` and `routing/put`: records of IPNS names; `routing/findpeer` and `routing/findprovs`.

use std::collections::HashSet;

use axum::extract::{Request, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::stream;
use ipfrs_core::Error;
use ipfrs_middleware::MemoryPool;
use ipfrs_node::{MAX_RECORD_BYTES, Name};
use ipfrs_rpc::types::{PeerAddresses, RoutingEvent};

use super::args::Args;
use super::command_result::{CommandResult, has_body};
use super::multipart::{self, Parts};
use super::paths::parse_root;
use super::unavailable::needs_peers;
use super::{output, swarm};
use crate::body::{self, Whole};
use crate::error::RpcError;
use crate::state::AppState;

/// Types of go-libp2p's events.
const FOUND_PEER: u8 = 2;
const ERROR: u8 = 3;
const PROVIDER: u8 = 4;
const VALUE: u8 = 5;

/// Default and maximum number of providers.
const DEFAULT_PROVIDERS: i64 = 20;
const MAX_PROVIDERS: usize = 1_000;

/// `routing/get?arg=/ipns/{name}`: returns the record of a name, in base64.
pub(super) async fn get(State(state): State<AppState>, args: Args) -> CommandResult {
    let name = name(args.one("key")?)?;
    let record = super::name::record(&state.node, &name).await?;
    let extra = STANDARD.encode(record.bytes());
    Ok(output::object(RoutingEvent { id: String::new(), r#type: VALUE, responses: None, extra }))
}

/// `routing/put?arg=/ipns/{name}[&allow-offline=]`: stores the record in the body, if it is valid for the name and no
/// better one is stored. `allow-offline` has no effect, since there are no peers to send it to.
pub(super) async fn put(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let name = name(args.one("key")?)?;
    let record = record(&state.memory, request).await?;
    state.node.put_ipns_record(&name, record.bytes).await?;
    Ok(output::object(RoutingEvent { id: name.peer_id(), r#type: VALUE, responses: None, extra: String::new() }))
}

/// `routing/findpeer?arg=peer`: returns the addresses of a connected peer. There is no network to ask for others.
pub(super) async fn find_peer(State(state): State<AppState>, args: Args) -> CommandResult {
    needs_peers(&state)?;
    let failed = |e| Error::invalid(format!("failed to parse peer ID: {e}"));
    let id = Name::parse(args.one("peerID")?).map_err(failed)?.peer_id();
    if id == state.node.identity().peer_id() {
        return Err(Error::invalid("finding your own node in the DHT is currently not supported").into());
    }
    let Some(peer) = swarm::find(&state.node, &id)? else {
        let error = Error::not_found("routing: not found");
        // Without the trailer, the reason would be lost.
        if !args.takes_trailers {
            return Err(error.into());
        }
        let extra = error.message().to_owned();
        let event = RoutingEvent { extra, id: String::new(), responses: None, r#type: ERROR };
        return Ok(output::plain_objects(stream::iter([output::line(&event), Err(error)]), true));
    };
    let addrs = if peer.listen_addresses.is_empty() { vec![peer.address] } else { peer.listen_addresses };
    let responses = Some(vec![PeerAddresses { id, addrs }]);
    let event = RoutingEvent { extra: String::new(), id: String::new(), responses, r#type: FOUND_PEER };
    Ok(output::objects(stream::iter([output::line(&event)]), args.takes_trailers))
}

/// `routing/findprovs?arg=cid[&num-providers=][&verbose=]`: returns this node if it has the block, connected peers that
/// have it, and the providers that routers name.
pub(super) async fn find_providers(State(state): State<AppState>, args: Args) -> CommandResult {
    if !state.node.has_routers() {
        needs_peers(&state)?;
    }
    // As in Kubo, before the content ID.
    let most = args.number::<i64>("num-providers")?.unwrap_or(DEFAULT_PROVIDERS);
    if most < 1 {
        return Err(Error::invalid("number of providers must be greater than 0").into());
    }
    let most = usize::try_from(most).unwrap_or(MAX_PROVIDERS).min(MAX_PROVIDERS);
    let cid = parse_root(args.text_at(0))?;
    let has_block = state.node.batch_has(&[cid]).await?.iter().any(Option::is_some);
    let own_id = state.node.identity().peer_id();
    let own = || PeerAddresses { id: own_id.clone(), addrs: state.node.announced_addresses() };
    let provides = has_block && state.node.exchanges_blocks();
    let mut providers: Vec<_> = provides.then(own).into_iter().collect();
    let left = most - providers.len();
    if left > 0 {
        // Routers may send anything, and clients expect peer IDs.
        let to_id = |id: &str| Name::parse(id).ok().map(|name| name.peer_id()).filter(|id| *id != own_id);
        let connected = state.node.peers_with_block(&cid, left);
        let (connected, named) = tokio::join!(connected, state.node.find_providers(&cid, left, to_id));
        let mut seen = HashSet::new();
        let others = connected.into_iter().chain(named).filter(|(id, _)| seen.insert(id.clone())).take(left);
        providers.extend(others.map(|(id, addrs)| PeerAddresses { id, addrs }));
    }
    let event = |provider| RoutingEvent {
        extra: String::new(),
        id: String::new(),
        responses: Some(vec![provider]),
        r#type: PROVIDER,
    };
    let lines: Vec<_> = providers.into_iter().map(|provider| output::line(&event(provider))).collect();
    Ok(output::objects(stream::iter(lines), args.takes_trailers))
}

/// Parses the key of a record. Unlike Kubo, accepts a name without `/ipns/`.
fn name(key: &str) -> Result<Name, RpcError> {
    let invalid = |e: Error| Error::invalid(format!("invalid key: {e}")).with_source(e);
    Ok(Name::parse(key.strip_prefix("/ipns/").unwrap_or(key)).map_err(invalid)?)
}

/// Reads the record: the first file of a multipart body, or the body itself.
async fn record(memory: &MemoryPool, request: Request) -> Result<Whole, RpcError> {
    let missing = || RpcError::Request("argument \"value-file\" is required".into());
    match multipart::boundary(request.headers())? {
        None if !has_body(&request) => Err(missing()),
        None => {
            let (body, remedy) = (request.into_body(), "sign a record with a shorter value");
            Ok(body::whole(memory, body, MAX_RECORD_BYTES, "maximum record size", remedy).await?)
        }
        Some(boundary) => {
            let mut parts = Parts::new(memory, request.into_body(), boundary);
            let part = parts.next_file().await?.ok_or_else(missing)?;
            Ok(part.whole(MAX_RECORD_BYTES, "the record", "sign a record with a shorter value").await?)
        }
    }
}
