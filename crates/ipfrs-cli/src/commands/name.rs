//! `name publish|resolve|inspect|get|put`, `resolve`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use ipfrs_rpc::client::{Request, Response};
use ipfrs_rpc::types::{InspectedRecord, PublishedName, RecordValidation, ResolvedPath};

use super::ls::exact;
use crate::api::Api;
use crate::args::{NameCommand, NameInspectArgs, NamePublishArgs, NamePutArgs, NameResolveArgs, ResolveArgs};
use crate::output::{Output, printable, printable_name};
use crate::sources::Sources;

/// Maximum size of a record in bytes. Larger ones are invalid.
const MAX_RECORD_BYTES: usize = 10 * 1024;

pub(super) async fn run(api: &Api, command: NameCommand, out: &mut Output) -> Result<()> {
    match command {
        NameCommand::Publish(args) => publish(api, &args, out).await,
        NameCommand::Resolve(args) => resolve_name(api, &args, out).await,
        NameCommand::Inspect(args) => inspect(api, &args, out).await,
        NameCommand::Get { name } => get(api, &name, out).await,
        NameCommand::Put(args) => put(api, &args, out).await,
    }
}

async fn publish(api: &Api, args: &NamePublishArgs, out: &mut Output) -> Result<()> {
    let request = Request::command("name/publish")
        .with_arg(&args.path)
        .with("key", &args.key)
        .with("allow-offline", args.allow_offline)
        .with_some("resolve", args.resolve)
        .with_some("lifetime", args.lifetime.as_ref())
        .with_some("ttl", args.ttl.as_ref())
        .with_some("sequence", args.sequence)
        .with_some("v1compat", args.v1compat);
    let entry: PublishedName = api.call(request).await?.json().await?;
    match (out.is_json(), args.quieter) {
        (true, _) => out.object(&entry),
        (false, true) => out.line(&entry.name),
        (false, false) => out.line(&format!("Published to {}: {}", entry.name, printable(&entry.value))),
    }
}

async fn resolve_name(api: &Api, args: &NameResolveArgs, out: &mut Output) -> Result<()> {
    let request = Request::query("name/resolve").with_args(&args.name).with_some("recursive", args.recursive);
    print_path(&api.call(request.with("nocache", args.nocache)).await?.json().await?, out)
}

/// Runs `resolve`.
pub(super) async fn resolve(api: &Api, args: &ResolveArgs, out: &mut Output) -> Result<()> {
    let request = Request::query("resolve").with_arg(&args.path).with_some("recursive", args.recursive);
    print_path(&api.call(request).await?.json().await?, out)
}

fn print_path(resolved: &ResolvedPath, out: &mut Output) -> Result<()> {
    if out.is_json() {
        return out.object(resolved);
    }
    match &resolved.path_bytes {
        Some(_) => out.line(&printable_name(&exact(&resolved.path, resolved.path_bytes.as_deref())?)),
        None => out.line(&printable(&resolved.path)),
    }
}

async fn get(api: &Api, name: &str, out: &mut Output) -> Result<()> {
    if io::stdout().is_terminal() {
        bail!("refusing to write a record to a terminal: redirect standard output, or pipe it to `name inspect`");
    }
    let record = api.call(Request::query("name/get").with_arg(name)).await?.bytes(MAX_RECORD_BYTES).await?;
    out.bytes(&record)
}

async fn put(api: &Api, args: &NamePutArgs, out: &mut Output) -> Result<()> {
    let request = Request::command("name/put").with_arg(&args.name).with("force", args.force);
    let request = request.with("allow-offline", args.allow_offline);
    let entry: PublishedName = send(api, request, args.record.as_ref()).await?.json().await?;
    match (out.is_json(), args.quiet) {
        (true, _) => out.object(&entry),
        (false, true) => Ok(()),
        (false, false) => out.line(&entry.name),
    }
}

/// Sends a request with the content of a file, or of standard input.
async fn send(api: &Api, request: Request, file: Option<&PathBuf>) -> Result<Response> {
    let sources = Sources::files(file.map_or(&[], std::slice::from_ref))?;
    api.call(sources.upload(request, |_| {})?).await
}

async fn inspect(api: &Api, args: &NameInspectArgs, out: &mut Output) -> Result<()> {
    let request = Request::query("name/inspect");
    let request = request.with_some("verify", args.verify.as_ref()).with_some("dump", args.dump);
    let record: InspectedRecord = send(api, request, args.record.as_ref()).await?.json().await?;
    if out.is_json() {
        out.object(&record)?;
    } else {
        print_record(&record, out)?;
    }
    match record.validation {
        Some(RecordValidation { valid: false, reason, .. }) => bail!("{reason}"),
        _ => Ok(()),
    }
}

fn print_record(record: &InspectedRecord, out: &mut Output) -> Result<()> {
    let InspectedRecord { entry, pb_size, signature_type, hex_dump, validation } = record;
    out.line(&format!("Value:          {}", printable(&entry.value)))?;
    out.line(&format!("Validity Type:  {}", entry.validity_type))?;
    out.line(&format!("Validity:       {}", printable(&entry.validity)))?;
    out.line(&format!("Sequence:       {}", entry.sequence))?;
    if let Some(ttl) = entry.ttl {
        out.line(&format!("TTL:            {:?}", Duration::from_nanos(ttl)))?;
    }
    out.line(&format!("Protobuf Size:  {pb_size}"))?;
    out.line(&format!("Signature Type: {signature_type}"))?;
    match validation {
        None => out.line("\nThis record was not verified. Pass '--verify k51...' to verify.")?,
        Some(validation) => {
            out.line(&format!("\nName:           {}", validation.name))?;
            out.line(&format!("Valid:          {}", validation.valid))?;
        }
    }
    if hex_dump.is_empty() {
        return Ok(());
    }
    out.line(&format!("\nHex Dump:\n{}", hex_dump.trim_end()))
}
