//! Names from files in messages.

/// Formats a name for a message: quoted, and truncated to at most 80 characters.
pub(crate) fn shown(name: &str) -> String {
    let short: String = name.chars().take(80).collect();
    if short.len() < name.len() { format!("{short:?}…") } else { format!("{short:?}") }
}
