//! Copying of bytes, with their hash and the progress.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use aws_lc_rs::digest::{Context, SHA256};

use super::cannot;
use crate::progress::Progress;
use crate::runtime::Interrupted;

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1024 * 1024;

/// Copies bytes until it is interrupted.
pub(crate) struct Copier {
    progress: Progress,
    interrupted: Arc<AtomicBool>,
    buffer: Vec<u8>,
}

/// A file with the name for errors.
pub(super) struct Named<'a> {
    pub(super) file: &'a mut File,
    pub(super) path: &'a Path,
}

/// A SHA-256 that is being computed.
#[derive(Clone)]
pub(super) struct Sum(Context);

impl Sum {
    pub(super) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(super) fn of(bytes: &[u8]) -> String {
        let mut sum = Self::new();
        sum.0.update(bytes);
        sum.hex()
    }

    pub(super) fn hex(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Copier {
    /// Creates a copier that stops soon after `interrupted` is set.
    pub(crate) fn new(progress: Progress, interrupted: Arc<AtomicBool>) -> Self {
        Self { progress, interrupted, buffer: vec![0; BUFFER_BYTES] }
    }

    /// Adds bytes that will be read to the progress.
    pub(crate) fn expect(&self, bytes: u64) {
        self.progress.expect(bytes);
    }

    /// Reads exactly `bytes`, adds them to `sum`, and writes them to `to`.
    pub(super) fn copy(&mut self, from: Named<'_>, bytes: u64, sum: &mut Sum, to: Option<Named<'_>>) -> Result<()> {
        let path = from.path;
        let copied = self.copy_up_to(from, bytes, sum, to)?;
        if copied < bytes {
            bail!("{} has ended {} bytes early: it was damaged, or is being changed", path.display(), bytes - copied);
        }
        Ok(())
    }

    /// Same as [`Self::copy`], for a file that may have fewer bytes. Returns their number.
    pub(super) fn copy_up_to(
        &mut self,
        from: Named<'_>,
        bytes: u64,
        sum: &mut Sum,
        mut to: Option<Named<'_>>,
    ) -> Result<u64> {
        let mut copied = 0;
        while copied < bytes {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Interrupted("interrupted: what was there before is unchanged").into());
            }
            let want = usize::try_from(bytes - copied).unwrap_or(usize::MAX).min(self.buffer.len());
            let piece = &mut self.buffer[..want];
            let count = from.file.read(piece).map_err(|e| cannot("read", from.path, &e))?;
            if count == 0 {
                break;
            }
            sum.0.update(&piece[..count]);
            if let Some(to) = &mut to {
                to.file.write_all(&piece[..count]).map_err(|e| cannot("write", to.path, &e))?;
            }
            copied += count as u64;
            self.progress.done(count as u64);
        }
        Ok(copied)
    }
}
