//! Objects in JSON from clients.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Parses an object. Unlike the library, does not read one from the list of its values. Objects within it are only
/// checked if they are an [`Object`].
///
/// # Errors
/// What is wrong, for the client.
pub fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    match text.trim_ascii_start().first() {
        Some(b'[') => Err("it is a list and no object".to_owned()),
        _ => serde_json::from_slice(text).map_err(|e| e.to_string()),
    }
}

/// An object within another one, which is not read from the list of its values.
#[derive(Debug, PartialEq)]
pub struct Object<T>(
    /// The value.
    pub T,
);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// Reads an object whose members have distinct names, or `null`. Of two members with the same name, the library ignores
/// the first.
///
/// # Errors
/// The name of a repeated member, or what is there in place of an object.
pub fn distinct<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Map<String, Value>>, D::Error> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = Option<Map<String, Value>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Map::new();
            while let Some((name, value)) = map.next_entry::<String, Value>()? {
                if members.contains_key(&name) {
                    return Err(A::Error::custom(format!("duplicate field `{name}`")));
                }
                members.insert(name, value);
            }
            Ok(Some(members))
        }
    }

    deserializer.deserialize_any(Members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Pair {
        a: u8,
    }

    #[test]
    fn a_list_is_no_object() {
        assert_eq!(parse(b" {\"a\":1}"), Ok(Pair { a: 1 }));
        assert!(parse::<Pair>(b" [1]").is_err() && serde_json::from_slice::<Pair>(b" [1]").is_ok());
        let within = |text: &str| serde_json::from_str::<Vec<Object<Pair>>>(text).map_err(|e| e.to_string());
        assert_eq!(within(r#"[{"a":1}]"#), Ok(vec![Object(Pair { a: 1 })]));
        let refused = within("[[1]]").unwrap_err();
        assert!(refused.starts_with("invalid type: sequence, expected an object"), "{refused}");
    }
}
