//! The text of CIDv0: 34 bytes in base58btc. The general algorithm takes time quadratic in the length, digit by digit;
//! this one processes five digits at a time.

/// Length of the binary CID: a SHA2-256 multihash.
pub(crate) const BYTES: usize = 34;
/// Number of digits. The first byte, 0x12, makes all texts equally long.
pub(crate) const DIGITS: usize = 46;

const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// Values of the digits.
const VALUES: [u8; 256] = values_of(ALPHABET);
/// Value of bytes that are no digit.
pub(crate) const NO_DIGIT: u8 = 0xff;

/// Number of digits that are processed at a time.
const GROUP: usize = 5;
/// 58 to the power of [`GROUP`].
const GROUP_BASE: u64 = 58_u64.pow(GROUP as u32);
/// Number of groups. The first has only one digit.
const GROUPS: usize = DIGITS.div_ceil(GROUP);
/// Number of 32-bit words that hold the bytes.
const WORDS: usize = BYTES.div_ceil(4);
/// Number of zero bytes before the first of the bytes in its word.
const PADDING: usize = 4 * WORDS - BYTES;

/// Returns the values of the digits of an alphabet; [`NO_DIGIT`] for all other bytes.
pub(crate) const fn values_of(alphabet: &[u8]) -> [u8; 256] {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < alphabet.len() {
        values[alphabet[value] as usize] = value as u8;
        value += 1;
    }
    values
}

/// Returns the digits of a number whose first byte is 0x12.
pub(crate) fn encode(bytes: &[u8; BYTES]) -> [u8; DIGITS] {
    let mut padded = [0; 4 * WORDS];
    padded[PADDING..].copy_from_slice(bytes);
    // The most significant word is the first.
    let mut words = [0_u32; WORDS];
    for (word, bytes) in words.iter_mut().zip(padded.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    let mut digits = [0; GROUP * GROUPS];
    for group in digits.rchunks_mut(GROUP) {
        let mut rest = 0;
        for word in &mut words {
            let value = rest << 32 | u64::from(*word);
            *word = (value / GROUP_BASE) as u32;
            rest = value % GROUP_BASE;
        }
        for digit in group.iter_mut().rev() {
            *digit = ALPHABET[(rest % 58) as usize];
            rest /= 58;
        }
    }
    let mut text = [0; DIGITS];
    text.copy_from_slice(&digits[GROUP * GROUPS - DIGITS..]);
    text
}

/// Returns the number that the digits represent, or `None` if one of them is no digit. 46 digits fit into 34 bytes.
pub(crate) fn decode(digits: &[u8; DIGITS]) -> Option<[u8; BYTES]> {
    let mut words = [0_u32; WORDS];
    let mut seen = 0;
    let (first, others) = digits.split_at(DIGITS % GROUP);
    for group in [first].into_iter().chain(others.chunks(GROUP)) {
        let mut carry = 0_u64;
        for digit in group {
            let value = VALUES[usize::from(*digit)];
            seen |= value;
            carry = carry * 58 + u64::from(value);
        }
        for word in words.iter_mut().rev() {
            let value = u64::from(*word) * GROUP_BASE + carry;
            *word = value as u32;
            carry = value >> 32;
        }
    }
    // Values of digits have no bit above the sixth.
    if seen == NO_DIGIT {
        return None;
    }
    let mut padded = [0; 4 * WORDS];
    for (bytes, word) in padded.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    padded[PADDING..].try_into().ok()
}

#[cfg(test)]
mod tests {
    use multibase::Base;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_are_those_of_the_general_algorithm(digest: [u8; 32], place in 0..DIGITS, wrong: u8) {
            let mut bytes = [0; BYTES];
            bytes[..2].copy_from_slice(&[0x12, 0x20]);
            bytes[2..].copy_from_slice(&digest);
            let mut text = encode(&bytes);
            prop_assert_eq!(std::str::from_utf8(&text).unwrap(), Base::Base58Btc.encode(bytes));
            prop_assert_eq!(decode(&text), Some(bytes));
            text[place] = wrong;
            let general = std::str::from_utf8(&text).ok().and_then(|text| Base::Base58Btc.decode(text).ok());
            // Leading zero bytes are digits 1, which the general algorithm does not drop.
            let general = general.map(|mut bytes| { bytes.reverse(); bytes.resize(BYTES, 0); bytes.reverse(); bytes });
            prop_assert_eq!(decode(&text).map(Vec::from), general);
        }
    }

    #[test]
    fn the_least_and_the_greatest_digest() {
        for digest in [[0; 32], [0xff; 32]] {
            let bytes: Vec<u8> = [0x12, 0x20].into_iter().chain(digest).collect();
            let bytes = bytes.try_into().unwrap();
            assert_eq!(encode(&bytes), Base::Base58Btc.encode(bytes).as_bytes());
            assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
