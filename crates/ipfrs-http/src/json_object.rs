//! Objects in JSON from clients.

use serde::Deserialize;

/// Parses an object. Unlike the library, does not read one from the list of its values. Objects within it are not
/// checked.
///
/// # Errors
/// What is wrong, for the client.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    match text.trim_ascii_start().first() {
        Some(b'[') => Err("it is a list and no object".to_owned()),
        _ => serde_json::from_slice(text).map_err(|e| e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Pair {
        a: u8,
    }

    #[test]
    fn a_list_is_no_object() {
        assert_eq!(parse(b" {\"a\":1}"), Ok(Pair { a: 1 }));
        assert!(parse::<Pair>(b" [1]").is_err() && serde_json::from_slice::<Pair>(b" [1]").is_ok());
    }
}
