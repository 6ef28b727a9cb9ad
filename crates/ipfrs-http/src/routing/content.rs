//! `/routing/v1/providers` and `/routing/v1/peers`: what this node has, and how it can be reached, so that the nodes of
//! a fleet find each other.

use std::time::SystemTime;

use axum::body::Body;
use axum::extract::{Extension, OriginalUri, State};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LAST_MODIFIED, VARY};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use ipfrs_core::{Error, Result, parse_cid};
use ipfrs_middleware::OverTls;
use ipfrs_node::Name;
use serde::Serialize;
use utoipa::ToSchema;

use super::response::{HandlerResult, InPath, accepted, names};
use crate::body::header_text;
use crate::error::{GatewayError, refused};
use crate::gateway::hosts;
use crate::state::AppState;

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
const HTTP_PROTOCOL: &str = "transport-ipfs-gateway-http";
const BITSWAP_PROTOCOL: &str = "transport-bitswap";

/// Response with providers.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct FoundProviders {
    providers: Vec<PeerRecord>,
}

/// Response with addresses of peers.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct FoundPeers {
    peers: Vec<PeerRecord>,
}

/// A record of the schema `peer`: how a node can be reached.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PeerRecord {
    schema: &'static str,
    #[serde(rename = "ID")]
    id: String,
    /// Multiaddrs.
    addrs: Vec<String>,
    /// `transport-ipfs-gateway-http`, and `transport-bitswap` if the node exchanges blocks with peers.
    protocols: Vec<&'static str>,
}

/// Filters of IPIP-484. Each is a list of names, separated by commas.
#[derive(Default)]
struct Filters {
    /// Protocols of which a provider must have one.
    filter_protocols: Option<String>,
    /// Protocols of which an address must contain one, or, after `!`, none.
    filter_addrs: Option<String>,
}

impl Filters {
    /// Reads the filters from a query. One that is there twice is an error, since one of them would be ignored.
    fn read(uri: &Uri) -> Result<Self> {
        let mut filters = Self::default();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let filter = match &*name {
                "filter-protocols" => &mut filters.filter_protocols,
                "filter-addrs" => &mut filters.filter_addrs,
                _ => continue,
            };
            if filter.replace(value.into_owned()).is_some() {
                return Err(Error::invalid(format!("{name} is in the query twice: send it once")));
            }
        }
        Ok(filters)
    }
}

/// `GET /providers/{cid}`: this node, if it has the block. It knows no others.
pub(super) async fn providers(
    State(state): State<AppState>,
    InPath(cid): InPath,
    uri: OriginalUri,
    over_tls: Option<Extension<OverTls>>,
    headers: HeaderMap,
) -> HandlerResult {
    let (cid, filters) = (parse_cid(&cid)?, Filters::read(&uri)?);
    let has_block = state.node.batch_has(&[cid]).await?.iter().any(Option::is_some);
    let record =
        has_block.then(|| own_record(&state, &filters, hosts::multiaddr(&uri, &headers, over_tls.is_some()))).flatten();
    let records = record.into_iter().collect();
    Ok(respond(&FoundProviders { providers: records }, |found| &found.providers, &headers))
}

/// `GET /peers/{peer_id}`: the addresses of this node. It publishes those of no other.
pub(super) async fn peers(
    State(state): State<AppState>,
    InPath(peer_id): InPath,
    uri: OriginalUri,
    over_tls: Option<Extension<OverTls>>,
    headers: HeaderMap,
) -> HandlerResult {
    let name =
        Name::parse(&peer_id).map_err(|e| Error::invalid(format!("{peer_id:?} is not a peer ID: {}", e.message())))?;
    let filters = Filters::read(&uri)?;
    let is_own = name == state.node.identity().name();
    let record =
        is_own.then(|| own_record(&state, &filters, hosts::multiaddr(&uri, &headers, over_tls.is_some()))).flatten();
    Ok(respond(&FoundPeers { peers: record.into_iter().collect() }, |found| &found.peers, &headers))
}

/// Returns the record of this node, unless the filters exclude it. `address` is that of its HTTP server.
fn own_record(state: &AppState, filters: &Filters, address: Option<String>) -> Option<PeerRecord> {
    let node = &state.node;
    let mut protocols = vec![HTTP_PROTOCOL];
    if node.exchanges_blocks() {
        protocols.push(BITSWAP_PROTOCOL);
    }
    let names = |list: &str| list.split(',').map(|name| name.trim().to_ascii_lowercase()).collect::<Vec<_>>();
    let wanted = filters.filter_protocols.as_deref().map(names).filter(|names| !names.concat().is_empty());
    if wanted.is_some_and(|wanted| !protocols.iter().any(|protocol| wanted.iter().any(|name| name == protocol))) {
        return None;
    }
    let mut addrs = node.announced_addresses();
    addrs.extend(address);
    if let Some(wanted) = filters.filter_addrs.as_deref().map(names).filter(|names| !names.concat().is_empty()) {
        let has = |address: &str, name: &str| address.split('/').any(|part| part == name);
        let excluded: Vec<_> = wanted.iter().filter_map(|name| name.strip_prefix('!')).collect();
        let included: Vec<_> = wanted.iter().filter(|name| !name.starts_with('!')).collect();
        addrs.retain(|address| {
            let is_excluded = excluded.iter().any(|name| has(address, name));
            !is_excluded && (included.is_empty() || included.iter().any(|name| has(address, name)))
        });
        // A provider none of whose addresses can be used is of no use.
        if addrs.is_empty() {
            return None;
        }
    }
    Some(PeerRecord { schema: "peer", id: node.identity().peer_id(), addrs, protocols })
}

/// `GET /dht/closest/peers/{key}`: 501.
pub(super) async fn closest_peers() -> GatewayError {
    GatewayError(Error::unsupported("this node is not part of a distributed hash table: use another router"))
}

/// Returns a list in the requested format: an object, or one record per line.
fn respond<T: Serialize>(list: &T, records: impl Fn(&T) -> &Vec<PeerRecord>, request: &HeaderMap) -> Response {
    // NDJSON is sent only to clients that name it, whatever else they accept.
    let listed = names(request, NDJSON).then_some(NDJSON);
    let Some(media_type) = listed.or_else(|| accepted(request, JSON).then_some(JSON)) else {
        return refused(StatusCode::NOT_ACCEPTABLE, format!("responses are {JSON} or {NDJSON}: accept one of these"));
    };
    // Records of text always serialize.
    let line = |record: &PeerRecord| serde_json::to_string(record).unwrap_or_default() + "\n";
    let body = match media_type {
        JSON => serde_json::to_string(list).unwrap_or_default(),
        _ => records(list).iter().map(line).collect(),
    };
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=15"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(LAST_MODIFIED, header_text(&httpdate::fmt_http_date(SystemTime::now())));
    response
}
