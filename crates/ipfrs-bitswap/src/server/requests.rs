//! Wantlists that peers send.

use ipfrs_core::hash::IDENTITY;

use crate::context::Context;
use crate::peer::Peer;
use crate::wire::{Malformed, Message, parse_cid};

/// Applies the wants and cancels of a message.
///
/// # Errors
/// If a content ID is malformed. The entries before it are applied.
pub(crate) fn apply(context: &Context, peer: &Peer, message: &Message) -> Result<(), Malformed> {
    let mut served = peer.served.lock();
    if peer.closed.is_cancelled() {
        // The wants have been removed and nothing would remove these.
        return Ok(());
    }
    let before = served.len();
    let mut removed = if message.is_full { served.clear() } else { Vec::new() };
    let mut ignored = 0;
    let mut result = Ok(());
    for want in &message.wants {
        let cid = match parse_cid(&want.cid) {
            // The data is in an identity CID.
            Ok(Some(cid)) if cid.hash().code() != IDENTITY => cid,
            Ok(_) => continue,
            Err(fault) => {
                result = Err(fault);
                break;
            }
        };
        if want.cancel {
            if served.remove(&cid) {
                removed.push(cid);
            }
        } else if let Some(cid) = served.add(cid, want.kind, want.priority, want.send_dont_have) {
            ignored += 1;
            removed.push(cid);
        }
    }
    let after = served.len();
    // Under the lock: another message may want one of them again.
    removed.iter().for_each(|cid| context.waiting.remove(peer.id, cid));
    drop(served);
    let change = i64::try_from(after).unwrap_or(0) - i64::try_from(before).unwrap_or(0);
    context.metrics.server_wants.add(change);
    context.metrics.ignored_wants.inc_by(ignored);
    peer.served_changed.notify_one();
    result
}
