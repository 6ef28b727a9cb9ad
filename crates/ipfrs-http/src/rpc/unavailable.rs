//! Commands whose subsystems this daemon does not have: they fail or respond like those of a Kubo in which the
//! subsystem is disabled. Clients recognize the beginning of the texts.

use axum::extract::Request;
use ipfrs_core::multiformats::decode_multibase;
use ipfrs_core::{Error, Result};

use super::args::Args;
use super::command_result::CommandResult;
use super::multipart;
use crate::error::RpcError;

const NO_PUBSUB: &str = "experimental pubsub feature not enabled, run daemon with --enable-pubsub-experiment to use: \
                         ipfrs has no pubsub, use the events of /ws or a message broker";
const NO_P2P: &str = "libp2p stream mounting not enabled: ipfrs forwards no streams, use a tunnel such as SSH";
const NO_FILESTORE: &str = "filestore is not enabled, see https://git.io/vNItf: ipfrs stores all content in its packs";
const NO_DHT: &str = "routing service is not a DHT";

fn unsupported(why: &str) -> CommandResult {
    Err(Error::unsupported(why).into())
}

/// `dht/findpeer`, `dht/findprovs`, `dht/get`, `dht/provide`, `dht/put`.
pub(super) async fn removed_dht() -> CommandResult {
    unsupported("removed, use 'ipfs routing' instead")
}

/// `object/data`, `object/get`, `object/links`, `object/new`, `object/put`, `object/stat`.
pub(super) async fn removed_object() -> CommandResult {
    unsupported("removed, use 'ipfs dag' or 'ipfs files' instead")
}

/// `dht/query?arg=peer[&arg=...]`.
pub(super) async fn dht_query(args: Args) -> CommandResult {
    args.required("peerID")?;
    unsupported(NO_DHT)
}

/// `stats/dht[?arg=dht]`.
pub(super) async fn dht_stats() -> CommandResult {
    unsupported(NO_DHT)
}

/// `pubsub/ls`.
pub(super) async fn pubsub() -> CommandResult {
    unsupported(NO_PUBSUB)
}

/// `pubsub/peers[?arg=topic]`.
pub(super) async fn pubsub_peers(args: Args) -> CommandResult {
    args.at_most_one("topic")?.map(check_topic).transpose()?;
    unsupported(NO_PUBSUB)
}

/// `pubsub/sub?arg=topic`.
pub(super) async fn pubsub_sub(args: Args) -> CommandResult {
    check_topic(args.one("topic")?)?;
    unsupported(NO_PUBSUB)
}

/// `pubsub/pub?arg=topic`.
pub(super) async fn pubsub_pub(args: Args, request: Request) -> CommandResult {
    let topic = args.one("topic")?;
    if multipart::boundary(request.headers())?.is_none() {
        return Err(RpcError::Request("file argument 'data' is required".into()));
    }
    check_topic(topic)?;
    unsupported(NO_PUBSUB)
}

/// Checks that a topic is in multibase, as all clients write it.
fn check_topic(topic: &str) -> Result<()> {
    let failed = |e: Error| Error::invalid(format!("URL arg must be multibase encoded: {e}"));
    decode_multibase(topic.as_bytes()).map(drop).map_err(failed)
}

/// `p2p/close`, `p2p/ls`, `p2p/stream/close`, `p2p/stream/ls`.
pub(super) async fn p2p() -> CommandResult {
    unsupported(NO_P2P)
}

/// `p2p/listen?arg=protocol&arg=address`.
pub(super) async fn p2p_listen(args: Args) -> CommandResult {
    args.all(&["protocol", "target-address"])?;
    unsupported(NO_P2P)
}

/// `p2p/forward?arg=protocol&arg=address&arg=target`.
pub(super) async fn p2p_forward(args: Args) -> CommandResult {
    args.all(&["protocol", "listen-address", "target-address"])?;
    unsupported(NO_P2P)
}

/// `filestore/dups`, `filestore/ls`, `filestore/verify`.
pub(super) async fn filestore() -> CommandResult {
    unsupported(NO_FILESTORE)
}

/// `provide/stat`, `stats/provide`, `stats/reprovide`, with the options of each.
pub(super) async fn provide_stat(args: Args) -> CommandResult {
    if args.is_set("lan") {
        return unsupported("LAN stats only available for Sweep provider with Dual DHT");
    }
    unsupported("stats not available with current routing system *node.NoopProvider")
}

/// `bitswap/reprovide`, `routing/reprovide`.
pub(super) async fn reprovide() -> CommandResult {
    unsupported("invalid configuration: Provide.Enabled is set to 'false'")
}

/// `routing/provide?arg=cid[&arg=...]`.
pub(super) async fn provide(args: Args) -> CommandResult {
    args.required("key")?;
    reprovide().await
}
