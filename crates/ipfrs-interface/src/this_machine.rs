//! Whether a client is on the machine of the daemon.

use std::net::IpAddr;

/// Whether `peer` is this machine, which it connects to by a loopback address or by one of its own (`own`).
pub(crate) fn is_this_machine(peer: IpAddr, own: IpAddr) -> bool {
    let peer = peer.to_canonical();
    peer.is_loopback() || peer == own.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_by_all_its_addresses() {
        for (peer, own, is_own) in [
            ("127.0.0.2", "127.0.0.1", true),
            ("::1", "::1", true),
            ("::ffff:127.0.0.1", "::1", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("::ffff:192.0.2.1", "192.0.2.1", true),
            ("2001:db8::1", "2001:db8::1", true),
            ("192.0.2.2", "192.0.2.1", false),
            ("2001:db8::2", "2001:db8::1", false),
        ] {
            let [of_peer, of_daemon] = [peer, own].map(|address| address.parse::<IpAddr>().unwrap());
            assert_eq!(is_this_machine(of_peer, of_daemon), is_own, "{peer} to {own}");
        }
    }
}
