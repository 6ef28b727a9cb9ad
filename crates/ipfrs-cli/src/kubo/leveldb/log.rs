//! Logs: records in blocks of 32 KiB. The manifest is one too.

use anyhow::{Result, bail};

use super::Value;
use super::bytes::{fixed32, fixed64, string, take};
use super::checksum::masked;

pub(super) const BLOCK_BYTES: usize = 32 * 1024;
pub(super) const HEAD_BYTES: usize = 7;

/// Calls `found` with each record. The end of a log that was being written may be torn, and is ignored.
pub(super) fn records(content: &[u8], mut found: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut joined = Vec::new();
    for block in content.chunks(BLOCK_BYTES) {
        let mut rest = block;
        while rest.len() >= HEAD_BYTES {
            let sum = fixed32(&mut rest)?;
            let head = take(&mut rest, 3)?;
            let (length, kind) = (usize::from(u16::from_le_bytes([head[0], head[1]])), head[2]);
            if kind == 0 && length == 0 {
                // The rest of the block was allocated in advance.
                break;
            }
            let Ok(data) = take(&mut rest, length) else { return Ok(()) };
            if sum != masked(&[&[kind], data]) {
                return Ok(());
            }
            // Whole, first, middle, last.
            match kind {
                1 => found(data)?,
                2 => joined = data.to_vec(),
                3 => joined.extend_from_slice(data),
                4 => {
                    joined.extend_from_slice(data);
                    found(&joined)?;
                    joined.clear();
                }
                _ => bail!("a log has a record of the unknown type {kind}"),
            }
        }
    }
    Ok(())
}

/// Calls `found` with the entries of a log: key, sequence number and value.
pub(super) fn entries(content: &[u8], mut found: impl FnMut(Vec<u8>, u64, Value)) -> Result<()> {
    records(content, |batch| {
        let mut rest = batch;
        let (first, count) = (fixed64(&mut rest)?, fixed32(&mut rest)?);
        let Some(end) = first.checked_add(u64::from(count)) else { bail!("a batch has a wrong sequence number") };
        for sequence in first..end {
            let kind = take(&mut rest, 1)?[0];
            let key = string(&mut rest)?.to_vec();
            let value = match kind {
                0 => None,
                1 => Some(string(&mut rest)?.to_vec()),
                _ => bail!("a batch has an entry of the unknown type {kind}"),
            };
            found(key, sequence, value);
        }
        Ok(())
    })
}
