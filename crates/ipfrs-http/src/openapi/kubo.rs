//! Operations of the RPC, from its table of commands.

use std::collections::BTreeMap;

use ipfrs_rpc::types::{
    Added, AddressFilters, BandwidthTotals, BitswapStat, BlockStat, BootstrapPeers, CodeAndName, CommandTree, DagStats,
    Dependency, FileList, FileStat, FlushedFile, FormattedCid, Id, ImportedCar, InspectedCid, InspectedRecord, Key,
    Keys, Ledger, Lines, Listings, Peering, PeeringChange, PinLine, Pins, PublishedName, Reference, RemovedBlock,
    RemovedKey, RenamedKey, RepoStat, RepoVersion, ResolvedNode, ResolvedPath, RoutingEvent, RpcFailure,
    SignatureCheck, Signed, StoredNode, SwarmAddresses, SwarmPeers, VerifiedPin, VerifyLine, Version, Wantlist,
};
use utoipa::ToSchema;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::ArrayBuilder;
use utoipa::openapi::{HttpMethod, Required};

use super::operation::{Described, Operation, binary, boolean, integer, object, size, text, texts};
use crate::rpc::{self, Kind};

pub(super) const TAG: &str = "Kubo RPC";

const RECORD: &str = "application/vnd.ipfs.ipns-record";

/// Number of arguments of a command: at least and at most.
type Arguments = (usize, Option<usize>);

const NONE: Arguments = (0, Some(0));
const AT_MOST_ONE: Arguments = (0, Some(1));
const ONE: Arguments = (1, Some(1));
const TWO: Arguments = (2, Some(2));
const ANY: Arguments = (0, None);
const SOME: Arguments = (1, None);

/// What a command does with its body.
#[derive(Clone, Copy)]
enum Body {
    None,
    /// One file.
    File,
    /// Files, and in `add` also directories.
    Files,
}

/// Adds the response of a command.
type Respond = fn(Described) -> Described;

struct Command {
    path: &'static str,
    summary: &'static str,
    arguments: Arguments,
    body: Body,
    respond: Respond,
}

const fn command(path: &'static str, summary: &'static str, arguments: Arguments, respond: Respond) -> Command {
    Command { path, summary, arguments, body: Body::None, respond }
}

impl Command {
    const fn with(mut self, body: Body) -> Self {
        self.body = body;
        self
    }
}

fn json<T: ToSchema>(operation: Described) -> Described {
    operation.sends_json::<T>("200", "The result")
}

/// A response of one JSON object per line.
fn lines<T: ToSchema>(operation: Described) -> Described {
    operation.sends_json::<T>("200", "A line of JSON for each item")
}

fn octets(operation: Described) -> Described {
    operation.sends("200", "The bytes", "text/plain", binary())
}

fn raw_block(operation: Described) -> Described {
    operation.sends("200", "The block", "application/vnd.ipld.raw", binary())
}

fn car(operation: Described) -> Described {
    operation.sends("200", "A CARv1", "application/vnd.ipld.car", binary())
}

fn archive(operation: Described) -> Described {
    operation.sends("200", "A TAR archive", "application/x-tar", binary()).sends(
        "200",
        "",
        "application/gzip",
        binary(),
    )
}

fn record(operation: Described) -> Described {
    operation.sends("200", "The record", RECORD, binary())
}

fn node(operation: Described) -> Described {
    operation.sends("200", "The node in `output-codec`", "application/json", object())
}

fn value(operation: Described) -> Described {
    operation.sends("200", "The configuration, by Kubo's names", "application/json", object())
}

/// A command that always fails.
fn never(operation: Described) -> Described {
    operation
}

fn routing_event(operation: Described) -> Described {
    operation.sends("200", "An event with the record in `Extra`", "application/json", object())
}

fn listed_pins(operation: Described) -> Described {
    operation.sends_json::<ListedPins>("200", "All pins; with `stream` a line for each")
}

/// Response to `pin/ls`.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes two responses that are written while they are streamed")]
enum ListedPins {
    All(PinsByCid),
    Line(PinLine),
}

/// Pins by content ID.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a response that is written while it is streamed")]
struct PinsByCid {
    #[schema(rename = "Keys")]
    keys: BTreeMap<String, PinOfCid>,
}

/// A pin without its content ID.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a response that is written while it is streamed")]
struct PinOfCid {
    #[schema(rename = "Type")]
    kind: String,
    #[schema(rename = "Name")]
    name: Option<String>,
}

fn done(operation: Described) -> Described {
    operation.responds("200", "The command is done")
}

fn nothing(operation: Described) -> Described {
    operation.responds("200", "The daemon ends as with SIGTERM")
}

static COMMANDS: &[Command] = &[
    command("add", "Add files and directories", NONE, lines::<Added>).with(Body::Files),
    command("bitswap/ledger", "Blocks exchanged with a peer", ONE, json::<Ledger>),
    command("bitswap/reprovide", "Not available: fails", NONE, never),
    command("bitswap/stat", "Blocks exchanged with all peers", NONE, json::<BitswapStat>),
    command("bitswap/wantlist", "Blocks that are wanted", NONE, json::<Wantlist>),
    command("block/get", "Read a block", ONE, raw_block),
    command("block/put", "Store blocks", NONE, lines::<BlockStat>).with(Body::Files),
    command("block/rm", "Remove blocks", SOME, lines::<RemovedBlock>),
    command("block/stat", "Size of a block", ONE, json::<BlockStat>),
    command("bootstrap", "Peers from which the node learns of others", NONE, json::<BootstrapPeers>),
    command("bootstrap/list", "Peers from which the node learns of others", NONE, json::<BootstrapPeers>),
    command("cat", "Read files", SOME, octets),
    command("cid/base32", "Convert content IDs to version 1 in base32", SOME, lines::<FormattedCid>),
    command("cid/bases", "List the multibases", NONE, json::<Vec<CodeAndName>>),
    command("cid/codecs", "List the IPLD codecs", NONE, json::<Vec<CodeAndName>>),
    command("cid/format", "Convert and format content IDs", SOME, lines::<FormattedCid>),
    command("cid/hashes", "List the hash functions of blocks", NONE, json::<Vec<CodeAndName>>),
    command("cid/inspect", "Show the parts of a content ID", ONE, json::<InspectedCid>),
    command("commands", "List the commands", NONE, json::<CommandTree>),
    command("config", "Value of a configuration key", ONE, value),
    command("config/show", "Effective configuration", NONE, value),
    command("dag/export", "Export a DAG as a CAR", ONE, car),
    command("dag/get", "Read a node, or a value in it", ONE, node),
    command("dag/import", "Import CARs", NONE, lines::<ImportedCar>).with(Body::Files),
    command("dag/put", "Store nodes", NONE, lines::<StoredNode>).with(Body::Files),
    command("dag/resolve", "Resolve a path to a block", ONE, json::<ResolvedNode>),
    command("dag/stat", "Size of DAGs", SOME, lines::<DagStats>),
    command("dht/findpeer", "Removed from Kubo: fails", ANY, never),
    command("dht/findprovs", "Removed from Kubo: fails", ANY, never),
    command("dht/get", "Removed from Kubo: fails", ANY, never),
    command("dht/provide", "Removed from Kubo: fails", ANY, never),
    command("dht/put", "Removed from Kubo: fails", ANY, never),
    command("dht/query", "Not available: fails", SOME, never),
    command("files/chcid", "Change the content ID format of a mutable directory", ONE, done),
    command("files/chmod", "Change the permissions of a mutable file", TWO, done),
    command("files/cp", "Copy content or a mutable file into the mutable files", TWO, done),
    command("files/flush", "Make a mutable file or directory durable", AT_MOST_ONE, json::<FlushedFile>),
    command("files/ls", "List a mutable directory", AT_MOST_ONE, json::<FileList>),
    command("files/mkdir", "Create a mutable directory", ONE, done),
    command("files/mv", "Move a mutable file or directory", TWO, done),
    command("files/read", "Read a mutable file", ONE, octets),
    command("files/rm", "Remove mutable files or directories", SOME, done),
    command("files/stat", "State of a file or directory", ONE, json::<FileStat>),
    command("files/touch", "Change the modification time of a mutable file", ONE, done),
    command("files/write", "Write to a mutable file", ONE, done).with(Body::File),
    command("filestore/dups", "Not available: fails", NONE, never),
    command("filestore/ls", "Not available: fails", NONE, never),
    command("filestore/verify", "Not available: fails", NONE, never),
    command("get", "Read a file or directory as an archive", ONE, archive),
    command("id", "Identity of the node", AT_MOST_ONE, json::<Id>),
    command("key/gen", "Create a key", ONE, json::<Key>),
    command("key/import", "Store a key", ONE, json::<Key>).with(Body::File),
    command("key/list", "List the keys", NONE, json::<Keys>),
    command("key/ls", "List the keys", NONE, json::<Keys>),
    command("key/rename", "Rename a key", TWO, json::<RenamedKey>),
    command("key/rm", "Remove keys", SOME, json::<Keys>),
    command("key/sign", "Sign data with a key", NONE, json::<Signed>).with(Body::File),
    command("key/verify", "Verify a signature", NONE, json::<SignatureCheck>).with(Body::File),
    command("ls", "List directories", SOME, json::<Listings>),
    command("multibase/decode", "Decode multibase text", NONE, octets).with(Body::File),
    command("multibase/encode", "Encode bytes in a multibase", NONE, octets).with(Body::File),
    command("multibase/list", "List the multibases", NONE, json::<Vec<CodeAndName>>),
    command("multibase/transcode", "Convert text to another multibase", NONE, octets).with(Body::File),
    command("name/get", "Read the IPNS record of a name", ONE, record),
    command("name/inspect", "Show an IPNS record", NONE, json::<InspectedRecord>).with(Body::File),
    command("name/publish", "Publish a path under a name", ONE, json::<PublishedName>),
    command("name/put", "Store an IPNS record", ONE, json::<PublishedName>).with(Body::File),
    command("name/resolve", "Resolve a name", AT_MOST_ONE, json::<ResolvedPath>),
    command("object/data", "Removed from Kubo: fails", ANY, never),
    command("object/get", "Removed from Kubo: fails", ANY, never),
    command("object/links", "Removed from Kubo: fails", ANY, never),
    command("object/new", "Removed from Kubo: fails", ANY, never),
    command("object/put", "Removed from Kubo: fails", ANY, never),
    command("object/stat", "Removed from Kubo: fails", ANY, never),
    command("p2p/close", "Not available: fails", ANY, never),
    command("p2p/forward", "Not available: fails", (3, Some(3)), never),
    command("p2p/listen", "Not available: fails", TWO, never),
    command("p2p/ls", "Not available: fails", ANY, never),
    command("p2p/stream/close", "Not available: fails", ANY, never),
    command("p2p/stream/ls", "Not available: fails", ANY, never),
    command("pin/add", "Pin content", SOME, json::<Pins>),
    command("pin/ls", "List pins", ANY, listed_pins),
    command("pin/rm", "Remove pins", SOME, json::<Pins>),
    command("pin/update", "Move a pin to other content", TWO, json::<Pins>),
    command("pin/verify", "Check that pinned content is complete", NONE, lines::<VerifiedPin>),
    command("provide/stat", "Not available: fails", NONE, never),
    command("pubsub/ls", "Not available: fails", NONE, never),
    command("pubsub/peers", "Not available: fails", AT_MOST_ONE, never),
    command("pubsub/pub", "Not available: fails", ONE, never).with(Body::File),
    command("pubsub/sub", "Not available: fails", ONE, never),
    command("refs", "List the links below blocks", SOME, lines::<Reference>),
    command("refs/local", "List the stored blocks", NONE, lines::<Reference>),
    command("repo/gc", "Collect garbage", NONE, lines::<RemovedKey>),
    command("repo/ls", "List the stored blocks", NONE, lines::<Reference>),
    command("repo/stat", "Size of the store", NONE, json::<RepoStat>),
    command("repo/verify", "Verify all blocks", NONE, lines::<VerifyLine>),
    command("repo/version", "Version of the repo", NONE, json::<RepoVersion>),
    command("resolve", "Resolve a path or name", ONE, json::<ResolvedPath>),
    command("routing/findpeer", "Addresses of a connected peer", ONE, lines::<RoutingEvent>),
    command("routing/get", "Read a record", ONE, routing_event),
    command("routing/provide", "Not available: fails", SOME, never),
    command("routing/put", "Store a record", ONE, routing_event).with(Body::File),
    command("routing/reprovide", "Not available: fails", NONE, never),
    command("shutdown", "End the daemon", NONE, nothing),
    command("stats/bitswap", "Blocks exchanged with all peers", NONE, json::<BitswapStat>),
    command("stats/bw", "Transferred bytes", NONE, json::<BandwidthTotals>),
    command("stats/dht", "Not available: fails", AT_MOST_ONE, never),
    command("stats/provide", "Not available: fails", NONE, never),
    command("stats/repo", "Size of the store", NONE, json::<RepoStat>),
    command("stats/reprovide", "Not available: fails", NONE, never),
    command("swarm/addrs", "Addresses of the connected peers", NONE, json::<SwarmAddresses>),
    command("swarm/addrs/listen", "Addresses on which the node listens for peers", NONE, json::<Lines>),
    command("swarm/addrs/local", "Addresses that the node tells others", NONE, json::<Lines>),
    command("swarm/connect", "Connect to peers", SOME, json::<Lines>),
    command("swarm/disconnect", "Close connections to peers", SOME, json::<Lines>),
    command("swarm/filters", "Filters of addresses", NONE, json::<AddressFilters>),
    command("swarm/peering/add", "Stay connected to peers", SOME, lines::<PeeringChange>),
    command("swarm/peering/ls", "Peers to which the node stays connected", NONE, json::<Peering>),
    command("swarm/peering/rm", "No longer stay connected to peers", SOME, lines::<PeeringChange>),
    command("swarm/peers", "Connected peers", NONE, json::<SwarmPeers>),
    command("version", "Version of the daemon", NONE, json::<Version>),
    command("version/deps", "Packages from which the daemon is built", NONE, lines::<Dependency>),
];

/// Returns the operations of all commands.
pub(super) fn operations() -> Vec<Operation> {
    COMMANDS.iter().map(|command| describe(command).into()).collect()
}

fn describe(command: &Command) -> Described {
    let Command { path, summary, arguments, body, respond } = command;
    let mut operation = Described::new(HttpMethod::Post, &format!("/api/v0/{path}"), TAG, summary);
    operation = with_arguments(operation, *arguments);
    for option in rpc::options_of(path) {
        let (names, kind, remark) = (option.names(), option.kind(), option.remark());
        let others = names.iter().skip(1).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let short = if others.is_empty() { others } else { format!("Also {others}. ") };
        let schema = match kind {
            Kind::Bool => boolean(),
            Kind::Int | Kind::Int64 => integer(),
            Kind::Uint | Kind::Uint64 => size(),
            Kind::Text => text(),
            Kind::List => texts(),
        };
        operation = operation.query(option.name(), schema, (short + &remark).trim());
    }
    operation = match body {
        Body::None => operation,
        Body::File | Body::Files => {
            operation.body("multipart/form-data", object()).body("application/octet-stream", binary()).needs_body()
        }
    };
    let mut operation = respond(operation);
    let failure = operation.schema::<RpcFailure>();
    operation
        .sends(
            "400",
            "The request is not a valid command, or has an option that is not supported",
            "text/plain",
            text(),
        )
        .sends("400", "", "application/json", failure.clone())
        .sends("500", "The command failed", "application/json", failure)
}

fn with_arguments(operation: Described, (least, most): Arguments) -> Described {
    if most == Some(0) {
        return operation;
    }
    let list = ArrayBuilder::new().items(text()).min_items(Some(least)).max_items(most);
    let required = if least > 0 { Required::True } else { Required::False };
    let parameter = ParameterBuilder::new().name("arg").parameter_in(ParameterIn::Query).required(required);
    operation.parameter(parameter.schema(Some(list)).description(Some("Arguments, in order")))
}
