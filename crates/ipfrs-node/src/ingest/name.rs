//! Names of objects.

use std::fmt;
use std::str::FromStr;

use ipfrs_core::{Error, Result};

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Name of an object: letters, digits, `-`, `_` and `.`, but no `.` at the beginning. It is a safe name of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IngestName(String);

impl IngestName {
    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IngestName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.starts_with('.');
        if is_name && text.bytes().all(is_allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::invalid(format!(
            "name: use 1 to {MAX_NAME_BYTES} letters, digits, \"-\", \"_\" and \".\", and no \".\" at the beginning"
        )))
    }
}

impl fmt::Display for IngestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_directory() {
        for good in ["a", "a.b-c_1", &"x".repeat(128)] {
            assert!(good.parse::<IngestName>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", ".a", "a/b", "../a", "a\0", "a b", "ä", &"x".repeat(129)] {
            assert!(bad.parse::<IngestName>().is_err(), "{bad}");
        }
    }
}
