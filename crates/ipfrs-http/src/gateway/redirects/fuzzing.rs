//! Entry point for fuzzing `_redirects`.

use http::HeaderValue;
use ipfrs_node::LinkName;

use super::rules::{Outcome, Rules};

/// Reads a file and applies it to a path. A redirect must fit in a header, and never lead to another host by accident.
pub(crate) fn apply(file: &str, path: &str) {
    let Ok(rules) = Rules::parse(file.as_bytes()) else { return };
    let segments: Vec<LinkName> = path.split('/').filter(|part| !part.is_empty()).map(LinkName::from).collect();
    for query in [None, Some("a=b&c")] {
        if let Ok(Some(Outcome::Redirect { location, .. })) = rules.apply(&segments, query) {
            assert!(HeaderValue::from_str(&location).is_ok(), "{location:?}");
        }
    }
}
