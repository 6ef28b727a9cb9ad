//! Paths into dag-pb blocks as values of the data model: `Data`, `Links/0/Name`
//! (<https://ipld.io/specs/codecs/dag-pb/spec/#logical-format>).

use bytes::Bytes;
use ipfrs_core::Result;

use super::{Step, list_index};
use crate::dag_pb;

/// See [`follow`](super::follow).
pub(super) fn follow(data: &Bytes, segments: &[String]) -> Result<Step> {
    let node = dag_pb::decode(data)?;
    let mut names = segments.iter().map(String::as_str);
    let missing = |at| Ok(Step::Missing(at));
    // Nothing is below a value without links.
    let within = |at: usize| if segments.len() == at { Ok(Step::Within) } else { missing(at) };
    match names.next() {
        None => Ok(Step::Within),
        Some("Data") if node.data.is_some() => within(1),
        Some("Links") => {
            let Some(index) = names.next() else { return Ok(Step::Within) };
            let index = list_index(index).and_then(|index| usize::try_from(index).ok());
            let Some(link) = index.and_then(|index| node.links.get(index)) else { return missing(1) };
            match names.next() {
                None => Ok(Step::Within),
                Some("Hash") => Ok(Step::Link { cid: link.cid, used: 3 }),
                Some("Name" | "Tsize") => within(3),
                Some(_) => missing(2),
            }
        }
        Some(_) => missing(0),
    }
}
