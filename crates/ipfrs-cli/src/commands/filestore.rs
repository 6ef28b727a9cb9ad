//! `filestore`.

use anyhow::{Result, bail};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{FileReference, Reference};

use crate::api::Api;
use crate::args::{FilestoreCommand, FilestoreLsArgs, FilestoreVerifyArgs};
use crate::output::{Output, printable};

pub(super) async fn run(api: &Api, command: FilestoreCommand, out: &mut Output) -> Result<()> {
    match command {
        FilestoreCommand::Ls(args) => ls(api, &args, out).await,
        FilestoreCommand::Verify(args) => verify(api, &args, out).await,
        FilestoreCommand::Dups => dups(api, out).await,
    }
}

async fn ls(api: &Api, args: &FilestoreLsArgs, out: &mut Output) -> Result<()> {
    let request = Request::query("filestore/ls").with_args(&args.cids).with("file-order", args.file_order);
    let (mut response, mut failed) = (api.call(request).await?, None);
    while let Some(line) = response.line::<FileReference>().await? {
        if out.is_json() {
            out.object(&line)?;
        } else if line.error_msg.is_empty() {
            out.line(&described(&line))?;
        }
        if !line.error_msg.is_empty() {
            failed.get_or_insert(line.error_msg);
        }
    }
    match failed {
        Some(failure) => bail!("{failure}"),
        None => Ok(()),
    }
}

/// Prints the state of each reference, and fails if one is not intact, unless it was removed.
async fn verify(api: &Api, args: &FilestoreVerifyArgs, out: &mut Output) -> Result<()> {
    let request = Request::command("filestore/verify")
        .with_args(&args.cids)
        .with("file-order", args.file_order)
        .with("remove-bad-blocks", args.remove_bad_blocks);
    let (mut response, mut bad) = (api.call(request).await?, 0_u64);
    while let Some(line) = response.line::<FileReference>().await? {
        let is_bad = line.status != FileReference::INTACT;
        bad += u64::from(is_bad);
        if out.is_json() {
            out.object(&line)?;
            continue;
        }
        let action = match (args.remove_bad_blocks, is_bad && line.status != FileReference::INVALID) {
            (false, _) => "",
            (true, true) => " remove",
            (true, false) => " keep",
        };
        out.line(&format!("{:<7} {}{action}", line.state(), described(&line)))?;
    }
    if bad > 0 && !args.remove_bad_blocks {
        bail!("{bad} blocks cannot be read: restore their files, add them again, or use --remove-bad-blocks");
    }
    Ok(())
}

async fn dups(api: &Api, out: &mut Output) -> Result<()> {
    let mut response = api.call(Request::query("filestore/dups")).await?;
    while let Some(line) = response.line::<Reference>().await? {
        if !line.err.is_empty() {
            bail!("{}", line.err);
        }
        match out.is_json() {
            true => out.object(&line)?,
            false => out.line(&line.r#ref)?,
        }
    }
    Ok(())
}

/// Formats a reference as Kubo does.
fn described(line: &FileReference) -> String {
    let Some(key) = &line.key else { return printable(&line.error_msg) };
    match line.file_path.as_str() {
        "" => key.cid.clone(),
        path => format!("{:<50} {:>6} {} {}", key.cid, line.size, printable(path), line.offset),
    }
}
