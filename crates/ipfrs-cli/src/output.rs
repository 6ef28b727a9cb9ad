//! Standard output.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};
use serde::Serialize;

/// The error for a closed standard output, as in `ipfrs-cli cat ... | head`. The program does not treat it as a
/// failure.
#[derive(Debug)]
pub(crate) struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for OutputClosed {}

/// Unbuffered standard output. Lines appear immediately, and content is written in pieces as it arrives.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    is_json: bool,
}

impl Output {
    pub(crate) fn new(is_json: bool) -> Result<Self> {
        let fd = io::stdout().as_fd().try_clone_to_owned().context("standard output cannot be used")?;
        Ok(Self { file: File::from(fd), is_json })
    }

    /// Whether `--json` was given.
    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Writes bytes unchanged.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        match self.file.write_all(bytes) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
            Err(e) => Err(anyhow::anyhow!("cannot write to standard output: {e}")),
        }
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        self.bytes(format!("{line}\n").as_bytes())
    }

    /// Writes a JSON object on a line.
    pub(crate) fn object<T: Serialize>(&mut self, object: &T) -> Result<()> {
        let line = serde_json::to_string(object)?;
        self.line(&line)
    }
}

/// Returns an untrusted name with control characters escaped, so that it cannot manipulate a terminal.
pub(crate) fn printable(name: &str) -> String {
    escaped(name.as_bytes(), |_| false)
}

/// Returns a file name that is safe to print. Besides control characters, it escapes backslashes and bytes that are
/// not UTF-8, so that different names never look the same.
pub(crate) fn printable_name(name: &OsStr) -> String {
    escaped(name.as_bytes(), |c| c == '\\')
}

fn escaped(name: &[u8], is_special: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_special(c) || c.is_control() {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}
