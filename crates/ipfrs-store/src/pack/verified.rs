//! Verified reads: the block is copied out of the file and compared with its content ID.

use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, Multihash, Result, cid_from_bytes};

use super::file::Pack;
use super::lock::cannot;
use super::record::Location;

/// Returns the block with this key as a verified copy, which later changes of the pack do not affect. Waits for the
/// disk, and hashes.
///
/// # Errors
/// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) for lost or wrong bytes, and the error of a disk that fails, both with
/// the names of the block and its pack.
pub(super) fn read_verified(pack: &Pack, location: Location, key: &[u8]) -> Result<Bytes> {
    let prefix = usize::from(location.prefix);
    let start = u64::from(location.offset).saturating_sub(prefix as u64);
    let mut section = vec![0; prefix + location.len as usize];
    if let Err(error) = pack.file().read_exact_at(&mut section, start) {
        let (block, path) = (name(location, key, &[]), pack.path().display());
        if error.kind() != io::ErrorKind::UnexpectedEof {
            return Err(cannot(&format!("read block {block} in"), pack.path(), error));
        }
        return Err(Error::corrupt(format!(
            "{path} ends before block {block}, which was stored at {start}: another program truncated it; restore it \
             from a copy, or restart to continue without the lost data"
        )));
    }
    let section = Bytes::from(section);
    let data = section.slice(prefix..);
    let hash = Multihash::from_bytes(key)
        .map_err(|error| Error::corrupt("the index contains a malformed multihash").with_source(error))?;
    let is_right = section[..prefix].ends_with(key) && HashFunction::from_code(hash.code())?.matches(&hash, &data)?;
    if is_right {
        return Ok(data);
    }
    let (block, path) = (name(location, key, &section[..prefix]), pack.path().display());
    Err(Error::corrupt(format!(
        "block {block} in {path} at {start} does not match its content ID: the file was changed or its disk is failing; \
         restore it from a copy, or delete the block and add it again"
    )))
}

/// Returns the block's content ID as text, or as much of it as is known.
fn name(location: Location, key: &[u8], prefix: &[u8]) -> String {
    let in_prefix = || {
        let (_, cid) = unsigned_varint::decode::u64(prefix).ok()?;
        cid.ends_with(key).then(|| cid_from_bytes(cid).ok()).flatten()
    };
    match location.cid(key).ok().flatten().or_else(in_prefix) {
        Some(cid) => cid.to_string(),
        None => format!("with the multihash {}", ipfrs_core::Base::Base58Btc.encode(key)),
    }
}
