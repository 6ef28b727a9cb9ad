//! Operations of `/v1`, GraphQL, events, delegated routing and health.

use ipfrs_rpc::types::{
    ApiKey, ApiKeys, AuthenticatedCaller, BlockBatch, BlockExistences, CidList, CreatedApiKey, NewApiKey, PinResults,
    PinStatus, PinningFailure, PutBatch, RepoSnapshot, RequestedPin, RetrievalReport, StoredBatch, TensorList,
    TensorStatsList,
};
use utoipa::openapi::HttpMethod;

use super::operation::{
    Described, Operation, binary, boolean, object, one_of, operation_token, seconds, size, text, text_like, texts,
};
use crate::error::ProblemDocument;
use crate::health::{Health, Readiness};
use crate::routes::{METRICS, METRICS_OF_KUBO};
use crate::routing::{FoundPeers, FoundProviders};
use crate::v1::UploadResponse;
use crate::v1::progress::{ProgressReport, RunningOperations};

pub(super) const BATCHES: &str = "Batches";
pub(super) const FILES: &str = "Files";
pub(super) const TENSORS: &str = "Tensors";
pub(super) const GRAPHQL: &str = "GraphQL";
pub(super) const EVENTS: &str = "Events";
pub(super) const ROUTING: &str = "Routing";
pub(super) const PINNING: &str = "Pinning";
pub(super) const OPERATION: &str = "Operation";
pub(super) const AUTHENTICATION: &str = "Authentication";

const CAR: &str = "application/vnd.ipld.car";
const RECORD: &str = "application/vnd.ipfs.ipns-record";
const OCTETS: &str = "application/octet-stream";
const BYTE_RANGES: &str = "multipart/byteranges";
const NOT_MODIFIED: &str = "The client has this version";
const PLAIN: &str = "text/plain";
const GRAPHQL_JSON: &str = "application/graphql-response+json";
const EVENT_STREAM: &str = "text/event-stream";
const TUS: &str = "1.0.0";

/// Returns all operations except those of the RPC.
pub(super) fn operations() -> Vec<Operation> {
    let all = [
        batches(),
        files(),
        resumable_uploads(),
        retrieval(),
        tensors(),
        graphql_and_events(),
        routing(),
        pinning(),
        authentication(),
        state(),
    ];
    all.into_iter().flatten().map(Operation::from).collect()
}

/// An operation of `/v1`, whose errors are problem documents.
fn v1(method: HttpMethod, path: &str, tag: &str, summary: &str) -> Described {
    Described::new(method, path, tag, summary)
}

/// Adds the error response of `/v1`. It is the last one.
fn or_problem(mut operation: Described) -> Described {
    let problem = operation.schema::<ProblemDocument>();
    operation.sends("default", "An error (RFC 9457)", "application/problem+json", problem)
}

/// Adds the error responses of an address that is not below `/v1`: without credentials, they are text.
fn or_problem_or_text(operation: Described) -> Described {
    or_problem(operation).sends("default", "", PLAIN, text())
}

/// Adds error responses that are text.
fn or_text(operation: Described) -> Described {
    operation.sends("default", "An error", PLAIN, text())
}

fn pinning() -> Vec<Described> {
    const PINS: &str = "/pinning/v1/pins";
    const PIN: &str = "/pinning/v1/pins/{requestid}";
    let operation = |method, path, summary| Described::new(method, path, PINNING, summary);
    let status = "The request, which is worked on in the background";
    [
        operation(HttpMethod::Get, PINS, "List pins")
            .describe("Pins of the caller, newest first. Without `status`, those that are complete.")
            .query("cid", text(), "Up to 10 content IDs, with commas between them")
            .query("name", text(), "Name")
            .query("match", one_of(&["exact", "iexact", "partial", "ipartial"]), "How `name` is compared")
            .query("status", text(), "`queued`, `pinning`, `pinned`, `failed`, with commas between them")
            .query("before", text(), "Time of creation (RFC 3339)")
            .query("after", text(), "Time of creation (RFC 3339)")
            .query("limit", size(), "Maximum number of results: 1 to 1000, by default 10")
            .query("meta", text(), "JSON object of properties that `meta` has")
            .sends_json::<PinResults>("200", "The pins, and how many there are"),
        operation(HttpMethod::Post, PINS, "Pin content")
            .json_body::<RequestedPin>()
            .needs_body()
            .sends_json::<PinStatus>("202", status),
        operation(HttpMethod::Get, PIN, "Show a pin").sends_json::<PinStatus>("200", "The pin"),
        operation(HttpMethod::Post, PIN, "Replace a pin")
            .json_body::<RequestedPin>()
            .needs_body()
            .sends_json::<PinStatus>("202", status),
        operation(HttpMethod::Delete, PIN, "Remove a pin").responds("202", "The pin is removed"),
    ]
    .map(|mut operation| {
        let failure = operation.schema::<PinningFailure>();
        operation.sends("default", "An error", "application/json", failure)
    })
    .into()
}

fn batches() -> Vec<Described> {
    let post = |path, summary| v1(HttpMethod::Post, path, BATCHES, summary);
    [
        post("/v1/block/batch/get", "Read blocks")
            .describe(
                "Blocks in the requested order. With `Accept: application/vnd.ipld.car`, a CARv1 of those stored here.",
            )
            .json_body::<CidList>()
            .needs_body()
            .sends_json::<BlockBatch>("200", "The blocks, streamed")
            .sends("200", "", CAR, binary()),
        post("/v1/block/batch/has", "Check which blocks are stored")
            .json_body::<CidList>()
            .needs_body()
            .sends_json::<BlockExistences>("200", "One result for each CID, in the requested order"),
        post("/v1/block/batch/put", "Store blocks")
            .describe("`atomic` stores all blocks or none. Stored blocks are durable, and not pinned.")
            .query("transaction_mode", one_of(&["atomic", "best_effort"]), "Takes precedence over that of the body")
            .json_body::<PutBatch>()
            .body(CAR, binary())
            .needs_body()
            .sends_json::<StoredBatch>("200", "What was stored"),
    ]
    .map(or_problem)
    .into()
}

fn import_options(operation: Described) -> Described {
    operation
        .query("filename", text(), "Name of the file and of its pin")
        .query("operation_id", operation_token(), "ID under which the progress is reported")
        .query("wrap", boolean(), "Put the file into a directory under its name")
        .query("pin", boolean(), "Pin the file (default true)")
        .query("cid-version", one_of(&["0", "1"]), "Version of the CIDs")
        .query("raw-leaves", boolean(), "Store leaves as raw blocks")
        .query("chunker", text(), "As in `add`: `size-262144`, `rabin`, `buzhash`")
        .query("hash", text(), "Hash function: `sha2-256`, `blake3`, ...")
        .query("profile", text(), "Import profile: `unixfs-v0-2015`, `unixfs-v1-2025`, ...")
}

fn files() -> Vec<Described> {
    let download = |method, summary| {
        v1(method, "/v1/stream/download/{path}", FILES, summary)
            .query("offset", size(), "First byte")
            .query("limit", size(), "Maximum number of bytes")
            .query("filename", text(), "Name under which clients save the file")
            .header("Range", text(), "Instead of `offset` and `limit` (RFC 9110)")
            .header("If-None-Match", text(), "Entity tags of versions that the client has")
            .header("If-Match", text(), "Entity tags, of which the current version must have one (else 412)")
            .header("If-Range", text(), "Entity tag of the version to which `Range` applies")
    };
    let upload = v1(HttpMethod::Post, "/v1/stream/upload", FILES, "Upload a file, or create a resumable upload")
        .describe(
            "Without tus headers, imports the body as a file while it arrives. With `Tus-Resumable`, creates an upload \
             (https://tus.io/protocols/resumable-upload).",
        );
    [
        import_options(upload)
            .header("Tus-Resumable", one_of(&[TUS]), "Creates a resumable upload")
            .header("Upload-Length", size(), "Size of the file in bytes")
            .header("Upload-Metadata", text(), "`filename` in base64")
            .header("X-Operation-Id", operation_token(), "Same as `operation_id`")
            .body(OCTETS, binary())
            .sends_json::<UploadResponse>("200", "The file is durable and pinned")
            .responds("201", "The resumable upload was created")
            .with_header("Location", "Where to send the file")
            .with_header("Upload-Expires", "Time at which an unfinished upload is removed"),
        download(HttpMethod::Get, "Download a file")
            .sends("200", "The file, or the part that `offset` and `limit` select", OCTETS, binary())
            .sends("206", "The ranges", OCTETS, binary())
            .sends("206", "", BYTE_RANGES, binary())
            .responds("304", NOT_MODIFIED),
        download(HttpMethod::Head, "Size and name of a file")
            .responds("200", "The headers of GET")
            .responds("304", NOT_MODIFIED),
        v1(HttpMethod::Get, "/v1/progress", FILES, "Unfinished operations")
            .sends_json::<RunningOperations>("200", "The operations"),
        progress(),
        v1(HttpMethod::Delete, "/v1/progress/{id}", FILES, "Cancel an operation")
            .describe("What a resumable upload has received is removed. Content that was already reported stays.")
            .responds("204", "The operation has ended"),
    ]
    .map(or_problem)
    .into()
}

fn progress() -> Described {
    let mut operation = v1(HttpMethod::Get, "/v1/progress/{id}", FILES, "Progress of an operation")
        .describe("Server-sent events `progress`, then one `done` or `error`. `data` is the object below.")
        .query("wait", seconds(60), "Seconds to wait for an operation that has not begun: 0 to 60, by default 3")
        .header("Last-Event-ID", text(), "The last event that the client has seen");
    let report = operation.schema::<ProgressReport>();
    operation
        .sends("200", "Events", EVENT_STREAM, report)
        .responds("204", "The client has seen the end of the operation")
}

fn resumable_uploads() -> Vec<Described> {
    let one = |method, summary| {
        v1(method, "/v1/stream/upload/{id}", FILES, summary).required_header(
            "Tus-Resumable",
            one_of(&[TUS]),
            "Version of the protocol",
        )
    };
    let capabilities =
        |path| v1(HttpMethod::Options, path, FILES, "Capabilities for resumable uploads").responds("204", "Headers");
    [
        capabilities("/v1/stream/upload").with_header("Tus-Max-Size", "Maximum size of a file in bytes"),
        capabilities("/v1/stream/upload/{id}").with_header("Tus-Max-Size", "Maximum size of a file in bytes"),
        one(HttpMethod::Head, "State of an upload")
            .responds("200", "The upload exists")
            .with_header("Upload-Offset", "Number of bytes received")
            .with_header("X-Ipfs-Cid", "Content ID, once the upload is complete"),
        one(HttpMethod::Patch, "Continue an upload")
            .header("Upload-Offset", size(), "Number of bytes already received")
            .body("application/offset+octet-stream", binary())
            .responds("204", "The bytes are durable")
            .with_header("Upload-Offset", "Number of bytes received")
            .with_header("X-Ipfs-Cid", "Content ID, if the upload is complete"),
        one(HttpMethod::Delete, "End an upload").responds("204", "The received bytes were removed"),
    ]
    .map(or_problem)
    .into()
}

fn retrieval() -> Vec<Described> {
    let retrieve = v1(HttpMethod::Post, "/v1/retrieve/{path}", FILES, "Retrieve content into the store")
        .describe("Fetches what the store lacks from the configured sources, and reports each attempt.")
        .query("scope", one_of(&["all", "entity", "block"]), "Part of the DAG below the path (default all)")
        .sends_json::<RetrievalReport>("200", "The report, also if a part could not be retrieved");
    vec![or_problem(retrieve)]
}

fn tensors() -> Vec<Described> {
    let tensor = |method, summary| {
        v1(method, "/v1/tensor/{path}", TENSORS, summary)
            .query("name", texts(), "Names of tensors; may be repeated")
            .query("slice", text(), "NumPy's bracket syntax: `0:10,5:15`")
            .query("format", one_of(&["raw", "npy", "safetensors", "arrow"]), "Format of the response (default raw)")
            .query("filename", text(), "Name under which clients save the response")
            .query("info", boolean(), "List the tensors; as is `/info` after the path of the file")
            .query("stats", boolean(), "Statistics; as is `/stats` after the path of the file")
            .header("Range", text(), "Parts of the response with one tensor (RFC 9110)")
            .header("If-None-Match", text(), "Entity tags of versions that the client has")
            .header("If-Match", text(), "Entity tags, of which the current version must have one (else 412)")
            .header("If-Range", text(), "Entity tag of the version to which `Range` applies")
    };
    [
        tensor(HttpMethod::Get, "Read tensors, slices of them, their list or their statistics")
            .sends("200", "The tensor, or the list or statistics as JSON", OCTETS, binary())
            .sends("200", "", "application/x-npy", binary())
            .sends("200", "", "application/vnd.apache.arrow.stream", binary())
            .sends_json::<TensorReport>("200", "")
            .with_header("X-Tensor-Shape", "Size of each dimension, outermost first")
            .with_header("X-Tensor-Dtype", "Type of the elements")
            .sends("206", "The ranges", OCTETS, binary())
            .sends("206", "", BYTE_RANGES, binary())
            .responds("304", NOT_MODIFIED),
        tensor(HttpMethod::Head, "Size and type of a tensor")
            .responds("200", "The headers of GET")
            .responds("304", NOT_MODIFIED),
    ]
    .map(or_problem)
    .into()
}

/// Response to `info` or `stats`.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes two responses that are written while they are streamed")]
enum TensorReport {
    Info(TensorList),
    Stats(TensorStatsList),
}

fn graphql_and_events() -> Vec<Described> {
    let query = |method, summary| Described::new(method, "/graphql", GRAPHQL, summary);
    vec![
        query(HttpMethod::Post, "Run an operation")
            .describe("Queries, mutations, and subscriptions as server-sent events (`Accept: text/event-stream`).")
            .body("application/json", object())
            .body("multipart/form-data", object())
            .needs_body()
            .sends("200", "`data` and `errors`", "application/json", object())
            .sends("200", "", GRAPHQL_JSON, object())
            .sends("200", "", EVENT_STREAM, text())
            .sends("default", "The operation was not executed: `errors`", "application/json", object())
            .sends("default", "", GRAPHQL_JSON, object())
            .sends("default", "", PLAIN, text()),
        query(HttpMethod::Get, "Run a query")
            .query("query", text(), "The document")
            .query("operationName", text(), "The operation to run, if the document has several")
            .query("variables", text(), "JSON object")
            .query("extensions", text(), "JSON object, with the hash of a persisted query")
            .sends("200", "`data` and `errors`", "application/json", object())
            .sends("200", "", GRAPHQL_JSON, object())
            .sends("default", "The operation was not executed: `errors`", "application/json", object())
            .sends("default", "", GRAPHQL_JSON, object())
            .sends("default", "", PLAIN, text()),
        Described::new(HttpMethod::Get, "/graphql/ws", GRAPHQL, "Open a WebSocket with graphql-transport-ws")
            .responds("101", "The protocol is graphql-transport-ws")
            .sends("default", "The request does not open a WebSocket: 426 without `Upgrade`", PLAIN, text()),
        Described::new(HttpMethod::Get, "/graphql/schema.graphql", GRAPHQL, "The schema")
            .sends("200", "Schema definition language", PLAIN, text())
            .sends("default", "An error: `errors`", "application/json", object())
            .sends("default", "", PLAIN, text()),
        or_problem_or_text(
            Described::new(HttpMethod::Get, "/ws", EVENTS, "Open a WebSocket with events")
                .responds("101", "Topics are subscribed to with messages"),
        ),
        or_problem_or_text(
            Described::new(HttpMethod::Get, "/ws/ingest", EVENTS, "Open a WebSocket that stores its messages")
                .query("store", one_of(&["memory", "filesystem", "ipfs"]), "By default `ipfs`")
                .query(
                    "name",
                    text_like("^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$"),
                    "Name of the object; a generated one by default",
                )
                .query("append", boolean(), "Whether to continue an existing object")
                .responds("101", "Binary messages are appended to the object"),
        ),
    ]
}

fn routing() -> Vec<Described> {
    let record = "/routing/v1/ipns/{name}";
    let get = |path, summary| Described::new(HttpMethod::Get, path, ROUTING, summary);
    let operations = vec![
        get(record, "Read the IPNS record of a name")
            .sends("200", "The record, or text if none is stored", RECORD, binary())
            .sends("200", "", PLAIN, text()),
        Described::new(HttpMethod::Put, record, ROUTING, "Store an IPNS record")
            .body(RECORD, binary())
            .needs_body()
            .responds("200", "The record is stored")
            .sends("409", "A better record is stored", PLAIN, text()),
        get("/routing/v1/providers/{cid}", "Find providers of content")
            .sends_json::<FoundProviders>("200", "Providers"),
        get("/routing/v1/peers/{peer_id}", "Find addresses of a peer").sends_json::<FoundPeers>("200", "Peers"),
        get("/routing/v1/dht/closest/peers/{key}", "Find the peers closest to a key").sends(
            "501",
            "This version is not a peer",
            PLAIN,
            text(),
        ),
    ];
    operations.into_iter().map(or_text).collect()
}

fn authentication() -> Vec<Described> {
    let op = |method, path, summary| v1(method, path, AUTHENTICATION, summary);
    [
        op(HttpMethod::Get, "/v1/auth/keys", "List API keys")
            .sends_json::<ApiKeys>("200", "The keys, the oldest first"),
        op(HttpMethod::Post, "/v1/auth/keys", "Create an API key")
            .json_body::<NewApiKey>()
            .needs_body()
            .sends_json::<CreatedApiKey>("201", "The key with its token, which is shown only now"),
        op(HttpMethod::Delete, "/v1/auth/keys/{id}", "Revoke an API key")
            .sends_json::<ApiKey>("200", "The key, which is no longer valid"),
        op(HttpMethod::Get, "/v1/auth/session", "Show who the caller is")
            .sends_json::<AuthenticatedCaller>("200", "The caller and its scopes"),
        op(HttpMethod::Post, "/v1/auth/session", "Begin a session of the console")
            .describe("On the API listener only. The response sets the cookie `__Host-ipfrs`.")
            .sends_json::<AuthenticatedCaller>("200", "The caller and its scopes"),
        op(HttpMethod::Delete, "/v1/auth/session", "End the session of the request").responds("204", "It has ended"),
    ]
    .map(or_problem)
    .into()
}

fn sends_metrics(operation: Described) -> Described {
    operation.sends("200", "Prometheus text format, or OpenMetrics if `Accept` prefers it", PLAIN, text()).sends(
        "200",
        "",
        "application/openmetrics-text",
        text(),
    )
}

fn state() -> Vec<Described> {
    let get = |path, summary| Described::new(HttpMethod::Get, path, OPERATION, summary);
    vec![
        or_text(
            get("/health", "State, version and size of the store")
                .describe("Public hosts, and callers without the scope `read`, get the status only.")
                .without_credentials()
                .sends_json::<Health>("200", "The daemon accepts requests")
                .sends_json::<Health>(
                    "503",
                    "It starts or drains, or the store accepts no writes or cannot read its index",
                ),
        ),
        or_text(get("/health/live", "Whether the process responds").sends_json::<Readiness>("200", "It does")),
        or_text(
            get("/health/ready", "Whether the daemon accepts requests")
                .sends_json::<Readiness>("200", "It does")
                .sends_json::<Readiness>(
                "503",
                "It starts or drains, or the store accepts no writes or cannot read its index",
            ),
        ),
        or_text(sends_metrics(get(METRICS, "Metrics"))),
        or_text(sends_metrics(get(METRICS_OF_KUBO, "Metrics, at the path of Kubo"))),
        or_problem(get("/v1/config", "The effective configuration").sends(
            "200",
            "All sections with all keys, without credentials in URLs",
            "application/json",
            object(),
        )),
        or_problem(
            Described::new(HttpMethod::Post, "/v1/repo/snapshots", OPERATION, "Take a snapshot for a backup")
                .describe("The client is on the same machine, locks the file `lock`, and removes the directory.")
                .sends_json::<RepoSnapshot>("201", "The snapshot"),
        ),
        get("/openapi.json", "This document").sends("200", "OpenAPI 3.1", "application/json", object()),
    ]
}
