//! `ls`, and the directory listings that `get` uses.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use anyhow::{Result, anyhow};
use ipfrs_core::Base;
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::api::{Api, Query};
use crate::args::LsArgs;
use crate::output::{Output, printable_name};

/// One line of the response.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Objects {
    objects: Vec<Object>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Object {
    links: Vec<Link>,
}

/// An entry of a directory. `Type` is the number of the UnixFS `DataType`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) hash: String,
    pub(super) size: u64,
    #[serde(rename = "Type")]
    pub(super) data_type: u8,
    #[serde(default)]
    pub(super) target: String,
    /// The name in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    /// The target in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
}

impl Link {
    /// Returns the exact name.
    pub(super) fn file_name(&self) -> Result<OsString> {
        exact(&self.name, self.name_bytes.as_deref())
    }

    /// Returns the exact target.
    pub(super) fn link_target(&self) -> Result<OsString> {
        exact(&self.target, self.target_bytes.as_deref())
    }
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

/// UnixFS `DataType` of a directory. The server also reports sharded directories with it.
pub(super) const DIRECTORY: u8 = 1;
/// UnixFS `DataType` of a symlink.
pub(super) const SYMLINK: u8 = 4;

/// Iterator over the entries of a directory.
#[derive(Debug)]
pub(super) struct Listing {
    answer: Answer,
    ready: std::vec::IntoIter<Link>,
}

impl Listing {
    pub(super) async fn of(api: &Api, path: &OsStr) -> Result<Self> {
        let query = Query::new().with_args([path]).with("stream", true);
        Ok(Self { answer: api.call("ls", query, None).await?, ready: Vec::new().into_iter() })
    }

    pub(super) async fn next(&mut self) -> Result<Option<Link>> {
        loop {
            if let Some(link) = self.ready.next() {
                return Ok(Some(link));
            }
            let Some(line) = self.answer.next_object::<Objects>().await? else { return Ok(None) };
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
        let mut listing = Listing::of(api, path).await?;
        while let Some(link) = listing.next().await? {
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
    let name = printable_name(&link.file_name()?);
    Ok(match link.data_type {
        DIRECTORY => format!("{} {:<10} {name}/", link.hash, "-"),
        SYMLINK => format!("{} {:<10} {name} -> {}", link.hash, "-", printable_name(&link.link_target()?)),
        _ => format!("{} {:<10} {name}", link.hash, link.size),
    })
}
