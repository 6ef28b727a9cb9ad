//! Search for one name in an encoded directory, without decoding its other entries.

use bytes::Bytes;
use ipfrs_core::limits::MAX_BLOCK_LINKS;
use ipfrs_core::{Cid, Error, Result, cid_from_bytes};

use crate::dag_pb::{LinkFields, read_link, read_node, too_many_links};
use crate::data::{Data, DataType};
use crate::hamt::{HashBits, ShardHead};
use crate::link_name::LinkName;

/// Result of the search for a name in one block of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// The entry with the name.
    Entry(Cid),
    /// The child shard in which the search continues.
    Shard(Cid),
    /// No such entry.
    Nothing,
}

/// Searches a block of a directory for `name`, whose hash is `bits`. With `is_shard`, the block must be a shard. Reads
/// the links twice, because the data follows them, but copies nothing. Only the link that is found is checked
/// completely.
///
/// # Errors
/// Fails for a block that is not a valid directory. [`decode`](crate::decode) returns the reason.
pub(crate) fn find(block: &Bytes, name: &LinkName, bits: &mut HashBits, is_shard: bool) -> Result<Found> {
    let mut count = 0_usize;
    let data = read_node(block, |_| {
        count += 1;
        Ok(())
    })?;
    if count > MAX_BLOCK_LINKS {
        return Err(too_many_links());
    }
    let data = data.ok_or_else(|| Error::invalid("dag-pb node without data"))?;
    let data = Data::read(block.slice_ref(data))?;
    match data.data_type()? {
        DataType::Directory if !is_shard => find_entry(block, name),
        DataType::HamtShard => find_position(block, name, &ShardHead::new(&data, count)?, bits),
        _ => Err(Error::invalid("the block is not a directory")),
    }
}

fn find_entry(block: &[u8], name: &LinkName) -> Result<Found> {
    let mut found = None;
    read_node(block, |link| {
        if found.is_none() {
            let link = read_link(link)?;
            found = (link.name == name.as_bytes()).then_some(link.cid);
        }
        Ok(())
    })?;
    found.map_or(Ok(Found::Nothing), |cid| Ok(Found::Entry(cid_from_bytes(cid)?)))
}

fn find_position(block: &[u8], name: &LinkName, head: &ShardHead, bits: &mut HashBits) -> Result<Found> {
    let position = bits.next(head.bits())?;
    let Some(index) = head.index_of(position) else { return Ok(Found::Nothing) };
    let (mut at, mut found) = (0, None);
    read_node(block, |link| {
        if at == index {
            found = Some(link);
        }
        at += 1;
        Ok(())
    })?;
    let link = found.ok_or_else(|| Error::invalid("HAMT shard without the link"))?;
    found_in_shard(head, link, position, name)
}

/// Returns what the link at `position` of a shard means for `name`.
pub(crate) fn found_in_shard(head: &ShardHead, link: &[u8], position: u32, name: &LinkName) -> Result<Found> {
    let LinkFields { cid, name: stored, .. } = read_link(link)?;
    let stored = head.strip_prefix(stored, position)?;
    let cid = cid_from_bytes(cid)?;
    Ok(match stored {
        [] => Found::Shard(cid),
        stored if stored == name.as_bytes() => Found::Entry(cid),
        _ => Found::Nothing,
    })
}
