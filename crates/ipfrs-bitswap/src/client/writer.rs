//! Sends the wants of this node's sessions to one peer.

use std::sync::Arc;

use ipfrs_core::Cid;
use libp2p::Stream;

use crate::context::Context;
use crate::frame;
use crate::peer::{OpenError, Peer};
use crate::wire::{self, Outgoing, Version, WantKind};

/// Maximum number of entries in one message.
const MAX_MESSAGE_ENTRIES: usize = 256;

/// Sends changes of the wants until the peer is gone. Changes that occur while a message is sent form the next message.
pub(crate) async fn run(context: Arc<Context>, peer: Arc<Peer>) {
    let changes = async {
        let mut stream = None;
        // The peer may remember wants of an earlier connection, whose blocks nothing requests any more.
        let mut is_full = true;
        loop {
            let outgoing = peer.wants.lock().take_outgoing(MAX_MESSAGE_ENTRIES);
            if outgoing.is_empty() {
                let changed = peer.wants_changed.notified();
                if tokio::time::timeout(context.config.idle_timeout(), changed).await.is_err() {
                    stream = None;
                }
                continue;
            }
            match send(&context, &peer, &mut stream, &outgoing, is_full).await {
                Ok(is_sent) => is_full &= !is_sent,
                Err(OpenError::Unsupported) => peer.wants.lock().unsupported(),
                Err(OpenError::Failed(why)) => {
                    peer.wants.lock().requeue(&outgoing);
                    context.disconnect(&peer, &why);
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = peer.closed.cancelled() => {}
        () = changes => {}
    }
}

/// Sends changes. Returns whether there were any that the peer understands. With `is_full`, they replace all earlier
/// wants.
async fn send(
    context: &Context,
    peer: &Peer,
    stream: &mut Option<(Stream, Version)>,
    outgoing: &[(Cid, Outgoing)],
    is_full: bool,
) -> Result<bool, OpenError> {
    let mut is_new = stream.is_none();
    loop {
        let (opened, version) = match stream {
            Some(opened) => opened,
            None => stream.insert(peer.open_stream().await?),
        };
        let understood = understood(peer, outgoing, *version);
        if understood.is_empty() {
            return Ok(false);
        }
        match frame::write(opened, &[wire::wantlist(&understood, *version, is_full)]).await {
            Ok(()) => break,
            Err(error) if is_new => return Err(OpenError::Failed(error.to_string())),
            Err(_) => {
                *stream = None;
                is_new = true;
            }
        }
    }
    context.metrics.messages.sent.inc();
    peer.touch();
    Ok(true)
}

/// Returns the changes that the peer understands. A peer with an old version cannot say whether it has a block, so it
/// is assumed to have it.
fn understood(peer: &Peer, outgoing: &[(Cid, Outgoing)], version: Version) -> Vec<(Cid, Outgoing)> {
    if version.has_presences() {
        return outgoing.to_vec();
    }
    let mut wants = peer.wants.lock();
    let is_understood = |(cid, outgoing): &&(Cid, Outgoing)| {
        let asks_presence = matches!(outgoing, Outgoing::Want { kind: WantKind::Have, .. });
        if asks_presence {
            wants.presence(cid, true);
        }
        !asks_presence
    };
    outgoing.iter().filter(is_understood).copied().collect()
}
