//! Writes over existing content.

use bytes::{Buf, Bytes};
use futures::FutureExt;
use futures::future::BoxFuture;
use ipfrs_core::{Error, Result};

use super::file_part::{FilePart, MAX_DEPTH};
use super::staging::Staging;
use crate::data::WireMtime;

/// Writes the front of `content` over the content of `part` at `offset`, up to its end, and removes what was written
/// from `content`. Adds the changed blocks below `part` to `staging`. The caller commits `part` itself.
pub(super) fn overwrite<'a>(
    staging: &'a mut Staging,
    part: &'a mut FilePart,
    offset: u64,
    content: &'a mut Bytes,
    now: &'a WireMtime,
    depth: usize,
) -> BoxFuture<'a, Result<()>> {
    async move {
        if depth > MAX_DEPTH {
            return Err(Error::invalid_content(format!("the file has more than {MAX_DEPTH} levels")));
        }
        let node = match part {
            FilePart::Raw { data, .. } => {
                *data = replaced(data, offset, content);
                return Ok(());
            }
            FilePart::Node(node) => node,
        };
        let (mut offset, mut start) = (offset, node.inline_bytes());
        if node.links.is_empty() {
            node.touch(now);
        }
        if offset < start || node.links.is_empty() {
            node.data.data = node.data.data.as_ref().map(|data| replaced(data, offset, content));
            offset = start;
        }
        for at in 0..node.links.len() {
            if content.is_empty() {
                break;
            }
            let end = start + node.data.blocksizes[at];
            if end > offset {
                let mut child = FilePart::load(staging, &node.links[at].cid).await?;
                check_size(&child, node.data.blocksizes[at])?;
                overwrite(staging, &mut child, offset - start, content, now, depth + 1).await?;
                // The length of the block did not change, so the sizes remain.
                node.links[at].cid = child.commit(staging).await?.cid;
                offset = end;
            }
            start = end;
        }
        Ok(())
    }
    .boxed()
}

/// Checks that a child has the size that its parent declares.
pub(super) fn check_size(child: &FilePart, declared: u64) -> Result<()> {
    match child.size() {
        size if size == declared => Ok(()),
        size => Err(Error::invalid_content(format!("a part of the file has {size} bytes instead of {declared}"))),
    }
}

/// Returns `data` with the front of `content` at `offset`, and removes it from `content`.
fn replaced(data: &Bytes, offset: u64, content: &mut Bytes) -> Bytes {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
    let len = content.len().min(data.len() - start);
    if len == 0 {
        return data.clone();
    }
    let mut bytes = data.to_vec();
    bytes[start..start + len].copy_from_slice(&content[..len]);
    content.advance(len);
    bytes.into()
}
