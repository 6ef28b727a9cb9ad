//! Commands about the network: peers, routing, announcements.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{
    AddressFilters, BitswapStat, BootstrapPeers, Ledger, Lines, Peering, PeeringChange, PingLine, RoutingEvent,
    SwarmAddresses, SwarmPeers, Wantlist,
};

use super::responses::{count, json, lines, never, routing_event, value};
use super::shared::{PROVIDE_STAT, VERBOSE};
use crate::rpc::definition::{Command, command, file, text};
use crate::rpc::options::Opt;
use crate::rpc::{bootstrap, ping, routing, swarm, unavailable};

const EXPAND_AUTO: Opt = Opt::bool(&["expand-auto"]).unused();
static BITSWAP_STAT: &[Opt] = &[VERBOSE, Opt::bool(&["human"]).printed()];
static BOOTSTRAP: &[Opt] = &[EXPAND_AUTO];

pub(super) static COMMANDS: &[Command] = &[
    command("bitswap/ledger", Scope::Read, "Blocks exchanged with a peer", json::<Ledger>, || any(swarm::ledger))
        .arguments(&[text("peer")]),
    command("bitswap/reprovide", Scope::Write, "Not available: fails", never, || any(unavailable::reprovide)),
    command("bitswap/stat", Scope::Read, "Blocks exchanged with all peers", json::<BitswapStat>, || any(swarm::stat))
        .options(BITSWAP_STAT),
    command("bitswap/wantlist", Scope::Read, "Blocks that are wanted", json::<Wantlist>, || any(swarm::wantlist))
        .options(&[Opt::text(&["peer", "p"])]),
    command("bootstrap", Scope::Read, "List the bootstrap peers", json::<BootstrapPeers>, || any(bootstrap::list)),
    command(
        "bootstrap/add",
        Scope::Admin,
        "Stay connected to peers, also after a restart",
        json::<BootstrapPeers>,
        || any(bootstrap::add),
    )
    .arguments(&[text("peer").optional().repeated().in_body()]),
    command("bootstrap/list", Scope::Read, "List the bootstrap peers", json::<BootstrapPeers>, || any(bootstrap::list))
        .options(BOOTSTRAP),
    command("bootstrap/rm", Scope::Admin, "Remove bootstrap peers", json::<BootstrapPeers>, || any(bootstrap::remove))
        .arguments(&[text("peer").optional().repeated().in_body()])
        .options(&[Opt::bool(&["all"])]),
    command("bootstrap/rm/all", Scope::Admin, "Remove all bootstrap peers", json::<BootstrapPeers>, || {
        any(bootstrap::remove_all)
    }),
    command("dht/findpeer", Scope::Read, "Removed from Kubo: fails", never, || any(unavailable::removed_dht)),
    command("dht/findprovs", Scope::Read, "Removed from Kubo: fails", never, || any(unavailable::removed_dht)),
    command("dht/get", Scope::Read, "Removed from Kubo: fails", never, || any(unavailable::removed_dht)),
    command("dht/provide", Scope::Write, "Removed from Kubo: fails", never, || any(unavailable::removed_dht)),
    command("dht/put", Scope::Names, "Removed from Kubo: fails", never, || any(unavailable::removed_dht)),
    command("dht/query", Scope::Read, "Not available: fails", never, || any(unavailable::dht_query))
        .arguments(&[text("peerID").repeated()])
        .options(&[Opt::bool(&["verbose", "v"]).unused()]),
    command("p2p/close", Scope::Admin, "Not available: fails", never, || any(unavailable::p2p)).options(&[
        Opt::bool(&["all", "a"]).unused(),
        Opt::text(&["protocol", "p"]).unused(),
        Opt::text(&["listen-address", "l"]).unused(),
        Opt::text(&["target-address", "t"]).unused(),
    ]),
    command("p2p/forward", Scope::Admin, "Not available: fails", never, || any(unavailable::p2p_forward))
        .arguments(&[text("protocol"), text("listen-address"), text("target-address")])
        .options(&[Opt::bool(&["allow-custom-protocol"]).unused(), Opt::bool(&["foreground", "f"]).unused()]),
    command("p2p/listen", Scope::Admin, "Not available: fails", never, || any(unavailable::p2p_listen))
        .arguments(&[text("protocol"), text("target-address")])
        .options(&[
            Opt::bool(&["allow-custom-protocol"]).unused(),
            Opt::bool(&["report-peer-id", "r"]).unused(),
            Opt::bool(&["foreground", "f"]).unused(),
        ]),
    command("p2p/ls", Scope::Admin, "Not available: fails", never, || any(unavailable::p2p))
        .options(&[Opt::bool(&["headers", "v"]).unused()]),
    command("p2p/stream/close", Scope::Admin, "Not available: fails", never, || any(unavailable::p2p))
        .arguments(&[text("id").optional()])
        .options(&[Opt::bool(&["all", "a"]).unused()]),
    command("p2p/stream/ls", Scope::Admin, "Not available: fails", never, || any(unavailable::p2p))
        .options(&[Opt::bool(&["headers", "v"]).unused()]),
    command("ping", Scope::Read, "Round trips to a peer", lines::<PingLine>, || any(ping::ping))
        .arguments(&[text("peer ID").repeated().in_body()])
        .options(&[Opt::int(&["count", "n"])]),
    command("provide/clear", Scope::Write, "Clear the queue of announcements: it is empty", count, || {
        any(unavailable::clear_provides)
    })
    .options(&[Opt::bool(&["quiet", "q"]).printed()]),
    command("provide/once", Scope::Write, "Not available: fails", never, || any(unavailable::provide_once))
        .arguments(&[text("cid").repeated().in_body()])
        .options(&[Opt::bool(&["recursive", "r"]).unused()]),
    command("provide/stat", Scope::Read, "Not available: fails", never, || any(unavailable::provide_stat))
        .options(PROVIDE_STAT),
    command("pubsub/ls", Scope::Read, "Not available: fails", never, || any(unavailable::pubsub)),
    command("pubsub/peers", Scope::Read, "Not available: fails", never, || any(unavailable::pubsub_peers))
        .arguments(&[text("topic").optional()]),
    command("pubsub/pub", Scope::Write, "Not available: fails", never, || any(unavailable::pubsub_pub))
        .arguments(&[text("topic"), file("data")]),
    command("pubsub/reset", Scope::Write, "Forget the sequence numbers of messages: there are none", value, || {
        any(unavailable::reset_pubsub)
    })
    .options(&[Opt::text(&["peer", "p"]).printed()]),
    command("pubsub/sub", Scope::Write, "Not available: fails", never, || any(unavailable::pubsub_sub))
        .arguments(&[text("topic")]),
    command("routing/findpeer", Scope::Read, "Addresses of a connected peer", lines::<RoutingEvent>, || {
        any(routing::find_peer)
    })
    .arguments(&[text("peerID").repeated()])
    .options(&[Opt::bool(&["verbose", "v"]).printed()]),
    command("routing/findprovs", Scope::Read, "Peers that have a block", lines::<RoutingEvent>, || {
        any(routing::find_providers)
    })
    .arguments(&[text("key").repeated()])
    .options(&[Opt::bool(&["verbose", "v"]).printed(), Opt::int(&["num-providers", "n"])]),
    command("routing/get", Scope::Read, "Read a record", routing_event, || any(routing::get))
        .arguments(&[text("key").repeated()]),
    command("routing/provide", Scope::Write, "Not available: fails", never, || any(unavailable::provide))
        .arguments(&[text("key").repeated().in_body()])
        .options(&[Opt::bool(&["verbose", "v"]).unused(), Opt::bool(&["recursive", "r"]).unused()]),
    command("routing/put", Scope::Names, "Store a record", routing_event, || any(routing::put))
        .arguments(&[text("key"), file("value-file")])
        .options(&[Opt::bool(&["allow-offline"]).unused()]),
    command("routing/reprovide", Scope::Write, "Not available: fails", never, || any(unavailable::reprovide)),
    command("swarm/addrs", Scope::Read, "Addresses of the connected peers", json::<SwarmAddresses>, || {
        any(swarm::addresses)
    }),
    command("swarm/addrs/autonat", Scope::Read, "Not available: fails", never, || any(unavailable::reachability)),
    command("swarm/addrs/listen", Scope::Read, "Addresses on which the node listens for peers", json::<Lines>, || {
        any(swarm::listen_addresses)
    }),
    command("swarm/addrs/local", Scope::Read, "Addresses that the node tells others", json::<Lines>, || {
        any(swarm::local_addresses)
    })
    .options(&[Opt::bool(&["id"])]),
    command("swarm/connect", Scope::Admin, "Connect to peers", json::<Lines>, || any(swarm::connect))
        .arguments(&[text("address").repeated().in_body()]),
    command("swarm/disconnect", Scope::Admin, "Close connections to peers", json::<Lines>, || any(swarm::disconnect))
        .arguments(&[text("address").repeated().in_body()]),
    command("swarm/filters", Scope::Read, "Filters of addresses", json::<AddressFilters>, || any(swarm::filters)),
    command("swarm/filters/add", Scope::Admin, "Not available: fails", never, || any(unavailable::change_filters))
        .arguments(&[text("address").repeated().in_body()]),
    command("swarm/filters/rm", Scope::Admin, "Not available: fails", never, || any(unavailable::change_filters))
        .arguments(&[text("address").repeated().in_body()]),
    command("swarm/peering/add", Scope::Admin, "Stay connected to peers", lines::<PeeringChange>, || {
        any(swarm::add_peering)
    })
    .arguments(&[text("address").repeated()]),
    command("swarm/peering/ls", Scope::Read, "Peers to which the node stays connected", json::<Peering>, || {
        any(swarm::peering)
    }),
    command("swarm/peering/rm", Scope::Admin, "No longer stay connected to peers", lines::<PeeringChange>, || {
        any(swarm::remove_peering)
    })
    .arguments(&[text("ID").repeated()]),
    command("swarm/peers", Scope::Read, "Connected peers", json::<SwarmPeers>, || any(swarm::peers)).options(&[
        Opt::bool(&["verbose", "v"]),
        Opt::bool(&["streams"]),
        Opt::bool(&["latency"]),
        Opt::bool(&["direction"]),
        Opt::bool(&["identify"]),
    ]),
    command("swarm/resources", Scope::Read, "Not available: fails", never, || any(unavailable::resources)),
];
