//! `ls`, and the directory listings that `get` uses.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use anyhow::{Result, anyhow};
use ipfrs_core::Base;
use ipfrs_rpc::client::{Request, Response};
use ipfrs_rpc::types::{Link, Listings};

use crate::api::Api;
use crate::args::LsArgs;
use crate::output::{Output, printable_name};

/// Returns the exact name of an entry.
pub(super) fn file_name(link: &Link) -> Result<OsString> {
    exact(&link.name, link.name_bytes.as_deref())
}

/// Returns the exact target of a symlink.
pub(super) fn link_target(link: &Link) -> Result<OsString> {
    exact(&link.target, link.target_bytes.as_deref())
}

/// Returns the exact name from an RPC response: the bytes in base64 if given, and the text otherwise.
pub(super) fn exact(text: &str, bytes: Option<&str>) -> Result<OsString> {
    let decode = |bytes| {
        let decoded =
            Base::Base64Pad.decode(bytes).map_err(|e| anyhow!("the response has a name that is not base64: {e}"));
        decoded.map(OsString::from_vec)
    };
    bytes.map_or_else(|| Ok(text.into()), decode)
}

/// Iterator over the entries of a directory.
#[derive(Debug)]
pub(super) struct Entries {
    response: Response,
    ready: std::vec::IntoIter<Link>,
}

impl Entries {
    pub(super) async fn of(api: &Api, path: &OsStr) -> Result<Self> {
        let request = Request::query("ls").with_arg(path).with("stream", true);
        Ok(Self { response: api.call(request).await?, ready: Vec::new().into_iter() })
    }

    pub(super) async fn next(&mut self) -> Result<Option<Link>> {
        loop {
            if let Some(link) = self.ready.next() {
                return Ok(Some(link));
            }
            let Some(line) = self.response.line::<Listings>().await? else { return Ok(None) };
            self.ready = line.objects.into_iter().flat_map(|object| object.links).collect::<Vec<_>>().into_iter();
        }
    }
}

pub(super) async fn run(api: &Api, args: &LsArgs, out: &mut Output) -> Result<()> {
    let has_heads = args.paths.len() > 1 && !out.is_json();
    for (index, path) in args.paths.iter().enumerate() {
        if has_heads {
            let gap = if index == 0 { "" } else { "\n" };
            out.line(&format!("{gap}{}:", printable_name(path)))?;
        }
        let mut entries = Entries::of(api, path).await?;
        while let Some(link) = entries.next().await? {
            if out.is_json() {
                out.object(&link)?;
            } else {
                out.line(&row(&link)?)?;
            }
        }
    }
    Ok(())
}

/// Formats an entry as `ipfs ls` does: a directory has no size, and a slash after its name.
fn row(link: &Link) -> Result<String> {
    let name = printable_name(&file_name(link)?);
    Ok(match link.r#type {
        Link::DIRECTORY => format!("{} {:<10} {name}/", link.hash, "-"),
        Link::SYMLINK => format!("{} {:<10} {name} -> {}", link.hash, "-", printable_name(&link_target(link)?)),
        _ => format!("{} {:<10} {name}", link.hash, link.size),
    })
}
