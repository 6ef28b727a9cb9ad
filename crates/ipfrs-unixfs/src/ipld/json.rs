//! A streaming reader of DAG-JSON (<https://ipld.io/specs/codecs/dag-json/spec/>) that keeps only links.
//!
//! A map whose only key is `/` is a link if its value is text (and bytes if its value is a map).

use std::fmt;

use ipfrs_core::{CidList, Error, Result, parse_cid};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Step, check_nesting, list_index, too_nested};

/// The key that makes a map a link or bytes.
const SLASH: &str = "/";

/// Returns the links of a block, in block order.
pub(super) fn links(data: &[u8]) -> Result<CidList> {
    let mut links = CidList::default();
    let mut failure = None;
    let walk = Walk { links: &mut links, failure: &mut failure, depth: 0, keeps_text: false };
    let outcome = read(data, walk);
    failure.map_or(outcome, Err)?;
    Ok(links)
}

/// Follows `segments` in a block.
pub(super) fn follow(data: &[u8], segments: &[String]) -> Result<Step> {
    let mut failure = None;
    let outcome = read(data, Follow { segments, used: 0, failure: &mut failure });
    failure.map_or(outcome, Err)
}

fn read<'de, S: DeserializeSeed<'de>>(data: &'de [u8], seed: S) -> Result<S::Value> {
    let mut json = serde_json::Deserializer::from_slice(data);
    seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value)).map_err(|error| in_words(&error))
}

/// Converts an error of the parser. The parser has the same nesting limit as this crate and reaches it first.
fn in_words(error: &serde_json::Error) -> Error {
    let reason = error.to_string();
    match reason.starts_with("recursion limit exceeded") {
        true => too_nested(),
        false => Error::invalid(reason),
    }
}

/// Keeps an error of this crate while serde propagates one of its own.
fn fail_with<E: serde::de::Error>(failure: &mut Option<Error>, error: Error) -> E {
    let passed_up = E::custom(error.message());
    *failure = Some(error);
    passed_up
}

/// A visitor that reads a value with its contents and collects its links. If `keeps_text` is true, it returns a value
/// that is text.
struct Walk<'a> {
    links: &'a mut CidList,
    failure: &'a mut Option<Error>,
    /// Number of lists and maps around the value.
    depth: usize,
    keeps_text: bool,
}

impl Walk<'_> {
    /// Returns a visitor for a value inside this one.
    fn inner(&mut self, keeps_text: bool) -> Walk<'_> {
        Walk { links: self.links, failure: self.failure, depth: self.depth + 1, keeps_text }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of DAG-JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.keeps_text.then(|| text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Self::Value, A::Error> {
        check_nesting(self.depth).map_err(|error| fail_with(self.failure, error))?;
        while list.next_element_seed(self.inner(false))?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        check_nesting(self.depth).map_err(|error| fail_with(self.failure, error))?;
        let mut link = None;
        let mut is_first = true;
        while let Some(key) = map.next_key::<String>()? {
            link = map.next_value_seed(self.inner(is_first && key == SLASH))?;
            is_first = false;
        }
        if let Some(text) = link {
            let cid = parse_cid(&text).map_err(|error| fail_with(self.failure, error))?;
            self.links.push(&cid);
        }
        Ok(None)
    }
}

/// A visitor that follows the rest of a path from a value. It still parses the rest of the block, which must be valid
/// JSON.
struct Follow<'a> {
    segments: &'a [String],
    used: usize,
    failure: &'a mut Option<Error>,
}

impl Follow<'_> {
    /// Returns a visitor for the value that the next segment leads to.
    fn next(&mut self) -> Follow<'_> {
        Follow { segments: self.segments, used: self.used + 1, failure: self.failure }
    }

    /// Returns the result for a value that does not contain the next segment.
    fn here(&self) -> Step {
        if self.used == self.segments.len() { Step::Within } else { Step::Missing(self.used) }
    }

    fn link<E: serde::de::Error>(self, text: &str) -> Result<Step, E> {
        let cid = parse_cid(text).map_err(|error| fail_with(self.failure, error))?;
        Ok(if self.used == 0 { self.here() } else { Step::Link { cid, used: self.used } })
    }
}

impl<'de> DeserializeSeed<'de> for Follow<'_> {
    type Value = Step;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Follow<'_> {
    type Value = Step;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of DAG-JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Step, E> {
        Ok(self.here())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Step, E> {
        Ok(self.here())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Step, E> {
        Ok(self.here())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Step, E> {
        Ok(self.here())
    }

    fn visit_unit<E>(self) -> Result<Step, E> {
        Ok(self.here())
    }

    fn visit_str<E>(self, _: &str) -> Result<Step, E> {
        Ok(self.here())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Step, A::Error> {
        check_nesting(self.used).map_err(|error| fail_with(self.failure, error))?;
        let mut step = self.here();
        if let Some(index) = self.segments.get(self.used).and_then(|segment| list_index(segment)) {
            let mut before = 0;
            while before < index && list.next_element::<IgnoredAny>()?.is_some() {
                before += 1;
            }
            if before == index {
                step = list.next_element_seed(self.next())?.unwrap_or(step);
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(step)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Step, A::Error> {
        check_nesting(self.used).map_err(|error| fail_with(self.failure, error))?;
        let mut found = None;
        let mut link = None;
        let mut is_first = true;
        while let Some(key) = map.next_key::<String>()? {
            link = None;
            if is_first && key == SLASH {
                let mut unused = CidList::default();
                let walk = Walk { links: &mut unused, failure: self.failure, depth: self.used + 1, keeps_text: true };
                link = map.next_value_seed(walk)?;
            } else if found.is_none() && self.segments.get(self.used) == Some(&key) {
                found = Some(map.next_value_seed(self.next())?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            is_first = false;
        }
        match link {
            Some(text) => self.link(&text),
            None => Ok(found.unwrap_or_else(|| self.here())),
        }
    }
}
