//! Bounds-checked decoding of the index files.

use std::io;
use std::path::Path;

use ipfrs_core::Error;

use crate::pack::lock::cannot;
/// The remaining bytes of an input. All integers are little-endian.
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    /// Returns the next `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    /// Returns the next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Returns the next byte.
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// Returns the next 16-bit integer.
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Returns the next 32-bit integer.
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Returns the next 64-bit integer.
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Appends the CRC-32 of `bytes` to them.
pub(super) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the input of [`seal`] if the checksum is correct.
pub(super) fn unseal(sealed: &[u8]) -> Option<&[u8]> {
    let (bytes, checksum) = sealed.split_last_chunk()?;
    (crc32fast::hash(bytes) == u32::from_le_bytes(*checksum)).then_some(bytes)
}

/// Returns the error for a file that cannot be read. Errors of the disk count as damage, because the index can be
/// rebuilt from the packs. Missing resources or permissions do not.
pub(super) fn unreadable(action: &str, path: &Path, error: io::Error) -> Error {
    match error.raw_os_error() {
        // `EISDIR` results from reading a directory. A checksum mismatch in the file system results in one of the
        // others.
        Some(libc::EIO | libc::EBADMSG | libc::EUCLEAN | libc::EISDIR) => {
            Error::corrupt(format!("{} cannot be read: {error}", path.display()))
        }
        _ => cannot(action, path, error),
    }
}
