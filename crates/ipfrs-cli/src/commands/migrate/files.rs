//! Moving of mutable files: the entries of their root, whose blocks are moved already.

use anyhow::Result;
use ipfrs_core::parse_cid;
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{FileStat, Listings};

use super::Report;
use super::source::Source;
use crate::api::Api;

const MAX_RESPONSE_BYTES: usize = 64 * 1024;

pub(super) async fn copy(source: &Source, api: &Api, report: &mut Report) -> Result<()> {
    let root = match source {
        Source::Repo(repo, _) => repo.pins()?.files_root()?,
        Source::Rpc(kubo) => {
            let stat: FileStat = kubo.call(Request::query("files/stat").with_arg("/")).await?.json().await?;
            Some(parse_cid(&stat.hash)?)
        }
    };
    let Some(root) = root else { return Ok(()) };
    let request = Request::query("ls").with_arg(root.to_string()).with("stream", true).with("resolve-type", false);
    let mut response = match api.call(request.with("size", false)).await {
        Ok(response) => response,
        Err(e) => {
            report.fail(format!("mutable files: {e:#}"));
            return Ok(());
        }
    };
    while let Some(line) = response.line::<Listings>().await? {
        for link in line.objects.into_iter().flat_map(|listing| listing.links) {
            if link.name_bytes.is_some() {
                report.fail(format!("mutable file {:?}: its name is not UTF-8", link.name));
                continue;
            }
            let path = format!("/{}", link.name);
            let existing = api.call(Request::query("files/stat").with_arg(&path)).await;
            let existing: Option<FileStat> = match existing {
                Ok(response) => Some(response.json().await?),
                Err(_) => None,
            };
            match existing {
                Some(stat) if parse_cid(&stat.hash).ok() == parse_cid(&link.hash).ok() => report.files += 1,
                Some(stat) => report.fail(format!(
                    "mutable file {path}: one with another content exists ({}); copy it with `files cp /ipfs/{} NEW-PATH`",
                    stat.hash, link.hash
                )),
                None => {
                    let request = Request::command("files/cp").with_args([format!("/ipfs/{}", link.hash), path.clone()]);
                    let copied = async { Ok::<_, anyhow::Error>(api.call(request).await?.bytes(MAX_RESPONSE_BYTES).await?) };
                    match copied.await {
                        Ok(_) => report.files += 1,
                        Err(e) => report.fail(format!("mutable file {path}: {e:#}")),
                    }
                }
            }
        }
    }
    Ok(())
}
