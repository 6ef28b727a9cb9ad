//! `key gen|list|rename|rm|import|export`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use ipfrs_interface::{KeyFormat, export_key};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{Key, Keys, RenamedKey};
use serde_json::json;

use crate::api::Api;
use crate::args::{Globals, KeyCommand, KeyEncoding, KeyExportArgs, KeyGenArgs, KeyImportArgs, KeyRenameArgs};
use crate::output::{Output, printable};
use crate::session;
use crate::sources::Sources;

pub(super) async fn run(api: &Api, command: KeyCommand, out: &mut Output) -> Result<()> {
    match command {
        KeyCommand::Gen(args) => generate(api, &args, out).await,
        KeyCommand::Import(args) => import(api, &args, out).await,
        KeyCommand::Rename(args) => rename(api, &args, out).await,
        KeyCommand::List(args) => list(api, request("key/list", &args.encoding), args.long, out).await,
        KeyCommand::Rm(args) => {
            list(api, request("key/rm", &args.encoding).with_args(&args.names), args.long, out).await
        }
        KeyCommand::Export(_) => bail!("a daemon does not export private keys"),
    }
}

fn request(command: &str, encoding: &KeyEncoding) -> Request {
    Request::command(command).with_some("ipns-base", encoding.ipns_base.as_ref())
}

async fn generate(api: &Api, args: &KeyGenArgs, out: &mut Output) -> Result<()> {
    let request = request("key/gen", &args.encoding).with_arg(&args.name).with("type", &args.key_type);
    let key: Key = api.call(request.with_some("size", args.size)).await?.json().await?;
    if out.is_json() { out.object(&key) } else { out.line(&key.id) }
}

async fn import(api: &Api, args: &KeyImportArgs, out: &mut Output) -> Result<()> {
    let request = request("key/import", &args.encoding).with_arg(&args.name).with("format", &args.format);
    let request = request.with("allow-any-key-type", args.allow_any_key_type);
    let sources = Sources::files(std::slice::from_ref(&args.file))?;
    let key: Key = api.call(sources.upload(request, |_| {})?).await?.json().await?;
    if out.is_json() { out.object(&key) } else { out.line(&key.id) }
}

async fn rename(api: &Api, args: &KeyRenameArgs, out: &mut Output) -> Result<()> {
    let request = request("key/rename", &args.encoding).with_args([&args.from, &args.to]).with("force", args.force);
    let renamed: RenamedKey = api.call(request).await?.json().await?;
    if out.is_json() {
        return out.object(&renamed);
    }
    let end = if renamed.overwrite { " with overwriting" } else { "" };
    out.line(&format!("Key {} renamed to {}{end}", renamed.id, printable(&renamed.now)))
}

async fn list(api: &Api, request: Request, with_ids: bool, out: &mut Output) -> Result<()> {
    let Keys { keys } = api.call(request).await?.json().await?;
    let width = keys.iter().map(|key| key.id.len()).max().unwrap_or_default();
    for key in keys {
        match (out.is_json(), with_ids) {
            (true, _) => out.object(&key)?,
            (false, true) => out.line(&format!("{:width$} {}", key.id, printable(&key.name)))?,
            (false, false) => out.line(&printable(&key.name))?,
        }
    }
    Ok(())
}

/// Exports a key. The command always reads the repo itself, even if a daemon is running, so that no private key is
/// sent over HTTP.
pub(super) fn export(globals: &Globals, args: &KeyExportArgs, out: &mut Output) -> Result<()> {
    if globals.api.is_some() {
        bail!("private keys cannot be exported over the API: export on the machine with the repo, without --api");
    }
    let key = export_key(&session::repo(globals)?, &args.name, args.format)?;
    if args.output.as_deref() == Some(Path::new("-")) {
        return out.bytes(&key);
    }
    let extension = match args.format {
        KeyFormat::Protobuf => "key",
        KeyFormat::Pem => "pem",
    };
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.{extension}", args.name)));
    write_private(&path, &key)?;
    if out.is_json() {
        return out.object(&json!({ "path": path }));
    }
    out.line(&format!("saved {}", printable(&path.display().to_string())))
}

/// Writes a new file. An existing file could have permissions that let other users read the key.
fn write_private(path: &Path, key: &[u8]) -> Result<()> {
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} already exists: remove it, or save elsewhere with -o", path.display())
        }
        Err(e) => return Err(anyhow!("cannot write {}: {e}", path.display())),
    };
    let written = file.write_all(key).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a key is useless.
        let _ = fs::remove_file(path);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}
