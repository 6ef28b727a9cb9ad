//! Credentials in settings, which are never shown.

use ipfrs_core::without_credentials;
use toml::Value;

use super::file::HIDDEN;

/// Replaces user names and passwords in URLs, and the keys of private networks.
pub(super) fn hide_credentials(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_credentials(text, HIDDEN),
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
