//! `swarm`, `ping` and `stats bitswap` between two daemons.

use serde_json::{Value, json};

use crate::harness::{Daemon, Place};

const SETTINGS: &[u8] = b"[retrieval.bitswap]\nenabled = true\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n";

/// A daemon to which peers can connect.
struct Peer {
    _daemon: Daemon,
    place: Place,
    /// Address with its ID.
    address: String,
}

impl Peer {
    fn start() -> Self {
        let place = Place::new();
        place.write("peers.toml", SETTINGS);
        let mut daemon = place.start(&["--config", "peers.toml"]);
        let line = daemon.wait_for_log("peers can connect to ");
        let address = line.split_whitespace().find(|word| word.starts_with("/ip4/")).unwrap().to_owned();
        Self { _daemon: daemon, place, address }
    }

    /// Returns its address without the ID, and its ID.
    fn parts(&self) -> (&str, &str) {
        self.address.rsplit_once("/p2p/").unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        self.place.ok(arguments)
    }

    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.ok(&[&["--json"], arguments].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs a command until it prints `expected`: each daemon learns by itself of a connection and its end, and of the
    /// addresses of a peer after that.
    fn until(&self, arguments: &[&str], expected: &str) {
        let mut last = String::new();
        for _ in 0..1_000 {
            last = self.ok(arguments);
            if last == expected {
                return;
            }
        }
        panic!("{arguments:?} prints {last:?}, not {expected:?}");
    }
}

#[test]
fn peers_are_connected_listed_pinged_and_disconnected() {
    let (here, there) = (Peer::start(), Peer::start());
    let (bare, id) = there.parts();
    let address = there.address.as_str();
    assert_eq!(here.json(&["swarm", "listen"]), [json!({ "Strings": [here.parts().0] })]);
    assert_eq!(there.ok(&["swarm", "listen"]), bare);

    assert_eq!(here.ok(&["swarm", "connect", address]), format!("connect {id} success"));
    here.until(&["swarm", "peers"], address);
    assert!(here.ok(&["swarm", "peers", "-v"]).ends_with(" outbound"));
    let peers = here.json(&["swarm", "peers", "-v"]);
    let fields = ["Addr", "Peer", "Direction"].map(|name| &peers[0][name]);
    assert_eq!((peers.len(), fields), (1, [&json!(bare), &json!(id), &json!(2)]));
    here.until(&["swarm", "addrs"], &format!("{id} (1)\n  {bare}"));
    assert_eq!(here.json(&["swarm", "addrs"]), [json!({ "Peer": id, "Addrs": [bare] })]);
    let stats = "received: 0 blocks, 0 bytes\nsent:     0 blocks, 0 bytes\npeers: 1, wanted: 0";
    here.until(&["stats", "bitswap"], stats);
    assert_eq!(here.json(&["stats", "bitswap"])[0]["Peers"], json!([id]));
    there.until(&["stats", "bitswap"], stats);
    assert_eq!(there.json(&["swarm", "peers", "-v"])[0]["Direction"], 1);

    let pinged = here.ok(&["ping", "-n", "1", id]);
    let [begin, time, average] = *pinged.lines().collect::<Vec<_>>() else { panic!("{pinged}") };
    assert_eq!(begin, format!("PING {id}."));
    assert!(time.ends_with(" ms") && average.starts_with("Average latency: "), "{pinged}");
    let pinged = here.json(&["ping", "-n", "1", id]);
    assert_eq!((pinged.len(), &pinged[0]["Text"]), (3, &json!(begin)));
    assert!(pinged[1]["Time"].as_u64().unwrap() > 0, "{pinged:?}");

    assert_eq!(here.ok(&["swarm", "disconnect", address]), format!("disconnect {id} success"));
    here.until(&["swarm", "peers"], "");
    assert!(here.place.fails(&["ping", "-n", "1", id]).contains("is not connected"));
    let connected = json!({ "Strings": [format!("connect {id} success")] });
    assert_eq!(here.json(&["swarm", "connect", address]), [connected]);
    let disconnected = json!({ "Strings": [format!("disconnect {id} success")] });
    assert_eq!(here.json(&["swarm", "disconnect", address]), [disconnected]);
    there.until(&["swarm", "peers"], "");
}

#[test]
fn steady_peers_are_added_listed_and_removed() {
    let (here, there) = (Peer::start(), Peer::start());
    let (bare, id) = there.parts();
    let (address, success) = (there.address.as_str(), format!("{id} success"));
    let changed = [json!({ "ID": id, "Status": "success" })];
    assert_eq!(here.ok(&["swarm", "peering", "add", address]), success);
    here.until(&["swarm", "peers"], address);
    assert_eq!(here.ok(&["swarm", "peering", "ls"]), format!("{id}\n  {bare}"));
    assert_eq!(here.json(&["swarm", "peering", "ls"]), [json!({ "ID": id, "Addrs": [bare] })]);
    assert_eq!(here.json(&["swarm", "peering", "rm", id]), changed);
    assert_eq!(here.ok(&["swarm", "peering", "ls"]), "");
    assert_eq!(here.json(&["swarm", "peering", "add", address]), changed);
    assert_eq!(here.ok(&["swarm", "peering", "rm", id]), success);
}
