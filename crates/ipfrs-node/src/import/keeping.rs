//! Modes and modification times that an import keeps.

use ipfrs_unixfs::Attributes;

/// Rules for the mode and modification time of imported entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeping {
    pub(super) given: Attributes,
    pub(super) preserve_mode: bool,
    pub(super) preserve_mtime: bool,
}

impl Keeping {
    /// Returns the attributes to store for an entry that the client sent with `own`. As in Kubo, those that are given
    /// for all entries take precedence.
    pub(super) fn of(self, own: Attributes) -> Attributes {
        Attributes {
            mode: self.given.mode.or(own.mode.filter(|_| self.preserve_mode)),
            mtime: self.given.mtime.or(own.mtime.filter(|_| self.preserve_mtime)),
        }
    }
}
