//! The text of `config/profile/apply`: the difference between two configurations, in colors of terminals.

use serde_json::{Map, Value};

use super::writing::Done;
use crate::rpc::args::Args;

const INDENT: &str = "    ";
const CHANGED: &str = "\x1b[33m";
const REMOVED: &str = "\x1b[31m";
const ADDED: &str = "\x1b[32m";
const RESET: &str = "\x1b[0m";

pub(super) fn settings(value: &Value, _: &Args, out: &mut String) -> Done {
    let empty = Map::new();
    let map = |key: &str| value[key].as_object().unwrap_or(&empty);
    write(out, "", &of_maps(map("OldCfg"), map("NewCfg")));
    Ok(())
}

/// An entry of a map or list, before and after. The entries of a list have no key.
#[derive(Clone, Copy)]
struct Entry<'a> {
    key: &'a str,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
}

fn of_maps<'a>(old: &'a Map<String, Value>, new: &'a Map<String, Value>) -> Vec<Entry<'a>> {
    let mut keys: Vec<_> = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))).collect();
    keys.sort_unstable();
    keys.into_iter().map(|key| Entry { key, old: old.get(key), new: new.get(key) }).collect()
}

fn of_lists<'a>(old: &'a [Value], new: &'a [Value]) -> Vec<Entry<'a>> {
    (0..old.len().max(new.len())).map(|at| Entry { key: "", old: old.get(at), new: new.get(at) }).collect()
}

/// Writes entries, each on a line that begins with `indent`.
fn write(out: &mut String, indent: &str, entries: &[Entry]) {
    out.push('{');
    for (at, entry) in entries.iter().enumerate() {
        let Entry { key, old, new } = *entry;
        let comma = if at + 1 < entries.len() { "," } else { "" };
        let mut line = |color: &str, mark: &str, value: &Value, end: &str| {
            out.extend([color, indent, mark, "\"", key, "\": ", &json(value), comma, end]);
        };
        match (old, new) {
            (Some(old), Some(new)) if old == new => line("\n", "", old, ""),
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                below(out, indent, key, &of_maps(old, new), comma);
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                below(out, indent, key, &of_lists(old, new), comma);
            }
            (Some(old), Some(new)) => {
                line(&format!("\n{CHANGED}"), "<> ", old, "\n");
                line("", "** ", new, RESET);
            }
            (Some(old), None) => line(&format!("\n{REMOVED}"), ">> ", old, RESET),
            (None, Some(new)) => line(&format!("\n{ADDED}"), "<< ", new, RESET),
            (None, None) => {}
        }
    }
    out.extend(["\n", indent, "}"]);
}

fn below(out: &mut String, indent: &str, key: &str, entries: &[Entry], comma: &str) {
    out.extend(["\n", indent, "\"", key, "\": "]);
    write(out, &format!("{indent}{INDENT}"), entries);
    out.push_str(comma);
}

/// Writes JSON as Go does, which escapes the characters of HTML.
fn json(value: &Value) -> String {
    value.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_have_the_form_of_kubo() {
        let old = json!({ "A": { "x": 1, "y": "<" }, "B": ["a", "b"], "C": true, "D": {}, "E": null });
        let new = json!({ "A": { "x": 2, "y": "<" }, "B": ["c"], "C": true, "D": { "z": [] }, "F": 1 });
        let mut out = String::new();
        write(&mut out, "", &of_maps(old.as_object().unwrap(), new.as_object().unwrap()));
        let expected = "{\n\"A\": {\n\x1b[33m    <> \"x\": 1,\n    ** \"x\": 2,\x1b[0m\n    \"y\": \"\\u003c\"\n    },\n\
                        \"B\": {\n\x1b[33m    <> \"\": \"a\",\n    ** \"\": \"c\",\x1b[0m\n\
                        \x1b[31m    >> \"\": \"b\"\x1b[0m\n    },\n\
                        \"C\": true,\n\"D\": {\n\x1b[32m    << \"z\": []\x1b[0m\n    },\n\
                        \x1b[31m>> \"E\": null,\x1b[0m\n\x1b[32m<< \"F\": 1\x1b[0m\n}";
        assert_eq!(out, expected);
    }
}
