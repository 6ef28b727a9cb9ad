//! Hints: properties of a denylist rule other than what it blocks.

use ipfrs_core::ErrorKind;

/// Maximum length of the reason that is stored and shown, in bytes.
const MAX_REASON_BYTES: usize = 256;

/// The supported hints. Others are ignored, as the format requires.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hints {
    /// `gateway_status`: 410 (the default), or 451 if the content is blocked for legal reasons.
    status: Option<Status>,
    /// `reason`: a short explanation for clients.
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Gone,
    LegalReasons,
}

impl Hints {
    /// Stores one hint.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        match (name, value) {
            ("gateway_status", "410") => self.status = Some(Status::Gone),
            ("gateway_status", "451") => self.status = Some(Status::LegalReasons),
            ("reason", reason) => {
                let end = reason.floor_char_boundary(MAX_REASON_BYTES);
                // The reason appears in log lines and error messages of a single line.
                self.reason = Some(reason[..end].replace(|c: char| c.is_control(), " "));
            }
            _ => {}
        }
    }

    /// Parses the hints after a rule: `name:value`, as in the specification, or `name=value`, as in existing lists.
    pub(crate) fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let mut hints = Self::default();
        for (name, value) in words.filter_map(|word| word.split_once([':', '='])) {
            hints.set(name, value);
        }
        hints
    }

    /// Whether there are no hints.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns these hints, with missing ones taken from the hints of the list.
    pub(crate) fn or(&self, of_list: &Self) -> Self {
        Self { status: self.status.or(of_list.status), reason: self.reason.clone().or_else(|| of_list.reason.clone()) }
    }

    /// Returns the reason that is shown to clients.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Whether the content is blocked for legal reasons.
    pub(crate) fn is_legal(&self) -> bool {
        self.status == Some(Status::LegalReasons)
    }

    /// Returns the error kind of a request for blocked content.
    pub(crate) fn error_kind(&self) -> ErrorKind {
        if self.is_legal() { ErrorKind::LegalReasons } else { ErrorKind::Gone }
    }
}
