//! Hints: what a denylist says of its rules besides what they block.

use ipfrs_core::ErrorKind;

/// Longest reason that is kept and shown, in bytes.
const MAX_REASON_BYTES: usize = 256;

/// The hints that mean something here; others are ignored, as the format asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hints {
    /// `gateway_status`: 451 for what must not be shown by law. 410 unless it is given.
    status: Option<Status>,
    /// `reason`: a word or two for whoever asks.
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Gone,
    LegalReasons,
}

impl Hints {
    /// Takes in one hint.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        match (name, value) {
            ("gateway_status", "410") => self.status = Some(Status::Gone),
            ("gateway_status", "451") => self.status = Some(Status::LegalReasons),
            ("reason", reason) => {
                let end = reason.floor_char_boundary(MAX_REASON_BYTES);
                // It goes into logs and messages of one line.
                self.reason = Some(reason[..end].replace(|c: char| c.is_control(), " "));
            }
            _ => {}
        }
    }

    /// Reads the hints behind a rule: `name:value`, as the specification has them, or `name=value`, as lists have them.
    pub(crate) fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let mut hints = Self::default();
        for (name, value) in words.filter_map(|word| word.split_once([':', '='])) {
            hints.set(name, value);
        }
        hints
    }

    /// Whether nothing is said.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, and those of the list where these say nothing.
    pub(crate) fn or(&self, of_list: &Self) -> Self {
        Self { status: self.status.or(of_list.status), reason: self.reason.clone().or_else(|| of_list.reason.clone()) }
    }

    /// The reason, for whoever asks.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Whether the law is why.
    pub(crate) fn is_legal(&self) -> bool {
        self.status == Some(Status::LegalReasons)
    }

    /// What kind of error it is to ask for what is blocked.
    pub(crate) fn error_kind(&self) -> ErrorKind {
        if self.is_legal() { ErrorKind::LegalReasons } else { ErrorKind::Gone }
    }
}
