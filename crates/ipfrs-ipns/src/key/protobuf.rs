//! The messages `PublicKey` and `PrivateKey` of libp2p: `required KeyType Type = 1; required bytes Data = 2;`.
//!
//! They are read in their deterministic encoding only (fields in the order of their numbers, shortest varints, nothing else),
//! which is the one that the specification makes everybody write.

use ipfrs_core::{Error, Result};

use super::KeyType;

/// Field 1, a varint.
const TYPE: u8 = 0x08;
/// Field 2, bytes.
const DATA: u8 = 0x12;

/// Reads a message; `what` it is, for the error.
pub(super) fn decode<'a>(what: &str, message: &'a [u8]) -> Result<(KeyType, &'a [u8])> {
    let [TYPE, number, DATA, rest @ ..] = message else {
        return Err(Error::invalid(format!("not a libp2p {what}: its protobuf message has a Type and Data")));
    };
    let key_type = KeyType::from_number(*number).ok_or_else(|| {
        Error::invalid(format!("{what} of type {number}: known are 0 (RSA), 1 (Ed25519), 2 (Secp256k1), 3 (ECDSA)"))
    })?;
    match unsigned_varint::decode::usize(rest) {
        Ok((length, data)) if data.len() == length => Ok((key_type, data)),
        _ => Err(Error::invalid(format!("not a libp2p {what}: its Data is not as long as it says"))),
    }
}

/// The message. It is allocated once, so that no copy of a secret stays behind.
pub(super) fn encode(key_type: KeyType, data: &[u8]) -> Vec<u8> {
    let mut buffer = unsigned_varint::encode::usize_buffer();
    let length = unsigned_varint::encode::usize(data.len(), &mut buffer);
    let mut message = Vec::with_capacity(3 + length.len() + data.len());
    message.extend_from_slice(&[TYPE, key_type.number(), DATA]);
    message.extend_from_slice(length);
    message.extend_from_slice(data);
    message
}
