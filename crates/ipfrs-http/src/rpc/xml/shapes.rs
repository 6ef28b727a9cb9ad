//! The types of Kubo's responses. The order of their fields is that of the output.

use super::Shape::{Any, Bool, Cid, Float, Float32, List, Map, Named, Number, Octal, Optional, Struct, Text, Time};
use super::{ANY_MAP, Field, Shape};

/// Returns the type of the values that a command sends.
pub(in crate::rpc) fn of(path: &str) -> Option<&'static Shape> {
    Some(match path {
        "add" => &ADDED,
        "bitswap/ledger" => &LEDGER,
        "bitswap/stat" | "stats/bitswap" => &EXCHANGED,
        "bitswap/wantlist" => &WANTED,
        "block/put" | "block/stat" => &BLOCK,
        "block/rm" => &REMOVED_BLOCK,
        "bootstrap" | "bootstrap/add" | "bootstrap/list" | "bootstrap/rm" | "bootstrap/rm/all" => &BOOTSTRAP,
        "cid/base32" | "cid/format" => &FORMATTED_CID,
        "cid/bases" | "cid/codecs" | "cid/hashes" | "multibase/list" => &CODES,
        "cid/inspect" => &INSPECTED_CID,
        "commands" => &COMMAND,
        "config" => &SETTING,
        "config/profile/apply" => &CHANGED_SETTINGS,
        "config/show" | "diag/sys" => &ANY_MAP,
        "dag/import" => &IMPORTED,
        "dag/put" => &STORED_NODE,
        "dag/resolve" => &RESOLVED_NODE,
        "dag/stat" => &DAG_SIZES,
        "diag/cmds" => &LOGGED_COMMANDS,
        "diag/healthy" | "files/rm" => &Text,
        "files/flush" => &FLUSHED,
        "files/ls" => &FILES,
        "files/stat" => &FILE_STATE,
        "filestore/dups" | "refs" | "refs/local" | "repo/ls" => &REFERENCE,
        "filestore/ls" | "filestore/verify" => &FILE_REFERENCE,
        "id" => &IDENTITY,
        "key/gen" | "key/import" => &KEY,
        "key/list" | "key/ls" | "key/rm" => &KEYS,
        "key/rename" => &RENAMED_KEY,
        "key/sign" => &SIGNED,
        "key/verify" => &CHECKED_SIGNATURE,
        "log/level" => &LOG_LEVELS,
        "log/ls" | "swarm/addrs/listen" | "swarm/addrs/local" | "swarm/connect" | "swarm/disconnect"
        | "swarm/filters" => &STRINGS,
        "ls" => &LISTINGS,
        "name/inspect" => &INSPECTED_RECORD,
        "name/publish" | "name/put" => &PUBLISHED,
        "name/pubsub/state" => &NAME_PUBSUB,
        "name/resolve" | "resolve" => &RESOLVED,
        "object/diff" => &CHANGES,
        "object/patch/add-link" | "object/patch/rm-link" => &OBJECT,
        "pin/add" => &PINNED,
        "pin/ls" => &PINS,
        "pin/remote/add" | "pin/remote/ls" => &REMOTE_PIN,
        "pin/remote/service/ls" => &SERVICES,
        "pin/rm" | "pin/update" => &UNPINNED,
        "pin/verify" => &VERIFIED_PIN,
        "ping" => &PING,
        "provide/clear" => &COUNT,
        "pubsub/reset" => &RESET_PUBSUB,
        "repo/gc" => &REMOVED_KEY,
        "repo/stat" | "stats/repo" => &REPO,
        "repo/verify" => &VERIFIED_BLOCK,
        "repo/version" => &REPO_VERSION,
        "routing/findpeer" | "routing/findprovs" | "routing/get" | "routing/put" => &ROUTING_EVENT,
        "stats/bw" => &BANDWIDTH,
        "swarm/addrs" => &PEER_ADDRESSES,
        "swarm/peering/add" | "swarm/peering/rm" => &PEERING_CHANGE,
        "swarm/peering/ls" => &STEADY_PEERS,
        "swarm/peers" => &PEERS,
        "version" => &VERSION,
        "version/deps" => &DEPENDENCY,
        _ => return None,
    })
}

/// Returns a field with the same name in JSON.
const fn field(name: &'static str, shape: Shape) -> Field {
    Field { name, key: name, shape }
}

/// Returns a field with another name in JSON.
const fn keyed(name: &'static str, key: &'static str, shape: Shape) -> Field {
    Field { name, key, shape }
}

static ADDED: Shape = Struct(
    "AddEvent",
    &[
        field("Name", Text),
        field("Hash", Text),
        field("Bytes", Number),
        field("Size", Text),
        field("Mode", Text),
        field("Mtime", Number),
        field("MtimeNsecs", Number),
    ],
);
static BANDWIDTH: Shape = Struct(
    "Stats",
    &[field("TotalIn", Number), field("TotalOut", Number), field("RateIn", Float), field("RateOut", Float)],
);
static BLOCK: Shape = Struct("BlockStat", &[field("Key", Text), field("Size", Number)]);
static BOOTSTRAP: Shape = Struct("BootstrapOutput", &[field("Peers", List(&Text))]);
static CHANGED_SETTINGS: Shape =
    Struct("ConfigUpdateOutput", &[field("OldCfg", MAP_OF_ANY), field("NewCfg", MAP_OF_ANY)]);
static CHANGES: Shape = Struct("Changes", &[field("Changes", List(&CHANGE))]);
static CHANGE: Shape =
    Struct("Change", &[field("Type", Number), field("Path", Text), field("Before", Cid), field("After", Cid)]);
static CHECKED_SIGNATURE: Shape = Struct("KeyVerifyOutput", &[field("Key", KEY_FIELD), field("SignatureValid", Bool)]);
static CODE: Shape = Struct("CodeAndName", &[field("Code", Number), field("Name", Text)]);
static CODES: Shape = List(&CODE);
static COMMAND: Shape = Struct(
    "Command",
    &[field("Name", Text), field("Subcommands", List(&COMMAND)), field("Options", List(&COMMAND_OPTION))],
);
static COMMAND_OPTION: Shape = Struct("Option", &[field("Names", List(&Text))]);
static COUNT: Shape = Named("int", &Number);
static DAG_SIZES: Shape = Struct(
    "DagStatSummary",
    &[
        field("UniqueBlocks", Number),
        field("TotalSize", Number),
        field("SharedSize", Number),
        field("Ratio", Float32),
        keyed("DagStatsArray", "DagStats", List(&DAG_SIZE)),
    ],
);
static DAG_SIZE: Shape = Struct("DagStat", &[field("Cid", Text), field("Size", Number), field("NumBlocks", Number)]);
static DEPENDENCY: Shape =
    Struct("Dependency", &[field("Path", Text), field("Version", Text), field("ReplacedBy", Text), field("Sum", Text)]);
static EXCHANGED: Shape = Struct(
    "Stat",
    &[
        field("Wantlist", List(&Cid)),
        field("Peers", List(&Text)),
        field("BlocksReceived", Number),
        field("DataReceived", Number),
        field("DupBlksReceived", Number),
        field("DupDataReceived", Number),
        field("MessagesReceived", Number),
        field("BlocksSent", Number),
        field("DataSent", Number),
    ],
);
static FILES: Shape = Struct("filesLsOutput", &[field("Entries", List(&FILE))]);
static FILE: Shape =
    Struct("NodeListing", &[field("Name", Text), field("Type", Number), field("Size", Number), field("Hash", Text)]);
static FILE_REFERENCE: Shape = Struct(
    "ListRes",
    &[
        field("Status", Number),
        field("ErrorMsg", Text),
        field("Key", Cid),
        field("FilePath", Text),
        field("Offset", Number),
        field("Size", Number),
    ],
);
static FILE_STATE: Shape = Struct(
    "statOutput",
    &[
        field("Hash", Text),
        field("Size", Number),
        field("CumulativeSize", Number),
        field("Blocks", Number),
        field("Type", Text),
        field("WithLocality", Bool),
        field("Local", Bool),
        field("SizeLocal", Number),
        field("Mode", Octal),
        field("Mtime", Number),
        field("MtimeNsecs", Number),
    ],
);
static FLUSHED: Shape = Struct("flushRes", &[field("Cid", Text)]);
static FORMATTED_CID: Shape =
    Struct("CidFormatRes", &[field("CidStr", Text), field("Formatted", Text), field("ErrorMsg", Text)]);
static IDENTITY: Shape = Struct("IdOutput", IDENTITY_FIELDS);
const IDENTITY_FIELDS: &[Field] = &[
    field("ID", Text),
    field("PublicKey", Text),
    field("Addresses", List(&Text)),
    field("AgentVersion", Text),
    field("Protocols", List(&Text)),
];
static IMPORTED: Shape =
    Struct("CarImportOutput", &[field("Root", Optional(&IMPORTED_ROOT)), field("Stats", Optional(&IMPORTED_TOTALS))]);
static IMPORTED_ROOT: Shape = Struct("RootMeta", &[field("Cid", Cid), field("PinErrorMsg", Text)]);
static IMPORTED_TOTALS: Shape =
    Struct("CarImportStats", &[field("BlockCount", Number), field("BlockBytesCount", Number)]);
static INSPECTED_CID: Shape = Struct(
    "CidInspectRes",
    &[
        keyed("Cid", "cid", Text),
        keyed("Version", "version", Number),
        keyed(
            "Multibase",
            "multibase",
            Struct("CidInspectBase", &[keyed("Prefix", "prefix", Text), keyed("Name", "name", Text)]),
        ),
        keyed(
            "Multicodec",
            "multicodec",
            Struct("CidInspectCodec", &[keyed("Code", "code", Number), keyed("Name", "name", Text)]),
        ),
        keyed(
            "Multihash",
            "multihash",
            Struct(
                "CidInspectHash",
                &[
                    keyed("Code", "code", Number),
                    keyed("Name", "name", Text),
                    keyed("Length", "length", Number),
                    keyed("Digest", "digest", Text),
                ],
            ),
        ),
        keyed("CidV0", "cidV0", Text),
        keyed("CidV1", "cidV1", Text),
        keyed("ErrorMsg", "errorMsg", Text),
    ],
);
static INSPECTED_RECORD: Shape = Struct(
    "IpnsInspectResult",
    &[
        field(
            "Entry",
            Struct(
                "IpnsInspectEntry",
                &[
                    field("Value", Text),
                    field("ValidityType", Optional(&Number)),
                    field("Validity", Optional(&Time)),
                    field("Sequence", Optional(&Number)),
                    field("TTL", Optional(&Number)),
                ],
            ),
        ),
        field("PbSize", Number),
        field("SignatureType", Text),
        field("HexDump", Text),
        field("Validation", Optional(&VALIDATION)),
    ],
);
static VALIDATION: Shape =
    Struct("IpnsInspectValidation", &[field("Valid", Bool), field("Reason", Text), field("Name", Text)]);
static KEY: Shape = KEY_FIELD;
const KEY_FIELD: Shape = Struct("KeyOutput", &[field("Name", Text), field("Id", Text)]);
static KEYS: Shape = Struct("KeyOutputList", &[field("Keys", List(&KEY))]);
static LEDGER: Shape = Struct(
    "Receipt",
    &[
        field("Peer", Text),
        field("Value", Float),
        field("Sent", Number),
        field("Recv", Number),
        field("Exchanged", Number),
    ],
);
static LISTINGS: Shape = Struct("LsOutput", &[field("Objects", List(&LISTING))]);
static LISTING: Shape = Struct("LsObject", &[field("Hash", Text), field("Links", List(&LISTED_LINK))]);
static LISTED_LINK: Shape = Struct(
    "LsLink",
    &[
        field("Name", Text),
        field("Hash", Text),
        field("Size", Number),
        field("Type", Number),
        field("Target", Text),
        field("Mode", Number),
        field("ModTime", Time),
    ],
);
static LOGGED_COMMANDS: Shape = Named("ReqLogEntry", &ANY_MAP);
static LOG_LEVELS: Shape = Struct("logLevelOutput", &[field("Levels", Map("map[string]string"))]);
const MAP_OF_ANY: Shape = Map("map[string]interface {}");
static NAME_PUBSUB: Shape = Struct("ipnsPubsubState", &[field("Enabled", Bool)]);
static OBJECT: Shape = Struct("Object", &[field("Hash", Text)]);
static PEERING_CHANGE: Shape = Struct("peeringResult", &[field("ID", Text), field("Status", Text)]);
static PEERS: Shape = Struct("connInfos", &[field("Peers", List(&PEER))]);
static PEER: Shape = Struct(
    "connInfo",
    &[
        field("Addr", Text),
        field("Peer", Text),
        field("Latency", Text),
        field("Muxer", Text),
        field("Direction", Number),
        field("Streams", List(&PEER_STREAM)),
        field("Identify", Struct("IdOutput", IDENTITY_FIELDS)),
    ],
);
static PEER_ADDRESSES: Shape = Struct("addrMap", &[field("Addrs", Map("map[string][]string"))]);
static PEER_STREAM: Shape = Struct("streamInfo", &[field("Protocol", Text)]);
static PING: Shape = Struct("PingResult", &[field("Success", Bool), field("Time", Number), field("Text", Text)]);
static PINNED: Shape =
    Struct("AddPinOutput", &[field("Pins", List(&Text)), field("Progress", Number), field("Bytes", Number)]);
static PINS: Shape = Struct("PinLsOutputWrapper", &[field("Keys", Map("map[string]pin.PinLsType"))]);
static PUBLISHED: Shape = Struct("IpnsEntry", &[field("Name", Text), field("Value", Text)]);
static REFERENCE: Shape = Struct("RefWrapper", &[field("Ref", Text), field("Err", Text)]);
static REMOTE_PIN: Shape = Struct("RemotePinOutput", &[field("Status", Text), field("Cid", Text), field("Name", Text)]);
static REMOVED_BLOCK: Shape = Struct("removedBlock", &[field("Hash", Text), field("Error", Text)]);
static REMOVED_KEY: Shape = Struct("GcResult", &[field("Key", Cid), field("Error", Text)]);
static RENAMED_KEY: Shape =
    Struct("KeyRenameOutput", &[field("Was", Text), field("Now", Text), field("Id", Text), field("Overwrite", Bool)]);
static REPO: Shape = Struct(
    "Stat",
    &[
        field("RepoSize", Number),
        field("StorageMax", Number),
        field("NumObjects", Number),
        field("RepoPath", Text),
        field("Version", Text),
    ],
);
static REPO_VERSION: Shape = Struct("RepoVersion", &[field("Version", Text)]);
static RESET_PUBSUB: Shape = Struct("pubsubResetResult", &[keyed("Deleted", "deleted", Number)]);
static RESOLVED: Shape = Struct("ResolvedPath", &[field("Path", Text)]);
static RESOLVED_NODE: Shape = Struct("ResolveOutput", &[field("Cid", Cid), field("RemPath", Text)]);
static ROUTING_EVENT: Shape = Struct(
    "QueryEvent",
    &[field("ID", Text), field("Type", Number), field("Responses", List(&STEADY_PEER)), field("Extra", Text)],
);
static SERVICES: Shape = Struct("PinServicesList", &[field("RemoteServices", List(&SERVICE))]);
static SERVICE: Shape = Struct(
    "ServiceDetails",
    &[field("Service", Text), field("ApiEndpoint", Text), field("Stat", Optional(&SERVICE_STATE))],
);
static SERVICE_STATE: Shape = Struct("Stat", &[field("Status", Text), field("PinCount", Optional(&SERVICE_PINS))]);
static SERVICE_PINS: Shape = Struct(
    "PinCount",
    &[field("Queued", Number), field("Pinning", Number), field("Pinned", Number), field("Failed", Number)],
);
static SETTING: Shape = Struct("ConfigField", &[field("Key", Text), field("Value", Any)]);
static SIGNED: Shape = Struct("KeySignOutput", &[field("Key", KEY_FIELD), field("Signature", Text)]);
static STEADY_PEERS: Shape = Struct("addrInfos", &[field("Peers", List(&STEADY_PEER))]);
static STEADY_PEER: Shape = Struct("AddrInfo", &[field("ID", Text), field("Addrs", List(&Text))]);
static STORED_NODE: Shape = Struct("OutputObject", &[field("Cid", Cid)]);
static STRINGS: Shape = Struct("stringList", &[field("Strings", List(&Text))]);
static UNPINNED: Shape = Struct("PinOutput", &[field("Pins", List(&Text))]);
static VERIFIED_BLOCK: Shape = Struct("VerifyProgress", &[field("Msg", Text), field("Progress", Number)]);
static VERIFIED_PIN: Shape = Struct(
    "PinVerifyRes",
    &[field("Cid", Text), field("Err", Text), field("Ok", Bool), field("BadNodes", List(&BAD_NODE))],
);
static BAD_NODE: Shape = Struct("BadNode", &[field("Cid", Text), field("Err", Text)]);
static VERSION: Shape = Struct(
    "VersionInfo",
    &[field("Version", Text), field("Commit", Text), field("Repo", Text), field("System", Text), field("Golang", Text)],
);
static WANTED: Shape = Struct("KeyList", &[field("Keys", List(&Cid))]);

/// Whether a command has no response but errors.
#[cfg(test)]
pub(in crate::rpc) fn always_fails(path: &str) -> bool {
    const GROUPS: [&str; 3] = ["dht/", "p2p/", "object/"];
    GROUPS.iter().any(|group| path.starts_with(group))
        || matches!(
            path,
            "bitswap/reprovide"
                | "diag/profile"
                | "log/tail"
                | "mount"
                | "name/pubsub/cancel"
                | "name/pubsub/subs"
                | "provide/once"
                | "provide/stat"
                | "pubsub/ls"
                | "pubsub/peers"
                | "pubsub/pub"
                | "pubsub/sub"
                | "routing/provide"
                | "routing/reprovide"
                | "stats/dht"
                | "stats/provide"
                | "stats/reprovide"
                | "swarm/addrs/autonat"
                | "swarm/filters/add"
                | "swarm/filters/rm"
                | "swarm/resources"
                | "version/check"
        )
}
