//! The Kubo RPC (<https://docs.ipfs.tech/reference/kubo/rpc/>): `POST /api/v0/{command}?arg=...&option=...`.

mod add;
pub(crate) mod args;
mod attributes;
mod block;
mod cat;
mod cid;
mod command_result;
mod command_tree;
mod commands;
mod config;
mod dag;
mod duration;
mod files;
mod get;
pub(crate) mod globals;
mod key;
mod long_command;
mod ls;
mod multibase;
mod multipart;
mod name;
mod node;
mod options;
mod output;
mod pin;
mod refs;
mod repo;
mod resolve;
mod routing;
mod stdin;
mod swarm;
mod unavailable;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::header::{ACCEPT_ENCODING, ALLOW};
use http::{Method, StatusCode};
use ipfrs_middleware::RequestDeadline;

pub(crate) use commands::options_of;
pub(crate) use options::Kind;

use crate::compression::upload;
use crate::error::RpcError;
use crate::head_deadline::in_time;
use crate::listed_routes::ListedRoutes;
use crate::origin;
use crate::state::AppState;

/// Maintenance commands of an operator, which are exempt from the request deadline. They also end if their output is
/// not read.
const MAINTENANCE: [&str; 5] = ["/repo/gc", "/repo/verify", "/pin/add", "/pin/update", "/pin/verify"];

/// Returns the routes of the commands.
pub(crate) fn routes() -> ListedRoutes {
    ListedRoutes::new()
        .route("/add", any(add::add))
        .route("/bitswap/ledger", any(swarm::ledger))
        .route("/bitswap/reprovide", any(unavailable::reprovide))
        .route("/bitswap/stat", any(swarm::stat))
        .route("/bitswap/wantlist", any(swarm::wantlist))
        .route("/block/get", any(block::get))
        .route("/block/put", any(block::put))
        .route("/block/rm", any(block::rm))
        .route("/block/stat", any(block::stat))
        .route("/bootstrap", any(swarm::bootstrap))
        .route("/bootstrap/list", any(swarm::bootstrap))
        .route("/cat", any(cat::cat))
        .route("/cid/base32", any(cid::base32))
        .route("/cid/bases", any(cid::bases))
        .route("/cid/codecs", any(cid::codecs))
        .route("/cid/format", any(cid::format))
        .route("/cid/hashes", any(cid::hashes))
        .route("/cid/inspect", any(cid::inspect))
        .route("/commands", any(command_tree::commands))
        .route("/config", any(config::get))
        .route("/config/show", any(config::show))
        .route("/dag/export", any(dag::export))
        .route("/dag/get", any(dag::get))
        .route("/dag/import", any(dag::import))
        .route("/dag/put", any(dag::put))
        .route("/dag/resolve", any(dag::resolve))
        .route("/dag/stat", any(dag::stat))
        .route("/dht/findpeer", any(unavailable::removed_dht))
        .route("/dht/findprovs", any(unavailable::removed_dht))
        .route("/dht/get", any(unavailable::removed_dht))
        .route("/dht/provide", any(unavailable::removed_dht))
        .route("/dht/put", any(unavailable::removed_dht))
        .route("/dht/query", any(unavailable::dht_query))
        .route("/files/chcid", any(files::chcid))
        .route("/files/chmod", any(files::chmod))
        .route("/files/cp", any(files::cp))
        .route("/files/flush", any(files::flush))
        .route("/files/ls", any(files::ls))
        .route("/files/mkdir", any(files::mkdir))
        .route("/files/mv", any(files::mv))
        .route("/files/read", any(files::read))
        .route("/files/rm", any(files::rm))
        .route("/files/stat", any(files::stat))
        .route("/files/touch", any(files::touch))
        .route("/files/write", any(files::write))
        .route("/filestore/dups", any(unavailable::filestore))
        .route("/filestore/ls", any(unavailable::filestore))
        .route("/filestore/verify", any(unavailable::filestore))
        .route("/get", any(get::get))
        .route("/id", any(node::id))
        .route("/key/gen", any(key::generate))
        .route("/key/import", any(key::import))
        .route("/key/list", any(key::list))
        .route("/key/ls", any(key::list))
        .route("/key/rename", any(key::rename))
        .route("/key/rm", any(key::rm))
        .route("/key/sign", any(key::sign))
        .route("/key/verify", any(key::verify))
        .route("/ls", any(ls::ls))
        .route("/multibase/decode", any(multibase::decode))
        .route("/multibase/encode", any(multibase::encode))
        .route("/multibase/list", any(cid::bases))
        .route("/multibase/transcode", any(multibase::transcode))
        .route("/name/get", any(name::get))
        .route("/name/inspect", any(name::inspect))
        .route("/name/publish", any(name::publish))
        .route("/name/put", any(name::put))
        .route("/name/resolve", any(name::resolve))
        .route("/object/data", any(unavailable::removed_object))
        .route("/object/get", any(unavailable::removed_object))
        .route("/object/links", any(unavailable::removed_object))
        .route("/object/new", any(unavailable::removed_object))
        .route("/object/put", any(unavailable::removed_object))
        .route("/object/stat", any(unavailable::removed_object))
        .route("/p2p/close", any(unavailable::p2p))
        .route("/p2p/forward", any(unavailable::p2p_forward))
        .route("/p2p/listen", any(unavailable::p2p_listen))
        .route("/p2p/ls", any(unavailable::p2p))
        .route("/p2p/stream/close", any(unavailable::p2p))
        .route("/p2p/stream/ls", any(unavailable::p2p))
        .route("/pin/add", any(pin::add))
        .route("/pin/ls", any(pin::ls))
        .route("/pin/rm", any(pin::rm))
        .route("/pin/update", any(pin::update))
        .route("/pin/verify", any(pin::verify))
        .route("/provide/stat", any(unavailable::provide_stat))
        .route("/pubsub/ls", any(unavailable::pubsub))
        .route("/pubsub/peers", any(unavailable::pubsub_peers))
        .route("/pubsub/pub", any(unavailable::pubsub_pub))
        .route("/pubsub/sub", any(unavailable::pubsub_sub))
        .route("/refs", any(refs::refs))
        .route("/refs/local", any(refs::local))
        .route("/repo/gc", any(repo::gc))
        .route("/repo/ls", any(refs::local))
        .route("/repo/stat", any(repo::stat))
        .route("/repo/verify", any(repo::verify))
        .route("/repo/version", any(repo::version))
        .route("/resolve", any(resolve::resolve))
        .route("/routing/findpeer", any(routing::find_peer))
        .route("/routing/get", any(routing::get))
        .route("/routing/provide", any(unavailable::provide))
        .route("/routing/put", any(routing::put))
        .route("/routing/reprovide", any(unavailable::reprovide))
        .route("/shutdown", any(node::shutdown))
        .route("/stats/bitswap", any(swarm::stat))
        .route("/stats/bw", any(node::bandwidth))
        .route("/stats/dht", any(unavailable::dht_stats))
        .route("/stats/provide", any(unavailable::provide_stat))
        .route("/stats/repo", any(repo::stat))
        .route("/stats/reprovide", any(unavailable::provide_stat))
        .route("/swarm/addrs", any(swarm::addresses))
        .route("/swarm/addrs/listen", any(swarm::listen_addresses))
        .route("/swarm/addrs/local", any(swarm::local_addresses))
        .route("/swarm/connect", any(swarm::connect))
        .route("/swarm/disconnect", any(swarm::disconnect))
        .route("/swarm/filters", any(swarm::filters))
        .route("/swarm/peering/add", any(swarm::add_peering))
        .route("/swarm/peering/ls", any(swarm::peering))
        .route("/swarm/peering/rm", any(swarm::remove_peering))
        .route("/swarm/peers", any(swarm::peers))
        .route("/version", any(node::version))
        .route("/version/deps", any(command_tree::dependencies))
}

/// Returns the router of the commands.
pub(crate) fn router() -> Router<AppState> {
    routes().router.fallback(async || (StatusCode::NOT_FOUND, "404 page not found: no such command\n"))
}

/// Refuses methods other than POST.
pub(crate) async fn only_post(request: Request, next: Next) -> Response {
    let allow = [(ALLOW, "OPTIONS, POST")];
    match *request.method() {
        Method::POST => next.run(request).await,
        Method::OPTIONS => (StatusCode::NO_CONTENT, allow).into_response(),
        _ => (StatusCode::METHOD_NOT_ALLOWED, allow, "405 - Method Not Allowed: use POST\n").into_response(),
    }
}

/// Refuses requests from pages of other origins and bodies in content codings, and enforces the request deadline.
pub(crate) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if let Err(e) = origin::check(&request, state.port) {
        return (StatusCode::FORBIDDEN, format!("403 - Forbidden: {e}\n")).into_response();
    }
    if let Some(why) = upload::refusal(request.headers()) {
        let accepted = [(ACCEPT_ENCODING, "identity")];
        let text = format!("415 - Unsupported Media Type: {why}\n");
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, accepted, text).into_response();
    }
    let deadline: Option<RequestDeadline> = request.extensions().get().cloned();
    if let Some(deadline) = deadline.as_ref().filter(|_| MAINTENANCE.contains(&request.uri().path())) {
        deadline.lift();
    }
    in_time(deadline, next.run(request), |error| RpcError::Command(error).into_response()).await
}
