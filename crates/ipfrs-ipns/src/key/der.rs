//! The parts of DER (X.690) that the cryptographic library does not provide: parsing of PKCS#8 and of signatures.

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;

/// Splits `input` into the content of its first element, which must have the tag `tag`, and the rest.
fn take(tag: u8, input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Long form: a big-endian length of this many bytes. Two bytes allow for 64 KiB, more than any key takes.
        0x81 | 0x82 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    (found == tag).then_some(rest.split_at_checked(length)?)
}

/// Parses an unencrypted PKCS#8 document (RFC 5208). Returns the content of its `AlgorithmIdentifier`, and the key in
/// the format of its algorithm.
pub(super) fn pkcs8(document: &[u8]) -> Option<(&[u8], &[u8])> {
    let (info, _) = take(SEQUENCE, document)?;
    let (_version, rest) = take(INTEGER, info)?;
    let (algorithm, rest) = take(SEQUENCE, rest)?;
    let (key, _attributes) = take(OCTET_STRING, rest)?;
    Some((algorithm, key))
}

/// Returns the length of the modulus of a PKCS#1 `RSAPublicKey`, in bits.
pub(super) fn rsa_modulus_bits(pkcs1: &[u8]) -> Option<usize> {
    let (key, _) = take(SEQUENCE, pkcs1)?;
    let (modulus, _exponent) = take(INTEGER, key)?;
    let digits = magnitude(modulus);
    Some(digits.len() * 8 - digits.first()?.leading_zeros() as usize)
}

/// Returns the `s` of an ECDSA signature: big-endian, without leading zeros.
pub(super) fn ecdsa_s(signature: &[u8]) -> Option<&[u8]> {
    let (pair, _) = take(SEQUENCE, signature)?;
    let (_r, rest) = take(INTEGER, pair)?;
    let (s, _) = take(INTEGER, rest)?;
    Some(magnitude(s))
}

fn magnitude(integer: &[u8]) -> &[u8] {
    let zeros = integer.iter().take_while(|&&digit| digit == 0).count();
    integer.split_at(zeros).1
}
