//! Signed and encrypted objects: blocks of the codec dag-jose (<https://ipld.io/specs/codecs/dag-jose/spec/>).
//!
//! A block is dag-cbor with byte strings. As values, they are base64url texts, and an object with signatures has the
//! `link` that its payload is.

use std::collections::BTreeMap;
use std::fmt::Display;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipfrs_core::{Cid, CidList, Error, Result, cid_from_bytes};
use ipld_core::cid::Cid as LinkCid;
use ipld_core::ipld::Ipld;
use serde::Deserialize;

use super::value::Fields;
use super::{Step, canonical_cbor, cbor};

/// A kind of object: its fields that are byte strings, other fields, and the list of its parts, which some kinds need.
struct Kind {
    name: &'static str,
    bytes: &'static [&'static str],
    other: &'static [&'static str],
    parts: &'static str,
    needs_parts: bool,
    part: Part,
}

/// The parts of an object. A part may stand in the object itself if it is the only one ("flattened").
struct Part {
    name: &'static str,
    bytes: &'static [&'static str],
}

/// Field of a part that is not a byte string.
const HEADER: &str = "header";

const SIGNED: Kind = Kind {
    name: "an object with signatures",
    bytes: &["payload"],
    other: &[],
    parts: "signatures",
    needs_parts: true,
    part: Part { name: "a signature", bytes: &["protected", "signature"] },
};

const ENCRYPTED: Kind = Kind {
    name: "an encrypted object",
    bytes: &["aad", "ciphertext", "iv", "protected", "tag"],
    other: &["unprotected"],
    parts: "recipients",
    needs_parts: false,
    part: Part { name: "a recipient", bytes: &["encrypted_key"] },
};

/// The field of a block that may be a link.
#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    payload: Option<&'a serde_bytes::Bytes>,
}

/// Returns the link of a block, if it has one: its payload.
fn link(block: &[u8]) -> Result<Option<Cid>> {
    let Payload { payload } = serde_ipld_dagcbor::from_slice(block).map_err(|e| malformed(&e))?;
    payload.map(|payload| cid_from_bytes(payload).map_err(|e| malformed(&format!("payload: {e}")))).transpose()
}

/// Returns the links of a block.
pub(super) fn links(block: &[u8]) -> Result<CidList> {
    let mut links = CidList::default();
    link(block)?.iter().for_each(|cid| links.push(cid));
    Ok(links)
}

/// Follows `segments` in a block. Only its link leads to another block.
pub(super) fn follow(block: &[u8], segments: &[String]) -> Result<Step> {
    match (segments.first().map(String::as_str), link(block)?) {
        (Some("link"), Some(cid)) => Ok(Step::Link { cid, used: 1 }),
        _ => cbor::follow(block, segments),
    }
}

fn malformed(why: &dyn Display) -> Error {
    Error::invalid(why.to_string())
}

/// Returns the link that a payload is. Its digest has the length of its hash function, as in every link.
fn payload_link(payload: &[u8]) -> Result<LinkCid> {
    cid_from_bytes(payload)?;
    LinkCid::try_from(payload).map_err(|e| Error::invalid(e.to_string()))
}

/// Decodes a block to the values that Kubo shows.
///
/// # Errors
/// If it is malformed.
pub fn decode(block: &[u8]) -> Result<Ipld> {
    let cbor = canonical_cbor(block).map_err(|e| malformed(&e))?;
    let value: Ipld = serde_ipld_dagcbor::from_slice(&cbor).map_err(|e| malformed(&e))?;
    let kind = kind_of(&value).map_err(|e| malformed(&e))?;
    let mut object = convert(&kind, &value, &|bytes| match bytes {
        Ipld::Bytes(bytes) => Some(Ipld::String(URL_SAFE_NO_PAD.encode(bytes))),
        _ => None,
    })
    .map_err(|e| malformed(&e))?;
    if let Some(Ipld::Bytes(payload)) = Fields::of(&value, kind.name)?.get("payload") {
        let link = payload_link(payload).map_err(|e| malformed(&format!("payload: {e}")))?;
        object.insert("link".to_owned(), Ipld::Link(link));
    }
    Ok(Ipld::Map(object))
}

/// Encodes what [`decode`] returns, or the same with one part in the object itself.
///
/// # Errors
/// If the fields are not those of an object.
pub fn encode(value: &Ipld) -> Result<Vec<u8>> {
    let kind = kind_of(value)?;
    let mut general = Fields::of(value, kind.name)?.to_map();
    let link = if kind.parts == SIGNED.parts { general.remove("link") } else { None };
    let part: BTreeMap<_, _> = kind
        .part
        .bytes
        .iter()
        .chain([&HEADER])
        .filter(|field| !kind.bytes.contains(field))
        .filter_map(|field| general.remove_entry(*field))
        .collect();
    let has_parts = general.contains_key(kind.parts);
    if !part.is_empty() && has_parts {
        let message = "invalid JWS or JWE serialization: it has both the fields of one part and a list of parts";
        return Err(Error::invalid(message));
    }
    if !part.is_empty() || (!has_parts && kind.needs_parts) {
        general.insert(kind.parts.to_owned(), Ipld::List(vec![Ipld::Map(part)]));
    }
    let bytes_of = |text: &Ipld| match text {
        Ipld::String(text) => URL_SAFE_NO_PAD.decode(text).ok().map(Ipld::Bytes),
        _ => None,
    };
    if let Some(Ipld::Bytes(payload)) = general.get("payload").and_then(bytes_of) {
        let of_payload =
            payload_link(&payload).map_err(|e| Error::invalid(format!("payload is not a valid CID: {e}")))?;
        if link.is_some_and(|link| link != Ipld::Link(of_payload)) {
            return Err(Error::invalid("cid mismatch: link is not the content ID in payload"));
        }
    }
    let block = convert(&kind, &Ipld::Map(general), &bytes_of)?;
    serde_ipld_dagcbor::to_vec(&Ipld::Map(block)).map_err(|e| Error::invalid(format!("dag-jose: {e}")))
}

fn kind_of(value: &Ipld) -> Result<Kind> {
    let fields = Fields::of(value, "an object")?;
    match (fields.get("ciphertext"), fields.get("payload")) {
        (Some(_), _) => Ok(ENCRYPTED),
        (None, Some(_)) => Ok(SIGNED),
        (None, None) => Err(Error::invalid("invalid JOSE object: it has neither payload nor ciphertext")),
    }
}

/// Converts the byte strings of an object, and checks its fields.
fn convert(kind: &Kind, value: &Ipld, bytes: &dyn Fn(&Ipld) -> Option<Ipld>) -> Result<BTreeMap<String, Ipld>> {
    let mut object = BTreeMap::new();
    for (name, field) in Fields::of(value, kind.name)?.to_map() {
        let converted = match &field {
            _ if kind.bytes.contains(&name.as_str()) => converted(&name, &field, bytes)?,
            Ipld::List(parts) if name == kind.parts => {
                Ipld::List(parts.iter().map(|part| convert_part(&kind.part, part, bytes)).collect::<Result<_>>()?)
            }
            _ if kind.other.contains(&name.as_str()) => without_links(field)?,
            _ => return Err(Error::invalid(format!("{} has no such field {name:?}", kind.name))),
        };
        object.insert(name, converted);
    }
    Ok(object)
}

fn convert_part(part: &Part, value: &Ipld, bytes: &dyn Fn(&Ipld) -> Option<Ipld>) -> Result<Ipld> {
    let mut fields = BTreeMap::new();
    for (name, field) in Fields::of(value, part.name)?.to_map() {
        let converted = match name.as_str() {
            HEADER => without_links(field)?,
            text if part.bytes.contains(&text) => converted(text, &field, bytes)?,
            _ => return Err(Error::invalid(format!("{} has no such field {name:?}", part.name))),
        };
        fields.insert(name, converted);
    }
    if part.bytes.contains(&"signature") && !fields.contains_key("signature") {
        return Err(Error::invalid("missing required fields: signature"));
    }
    Ok(Ipld::Map(fields))
}

fn converted(name: &str, field: &Ipld, bytes: &dyn Fn(&Ipld) -> Option<Ipld>) -> Result<Ipld> {
    bytes(field).ok_or_else(|| Error::invalid(format!("{name} must be bytes, or base64url as text")))
}

/// Checks that headers have no links, which the format does not allow.
fn without_links(value: Ipld) -> Result<Ipld> {
    let has_links = value.iter().any(|value| matches!(value, Ipld::Link(_)));
    if has_links { Err(Error::invalid("headers have no links")) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link to an empty dag-cbor map as payload.
    const PAYLOAD: &str = "AXESIBYVvnVrP41rhQP6uIEwT9LQ0Cmbs4JNrKUpSMVlNHrS";

    fn text(text: &str) -> Ipld {
        Ipld::String(text.to_owned())
    }

    fn map<const N: usize>(entries: [(&str, Ipld); N]) -> Ipld {
        super::super::value::map(entries)
    }

    #[test]
    fn one_signature_becomes_a_list_and_payload_a_link() {
        let header = map([("kid", text("key"))]);
        let flat = map([("payload", text(PAYLOAD)), ("signature", text("c2ln")), ("header", header.clone())]);
        let block = encode(&flat).unwrap();
        let Ipld::Map(decoded) = decode(&block).unwrap() else { panic!("not a map") };
        let signature = map([("signature", text("c2ln")), ("header", header)]);
        assert_eq!(decoded["signatures"], Ipld::List(vec![signature]));
        let Ipld::Link(link) = &decoded["link"] else { panic!("no link") };
        assert_eq!(URL_SAFE_NO_PAD.encode(link.to_bytes()), PAYLOAD);
        assert_eq!(encode(&Ipld::Map(decoded)).unwrap(), block);
    }

    #[test]
    fn recipients_are_kept_and_their_protected_header_is_that_of_the_object() {
        let flat = map([("ciphertext", text("AQI")), ("protected", text("e30")), ("encrypted_key", text("AQ"))]);
        let decoded = decode(&encode(&flat).unwrap()).unwrap();
        let recipients = Ipld::List(vec![map([("encrypted_key", text("AQ"))])]);
        let general = map([("ciphertext", text("AQI")), ("protected", text("e30")), ("recipients", recipients)]);
        assert_eq!(decoded, general);
        assert_eq!(encode(&general).unwrap(), encode(&flat).unwrap());
    }

    #[test]
    fn malformed_objects_are_refused() {
        let link = |of: &str| Ipld::Link(LinkCid::try_from(of).unwrap());
        let other = "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua";
        for (value, reason) in [
            (map([("other", text("AQ"))]), "neither payload nor ciphertext"),
            (map([("payload", text("AQ")), ("signature", text("AQ"))]), "payload is not a valid CID"),
            (map([("payload", text(PAYLOAD)), ("header", map([]))]), "missing required fields: signature"),
            (map([("payload", text(PAYLOAD)), ("signature", text("="))]), "must be bytes"),
            (map([("payload", text(PAYLOAD)), ("link", link(other)), ("signature", text("AQ"))]), "cid mismatch"),
            (map([("ciphertext", text("AQ")), ("unprotected", link(other))]), "headers have no links"),
            (map([("ciphertext", text("AQ")), ("tags", text("AQ"))]), "no such field \"tags\""),
            (map([("ciphertext", text("AQ")), ("header", map([])), ("recipients", Ipld::List(vec![]))]), "both"),
            (map([("payload", text(PAYLOAD))]), "missing required fields: signature"),
        ] {
            let error = encode(&value).unwrap_err();
            assert!(error.message().contains(reason), "{error}");
        }
        assert!(decode(b"\xa1\x67payload\x41\x01").is_err());
        // A digest without bytes, found by fuzzing.
        let payload = b"\x01\x71\x12\x00";
        let block =
            [b"\xa2\x67payload\x44".as_slice(), payload, b"\x6asignatures\x81\xa1\x69signature\x41\x01"].concat();
        assert!(decode(&block).is_err());
        assert!(decode(b"git").is_err());
    }
}
