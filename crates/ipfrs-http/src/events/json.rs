//! Events as JSON.

use ipfrs_core::{Cid, Error, timestamp};
use ipfrs_middleware::websocket::text_frame;
use ipfrs_node::{EncodedEvents, Event, EventData, GcPhase, Topic};
use serde::{Serialize, Serializer};

use crate::v1::progress::ProgressReport;

/// An event as sent to clients.
#[derive(Serialize)]
struct EventMessage<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    topic: &'static str,
    seq: u64,
    time: String,
    data: Data<'a>,
}

/// The data of an event.
#[derive(Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Block {
        action: &'static str,
        #[serde(serialize_with = "as_text")]
        cid: &'a Cid,
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    Pin {
        action: &'static str,
        #[serde(serialize_with = "as_text")]
        cid: &'a Cid,
        #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
        mode: Option<&'static str>,
        #[serde(skip_serializing_if = "str::is_empty")]
        name: &'a str,
    },
    Operation(ProgressReport),
    Phase {
        phase: &'static str,
    },
    Blocks {
        phase: &'static str,
        blocks: u64,
    },
    Done {
        phase: &'static str,
        kept: u64,
        removed: u64,
        removed_bytes: u64,
        freed_bytes: u64,
        duration_seconds: f64,
    },
    Failed {
        phase: &'static str,
        error: String,
    },
    Retrieved {
        #[serde(serialize_with = "as_text")]
        cid: &'a Cid,
        blocks: u64,
        bytes: u64,
        attempts: u64,
        failures: u64,
        duration_seconds: f64,
    },
}

fn as_text<S: Serializer>(cid: &Cid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(cid)
}

impl<'a> From<&'a EventData> for Data<'a> {
    fn from(data: &'a EventData) -> Self {
        let action = action(data);
        match data {
            EventData::BlockAdded { cid, size } => Self::Block { action, cid, size: Some(*size) },
            EventData::BlockRemoved { cid } => Self::Block { action, cid, size: None },
            EventData::PinAdded { cid, mode, name } => Self::Pin { action, cid, mode: Some(mode.name()), name },
            EventData::PinRemoved { cid } => Self::Pin { action, cid, mode: None, name: "" },
            EventData::Operation(progress) => Self::Operation(ProgressReport::of(progress)),
            EventData::Retrieved(ended) => Self::Retrieved {
                cid: &ended.root,
                blocks: ended.blocks,
                bytes: ended.bytes,
                attempts: ended.attempts,
                failures: ended.failures,
                duration_seconds: ended.duration.as_secs_f64(),
            },
            EventData::Gc(gc) => {
                let phase = phase(gc);
                match gc {
                    GcPhase::Started | GcPhase::Compacting => Self::Phase { phase },
                    GcPhase::Marked(blocks) | GcPhase::Swept(blocks) => Self::Blocks { phase, blocks: *blocks },
                    GcPhase::Done(report) => Self::Done {
                        phase,
                        kept: report.kept,
                        removed: report.removed,
                        removed_bytes: report.removed_bytes,
                        freed_bytes: report.freed_bytes,
                        duration_seconds: report.duration.as_secs_f64(),
                    },
                    GcPhase::Failed { kind, message } => {
                        let error = Error::new(*kind, message.clone()).public_message().into_owned();
                        Self::Failed { phase, error }
                    }
                }
            }
        }
    }
}

/// Returns what happened to a block or a pin.
pub(super) fn action(data: &EventData) -> &'static str {
    match data {
        EventData::BlockAdded { .. } | EventData::PinAdded { .. } => "added",
        EventData::BlockRemoved { .. } | EventData::PinRemoved { .. } => "removed",
        EventData::Operation(_) | EventData::Gc(_) | EventData::Retrieved(_) => "",
    }
}

/// Returns the name of a phase.
pub(super) fn phase(phase: &GcPhase) -> &'static str {
    match phase {
        GcPhase::Started => "started",
        GcPhase::Marked(_) => "marked",
        GcPhase::Swept(_) => "swept",
        GcPhase::Compacting => "compacting",
        GcPhase::Done(_) => "done",
        GcPhase::Failed { .. } => "failed",
    }
}

/// Encodes events as WebSocket frames.
pub(super) fn frames(topic: Topic, events: &[Event]) -> EncodedEvents {
    let (mut bytes, mut text) = (Vec::with_capacity(events.len() * 200), Vec::new());
    let ends = events.iter().map(|event| {
        let Event { seq, time, data } = event;
        let message = EventMessage {
            kind: "event",
            topic: topic.name(),
            seq: *seq,
            time: timestamp::format_milliseconds(*time),
            data: data.into(),
        };
        text.clear();
        // Strings and numbers always serialize.
        let _ = serde_json::to_writer(&mut text, &message);
        text_frame(&mut bytes, &text);
        bytes.len()
    });
    let ends = ends.collect();
    EncodedEvents { bytes: bytes.into(), ends }
}
