//! Wantlists that peers send.

use std::time::Duration;

use ipfrs_core::hash::IDENTITY;
use tokio::time::timeout;

use crate::context::Context;
use crate::peer::Peer;
use crate::wire::{Malformed, Message, parse_cid};

/// Time in which the response to another want must be sent, so that the next one fits into a full list.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);

/// Applies the wants and cancels of a message. Wants beyond the limit wait until responses to earlier ones have been
/// sent: peers repeat wants that are ignored only after half a minute.
///
/// # Errors
/// If a content ID is malformed. The entries before it are applied.
pub(crate) async fn apply(context: &Context, peer: &Peer, message: &Message) -> Result<(), Malformed> {
    let (mut position, mut may_wait) = (0, true);
    loop {
        let room = peer.served_room.notified();
        match apply_from(context, peer, message, &mut position, may_wait)? {
            Applied::All => return Ok(()),
            Applied::UntilFull => may_wait = timeout(ROOM_TIMEOUT, room).await.is_ok(),
        }
    }
}

enum Applied {
    All,
    /// The next want does not fit.
    UntilFull,
}

/// Applies the entries from `position` on. Unless `may_wait` is set, wants that do not fit are ignored.
fn apply_from(
    context: &Context,
    peer: &Peer,
    message: &Message,
    position: &mut usize,
    may_wait: bool,
) -> Result<Applied, Malformed> {
    let mut served = peer.served.lock();
    if peer.closed.is_cancelled() {
        // The wants have been removed and nothing would remove these.
        return Ok(Applied::All);
    }
    let before = served.len();
    let mut removed = if message.is_full && *position == 0 { served.clear() } else { Vec::new() };
    let mut ignored = 0;
    let mut result = Ok(Applied::All);
    for want in &message.wants[*position..] {
        let cid = match parse_cid(&want.cid) {
            // The data is in an identity CID.
            Ok(Some(cid)) if cid.hash().code() != IDENTITY => cid,
            Ok(_) => {
                *position += 1;
                continue;
            }
            Err(fault) => {
                result = Err(fault);
                break;
            }
        };
        if want.cancel {
            if served.remove(&cid) {
                removed.push(cid);
            }
        } else if may_wait && served.is_full_for(&cid) {
            result = Ok(Applied::UntilFull);
            break;
        } else if let Some(cid) = served.add(cid, want.kind, want.priority, want.send_dont_have) {
            ignored += 1;
            removed.push(cid);
        }
        *position += 1;
    }
    let after = served.len();
    // Under the lock: another message may want one of them again.
    removed.iter().for_each(|cid| context.waiting.remove(peer.id, cid));
    drop(served);
    if !removed.is_empty() {
        peer.served_room.notify_waiters();
    }
    let change = i64::try_from(after).unwrap_or(0) - i64::try_from(before).unwrap_or(0);
    context.metrics.server_wants.add(change);
    context.metrics.ignored_wants.inc_by(ignored);
    peer.served_changed.notify_one();
    result
}
