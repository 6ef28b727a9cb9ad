//! Names of sections and keys, and what users meant by others.

use super::{SECTIONS, Section};

/// Returns why a key stands above all sections: the sections that have a key of this name, if there are any.
pub(super) fn key_without_section(name: &str) -> Option<String> {
    let sections = SECTIONS.iter().filter(|section| (section.keys)().contains(&name));
    let sections: Vec<_> = sections.map(|section| format!("[{}]", section.name)).collect();
    (!sections.is_empty())
        .then(|| format!("{name} is in no section: write it below the line {}", sections.join(" or ")))
}

/// Returns the section of this name, or why there is none, with the name that was probably meant.
pub(super) fn known_section(name: &str) -> Result<&'static Section, String> {
    if let Some(section) = SECTIONS.iter().find(|section| section.name == name) {
        return Ok(section);
    }
    let names: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
    Err(match nearest(name, &names) {
        Some(near) => format!("unknown section [{name}]: did you mean [{near}]?"),
        None => format!(
            "unknown section [{name}]: this version of ipfrs does not use it, so remove it; the sections \
             are {}",
            names.join(", ")
        ),
    })
}

/// Returns the key of this name, or why there is none.
pub(super) fn known_key(section: &Section, name: &str) -> Result<&'static str, String> {
    let keys = (section.keys)();
    if let Some(key) = keys.iter().find(|key| **key == name) {
        return Ok(key);
    }
    let known = keys.join(", ");
    Err(match nearest(name, keys) {
        Some(near) => format!("unknown key {}.{name}: did you mean {near}?", section.name),
        None => format!("unknown key {}.{name}: the keys of [{}] are {known}", section.name, section.name),
    })
}

/// Returns the known name that is most like `name`, if one is alike.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate));
    near.filter(|(similarity, _)| *similarity > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}
