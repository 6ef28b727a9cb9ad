//! The texts of commands that have none in Kubo. Its server prints their structures as Go's `fmt` does with `%s`, and
//! nothing separates the texts of several lines.

use std::fmt::Write as _;

use serde_json::Value;

use super::writing::{Done, end, number, text};
use crate::rpc::args::Args;
use crate::rpc::xml::float;

pub(super) fn added(value: &Value, _: &Args, out: &mut String) -> Done {
    let [name, hash, size, mode] = ["Name", "Hash", "Size", "Mode"].map(|key| text(&value[key]));
    let [bytes, mtime, nsecs] = ["Bytes", "Mtime", "MtimeNsecs"].map(|key| value[key].as_i64().unwrap_or(0));
    end(write!(out, "&{{{name} {hash} %!s(int64={bytes}) {size} {mode} %!s(int64={mtime}) %!s(int={nsecs})}}"))
}

pub(super) fn bandwidth(value: &Value, _: &Args, out: &mut String) -> Done {
    let [received, sent] = ["TotalIn", "TotalOut"].map(|key| number(&value[key]));
    let [rate_in, rate_out] = ["RateIn", "RateOut"].map(|key| float(value[key].as_f64().unwrap_or(0.0)));
    let totals = format!("%!s(int64={received}) %!s(int64={sent})");
    end(write!(out, "&{{{totals} %!s(float64={rate_in}) %!s(float64={rate_out})}}"))
}

pub(super) fn formatted_cid(value: &Value, _: &Args, out: &mut String) -> Done {
    let [cid, formatted, why] = ["CidStr", "Formatted", "ErrorMsg"].map(|key| text(&value[key]));
    end(write!(out, "&{{{cid} {formatted} {why}}}"))
}

pub(super) fn removed_block(value: &Value, _: &Args, out: &mut String) -> Done {
    end(write!(out, "&{{{} {}}}", text(&value["Hash"]), text(&value["Error"])))
}

pub(super) fn signature(value: &Value, _: &Args, out: &mut String) -> Done {
    end(write!(out, "&{{{} {}}}", key(value), text(&value["Signature"])))
}

pub(super) fn checked_signature(value: &Value, _: &Args, out: &mut String) -> Done {
    end(write!(out, "&{{{} %!s(bool={})}}", key(value), value["SignatureValid"] == true))
}

/// Returns the key of a signature.
fn key(value: &Value) -> String {
    let key = &value["Key"];
    format!("{{{} {}}}", text(&key["Name"]), text(&key["Id"]))
}
