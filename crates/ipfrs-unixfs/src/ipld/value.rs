//! Values of blocks that are decoded as a whole: those of git-raw and dag-jose.

use std::collections::BTreeMap;

use ipfrs_core::{Error, Result, cid_from_bytes};
use ipld_core::cid::Cid as LinkCid;
use ipld_core::ipld::Ipld;

use super::{Step, list_index};

/// Follows `segments` in a value up to the first link.
pub(super) fn follow(mut value: &Ipld, segments: &[String]) -> Result<Step> {
    for (used, segment) in segments.iter().enumerate() {
        let found = match value {
            Ipld::Link(link) => return step(link, used),
            Ipld::Map(map) => map.get(segment),
            Ipld::List(list) => {
                list_index(segment).and_then(|index| usize::try_from(index).ok()).and_then(|index| list.get(index))
            }
            _ => None,
        };
        match found {
            Some(found) => value = found,
            None => return Ok(Step::Missing(used)),
        }
    }
    match value {
        Ipld::Link(link) if !segments.is_empty() => step(link, segments.len()),
        _ => Ok(Step::Within),
    }
}

fn step(link: &LinkCid, used: usize) -> Result<Step> {
    Ok(Step::Link { cid: cid_from_bytes(&link.to_bytes())?, used })
}

pub(super) fn map<const N: usize>(entries: [(&str, Ipld); N]) -> Ipld {
    Ipld::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// The fields of a map that is to be encoded.
pub(super) struct Fields<'a> {
    fields: &'a BTreeMap<String, Ipld>,
    /// Kind of the map, for errors.
    of: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn of(value: &'a Ipld, of: &'static str) -> Result<Self> {
        match value {
            Ipld::Map(fields) => Ok(Self { fields, of }),
            _ => Err(Error::invalid(format!("{of} must be a map"))),
        }
    }

    /// Checks that there are no other fields.
    pub(super) fn check_known(&self, known: &[&str]) -> Result<()> {
        match self.fields.keys().find(|field| !known.contains(&field.as_str())) {
            Some(field) => Err(Error::invalid(format!("{} has no field {field:?}: use {}", self.of, known.join(", ")))),
            None => Ok(()),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Ipld> {
        self.fields.get(name)
    }

    /// Like [`Self::get`], but null counts as absent.
    pub(super) fn get_value(&self, name: &str) -> Option<&'a Ipld> {
        self.get(name).filter(|value| !matches!(value, Ipld::Null))
    }

    pub(super) fn to_map(&self) -> BTreeMap<String, Ipld> {
        self.fields.clone()
    }

    fn must_be(&self, name: &str, what: &str) -> Error {
        Error::invalid(format!("{name} of {} must be {what}", self.of))
    }

    pub(super) fn text(&self, name: &str) -> Result<&'a str> {
        match self.get(name) {
            Some(Ipld::String(text)) => Ok(text),
            _ => Err(self.must_be(name, "a string")),
        }
    }

    pub(super) fn list(&self, name: &str) -> Result<&'a [Ipld]> {
        match self.get(name) {
            Some(Ipld::List(list)) => Ok(list),
            _ => Err(self.must_be(name, "a list")),
        }
    }

    /// Returns the SHA-1 digest of a link.
    pub(super) fn digest(&self, name: &str) -> Result<Vec<u8>> {
        let link = self.get(name).ok_or_else(|| self.must_be(name, "a link"))?;
        Self::digest_of(link, name)
    }

    pub(super) fn digest_of(link: &Ipld, name: &str) -> Result<Vec<u8>> {
        match link {
            Ipld::Link(link) if link.hash().code() == 0x11 && link.hash().size() == 20 => {
                Ok(link.hash().digest().to_vec())
            }
            _ => Err(Error::invalid(format!("{name} must be a link with a sha1 digest"))),
        }
    }
}
