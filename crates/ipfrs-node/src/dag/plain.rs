//! The codecs json and cbor: values without links, and in json also without bytes. Unlike dag-json and dag-cbor they
//! keep the order of the keys of a map.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::{fmt, iter};

use bytes::Bytes;
use ipfrs_core::{Error, Result};
use ipld_core::ipld::Ipld;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::dag_cbor::{Tree, put_float, put_head, put_integer, put_text};

/// A value without links.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plain {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    /// Bytes, which json does not have.
    Bytes(Vec<u8>),
    List(Vec<Plain>),
    /// Entries in the order of the data.
    Map(Vec<(String, Plain)>),
}

impl Plain {
    /// Decodes JSON. The integer `-0` is 0, as in Kubo; the parser would make it a floating-point number.
    pub(super) fn from_json(json: &[u8]) -> Result<Self> {
        let mut json = Cow::Borrowed(json);
        let zeros: Vec<_> = numbers(&json).filter(|number| json[number.clone()] == *b"-0").collect();
        for zero in zeros {
            json.to_mut()[zero.start] = b' ';
        }
        serde_json::from_slice(&json).map_err(|e| Error::invalid(format!("it is not json: {e}")))
    }

    /// Takes over what was decoded from CBOR.
    ///
    /// # Errors
    /// If it contains links.
    pub(super) fn from_cbor(tree: Tree) -> Result<Self> {
        Self::from_tree(tree, "cbor")
    }

    /// Converts a value of the data model whose maps have the order of the data.
    ///
    /// # Errors
    /// If it contains links, which `codec` does not have.
    pub(super) fn from_tree(tree: Tree, codec: &str) -> Result<Self> {
        Ok(match tree {
            Tree::Leaf(value) => Self::from_ipld(value, codec)?,
            Tree::List(list) => {
                Self::List(list.into_iter().map(|value| Self::from_tree(value, codec)).collect::<Result<_>>()?)
            }
            Tree::Map(map) => {
                let entry = |(key, value)| Ok((key, Self::from_tree(value, codec)?));
                Self::Map(map.into_iter().map(entry).collect::<Result<_>>()?)
            }
        })
    }

    /// Encodes JSON as Kubo does, with tabs, and a line end after a list or a map.
    ///
    /// # Errors
    /// If it contains bytes.
    pub(super) fn to_json(&self) -> Result<Bytes> {
        let mut json = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b"\t");
        let mut serializer = serde_json::Serializer::with_formatter(&mut json, formatter);
        self.serialize(&mut serializer).map_err(|e| Error::invalid(e.to_string()))?;
        if matches!(self, Self::List(_) | Self::Map(_)) {
            json.push(b'\n');
        }
        Ok(json.into())
    }

    /// Encodes CBOR.
    pub(super) fn to_cbor(&self) -> Result<Bytes> {
        let mut cbor = Vec::new();
        put_cbor(&mut cbor, self).map_err(|e| Error::new(e.kind(), format!("cbor cannot represent it: {e}")))?;
        Ok(cbor.into())
    }

    /// Converts a value of the data model.
    ///
    /// # Errors
    /// If it contains links, which `codec` does not have.
    pub(super) fn from_ipld(value: Ipld, codec: &str) -> Result<Self> {
        Ok(match value {
            Ipld::Null => Self::Null,
            Ipld::Bool(value) => Self::Bool(value),
            Ipld::Integer(value) => Self::Integer(value),
            Ipld::Float(value) => Self::Float(value),
            Ipld::String(text) => Self::Text(text),
            Ipld::Bytes(bytes) => Self::Bytes(bytes),
            // Kubo has different texts for the codecs.
            Ipld::Link(_) if codec == "cbor" => return Err(Error::invalid("cannot Marshal ipld links to CBOR")),
            Ipld::Link(_) => {
                return Err(Error::invalid(format!("cannot marshal IPLD links to this codec: {codec}")));
            }
            Ipld::List(list) => {
                Self::List(list.into_iter().map(|value| Self::from_ipld(value, codec)).collect::<Result<_>>()?)
            }
            Ipld::Map(map) => {
                let entry = |(key, value)| Ok((key, Self::from_ipld(value, codec)?));
                Self::Map(map.into_iter().map(entry).collect::<Result<_>>()?)
            }
        })
    }

    /// Reverses the entries of a map.
    pub(super) fn reversed(self) -> Self {
        match self {
            Self::Map(entries) => Self::Map(entries.into_iter().rev().collect()),
            value => value,
        }
    }

    /// Converts to a value of the data model.
    pub(super) fn into_ipld(self) -> Ipld {
        match self {
            Self::Null => Ipld::Null,
            Self::Bool(value) => Ipld::Bool(value),
            Self::Integer(value) => Ipld::Integer(value),
            Self::Float(value) => Ipld::Float(value),
            Self::Text(text) => Ipld::String(text),
            Self::Bytes(bytes) => Ipld::Bytes(bytes),
            Self::List(list) => Ipld::List(list.into_iter().map(Self::into_ipld).collect()),
            Self::Map(map) => Ipld::Map(map.into_iter().map(|(key, value)| (key, value.into_ipld())).collect()),
        }
    }
}

/// Returns the places of the numbers in a JSON document.
pub(super) fn numbers(json: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    iter::from_fn(move || {
        while let Some(first) = json.get(at) {
            let start = at;
            match first {
                b'"' => at += text_len(&json[at + 1..]) + 1,
                b'-' | b'0'..=b'9' => {
                    let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                    at += json[at..].iter().take_while(|byte| is_number(byte)).count();
                    return Some(start..at);
                }
                _ => at += 1,
            }
        }
        None
    })
}

/// Returns the length of a JSON string after its opening quotation mark, including the closing one.
fn text_len(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = text.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |end| end + 1)
}

/// Appends a value in the shortest form of each number, with the keys in their order.
fn put_cbor(out: &mut Vec<u8>, value: &Plain) -> Result<()> {
    match value {
        Plain::Null => out.push(0xf6),
        Plain::Bool(value) => out.push(if *value { 0xf5 } else { 0xf4 }),
        Plain::Integer(value) => put_integer(out, *value)?,
        Plain::Float(value) => put_float(out, *value)?,
        Plain::Text(text) => put_text(out, text),
        Plain::Bytes(bytes) => {
            put_head(out, 0x40, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
        Plain::List(list) => {
            put_head(out, 0x80, list.len() as u64);
            list.iter().try_for_each(|value| put_cbor(out, value))?;
        }
        Plain::Map(map) => {
            put_head(out, 0xa0, map.len() as u64);
            for (key, value) in map {
                put_text(out, key);
                put_cbor(out, value)?;
            }
        }
    }
    Ok(())
}

impl Serialize for Plain {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => serializer.serialize_i128(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(_) => Err(serde::ser::Error::custom("cannot marshal IPLD bytes to this codec: json")),
            Self::List(list) => {
                let mut sequence = serializer.serialize_seq(Some(list.len()))?;
                list.iter().try_for_each(|value| sequence.serialize_element(value))?;
                sequence.end()
            }
            Self::Map(map) => {
                let mut entries = serializer.serialize_map(Some(map.len()))?;
                map.iter().try_for_each(|(key, value)| entries.serialize_entry(key, value))?;
                entries.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Plain;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value without links and bytes")
    }

    fn visit_unit<E>(self) -> std::result::Result<Plain, E> {
        Ok(Plain::Null)
    }

    fn visit_none<E>(self) -> std::result::Result<Plain, E> {
        Ok(Plain::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Plain, E> {
        Ok(Plain::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Plain, E> {
        Ok(Plain::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Plain, E> {
        Ok(Plain::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> std::result::Result<Plain, E> {
        Ok(Plain::Integer(value))
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Plain, E> {
        Ok(Plain::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Plain, E> {
        Ok(Plain::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> std::result::Result<Plain, E> {
        Ok(Plain::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> std::result::Result<Plain, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = sequence.next_element()? {
            list.push(value);
        }
        Ok(Plain::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<Plain, A::Error> {
        let (mut map, mut keys) = (Vec::new(), HashSet::new());
        while let Some((key, value)) = entries.next_entry::<String, _>()? {
            if !keys.insert(key.clone()) {
                return Err(serde::de::Error::custom(format_args!("the key {key:?} is repeated")));
            }
            map.push((key, value));
        }
        Ok(Plain::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_cbor_keep_values_and_order() {
        let json = r#"{"b": [1, -300, 70000, 2.5, null, true], "a": {"/": "text"}}"#;
        let value = Plain::from_json(json.as_bytes()).unwrap();
        let pretty = value.to_json().unwrap();
        assert!(pretty.starts_with(b"{\n\t\"b\": [\n\t\t1,") && pretty.ends_with(b"}\n"), "{pretty:?}");
        assert_eq!(Plain::from_json(b"1").unwrap().to_json().unwrap(), "1");
        let zeros = Plain::from_json(b"[-0, -0.0, \"-0\"]").unwrap();
        assert_eq!(zeros, Plain::List(vec![Plain::Integer(0), Plain::Float(-0.0), Plain::Text("-0".to_owned())]));
        assert_eq!(Plain::from_json(&pretty).unwrap(), value);
        let cbor = value.to_cbor().unwrap();
        assert_eq!(cbor[..8], *b"\xa2\x61b\x86\x01\x39\x01\x2b");
        assert_eq!(Plain::from_ipld(value.clone().into_ipld(), "json").unwrap().into_ipld(), value.into_ipld());
        let bytes = Plain::from_ipld(Ipld::List(vec![Ipld::Bytes(vec![1])]), "json").unwrap();
        assert_eq!(bytes.to_cbor().unwrap(), b"\x81\x41\x01"[..]);
        assert_eq!(bytes.to_json().unwrap_err().message(), "cannot marshal IPLD bytes to this codec: json");
    }
}
