//! Credentials in settings, which are never shown.

use ipfrs_core::{without_credentials, without_queries};
use toml::Value;

/// Placeholder of a credential that is not shown.
pub(super) const HIDDEN: &str = "***";

/// Returns a text with placeholders for the user names, passwords and queries in its URLs.
pub(super) fn safe_text(text: &str) -> String {
    without_queries(&without_credentials(text, HIDDEN), HIDDEN)
}

/// Replaces user names, passwords and queries in URLs, and the keys of private networks.
pub(super) fn hide_credentials(value: &mut Value) {
    match value {
        Value::String(text) => *text = safe_text(text),
        Value::Array(values) => values.iter_mut().for_each(hide_credentials),
        Value::Table(values) => values.iter_mut().for_each(|(key, value)| match key.as_str() {
            "private_network_key" | "password_sha256" | "secret" if value.as_str() != Some("") => {
                *value = Value::String(HIDDEN.to_owned())
            }
            _ => hide_credentials(value),
        }),
        _ => {}
    }
}

/// Whether a text contains what is shown in place of credentials. Asterisks elsewhere, as in a path, are accepted.
pub(super) fn is_placeholder(text: &str) -> bool {
    let is_query_hidden = |(_, url): (&str, &str)| url.contains(&format!("?{HIDDEN}"));
    text == HIDDEN || text.contains(&format!("://{HIDDEN}@")) || text.split_once("://").is_some_and(is_query_hidden)
}

/// Whether a value contains what is shown in place of credentials.
pub(super) fn has_placeholder(value: &Value) -> bool {
    match value {
        Value::String(text) => is_placeholder(text),
        Value::Array(values) => values.iter().any(has_placeholder),
        Value::Table(values) => values.values().any(has_placeholder),
        _ => false,
    }
}
