//! Requests to which peers do not respond in time.

use ipfrs_core::Cid;

use super::Actor;
use crate::client::session::peer_table::PeerSet;
use crate::outcome::Outcome;

/// Number of timeouts in a row after which a session no longer uses a peer, if it has another one. Timeouts count once
/// in the time of a response.
const MAX_TIMEOUTS: usize = 4;
/// Number of times the usual limit after which a request times out although the peer sends other blocks.
const MAX_WAIT: u32 = 6;

impl Actor {
    pub(super) fn check_timeouts(&mut self) {
        let limit = self.network.context.config.response_timeout();
        let mut late = Vec::new();
        for (cid, want) in self.wants.iter_mut() {
            if let Some((asked, since)) = want.asked {
                // A slow peer is waited for, as long as its responses keep arriving.
                let peer = self.peers.get(asked);
                let limit = limit + peer.window.latency() * 4;
                let is_silent = peer.silent_since(since).elapsed() > limit;
                if is_silent || since.elapsed() > limit * MAX_WAIT {
                    want.has_failed = true;
                    late.push((asked, *cid));
                }
            }
            if let Some(since) = want.probed_at {
                let is_silent = |peer: &usize| self.peers.get(*peer).silent_since(since).elapsed() > limit;
                late.extend(want.probed.iter().filter(is_silent).map(|peer| (peer, *cid)));
            }
        }
        let mut silent = PeerSet::default();
        for (number, cid) in late {
            self.on_timeout(number, &cid);
            silent.insert(number);
        }
        for number in silent.iter() {
            let peer = self.peers.get(number);
            peer.on_timeout(limit);
            // The only peer may respond later.
            if peer.timeouts >= MAX_TIMEOUTS && self.peers.has_other(number) {
                self.exclude(number, Outcome::TimedOut, 0);
            }
        }
    }

    /// Lets another peer be asked for a block. The peer may still send it: the want stays until it is released.
    fn on_timeout(&mut self, number: usize, cid: &Cid) {
        let Some((request, duration)) = self.refuse(number, cid) else { return };
        if let Some(want) = self.wants.get_mut(cid) {
            want.timed_out.insert(number);
        }
        if let Some(peer) = self.peers.get(number).connected() {
            peer.wants.lock().time_out(cid);
        }
        self.record(number, request, Some(*cid), Outcome::TimedOut, 0, duration, None);
    }
}
