//! Commands about the network: peers, routing, announcements.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{
    AddressFilters, BitswapStat, BootstrapPeers, Ledger, Lines, Peering, PeeringChange, PingLine, RoutingEvent,
    SwarmAddresses, SwarmPeers, Wantlist,
};

use super::responses::{count, json, lines, never, routing_event, value};
use crate::rpc::command::{Command, command};
use crate::rpc::{bootstrap, ping, routing, swarm, unavailable};

pub(super) static COMMANDS: &[Command] = &[
    command("bitswap/ledger", Scope::Read, json::<Ledger>, || any(swarm::ledger)),
    command("bitswap/reprovide", Scope::Write, never, || any(unavailable::reprovide)),
    command("bitswap/stat", Scope::Read, json::<BitswapStat>, || any(swarm::stat)),
    command("bitswap/wantlist", Scope::Read, json::<Wantlist>, || any(swarm::wantlist)),
    command("bootstrap", Scope::Read, json::<BootstrapPeers>, || any(bootstrap::list)),
    command("bootstrap/add", Scope::Admin, json::<BootstrapPeers>, || any(bootstrap::add)),
    command("bootstrap/list", Scope::Read, json::<BootstrapPeers>, || any(bootstrap::list)),
    command("bootstrap/rm", Scope::Admin, json::<BootstrapPeers>, || any(bootstrap::remove)),
    command("bootstrap/rm/all", Scope::Admin, json::<BootstrapPeers>, || any(bootstrap::remove_all)),
    command("dht/findpeer", Scope::Read, never, || any(unavailable::removed_dht)),
    command("dht/findprovs", Scope::Read, never, || any(unavailable::removed_dht)),
    command("dht/get", Scope::Read, never, || any(unavailable::removed_dht)),
    command("dht/provide", Scope::Write, never, || any(unavailable::removed_dht)),
    command("dht/put", Scope::Names, never, || any(unavailable::removed_dht)),
    command("dht/query", Scope::Read, never, || any(unavailable::dht_query)),
    command("p2p/close", Scope::Admin, never, || any(unavailable::p2p)),
    command("p2p/forward", Scope::Admin, never, || any(unavailable::p2p_forward)),
    command("p2p/listen", Scope::Admin, never, || any(unavailable::p2p_listen)),
    command("p2p/ls", Scope::Admin, never, || any(unavailable::p2p)),
    command("p2p/stream/close", Scope::Admin, never, || any(unavailable::p2p)),
    command("p2p/stream/ls", Scope::Admin, never, || any(unavailable::p2p)),
    command("ping", Scope::Read, lines::<PingLine>, || any(ping::ping)),
    command("provide/clear", Scope::Write, count, || any(unavailable::clear_provides)),
    command("provide/once", Scope::Write, never, || any(unavailable::provide_once)),
    command("provide/stat", Scope::Read, never, || any(unavailable::provide_stat)),
    command("pubsub/ls", Scope::Read, never, || any(unavailable::pubsub)),
    command("pubsub/peers", Scope::Read, never, || any(unavailable::pubsub_peers)),
    command("pubsub/pub", Scope::Write, never, || any(unavailable::pubsub_pub)),
    command("pubsub/reset", Scope::Write, value, || any(unavailable::reset_pubsub)),
    command("pubsub/sub", Scope::Write, never, || any(unavailable::pubsub_sub)),
    command("routing/findpeer", Scope::Read, lines::<RoutingEvent>, || any(routing::find_peer)),
    command("routing/findprovs", Scope::Read, lines::<RoutingEvent>, || any(routing::find_providers)),
    command("routing/get", Scope::Read, routing_event, || any(routing::get)),
    command("routing/provide", Scope::Write, never, || any(unavailable::provide)),
    command("routing/put", Scope::Names, routing_event, || any(routing::put)),
    command("routing/reprovide", Scope::Write, never, || any(unavailable::reprovide)),
    command("swarm/addrs", Scope::Read, json::<SwarmAddresses>, || any(swarm::addresses)),
    command("swarm/addrs/autonat", Scope::Read, never, || any(unavailable::reachability)),
    command("swarm/addrs/listen", Scope::Read, json::<Lines>, || any(swarm::listen_addresses)),
    command("swarm/addrs/local", Scope::Read, json::<Lines>, || any(swarm::local_addresses)),
    command("swarm/connect", Scope::Admin, json::<Lines>, || any(swarm::connect)),
    command("swarm/disconnect", Scope::Admin, json::<Lines>, || any(swarm::disconnect)),
    command("swarm/filters", Scope::Read, json::<AddressFilters>, || any(swarm::filters)),
    command("swarm/filters/add", Scope::Admin, never, || any(unavailable::change_filters)),
    command("swarm/filters/rm", Scope::Admin, never, || any(unavailable::change_filters)),
    command("swarm/peering/add", Scope::Admin, lines::<PeeringChange>, || any(swarm::add_peering)),
    command("swarm/peering/ls", Scope::Read, json::<Peering>, || any(swarm::peering)),
    command("swarm/peering/rm", Scope::Admin, lines::<PeeringChange>, || any(swarm::remove_peering)),
    command("swarm/peers", Scope::Read, json::<SwarmPeers>, || any(swarm::peers)),
    command("swarm/resources", Scope::Read, never, || any(unavailable::resources)),
];
