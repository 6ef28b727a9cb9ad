//! CRC-32C, as LevelDB masks it.

/// Polynomial of CRC-32C, reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Number that LevelDB adds to a checksum, because checksums of data with checksums are weak.
const MASK: u32 = 0xa282_ead8;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// Returns the masked checksum of the parts.
pub(super) fn masked(parts: &[&[u8]]) -> u32 {
    let mut value = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        value = TABLE[((value ^ u32::from(*byte)) & 255) as usize] ^ value >> 8;
    }
    (!value).rotate_right(15).wrapping_add(MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_crc32c() {
        let unmasked = masked(&[b"1234", b"56789"]).wrapping_sub(MASK).rotate_left(15);
        assert_eq!(unmasked, 0xe306_9283);
    }
}
