//! `name publish|resolve|inspect|get|put`, `resolve`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::ls::exact;
use crate::answer::Answer;
use crate::api::{Api, Query};
use crate::args::{NameCommand, NameInspectArgs, NamePublishArgs, NamePutArgs, NameResolveArgs, ResolveArgs};
use crate::multipart::{Source, Upload};
use crate::output::{Output, printable, printable_name};

pub(super) async fn run(api: &Api, command: NameCommand, out: &mut Output) -> Result<()> {
    match command {
        NameCommand::Publish(args) => publish(api, &args, out).await,
        NameCommand::Resolve(args) => resolve_name(api, &args, out).await,
        NameCommand::Inspect(args) => inspect(api, &args, out).await,
        NameCommand::Get { name } => get(api, &name, out).await,
        NameCommand::Put(args) => put(api, &args, out).await,
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    name: String,
    value: String,
}

async fn publish(api: &Api, args: &NamePublishArgs, out: &mut Output) -> Result<()> {
    let query = Query::new()
        .with_args([&args.path])
        .with("key", &args.key)
        .with("allow-offline", args.allow_offline)
        .with_some("resolve", args.resolve)
        .with_some("lifetime", args.lifetime.as_ref())
        .with_some("ttl", args.ttl.as_ref())
        .with_some("sequence", args.sequence)
        .with_some("v1compat", args.v1compat);
    let entry: Entry = api.call("name/publish", query, None).await?.whole().await?;
    match (out.is_json(), args.quieter) {
        (true, _) => out.object(&entry),
        (false, true) => out.line(&entry.name),
        (false, false) => out.line(&format!("Published to {}: {}", entry.name, printable(&entry.value))),
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ResolvedPath {
    path: String,
    /// The path in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

async fn resolve_name(api: &Api, args: &NameResolveArgs, out: &mut Output) -> Result<()> {
    let query = Query::new().with_args(&args.name).with_some("recursive", args.recursive).with("nocache", args.nocache);
    print_path(&api.call("name/resolve", query, None).await?.whole().await?, out)
}

/// Runs `resolve`.
pub(super) async fn resolve(api: &Api, args: &ResolveArgs, out: &mut Output) -> Result<()> {
    let query = Query::new().with_args([&args.path]).with_some("recursive", args.recursive);
    print_path(&api.call("resolve", query, None).await?.whole().await?, out)
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
    let record = api.call("name/get", Query::new().with("arg", name), None).await?.bytes().await?;
    out.bytes(&record)
}

async fn put(api: &Api, args: &NamePutArgs, out: &mut Output) -> Result<()> {
    let query =
        Query::new().with("arg", &args.name).with("force", args.force).with("allow-offline", args.allow_offline);
    let entry: Entry = send(api, "name/put", query, args.record.as_ref()).await?.whole().await?;
    match (out.is_json(), args.quiet) {
        (true, _) => out.object(&entry),
        (false, true) => Ok(()),
        (false, false) => out.line(&entry.name),
    }
}

/// Calls a command with the content of a file, or of standard input.
async fn send(api: &Api, command: &str, query: Query, file: Option<&PathBuf>) -> Result<Answer> {
    let mut upload = Upload::start(Source::of(file.map_or(&[], std::slice::from_ref), false)?, false);
    api.call(command, query, Some(&mut upload)).await.map_err(|error| upload.explain(error))
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    entry: InspectedEntry,
    pb_size: u64,
    signature_type: String,
    hex_dump: String,
    validation: Option<Validation>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedEntry {
    value: String,
    validity_type: u8,
    validity: String,
    sequence: u64,
    #[serde(rename = "TTL")]
    ttl: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Validation {
    valid: bool,
    reason: String,
    name: String,
}

async fn inspect(api: &Api, args: &NameInspectArgs, out: &mut Output) -> Result<()> {
    let query = Query::new().with_some("verify", args.verify.as_ref()).with_some("dump", args.dump);
    let record: Inspected = send(api, "name/inspect", query, args.record.as_ref()).await?.whole().await?;
    if out.is_json() {
        out.object(&record)?;
    } else {
        print_record(&record, out)?;
    }
    match record.validation {
        Some(Validation { valid: false, reason, .. }) => bail!("{reason}"),
        _ => Ok(()),
    }
}

fn print_record(record: &Inspected, out: &mut Output) -> Result<()> {
    let Inspected { entry, pb_size, signature_type, hex_dump, validation } = record;
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
