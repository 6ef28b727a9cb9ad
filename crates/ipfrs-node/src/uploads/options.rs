//! Options of an upload.

use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Cid, Error, Result};
use serde::{Deserialize, Serialize};

use super::config::UploadConfig;
use crate::AddOptions;

/// Maximum length of a file name, in bytes (`NAME_MAX` on Linux).
const MAX_NAME_BYTES: usize = 255;

/// Options of an upload. Fields that are `None` take the value of the profile, as in `add`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UploadOptions {
    /// Name of the file and of its pin.
    pub filename: Option<String>,
    /// Whether to wrap the file in a directory.
    pub wrap: bool,
    /// Whether to pin the result, which protects it from garbage collection.
    pub pin: bool,
    /// CID version, 0 or 1.
    pub cid_version: Option<u64>,
    /// Whether leaves are raw blocks.
    pub raw_leaves: Option<bool>,
    /// Chunker, such as `size-262144`.
    pub chunker: Option<String>,
    /// Name of the hash function.
    pub hash: Option<String>,
    /// Name of the import profile, which contains default options.
    pub profile: Option<String>,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self {
            filename: None,
            wrap: false,
            pin: true,
            cid_version: None,
            raw_leaves: None,
            chunker: None,
            hash: None,
            profile: None,
        }
    }
}

impl UploadOptions {
    /// Returns the options of the import.
    pub(crate) fn import(&self) -> Result<AddOptions> {
        if let Some(name) = &self.filename {
            Self::check_name(name)?;
        }
        Ok(AddOptions {
            profile: self.profile.as_deref().map(str::parse).transpose()?,
            cid_version: self.cid_version,
            raw_leaves: self.raw_leaves,
            chunker: self.chunker.as_deref().map(str::parse).transpose()?,
            hash: self.hash.as_deref().map(HashFunction::from_name).transpose()?,
            wrap_with_directory: self.wrap,
            unpinned: !self.pin,
            pin_name: self.filename.clone().unwrap_or_default(),
            ..AddOptions::default()
        })
    }

    /// Checks a file name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) with the reason why the name is invalid.
    pub fn check_name(name: &str) -> Result<()> {
        let why = match name {
            "" | "." | ".." => "it is not a file name",
            name if name.contains(['/', '\0']) => "a name must not contain slashes or NUL bytes",
            name if name.len() > MAX_NAME_BYTES => "it is longer than 255 bytes",
            _ => return Ok(()),
        };
        let shown: String = name.chars().take(MAX_NAME_BYTES).collect();
        Err(Error::invalid(format!("invalid filename {shown:?}: {why}")))
    }
}

/// An uploaded file, which is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uploaded {
    /// CID of the file, or of the directory that contains it.
    pub cid: Cid,
    /// Size of the file, in bytes.
    pub size: u64,
    /// Number of blocks in the DAG of the file and in the directory; a block that is linked twice counts twice.
    pub blocks: u64,
}

pub(super) fn check_length(bytes: u64, config: &UploadConfig) -> Result<()> {
    if bytes <= config.max_bytes {
        return Ok(());
    }
    Err(Error::too_large(format!(
        "the upload is over the limit of {most} bytes (upload.max_bytes = {most}): split the file, or raise the limit",
        most = config.max_bytes
    )))
}
