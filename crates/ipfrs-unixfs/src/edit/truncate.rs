//! Truncation of files.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use ipfrs_core::{Error, Result};

use super::cid_format::CidFormat;
use super::file_part::{FilePart, MAX_DEPTH};
use super::overwrite::check_size;
use super::staging::Staging;
use crate::dag_pb::PbLink;
use crate::data::WireMtime;
use crate::link_name::LinkName;

/// Reduces `part` to its first `size` bytes, which must be fewer than it has. Adds the changed blocks below `part` to
/// `staging`. The caller commits `part` itself.
///
/// As in boxo, a truncated dag-pb leaf has a CIDv0, and the last part is kept even if it is empty.
pub(super) fn truncate<'a>(
    staging: &'a mut Staging,
    part: &'a mut FilePart,
    size: u64,
    now: &'a WireMtime,
    depth: usize,
) -> BoxFuture<'a, Result<()>> {
    async move {
        if depth > MAX_DEPTH {
            return Err(Error::invalid_content(format!("the file has more than {MAX_DEPTH} levels")));
        }
        let kept = |data: &Bytes| data.slice(..usize::try_from(size).unwrap_or(usize::MAX).min(data.len()));
        let node = match part {
            FilePart::Raw { data, .. } => {
                *data = kept(data);
                return Ok(());
            }
            FilePart::Node(node) => node,
        };
        let inline = node.inline_bytes();
        if node.links.is_empty() || size < inline {
            node.links.clear();
            node.data.blocksizes.clear();
            node.data.data = node.data.data.as_ref().map(kept);
            node.data.filesize = Some(node.size());
            node.touch(now);
            node.format = CidFormat::V0;
            return Ok(());
        }
        let mut start = inline;
        for at in 0..node.links.len() {
            let declared = node.data.blocksizes[at];
            if size < start + declared {
                let mut child = FilePart::load(staging, &node.links[at].cid).await?;
                check_size(&child, declared)?;
                truncate(staging, &mut child, size - start, now, depth + 1).await?;
                let link = child.commit(staging).await?;
                node.links.truncate(at);
                node.links.push(PbLink { cid: link.cid, name: LinkName::default(), tsize: link.tsize });
                node.data.blocksizes.truncate(at);
                node.data.blocksizes.push(size - start);
                break;
            }
            start += declared;
        }
        node.data.filesize = Some(node.size());
        Ok(())
    }
    .boxed()
}
