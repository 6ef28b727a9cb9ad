//! Changes in the text of a configuration file, which keep its comments and its order.

use std::mem;

use ipfrs_core::{Error, Result};
use ipfrs_http::Change;
use serde::Serialize;
use toml_edit::ser::ValueSerializer;
use toml_edit::{Decor, DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// Maximum number of names in a key.
const MAX_NAMES: usize = 16;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Returns the text of a configuration file with changes.
///
/// # Errors
/// The text is not TOML, a change has no key, or its value cannot be in a file.
pub(super) fn edited(text: &str, changes: &[Change]) -> Result<String> {
    let bare = text.trim_start_matches(BYTE_ORDER_MARK);
    let mut document: DocumentMut = bare.parse().map_err(|e: toml_edit::TomlError| {
        Error::invalid(format!("the configuration file is not TOML: {}", e.message().trim()))
    })?;
    for Change { key, value } in changes {
        let (Some((last, tables)), true) = (key.split_last(), (2..=MAX_NAMES).contains(&key.len())) else {
            let given: String = key.join(".").chars().take(100).collect();
            return Err(Error::invalid(format!("{given:?} is not a key: give section.key, such as server.port")));
        };
        match value {
            Some(value) => {
                begin_section(&mut document, &key[0]);
                set_at(document.as_table_mut(), tables, last, value)?;
            }
            None => {
                remove(&mut document, tables, last);
                remove_empty(&mut document, tables);
            }
        }
    }
    let mark = &text[..text.len() - bare.len()];
    let edited = document.to_string();
    Ok(match bare.contains("\r\n") {
        true => format!("{mark}{}", edited.replace("\r\n", "\n").replace('\n', "\r\n")),
        false => format!("{mark}{edited}"),
    })
}

/// Creates a section at the end, unless it exists. Comments at the end of the document stay before it.
fn begin_section(document: &mut DocumentMut, name: &str) {
    if document.contains_key(name) {
        return;
    }
    let mut table = Table::new();
    let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
    if !trailing.is_empty() {
        document.set_trailing("");
        let end = if trailing.ends_with('\n') { "\n" } else { "\n\n" };
        table.decor_mut().set_prefix(format!("{trailing}{end}"));
    }
    document.insert(name, Item::Table(table));
}

/// Sets a value in tables within tables, and creates those that are missing.
fn set_at(table: &mut dyn TableLike, path: &[String], name: &str, value: &serde_json::Value) -> Result<()> {
    let [first, rest @ ..] = path else { return set(table, name, value) };
    let item = table.entry(first).or_insert(Item::Value(InlineTable::new().into()));
    let why = || Error::invalid(format!("{first} is not a table in the configuration file"));
    let inner = item.as_table_like_mut().ok_or_else(why)?;
    set_at(inner, rest, name, value)?;
    tidy(item);
    Ok(())
}

/// Sets the spaces in a table on one line.
fn tidy(item: &mut Item) {
    if let Some(table) = item.as_inline_table_mut()
        && !table.to_string().contains('\n')
    {
        table.fmt();
    }
}

/// Sets a value. Fields of an object are set in the table that is there.
fn set(table: &mut dyn TableLike, name: &str, value: &serde_json::Value) -> Result<()> {
    if let serde_json::Value::Object(fields) = value {
        let item = table.entry(name).or_insert_with(|| Item::Value(InlineTable::new().into()));
        let Some(inner) = item.as_table_like_mut() else {
            return Err(Error::invalid(format!("{name} is not a table in the configuration file")));
        };
        for (field, value) in fields {
            match value {
                serde_json::Value::Null => drop(inner.remove(field)),
                value => set(inner, field, value)?,
            }
        }
        tidy(item);
        return Ok(());
    }
    let unfit = |e| Error::invalid(format!("{name} = {value}: not a value of a configuration file ({e})"));
    let mut new: Value = value.serialize(ValueSerializer::new()).map_err(unfit)?;
    match table.get_mut(name) {
        // The comment after it stays.
        Some(Item::Value(old)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        Some(old) => *old = Item::Value(new),
        None => drop(table.insert(name, Item::Value(new))),
    }
    Ok(())
}

/// Removes a setting. The comments above it may belong to others, and stay.
fn remove(document: &mut DocumentMut, path: &[String], name: &str) {
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for part in path {
        let Some(inner) = table.get_mut(part).and_then(Item::as_table_like_mut) else { return };
        table = inner;
    }
    let comments = table.key(name).and_then(|key| prefix(key.leaf_decor())).unwrap_or_default();
    let next = table.iter().skip_while(|(key, _)| *key != name).nth(1).map(|(key, _)| key.to_owned());
    if table.remove(name).is_none() || comments.trim().is_empty() {
        return;
    }
    if let Some(mut next) = next.and_then(|next| table.key_mut(&next)) {
        prepend(comments, next.leaf_decor_mut());
        return;
    }
    // The next section begins with them, or the document ends with them.
    let position = path.first().and_then(|section| document.get(section)?.as_table()?.position());
    match position.and_then(|position| table_after(document.as_table_mut(), position)) {
        Some(table) => prepend(comments, table.decor_mut()),
        None => {
            let trailing = document.trailing().as_str().unwrap_or_default();
            let joined = format!("{comments}{trailing}");
            document.set_trailing(joined);
        }
    }
}

/// Removes the tables below a section that were left empty, innermost first. An empty value and a table of the same
/// name would be in conflict.
fn remove_empty(document: &mut DocumentMut, path: &[String]) {
    for end in (1..path.len()).rev() {
        let mut parent: &mut dyn TableLike = document.as_table_mut();
        for part in &path[..end] {
            let Some(inner) = parent.get_mut(part).and_then(Item::as_table_like_mut) else { return };
            parent = inner;
        }
        let is_empty = parent.get(&path[end]).and_then(Item::as_inline_table).is_some_and(InlineTable::is_empty);
        if !is_empty {
            return;
        }
        parent.remove(&path[end]);
    }
}

fn prefix(decor: &Decor) -> Option<String> {
    decor.prefix()?.as_str().map(str::to_owned)
}

fn prepend(mut comments: String, decor: &mut Decor) {
    comments.push_str(&prefix(decor).unwrap_or_default());
    decor.set_prefix(comments);
}

/// Returns the table whose header is the next one after a position.
fn table_after(table: &mut Table, position: isize) -> Option<&mut Table> {
    fn next_position(table: &Table, position: isize) -> Option<isize> {
        let own = table.position().filter(|own| *own > position && !table.is_implicit());
        let below = table.iter().filter_map(|(_, item)| next_position(item.as_table()?, position)).min();
        own.into_iter().chain(below).min()
    }
    fn at(table: &mut Table, position: isize) -> Option<&mut Table> {
        if table.position() == Some(position) && !table.is_implicit() {
            return Some(table);
        }
        table.iter_mut().find_map(|(_, item)| at(item.as_table_mut()?, position))
    }
    let next = next_position(table, position)?;
    at(table, next)
}

/// Replaces each object by one that removes what is there first.
pub(super) fn replacing(changes: Vec<Change>) -> Vec<Change> {
    let mut all = Vec::new();
    for mut change in changes {
        if matches!(change.value, Some(serde_json::Value::Object(_))) {
            let value = mem::take(&mut change.value);
            all.push(change.clone());
            change.value = value;
        }
        all.push(change);
    }
    all
}
