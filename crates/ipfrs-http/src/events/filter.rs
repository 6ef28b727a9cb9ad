//! Filters of subscriptions.

use std::collections::HashSet;

use ipfrs_core::{Cid, Error, Result};
use ipfrs_node::{EventData, Topic};
use serde_json::{Map, Value};

use super::json::{action, phase};

/// Maximum number of values in a filter.
const MAX_VALUES: usize = 1_000;

/// A condition on the data of events.
#[derive(Debug, Default)]
pub(super) struct Filter(Vec<Condition>);

#[derive(Debug)]
enum Condition {
    Cids(HashSet<Cid>),
    /// Values that a field may have.
    Texts(&'static str, HashSet<String>),
}

/// Returns the fields of the data of a topic that a filter may name.
fn fields(topic: Topic) -> &'static [&'static str] {
    match topic {
        Topic::Blocks => &["action", "cid"],
        Topic::Pins => &["action", "cid", "type", "name"],
        Topic::Operations => &["operation_id", "kind", "state"],
        Topic::Gc => &["phase"],
        Topic::Retrieval => &["cid"],
    }
}

/// Returns the values of a field that has only certain ones.
fn values_of(topic: Topic, field: &str) -> &'static [&'static str] {
    match (topic, field) {
        (_, "action") => &["added", "removed"],
        (Topic::Pins, "type") => &["direct", "recursive"],
        (Topic::Operations, "kind") => &["add", "upload"],
        (Topic::Operations, "state") => &["running", "paused", "done", "failed"],
        (Topic::Gc, "phase") => &["started", "marked", "swept", "compacting", "done", "failed"],
        _ => &[],
    }
}

impl Filter {
    /// Reads a filter: for each field a value, or an array of alternatives.
    pub(super) fn read(topic: Topic, fields_and_values: &Map<String, Value>) -> Result<Self> {
        let mut conditions = Vec::new();
        let mut count = 0;
        for (name, value) in fields_and_values {
            let known = fields(topic);
            let Some(field) = known.iter().find(|field| *field == name).copied() else {
                return Err(Error::invalid(format!(
                    "the filter has the field {name:?}: those of the topic {topic} are {}",
                    known.join(", ")
                )));
            };
            let values = match value {
                Value::Array(values) => values.as_slice(),
                one => std::slice::from_ref(one),
            };
            count += values.len();
            if count > MAX_VALUES {
                return Err(Error::too_large(format!("the filter has more than {MAX_VALUES} values")));
            }
            let texts = values.iter().map(|value| {
                let text = value.as_str().map(str::to_owned);
                text.ok_or_else(|| Error::invalid(format!("the filter's values of {name:?} must be strings")))
            });
            let texts: Vec<String> = texts.collect::<Result<_>>()?;
            let accepted = values_of(topic, field);
            if texts.is_empty() {
                return Err(Error::invalid(format!("the filter has no value of {name:?}: no event would pass")));
            }
            if let Some(text) = texts.iter().find(|text| !accepted.is_empty() && !accepted.contains(&text.as_str())) {
                let accepted = accepted.join(", ");
                return Err(Error::invalid(format!("{name:?} is never {text:?}: its values are {accepted}")));
            }
            conditions.push(match field {
                "cid" => Condition::Cids(texts.iter().map(|text| parse(text)).collect::<Result<_>>()?),
                _ => Condition::Texts(field, texts.into_iter().collect()),
            });
        }
        Ok(Self(conditions))
    }

    /// Whether every event passes.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn passes(&self, data: &EventData) -> bool {
        self.0.iter().all(|condition| match condition {
            Condition::Cids(cids) => cid(data).is_some_and(|cid| cids.contains(cid)),
            Condition::Texts(field, texts) => texts.contains(text(data, field)),
        })
    }
}

fn parse(text: &str) -> Result<Cid> {
    Cid::try_from(text).map_err(|e| Error::invalid(format!("{text:?} in the filter is not a content ID: {e}")))
}

fn cid(data: &EventData) -> Option<&Cid> {
    match data {
        EventData::BlockAdded { cid, .. }
        | EventData::BlockRemoved { cid }
        | EventData::PinAdded { cid, .. }
        | EventData::PinRemoved { cid } => Some(cid),
        EventData::Retrieved(ended) => Some(&ended.root),
        EventData::Operation(_) | EventData::Gc(_) => None,
    }
}

/// Returns a field that is text; an empty one if the event does not have it.
fn text<'a>(data: &'a EventData, field: &str) -> &'a str {
    match (field, data) {
        ("action", _) => action(data),
        ("type", EventData::PinAdded { mode, .. }) => mode.name(),
        ("name", EventData::PinAdded { name, .. }) => name,
        ("operation_id", EventData::Operation(progress)) => progress.id.as_str(),
        ("kind", EventData::Operation(progress)) => progress.kind.name(),
        ("state", EventData::Operation(progress)) => progress.state.name(),
        ("phase", EventData::Gc(gc)) => phase(gc),
        _ => "",
    }
}
