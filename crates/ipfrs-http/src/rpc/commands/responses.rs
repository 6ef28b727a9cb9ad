//! Responses of commands, as the OpenAPI document describes them.

use std::collections::BTreeMap;

use ipfrs_rpc::types::{PinLine, PinnedLine};
use utoipa::ToSchema;

use crate::openapi::operation::{Described, binary, object, size, text};

const RECORD: &str = "application/vnd.ipfs.ipns-record";

pub(super) fn json<T: ToSchema>(operation: Described) -> Described {
    or_converted(operation.sends_json::<T>("200", "The result"))
}

pub(super) fn list<T: ToSchema>(operation: Described) -> Described {
    or_converted(operation.sends_list::<T>("200", "The result"))
}

/// A response of one JSON object per line.
pub(super) fn lines<T: ToSchema>(operation: Described) -> Described {
    or_converted(operation.sends_json::<T>("200", "A line of JSON for each item"))
}

/// With `encoding=text` and `encoding=xml`.
fn or_converted(operation: Described) -> Described {
    operation.sends("200", "", "text/plain", text()).sends("200", "", "application/xml", text())
}

pub(super) fn octets(operation: Described) -> Described {
    operation.sends("200", "The bytes", "text/plain", binary())
}

pub(super) fn raw_block(operation: Described) -> Described {
    operation.sends("200", "The block", "application/vnd.ipld.raw", binary())
}

pub(super) fn car(operation: Described) -> Described {
    operation.sends("200", "A CARv1", "application/vnd.ipld.car", binary())
}

pub(super) fn archive(operation: Described) -> Described {
    operation.sends("200", "A TAR archive", "application/x-tar", binary()).sends(
        "200",
        "",
        "application/gzip",
        binary(),
    )
}

pub(super) fn record(operation: Described) -> Described {
    operation.sends("200", "The record", RECORD, binary())
}

pub(super) fn node(operation: Described) -> Described {
    operation.sends("200", "The node in `output-codec`", "text/plain", binary())
}

pub(super) fn value(operation: Described) -> Described {
    or_converted(operation.sends("200", "The configuration, by Kubo's names", "application/json", object()))
}

/// The number of things that were removed.
pub(super) fn count(operation: Described) -> Described {
    or_converted(operation.sends("200", "The number of removed entries", "application/json", size()))
}

/// A command that always fails.
pub(super) fn never(operation: Described) -> Described {
    operation
}

pub(super) fn routing_event(operation: Described) -> Described {
    or_converted(operation.sends("200", "An event with the record in `Extra`", "application/json", object()))
}

pub(super) fn pinned(operation: Described) -> Described {
    or_converted(operation.sends_json::<PinnedLine>("200", "The pinned content; with `progress` lines before it"))
}

pub(super) fn listed_pins(operation: Described) -> Described {
    or_converted(operation.sends_json::<ListedPins>("200", "All pins; with `stream` a line for each"))
}

/// Response to `pin/ls`.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes two responses that are written while they are streamed")]
enum ListedPins {
    All(PinsByCid),
    Line(PinLine),
}

/// Pins by content ID.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a response that is written while it is streamed")]
struct PinsByCid {
    #[schema(rename = "Keys")]
    keys: BTreeMap<String, PinOfCid>,
}

/// A pin without its content ID.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a response that is written while it is streamed")]
struct PinOfCid {
    #[schema(rename = "Type")]
    kind: String,
    #[schema(rename = "Name")]
    name: Option<String>,
}

pub(super) fn done(operation: Described) -> Described {
    operation.responds("200", "The command is done")
}

pub(super) fn nothing(operation: Described) -> Described {
    operation.responds("200", "The daemon ends as with SIGTERM")
}

pub(super) fn text_value(operation: Described) -> Described {
    or_converted(operation.sends("200", "The result", "application/json", text()))
}
