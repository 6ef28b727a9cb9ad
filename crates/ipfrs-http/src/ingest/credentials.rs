//! Basic authentication (RFC 7617).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ipfrs_node::IngestConfig;
use zeroize::Zeroizing;

/// Whether a request has the configured user and password.
pub(super) fn are_right(headers: &HeaderMap, config: &IngestConfig) -> bool {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return false };
    let bytes = value.as_bytes();
    let Some((scheme, encoded)) = bytes.iter().position(|byte| *byte == b' ').map(|at| bytes.split_at(at)) else {
        return false;
    };
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return false;
    }
    let Ok(decoded) = STANDARD.decode(encoded.trim_ascii()).map(Zeroizing::new) else { return false };
    let Some(colon) = decoded.iter().position(|byte| *byte == b':') else { return false };
    config.is_authentic(&decoded[..colon], &decoded[colon + 1..])
}
