//! `name/publish`, `name/resolve`, `name/get`, `name/put`, `name/inspect`.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_TYPE;
use ipfrs_core::{Error, ErrorKind, Result, uri_as_path};
use ipfrs_node::{Answers, LinkName, MAX_RECORD_BYTES, Name, NameRoot, Node, PublishOptions, Record};
use ipfrs_rpc::duration;
use ipfrs_rpc::types::{InspectedRecord, PublishedName, RecordEntry, RecordValidation, ResolvedPath};

use super::args::Args;
use super::command_result::CommandResult;
use super::multipart::one_file;
use super::output;
use super::paths::{checked_path, cleaned};
use crate::state::AppState;

/// `name/publish?arg=path[&key=][&resolve=][&lifetime=][&ttl=][&sequence=][&v1compat=]`: publishes a name. The record
/// is stored only locally, as if `allow-offline` were always set.
pub(super) async fn publish(State(state): State<AppState>, args: Args) -> CommandResult {
    let path = args.one_path("ipfs-path")?;
    let lifetime = lifetime(&args)?;
    let options = PublishOptions {
        // An empty key is an error and not the identity: a script with an unset variable must not publish the node's
        // own name.
        key: args.text_or_default("key").to_owned(),
        lifetime,
        ttl: ttl(&args, lifetime.unwrap_or_else(|| state.node.config().ipns.record_lifetime()))?,
        sequence: args.number("sequence")?,
        must_resolve: args.is_set("resolve"),
        has_v1: args.is_set("v1compat"),
    };
    let published = state.node.publish_name(checked_path(path)?, &options).await?;
    Ok(output::object(PublishedName {
        name: published.name.to_string(),
        value: published.value.to_string_lossy().into_owned(),
    }))
}

/// Returns the validity of a record, with the errors of Kubo.
fn lifetime(args: &Args) -> Result<Option<Duration>> {
    let Some(text) = args.text("lifetime") else { return Ok(None) };
    let not_parsed = |e: Error| Error::new(e.kind(), format!("error parsing lifetime option: {e}")).with_source(e);
    let lifetime = match args.is_negative_duration("lifetime") {
        true => None,
        false => args.duration("lifetime").map_err(not_parsed)?.filter(|lifetime| !lifetime.is_zero()),
    };
    let too_short = || Error::invalid(format!("lifetime must be greater than zero, got {text}"));
    lifetime.ok_or_else(too_short).map(Some)
}

/// Returns the time to live of a record that is valid for `lifetime`, with the errors of Kubo.
fn ttl(args: &Args, lifetime: Duration) -> Result<Option<Duration>> {
    if args.is_negative_duration("ttl") {
        let text = args.text("ttl").unwrap_or_default();
        return Err(Error::invalid(format!("ttl must not be negative, got {text}")));
    }
    let ttl = args.duration("ttl")?;
    match ttl.filter(|ttl| *ttl > lifetime) {
        Some(ttl) => {
            let (ttl, lifetime) = (duration::format(ttl), duration::format(lifetime));
            Err(Error::invalid(format!("ttl ({ttl}) must not be greater than lifetime ({lifetime})")))
        }
        None => Ok(ttl),
    }
}

/// Checks `dht-timeout`, which has no other effect: no network is queried.
pub(super) fn check_dht_timeout(args: &Args) -> Result<()> {
    if args.is_negative_duration("dht-timeout") {
        return Err(Error::invalid("DHT timeout value must be >= 0"));
    }
    args.duration("dht-timeout").map(drop)
}

/// Returns the output of `name/resolve` and `resolve`.
pub(super) fn resolved_path(path: impl Into<LinkName>) -> ResolvedPath {
    let path = path.into();
    ResolvedPath { path: path.to_string_lossy().into_owned(), path_bytes: output::name_bytes(&path) }
}

/// `name/resolve[?arg=name][&recursive=][&stream=][&nocache=]`: resolves a name, by default the node's own. With
/// `nocache`, DNS is queried again; the result for a key always comes from its current record. The `dht-*` options
/// have no effect, since no network is queried.
pub(super) async fn resolve(State(state): State<AppState>, args: Args) -> CommandResult {
    check_dht_timeout(&args)?;
    let own_name = state.node.identity().name().to_string();
    let own_name = LinkName::from(own_name);
    let text = args.at_most_one_path("name")?.unwrap_or(&own_name);
    let path = cleaned(&uri_as_path(text.as_bytes()));
    let path = path.as_bytes();
    let name = match path.strip_prefix(b"/ipns/") {
        Some(name) => name,
        None if path.starts_with(b"/") => return Err(Error::invalid(format!("{text:?} is not an IPNS name")).into()),
        None => path,
    };
    let answers = if args.is_set("nocache") { Answers::New } else { Answers::Kept };
    let path = if args.is_set("recursive") {
        state.node.content_path_as([b"/ipns/", name].concat(), answers).await?.to_bytes()
    } else {
        one_step(&state.node, name, answers).await?
    };
    let resolved = resolved_path(path);
    if args.is_set("stream") {
        return Ok(output::objects(stream::iter([output::line(&resolved)]), args.takes_trailers));
    }
    Ok(output::object(resolved))
}

/// Resolves a name by one step, and appends the rest of the path.
pub(super) async fn one_step(node: &Node, path: &[u8], answers: Answers) -> Result<Vec<u8>> {
    let mut parts = path.splitn(2, |byte| *byte == b'/');
    let name = LinkName::from(parts.next().unwrap_or_default());
    let mut target = node.resolve_name_once(&NameRoot::parse(&name.to_string_lossy())?, answers).await?;
    if let Some(below) = parts.next().filter(|below| !below.is_empty()) {
        target.push(b'/');
        target.extend_from_slice(below);
    }
    Ok(target)
}

/// `name/get?arg=name`: returns the record of a name.
pub(super) async fn get(State(state): State<AppState>, args: Args) -> CommandResult {
    let record = record(&state.node, &name_of(args.one("name")?)?).await?;
    Ok(record_response(record.bytes().clone()))
}

/// Returns the record of a name. The error for a missing one has Kubo's text.
pub(super) async fn record(node: &Node, name: &Name) -> Result<Record> {
    node.ipns_record(name).await.map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::not_found(format!("routing: not found: {e}")).with_source(e),
        _ => e,
    })
}

fn record_response(bytes: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/vnd.ipfs.ipns-record")], bytes).into_response()
}

fn name_of(text: &str) -> Result<Name> {
    Name::parse(text.strip_prefix("/ipns/").unwrap_or(text))
}

/// `name/put?arg=name[&force=]`: stores the signed record in the body. With `force`, it may replace a record with the
/// same sequence number if it is valid for longer. A newer record is never replaced.
pub(super) async fn put(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let name = name_of(args.one("name")?)?;
    let force = args.is_set("force");
    let bytes = one_file(&state.memory, request, "record", MAX_RECORD_BYTES).await?.bytes;
    if bytes.is_empty() {
        return Err(Error::invalid("record is empty").into());
    }
    let record = Record::parse(bytes.clone())?;
    if !force
        && let Some(kept) = state.node.last_ipns_record(&name).await?
        && *kept.bytes() != bytes
        && kept.sequence() >= record.sequence()
    {
        let (kept, new) = (kept.sequence(), record.sequence());
        let message = format!("existing IPNS record has sequence {kept} >= new record sequence {new}");
        let message = format!("{message}, use 'ipfs name put --force' to skip this check");
        return Err(Error::new(ErrorKind::Conflict, message).into());
    }
    state.node.put_ipns_record(&name, bytes).await.map_err(|e| match e.kind() {
        ErrorKind::InvalidInput => Error::invalid(format!("record validation failed: {e}")).with_source(e),
        _ => e,
    })?;
    let value = String::from_utf8_lossy(record.value()).into_owned();
    Ok(output::object(PublishedName { name: name.to_string(), value }))
}

/// `name/inspect[?verify=name][&dump=]`: shows the record in the body, and whether it is valid for a name.
pub(super) async fn inspect(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let name = args.text("verify").map(name_of).transpose()?;
    let dump = args.is_set("dump");
    let bytes = one_file(&state.memory, request, "record", MAX_RECORD_BYTES).await?.bytes;
    let record = Record::parse(bytes.clone())?;
    let validation = name.map(|name| {
        let outcome = record.verify(&name, SystemTime::now());
        let reason = outcome.as_ref().err().map(Error::to_string).unwrap_or_default();
        RecordValidation { valid: outcome.is_ok(), reason, name: name.to_string() }
    });
    Ok(output::object(InspectedRecord {
        entry: RecordEntry {
            value: String::from_utf8_lossy(record.value()).into_owned(),
            validity_type: 0,
            validity: record.validity_text(),
            sequence: record.sequence(),
            ttl: record.ttl().map(|ttl| u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX)),
        },
        pb_size: bytes.len() as u64,
        signature_type: if record.signature_v1().is_some() { "V1+V2" } else { "V2" }.to_owned(),
        hex_dump: if dump { hex_dump(&bytes) } else { String::new() },
        validation,
    }))
}

/// Formats 16 bytes per line as `hexdump -C` does: offset, hexadecimal digits, text.
fn hex_dump(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(16) * 79);
    for (row, line) in bytes.chunks(16).enumerate() {
        let (first, second) = line.split_at(line.len().min(8));
        let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x} "));
        let shown = line.iter().map(|&byte| if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '.' });
        // Writing to a string does not fail.
        let _ =
            writeln!(text, "{:08x}  {:24} {:24} |{}|", row * 16, hex(first), hex(second), shown.collect::<String>());
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn hex_dump_matches_hexdump_format() {
        let dump = super::hex_dump(b"\x0a$/ipfs/bafkqaaa\xff");
        let expected = "00000000  0a 24 2f 69 70 66 73 2f  62 61 66 6b 71 61 61 61  |.$/ipfs/bafkqaaa|\n\
                        00000010  ff                                                |.|\n";
        assert_eq!(dump, expected);
    }
}
