//! `add`.

use serde::{Deserialize, Serialize};

/// A line of `add`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum ImportedLine {
    Added(Added),
    Progress(ImportProgress),
}

/// A file that is durable, or a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Added {
    pub name: String,
    /// The name in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_bytes: Option<String>,
    pub hash: String,
    /// Cumulative size in bytes, in decimal. Kubo omits it for some entries.
    #[serde(default)]
    pub size: String,
    #[serde(flatten)]
    pub attributes: FileAttributes,
}

/// The number of bytes of a file that have been imported so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct ImportProgress {
    pub name: String,
    /// Kubo omits 0.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub bytes: u64,
}

/// Mode and modification time, if they are stored with the content. As in Kubo, values of 0 are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct FileAttributes {
    /// Go's `fs.FileMode` in octal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime_nsecs: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::super::{PinProgress, PinnedLine};
    use super::*;

    #[test]
    fn lines_of_kubo_without_zeros_are_read() {
        let line: ImportedLine = serde_json::from_str(r#"{"Name":"empty"}"#).unwrap();
        assert_eq!(line, ImportedLine::Progress(ImportProgress { name: "empty".to_owned(), bytes: 0 }));
        let line: PinnedLine = serde_json::from_str("{}").unwrap();
        assert_eq!(line, PinnedLine::Progress(PinProgress { progress: 0, bytes: 0 }));
    }
}
