//! `filestore/ls` and `filestore/verify`.

use serde::{Deserialize, Serialize};

use super::CidLink;

/// A line of `filestore/ls` and `filestore/verify`: a block that is a part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct FileReference {
    /// 0: intact, 10: the file cannot be read, 11: it does not exist, 12: it has changed, 20: another error, 30: there
    /// is no such reference.
    pub status: i32,
    pub error_msg: String,
    pub key: Option<CidLink>,
    /// Relative to the root of the filestore.
    pub file_path: String,
    pub offset: u64,
    pub size: u64,
}

impl FileReference {
    /// Status of a part of a file that has the bytes of its block.
    pub const INTACT: i32 = 0;
    /// Status of a file that cannot be read.
    pub const UNREADABLE: i32 = 10;
    /// Status of a file that does not exist.
    pub const NO_FILE: i32 = 11;
    /// Status of a part of a file that has other bytes.
    pub const CHANGED: i32 = 12;
    /// Status of an argument that is no content ID.
    pub const INVALID: i32 = 20;
    /// Status of a block without a reference.
    pub const NO_REFERENCE: i32 = 30;

    /// Returns Kubo's name of the status.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self.status {
            Self::INTACT => "ok",
            Self::UNREADABLE => "error",
            Self::NO_FILE => "no-file",
            Self::CHANGED => "changed",
            Self::INVALID => "ERROR",
            Self::NO_REFERENCE => "missing",
            _ => "???",
        }
    }
}
