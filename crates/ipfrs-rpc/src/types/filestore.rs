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
    /// Returns Kubo's name of the status.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self.status {
            0 => "ok",
            10 => "error",
            11 => "no-file",
            12 => "changed",
            20 => "ERROR",
            30 => "missing",
            _ => "???",
        }
    }
}
