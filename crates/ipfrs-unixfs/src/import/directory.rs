//! Directories: checked, sorted, and sharded when they are large.

use ipfrs_core::{Block, Error, Result};
use prost::Message;

use super::layout::node_block;
use super::options::{DirectorySize, ImportOptions, SHARDING_THRESHOLD_BYTES};
use super::shard::shard_directory;
use crate::dag_pb::{PbLink, encoded_data_len, encoded_link_len};
use crate::data::{Attributes, Data, DataType};

/// The blocks of a directory with `entries` and `attributes`, root last, and the bytes of all blocks below the root, itself included.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names an entry whose name is not allowed or there twice.
pub(crate) fn directory_blocks(
    mut entries: Vec<PbLink>,
    attributes: &Attributes,
    options: &ImportOptions,
) -> Result<(Vec<Block>, u64)> {
    entries.iter().try_for_each(|entry| check_name(&entry.name))?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(Error::invalid(format!("directory has two entries named {:?}", pair[0].name)));
    }
    let data = Data { type_code: Some(DataType::Directory.code()), ..Data::default() }.with_attributes(attributes);
    if is_sharded(&entries, &data, options) {
        return shard_directory(entries, attributes, options);
    }
    let (block, tsize) = node_block(&entries, &data, options)?;
    Ok((vec![block], tsize))
}

fn is_sharded(entries: &[PbLink], data: &Data, options: &ImportOptions) -> bool {
    let size = match options.directory_size {
        DirectorySize::Links => entries.iter().map(|entry| entry.name.len() + entry.cid.encoded_len()).sum::<usize>(),
        DirectorySize::Block => {
            entries.iter().map(encoded_link_len).sum::<usize>() + encoded_data_len(data.encoded_len())
        }
    };
    size > SHARDING_THRESHOLD_BYTES || options.max_directory_links.is_some_and(|most| entries.len() > most)
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name == "." || name == ".." {
        return Err(Error::invalid(format!("{name:?} cannot be the name of a directory entry")));
    }
    if name.contains(['/', '\0']) {
        return Err(Error::invalid(format!("the name of directory entry {name:?} holds a slash or NUL")));
    }
    Ok(())
}
