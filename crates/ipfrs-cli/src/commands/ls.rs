//! `ls`, and the listings that `get` follows.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::api::{Api, Query};
use crate::args::LsArgs;
use crate::output::{Output, printable};

/// A line of the answer.
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
}

/// UnixFS `DataType` of a directory; sharded ones are reported under it too.
pub(super) const DIRECTORY: u8 = 1;
/// UnixFS `DataType` of a symlink.
pub(super) const SYMLINK: u8 = 4;

/// The entries of a directory, one after the other.
#[derive(Debug)]
pub(super) struct Listing {
    answer: Answer,
    ready: std::vec::IntoIter<Link>,
}

impl Listing {
    pub(super) async fn of(api: &Api, path: &str) -> Result<Self> {
        let query = Query::new().with("arg", path).with("stream", true);
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
            out.line(&format!("{gap}{}:", printable(path)))?;
        }
        let mut listing = Listing::of(api, path).await?;
        while let Some(link) = listing.next().await? {
            if out.is_json() {
                out.object(&link)?;
            } else {
                out.line(&row(&link))?;
            }
        }
    }
    Ok(())
}

/// As `ipfs ls` writes it: a directory has no size and a slash behind its name.
fn row(link: &Link) -> String {
    let name = printable(&link.name);
    match link.data_type {
        DIRECTORY => format!("{} {:<10} {name}/", link.hash, "-"),
        SYMLINK => format!("{} {:<10} {name} -> {}", link.hash, "-", printable(&link.target)),
        _ => format!("{} {:<10} {name}", link.hash, link.size),
    }
}
