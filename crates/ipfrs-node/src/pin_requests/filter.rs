//! Selection of requests.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::SystemTime;

use ipfrs_core::{Cid, Error};
use ipfrs_rpc::types::PinState;

use super::record::Record;
use super::time_of;

/// Comparison of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameMatch {
    /// Same name.
    #[default]
    Exact,
    /// Same name in any case.
    AnyCase,
    /// Part of the name.
    Part,
    /// Part of the name in any case.
    PartInAnyCase,
}

impl FromStr for NameMatch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "exact" => Ok(Self::Exact),
            "iexact" => Ok(Self::AnyCase),
            "partial" => Ok(Self::Part),
            "ipartial" => Ok(Self::PartInAnyCase),
            _ => Err(Error::invalid(format!("match={text:?}: use exact, iexact, partial or ipartial"))),
        }
    }
}

/// Selection of the requests of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinRequestFilter {
    /// Content IDs; empty for any.
    pub cids: Vec<Cid>,
    /// Name, and how it is compared; `None` for any.
    pub name: Option<(String, NameMatch)>,
    /// States.
    pub states: Vec<PinState>,
    /// Only requests that were created before this time.
    pub before: Option<SystemTime>,
    /// Only requests that were created after this time.
    pub after: Option<SystemTime>,
    /// Properties that `meta` must have.
    pub meta: BTreeMap<String, String>,
    /// Largest number of results.
    pub limit: usize,
}

impl Default for PinRequestFilter {
    /// Selects the ten newest requests whose content is pinned.
    fn default() -> Self {
        Self {
            cids: Vec::new(),
            name: None,
            states: vec![PinState::Pinned],
            before: None,
            after: None,
            meta: BTreeMap::new(),
            limit: 10,
        }
    }
}

impl PinRequestFilter {
    pub(super) fn selects(&self, record: &Record) -> bool {
        let created = time_of(record.created);
        // Content IDs of two versions or codecs are the same content only if their multihash is.
        (self.cids.is_empty() || self.cids.iter().any(|cid| cid.hash() == record.cid.hash()))
            && self.states.contains(&record.status)
            && self.before.is_none_or(|before| created < before)
            && self.after.is_none_or(|after| created > after)
            && self.name.as_ref().is_none_or(|(name, how)| is_match(&record.pin.name, name, *how))
            && self.meta.iter().all(|(name, value)| record.pin.meta.get(name) == Some(value))
    }
}

fn is_match(name: &str, wanted: &str, how: NameMatch) -> bool {
    match how {
        NameMatch::Exact => name == wanted,
        NameMatch::AnyCase => name.to_lowercase() == wanted.to_lowercase(),
        NameMatch::Part => name.contains(wanted),
        NameMatch::PartInAnyCase => name.to_lowercase().contains(&wanted.to_lowercase()),
    }
}
