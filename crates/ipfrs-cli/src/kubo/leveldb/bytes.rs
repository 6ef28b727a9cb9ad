//! Numbers and strings in files of LevelDB.

use anyhow::{Result, bail};

/// Takes bytes from the beginning of `rest`.
pub(super) fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let Some((taken, after)) = rest.split_at_checked(count) else { bail!("a record is truncated") };
    *rest = after;
    Ok(taken)
}

/// Takes a number of variable length.
pub(super) fn number(rest: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    bail!("a number is too long")
}

/// Takes a length.
pub(super) fn length(rest: &mut &[u8]) -> Result<usize> {
    Ok(usize::try_from(number(rest)?)?)
}

/// Takes bytes with their length before them.
pub(super) fn string<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let length = length(rest)?;
    take(rest, length)
}

/// Takes four bytes in little endian.
pub(super) fn fixed32(rest: &mut &[u8]) -> Result<u32> {
    let bytes = take(rest, 4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Takes eight bytes in little endian.
pub(super) fn fixed64(rest: &mut &[u8]) -> Result<u64> {
    Ok(u64::from(fixed32(rest)?) | u64::from(fixed32(rest)?) << 32)
}
