//! The messages `PublicKey` and `PrivateKey` of libp2p: `required KeyType Type = 1; required bytes Data = 2;`.
//!
//! The parser accepts only their deterministic encoding (fields in the order of their numbers, shortest varints,
//! nothing else), which the specification requires of every writer.

use ipfrs_core::{Error, Result};

use super::KeyType;

/// Key of field 1, a varint.
const TYPE: u8 = 0x08;
/// Key of field 2, a byte string.
const DATA: u8 = 0x12;

/// Parses a message. `what` names its kind for error messages.
pub(super) fn decode<'a>(what: &str, message: &'a [u8]) -> Result<(KeyType, &'a [u8])> {
    let [TYPE, number, DATA, rest @ ..] = message else {
        return Err(Error::invalid(format!("not a libp2p {what}: a protobuf message with Type and Data is expected")));
    };
    let key_type = KeyType::from_number(*number).ok_or_else(|| {
        Error::invalid(format!("{what} of unknown type {number}: use 0 (RSA), 1 (Ed25519), 2 (Secp256k1) or 3 (ECDSA)"))
    })?;
    match unsigned_varint::decode::usize(rest) {
        Ok((length, data)) if data.len() == length => Ok((key_type, data)),
        _ => Err(Error::invalid(format!("not a libp2p {what}: its Data has the wrong length"))),
    }
}

/// Returns the encoded message. It is allocated once, so that no copy of a secret remains in memory.
pub(super) fn encode(key_type: KeyType, data: &[u8]) -> Vec<u8> {
    let mut buffer = unsigned_varint::encode::usize_buffer();
    let length = unsigned_varint::encode::usize(data.len(), &mut buffer);
    let mut message = Vec::with_capacity(3 + length.len() + data.len());
    message.extend_from_slice(&[TYPE, key_type.number(), DATA]);
    message.extend_from_slice(length);
    message.extend_from_slice(data);
    message
}
