//! Commands about the network: peers, routing, announcements.

use super::definition::{Definition, command, file, text};
use super::option::Opt;
use super::shared::{PROVIDE_STAT, VERBOSE};

const EXPAND_AUTO: Opt = Opt::bool(&["expand-auto"]).unused();
const COUNT: Opt = Opt::int(&["count", "n"]).default("10").help("Number of round trips, one per second");
const BITSWAP_STAT: &[Opt] = &[VERBOSE, Opt::bool(&["human"]).printed()];
const BOOTSTRAP: &[Opt] = &[EXPAND_AUTO];

pub(super) const COMMANDS: &[Definition] = &[
    command("bitswap/ledger", "Blocks exchanged with a peer").arguments(&[text("peer")]),
    command("bitswap/reprovide", "Not available: fails"),
    command("bitswap/stat", "Blocks exchanged with all peers").options(BITSWAP_STAT),
    command("bitswap/wantlist", "Blocks that are wanted").options(&[Opt::text(&["peer", "p"])]),
    command("bootstrap", "List the bootstrap peers"),
    command("bootstrap/add", "Stay connected to peers, also after a restart")
        .arguments(&[text("peer").optional().repeated().in_body()]),
    command("bootstrap/list", "List the bootstrap peers").options(BOOTSTRAP),
    command("bootstrap/rm", "Remove bootstrap peers")
        .arguments(&[text("peer").optional().repeated().in_body()])
        .options(&[Opt::bool(&["all"])]),
    command("bootstrap/rm/all", "Remove all bootstrap peers"),
    command("dht/findpeer", "Removed from Kubo: fails"),
    command("dht/findprovs", "Removed from Kubo: fails"),
    command("dht/get", "Removed from Kubo: fails"),
    command("dht/provide", "Removed from Kubo: fails"),
    command("dht/put", "Removed from Kubo: fails"),
    command("dht/query", "Not available: fails")
        .arguments(&[text("peerID").repeated()])
        .options(&[Opt::bool(&["verbose", "v"]).unused()]),
    command("p2p/close", "Not available: fails").options(&[
        Opt::bool(&["all", "a"]).unused(),
        Opt::text(&["protocol", "p"]).unused(),
        Opt::text(&["listen-address", "l"]).unused(),
        Opt::text(&["target-address", "t"]).unused(),
    ]),
    command("p2p/forward", "Not available: fails")
        .arguments(&[text("protocol"), text("listen-address"), text("target-address")])
        .options(&[Opt::bool(&["allow-custom-protocol"]).unused(), Opt::bool(&["foreground", "f"]).unused()]),
    command("p2p/listen", "Not available: fails").arguments(&[text("protocol"), text("target-address")]).options(&[
        Opt::bool(&["allow-custom-protocol"]).unused(),
        Opt::bool(&["report-peer-id", "r"]).unused(),
        Opt::bool(&["foreground", "f"]).unused(),
    ]),
    command("p2p/ls", "Not available: fails").options(&[Opt::bool(&["headers", "v"]).unused()]),
    command("p2p/stream/close", "Not available: fails")
        .arguments(&[text("id").optional()])
        .options(&[Opt::bool(&["all", "a"]).unused()]),
    command("p2p/stream/ls", "Not available: fails").options(&[Opt::bool(&["headers", "v"]).unused()]),
    command("ping", "Round trips to a peer").arguments(&[text("peer ID").repeated().in_body()]).options(&[COUNT]),
    command("provide/clear", "Clear the queue of announcements: it is empty").options(&[Opt::bool(&["quiet", "q"])]),
    command("provide/once", "Not available: fails")
        .arguments(&[text("cid").repeated().in_body()])
        .options(&[Opt::bool(&["recursive", "r"]).unused()]),
    command("provide/stat", "Not available: fails").options(PROVIDE_STAT),
    command("pubsub/ls", "Not available: fails"),
    command("pubsub/peers", "Not available: fails").arguments(&[text("topic").optional()]),
    command("pubsub/pub", "Not available: fails").arguments(&[text("topic"), file("data")]),
    command("pubsub/reset", "Forget the sequence numbers of messages: there are none")
        .options(&[Opt::text(&["peer", "p"]).printed()]),
    command("pubsub/sub", "Not available: fails").arguments(&[text("topic")]),
    command("routing/findpeer", "Addresses of a connected peer")
        .arguments(&[text("peerID").repeated()])
        .options(&[Opt::bool(&["verbose", "v"]).printed()]),
    command("routing/findprovs", "Peers that have a block")
        .arguments(&[text("key").repeated()])
        .options(&[Opt::bool(&["verbose", "v"]).printed(), Opt::int(&["num-providers", "n"])]),
    command("routing/get", "Read a record").arguments(&[text("key").repeated()]),
    command("routing/provide", "Not available: fails")
        .arguments(&[text("key").repeated().in_body()])
        .options(&[Opt::bool(&["verbose", "v"]).unused(), Opt::bool(&["recursive", "r"]).unused()]),
    command("routing/put", "Store a record")
        .arguments(&[text("key"), file("value-file")])
        .options(&[Opt::bool(&["allow-offline"]).unused()]),
    command("routing/reprovide", "Not available: fails"),
    command("swarm/addrs", "Addresses of the connected peers"),
    command("swarm/addrs/autonat", "Not available: fails"),
    command("swarm/addrs/listen", "Addresses on which the node listens for peers"),
    command("swarm/addrs/local", "Addresses that the node tells others").options(&[Opt::bool(&["id"])]),
    command("swarm/connect", "Connect to peers").arguments(&[text("address").repeated().in_body()]),
    command("swarm/disconnect", "Close connections to peers").arguments(&[text("address").repeated().in_body()]),
    command("swarm/filters", "Filters of addresses"),
    command("swarm/filters/add", "Not available: fails").arguments(&[text("address").repeated().in_body()]),
    command("swarm/filters/rm", "Not available: fails").arguments(&[text("address").repeated().in_body()]),
    command("swarm/peering/add", "Stay connected to peers").arguments(&[text("address").repeated()]),
    command("swarm/peering/ls", "Peers to which the node stays connected"),
    command("swarm/peering/rm", "No longer stay connected to peers").arguments(&[text("ID").repeated()]),
    command("swarm/peers", "Connected peers").options(&[
        Opt::bool(&["verbose", "v"]).help("Also print the direction and the latency of each connection"),
        Opt::bool(&["streams"]),
        Opt::bool(&["latency"]),
        Opt::bool(&["direction"]),
        Opt::bool(&["identify"]),
    ]),
    command("swarm/resources", "Not available: fails"),
];
