//! The texts of commands about records, references, commands and events of routing.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use ipfrs_core::timestamp;
use ipfrs_rpc::duration;
use ipfrs_rpc::types::FileReference;
use serde::Deserialize;
use serde_json::Value;

use super::writing::{Done, MONTHS, columns, columns_apart, end, escaped, items, line, link, listed, number, text};
use crate::rpc::args::Args;

/// Types of go-libp2p's events.
const FOUND_PEER: u64 = 2;
const ERROR: u64 = 3;
const PROVIDER: u64 = 4;
const VALUE: u64 = 5;

/// The commands below a command are on lines of their own, in the order of the lines.
pub(super) fn commands(value: &Value, args: &Args, out: &mut String) -> Done {
    let mut lines = Vec::new();
    add_commands("", value, args.is_set("flags"), &mut lines);
    lines.sort_unstable();
    lines.into_iter().try_for_each(|line| end(writeln!(out, "{line}")))
}

fn add_commands(before: &str, command: &Value, with_options: bool, lines: &mut Vec<String>) {
    let path = format!("{before}{}", text(&command["Name"]));
    // The options of all commands are not printed.
    for option in items(&command["Options"]).filter(|_| with_options && !before.is_empty()) {
        let names = items(&option["Names"]).map(|name| {
            let dashes = if text(name).len() == 1 { "-" } else { "--" };
            format!("{path} {dashes}{}", text(name))
        });
        lines.push(names.collect::<Vec<_>>().join(" / "));
    }
    let before = format!("{path} ");
    for below in items(&command["Subcommands"]) {
        add_commands(&before, below, with_options, lines);
    }
    lines.push(path);
}

pub(super) fn logged_commands(value: &Value, args: &Args, out: &mut String) -> Done {
    let is_verbose = args.is_set("verbose");
    let shown = |all: [&str; 7]| -> Vec<String> {
        let shown = all.iter().enumerate().filter(|(at, _)| is_verbose || !matches!(at, 0 | 2 | 3));
        shown.map(|(_, cell)| (*cell).to_owned()).collect()
    };
    let mut rows = vec![shown(["ID", "Command", "Arguments", "Options", "Active", "StartTime", "RunTime"])];
    for command in items(value) {
        let (start, end) = (text(&command["StartTime"]), text(&command["EndTime"]));
        let is_active = command["Active"] == true;
        let ended = if is_active { Some(SystemTime::now()) } else { timestamp::parse(end) };
        let started = timestamp::parse(start);
        let run_time = started.zip(ended).and_then(|(start, end)| end.duration_since(start).ok()).unwrap_or_default();
        let arguments: Vec<_> = items(&command["Args"]).map(text).collect();
        let options = command["Options"].as_object().into_iter().flatten();
        let options: String = options.map(|(name, value)| format!("{name}={},", text(value))).collect();
        rows.push(shown([
            &number(&command["ID"]).to_string(),
            text(&command["Command"]),
            &format!("[{}]", arguments.join(" ")),
            &format!("[{options}]"),
            if is_active { "true" } else { "false" },
            &stamp(start),
            &duration::format(run_time),
        ]));
    }
    columns_apart(out, &rows, 4, 2);
    Ok(())
}

/// Returns the month, day and time of a time in RFC 3339: `Jan  2 15:04:05`.
fn stamp(time: &str) -> String {
    let part = |from: usize, to: usize| time.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse::<usize>().ok().and_then(|month| MONTHS.get(month.checked_sub(1)?)).unwrap_or(&"");
    let day: u8 = part(8, 10).parse().unwrap_or(0);
    format!("{month} {day:2} {}", part(11, 19))
}

pub(super) fn record(value: &Value, _: &Args, out: &mut String) -> Done {
    let (entry, validation) = (&value["Entry"], &value["Validation"]);
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![format!("{name}:"), value]);
    if !text(&entry["Value"]).is_empty() {
        row("Value", quoted(text(&entry["Value"])));
    }
    row("Validity Type", number(&entry["ValidityType"]).to_string());
    row("Validity", quoted(text(&entry["Validity"])));
    row("Sequence", number(&entry["Sequence"]).to_string());
    if let Some(ttl) = entry["TTL"].as_u64() {
        row("TTL", duration::format(Duration::from_nanos(ttl)));
    }
    row("Protobuf Size", number(&value["PbSize"]).to_string());
    row("Signature Type", text(&value["SignatureType"]).to_owned());
    columns(out, &rows, 0);
    if validation.is_null() {
        out.push_str("\nThis record was not verified. Pass '--verify k51...' to verify.\n");
    } else {
        out.push_str("\nValidation results:\n");
        let valid = if validation["Valid"] == true { "true" } else { "false" };
        let all = [("Valid:", valid), ("Reason:", text(&validation["Reason"])), ("Name:", text(&validation["Name"]))];
        let rows = all.iter().filter(|(_, value)| !value.is_empty());
        let rows: Vec<_> = rows.map(|(name, value)| ["", *name, *value].map(str::to_owned).to_vec()).collect();
        columns(out, &rows, 0);
    }
    match text(&value["HexDump"]) {
        "" => Ok(()),
        dump => end(write!(out, "\nHex Dump:\n{dump}")),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text).replace('"', "\\\""))
}

/// A reference that was not found ends the text, as it ends that of `refs`.
pub(super) fn reference(value: &Value, _: &Args, out: &mut String) -> Done {
    match text(&value["ErrorMsg"]) {
        "" => end(writeln!(out, "{}", part_of_file(value))),
        why => Err(why.to_owned()),
    }
}

pub(super) fn verified_reference(value: &Value, args: &Args, out: &mut String) -> Done {
    let state = FileReference::deserialize(value).map_err(|e| e.to_string())?;
    let action = match (args.is_set("remove-bad-blocks"), state.status) {
        (false, _) => "",
        (true, FileReference::INTACT | FileReference::INVALID) => " keep",
        (true, _) => " remove",
    };
    end(writeln!(out, "{:<7} {}{action}", state.state(), part_of_file(value)))
}

/// Returns content ID, size, path and offset.
fn part_of_file(value: &Value) -> String {
    let key = text(link(&value["Key"]));
    match (key, text(&value["FilePath"])) {
        ("", _) => "<corrupt key>".to_owned(),
        (key, "") => key.to_owned(),
        (key, path) => format!("{key:<50} {:6} {path} {}", number(&value["Size"]), number(&value["Offset"])),
    }
}

pub(super) fn found_peer(value: &Value, args: &Args, out: &mut String) -> Done {
    let is_verbose = args.is_set("verbose");
    begin_event(out, is_verbose)?;
    match number(&value["Type"]) {
        FOUND_PEER => listed(out, "", &value["Responses"][0]["Addrs"]),
        ERROR if is_verbose => end(writeln!(out, "error: {}", text(&value["Extra"]))),
        _ => Ok(()),
    }
}

pub(super) fn provider(value: &Value, args: &Args, out: &mut String) -> Done {
    let (is_verbose, peer) = (args.is_set("verbose"), &value["Responses"][0]);
    begin_event(out, is_verbose)?;
    match number(&value["Type"]) {
        PROVIDER if is_verbose => {
            out.push_str("provider: ");
            line(out, &peer["ID"])?;
            listed(out, "\t", &peer["Addrs"])
        }
        PROVIDER => line(out, &peer["ID"]),
        _ => Ok(()),
    }
}

pub(super) fn stored_record(value: &Value, _: &Args, out: &mut String) -> Done {
    if number(&value["Type"]) == VALUE { line(out, &value["ID"]) } else { Ok(()) }
}

/// Writes the time before an event.
fn begin_event(out: &mut String, is_verbose: bool) -> Done {
    if !is_verbose {
        return Ok(());
    }
    let now = timestamp::format_milliseconds(SystemTime::now());
    let time = now.get(11..).unwrap_or_default().trim_end_matches('Z');
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, "0"));
    end(write!(out, "{seconds}.{fraction:0<3}: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_stamped_as_in_go() {
        assert_eq!(stamp("2026-11-09T20:19:50.193Z"), "Nov  9 20:19:50");
        assert_eq!(stamp("2026-01-31T00:00:00Z"), "Jan 31 00:00:00");
    }
}
