//! Messages that peers send.

use std::sync::Arc;
use std::time::Duration;

use libp2p::Stream;

use crate::context::Context;
use crate::frame::{self, Frame, FrameError, ReceiveMemory};
use crate::peer::{Peer, RECEIVE_BYTES};
use crate::server::requests;
use crate::verify::{Received, Verifier};
use crate::wire::{Malformed, Message, parse_cid};

/// Time after which a stream without messages is closed. Peers open a new one when they need it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Reads messages from a stream until it ends, is malformed, or the peer is gone.
pub(crate) async fn run(context: Arc<Context>, verifier: Verifier, peer: Arc<Peer>, mut stream: Stream) {
    // The stream waits until others end. The peer is slowed down by the window of the stream.
    let accept = peer.accept_stream(|| context.metrics.delayed_streams.inc());
    let permit = tokio::select! {
        () = peer.closed.cancelled() => return,
        permit = accept => permit,
    };
    let Some(_permit) = permit else { return };
    let memory = ReceiveMemory {
        peer: Arc::clone(&peer.receive_memory),
        peer_bytes: RECEIVE_BYTES,
        total: Arc::clone(&context.receive_memory),
    };
    let messages = async {
        while let Some(frame) = frame::read(&mut stream, &memory, IDLE_TIMEOUT).await? {
            handle(&context, &verifier, &peer, frame).await?;
        }
        Ok(())
    };
    let result: Result<(), FrameError> = tokio::select! {
        () = peer.closed.cancelled() => return,
        result = messages => result,
    };
    match result {
        Ok(()) => {}
        Err(FrameError::Malformed(fault)) => {
            context.metrics.malformed.with_label_values(&[fault.label()]).inc();
            tracing::debug!(peer = %peer.id, "a stream is closed: malformed message: {fault}");
        }
        Err(error) => tracing::debug!(peer = %peer.id, "a stream ended: {error}"),
    }
}

async fn handle(context: &Context, verifier: &Verifier, peer: &Arc<Peer>, frame: Frame) -> Result<(), Malformed> {
    let message_bytes = frame.bytes.len();
    let message = Message::decode(frame.bytes)?;
    context.metrics.messages.received.inc();
    peer.touch();
    for presence in &message.presences {
        let kind = if presence.has_block { "have_received" } else { "dont_have_received" };
        context.metrics.presences.with_label_values(&[kind]).inc();
        if let Some(cid) = parse_cid(&presence.cid)? {
            peer.wants.lock().presence(&cid, presence.has_block);
        }
    }
    if !message.wants.is_empty() || message.is_full {
        requests::apply(context, peer, &message).await?;
    }
    if !message.blocks.is_empty() {
        let received =
            Received { peer: Arc::clone(peer), blocks: message.blocks, message_bytes, permits: frame.permits };
        verifier.verify(received).await;
    }
    Ok(())
}
