//! DAG-JSON (<https://ipld.io/specs/codecs/dag-json/spec/>) as values of the data model.
//!
//! It reserves maps with the key `/` for links and bytes. serde_ipld_dagjson ignores what else is in such a map.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use ipfrs_core::{Error, Result, parse_cid};
use ipld_core::cid::Cid as LinkCid;
use ipld_core::ipld::Ipld;

use super::dag_cbor::Tree;
use super::plain::Plain;

/// Key of the reserved maps.
const RESERVED: &str = "/";
/// Magnitudes from which numbers have an exponent, as in ECMAScript and in Kubo.
const EXPONENT: (f64, f64) = (1e-6, 1e21);

/// Decodes a value whose maps have the order of the data.
///
/// # Errors
/// For data that is not JSON, for repeated keys, integers of more than 64 bits, and maps with the key `/` that are
/// neither links nor bytes.
pub(super) fn decode(data: &[u8]) -> Result<Tree> {
    into_tree(Plain::from_json(data)?)
}

fn into_tree(value: Plain) -> Result<Tree> {
    Ok(match value {
        Plain::List(list) => Tree::List(list.into_iter().map(into_tree).collect::<Result<_>>()?),
        Plain::Map(map) => match map.as_slice() {
            [(key, Plain::Text(cid))] if key == RESERVED => {
                // Unlike the parser of the library, this one takes nothing but a content ID.
                let cid = parse_cid(cid)
                    .and_then(|cid| LinkCid::try_from(cid.to_bytes()).map_err(|e| Error::invalid(e.to_string())));
                Tree::Leaf(Ipld::Link(cid.map_err(|e| Error::invalid(format!("a link is no content ID: {e}")))?))
            }
            [(key, Plain::Map(inner))] if key == RESERVED && is_bytes(inner) => {
                let [(_, Plain::Text(text))] = inner.as_slice() else { return Err(reserved()) };
                // As in Kubo, padding is allowed.
                let bytes = STANDARD_NO_PAD.decode(text).or_else(|_| STANDARD.decode(text));
                Tree::Leaf(Ipld::Bytes(bytes.map_err(|e| Error::invalid(format!("bytes are not base64: {e}")))?))
            }
            entries if entries.iter().any(|(key, _)| key == RESERVED) => return Err(reserved()),
            _ => {
                let entry = |(key, value)| Ok((key, into_tree(value)?));
                Tree::Map(map.into_iter().map(entry).collect::<Result<_>>()?)
            }
        },
        leaf => Tree::Leaf(leaf.into_ipld()),
    })
}

fn is_bytes(map: &[(String, Plain)]) -> bool {
    matches!(map, [(key, Plain::Text(_))] if key == "bytes")
}

fn reserved() -> Error {
    Error::invalid("a map has the key \"/\", which dag-json reserves for links and bytes, and is neither")
}

/// Encodes a value.
///
/// # Errors
/// For NaN and infinities, and for a map with the key `/`, which could not be read back as the same value
/// (<https://ipld.io/specs/codecs/dag-json/spec/#reserved-namespace>).
pub(super) fn encode(value: &Ipld) -> Result<Bytes> {
    let mut out = Vec::new();
    put(&mut out, value)?;
    Ok(out.into())
}

fn put(out: &mut Vec<u8>, value: &Ipld) -> Result<()> {
    match value {
        Ipld::Null => out.extend_from_slice(b"null"),
        Ipld::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Ipld::Integer(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Ipld::Float(value) => out.extend_from_slice(float(*value)?.as_bytes()),
        Ipld::String(text) => put_text(out, text)?,
        Ipld::Bytes(bytes) => {
            let text = STANDARD_NO_PAD.encode(bytes);
            out.extend_from_slice(format!("{{\"/\":{{\"bytes\":\"{text}\"}}}}").as_bytes());
        }
        Ipld::Link(cid) => out.extend_from_slice(format!("{{\"/\":\"{cid}\"}}").as_bytes()),
        Ipld::List(list) => {
            out.push(b'[');
            for (index, value) in list.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { b"," });
                put(out, value)?;
            }
            out.push(b']');
        }
        Ipld::Map(map) => {
            if map.contains_key(RESERVED) {
                let why = "a map has the key \"/\", which dag-json reserves for links and bytes";
                return Err(Error::invalid(why));
            }
            out.push(b'{');
            // A `BTreeMap` has the order of the bytes, as the specification asks for.
            for (index, (key, value)) in map.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { b"," });
                put_text(out, key)?;
                out.push(b':');
                put(out, value)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

fn put_text(out: &mut Vec<u8>, text: &str) -> Result<()> {
    serde_json::to_writer(out, text).map_err(|e| Error::internal("a text cannot be written as JSON").with_source(e))
}

/// Returns a number as ECMAScript writes it, always with a point or an exponent, so that it is read as a float.
fn float(value: f64) -> Result<String> {
    if !value.is_finite() {
        return Err(Error::invalid("a number is not finite"));
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && (magnitude < EXPONENT.0 || magnitude >= EXPONENT.1) {
        let text = format!("{value:e}");
        return Ok(if magnitude >= 1.0 { text.replace('e', "e+") } else { text });
    }
    let text = value.to_string();
    Ok(if text.contains('.') { text } else { format!("{text}.0") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CID: &str = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";

    #[test]
    fn values_are_read_back_as_written() {
        for json in [
            "{\"a\":{\"/\":{\"bytes\":\"AQI\"}},\"b\":[1,-300,18446744073709551615,true,null,\"\\b\u{2028}\"]}",
            &format!("[{{\"/\":\"{CID}\"}},{{}},[]]"),
            "{\"\":1,\"A\":2,\"aa\":3,\"b\":4}",
            "0.000001",
            "1e-7",
            "10000000000000000.0",
            "1e+21",
            "1.5e+300",
            "-0.0",
            "1.0",
        ] {
            let value = decode(json.as_bytes()).unwrap().into_ipld();
            assert_eq!(encode(&value).unwrap(), json, "{value:?}");
        }
        assert_eq!(decode(b"{\"/\":{\"bytes\":\"AQI=\"}}").unwrap().into_ipld(), Ipld::Bytes(vec![1, 2]));
        assert_eq!(decode(b"1e16").unwrap().into_ipld(), Ipld::Float(1e16));
    }

    #[test]
    fn other_maps_with_the_reserved_key_are_refused() {
        for json in [
            "{\"k\":{\"/\":{\"bytes\":\"AQI\",\"x\":1}}}",
            "{\"/\":{\"bytes\":\"AQI\"},\"y\":2}",
            &format!("{{\"/\":\"{CID}\",\"y\":2}}"),
            &format!("{{\"a\":1,\"/\":\"{CID}\"}}"),
            "{\"/\":1}",
            "{\"/\":{\"bytes\":1}}",
            "{\"/\":{}}",
            "{\"/\":[]}",
        ] {
            let message = decode(json.as_bytes()).unwrap_err().to_string();
            assert!(message.contains("reserves"), "{json}: {message}");
        }
        let url = format!("{{\"/\":\"https://example.org/ipfs/{CID}\"}}");
        for json in [&url, "{\"/\":\"no CID\"}", "{\"/\":{\"bytes\":\"?\"}}", "{\"a\":1,\"a\":2}", "1 2"] {
            decode(json.as_bytes()).unwrap_err();
        }
        let map = |key: &str, value| Ipld::Map([(key.to_owned(), value)].into());
        encode(&map("x", map("/", Ipld::Null))).unwrap_err();
        encode(&Ipld::Float(f64::NAN)).unwrap_err();
    }
}
