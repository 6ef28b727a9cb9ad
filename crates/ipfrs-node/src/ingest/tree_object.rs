//! An object that is a mutable file.

use std::fmt;

use bytes::{Bytes, BytesMut};
use ipfrs_core::{Cid, Error, Result};
use ipfrs_unixfs::{CidFormat, FileEdit};

use super::{DIRECTORY, IngestName, exists};
use crate::gc::Lease;
use crate::mutable_files::{AppendedFile, MutablePath, now};
use crate::Node;

/// Size of the leaves of a file, in bytes.
const LEAF_BYTES: u64 = 256 * 1024;
/// Size in bytes below which the last leaf is written again with the next bytes. Without this, many small commits would
/// leave a file of tiny leaves.
const MIN_LEAF_BYTES: u64 = 16 * 1024;

/// A mutable file that grows.
pub(super) struct TreeObject {
    node: Node,
    path: MutablePath,
    file: AppendedFile,
    edit: FileEdit,
    /// Size of the file, in bytes.
    size: u64,
    /// Number of bytes since the last commit.
    uncommitted: u64,
    /// Content of the last leaf, if it is written again.
    tail: BytesMut,
    /// Protects the blocks since the last commit from gc.
    lease: Option<Lease>,
}

impl fmt::Debug for TreeObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeObject").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TreeObject {
    /// Opens the file, which it creates durably. Returns its size too.
    pub(super) async fn open(node: &Node, name: &IngestName, append: bool) -> Result<(Self, u64)> {
        let path = MutablePath::parse(format!("/{DIRECTORY}/{name}"))?;
        let format = CidFormat::V0;
        let opened = node.open_appended(&path, append, format).await?;
        let Some(file) = opened else { return Err(exists(name)) };
        let mut edit = FileEdit::open(node.appended_source(), node.appended_sink(), file.cid(), Some(true), now()).await?;
        let size = edit.size();
        edit.seek(size).await?;
        let (node, tail) = (node.clone(), BytesMut::new());
        Ok((Self { node, path, file, edit, size, uncommitted: 0, tail, lease: None }, size))
    }

    pub(super) async fn append(&mut self, messages: Vec<Bytes>) -> Result<()> {
        if self.lease.is_none() {
            self.lease = Some(self.node.appended_lease());
        }
        if self.uncommitted == 0 && !self.tail.is_empty() {
            let start = self.size - self.tail.len() as u64;
            self.edit.truncate(start).await?;
            self.edit.seek(start).await?;
            self.uncommitted = self.tail.len() as u64;
            self.edit.write(self.tail.clone().freeze()).await?;
        }
        for message in messages {
            let len = message.len() as u64;
            self.note_tail(&message);
            self.edit.write(message).await?;
            self.size += len;
            self.uncommitted += len;
        }
        Ok(())
    }

    /// Keeps the last bytes for the next commit.
    fn note_tail(&mut self, message: &Bytes) {
        let kept = MIN_LEAF_BYTES as usize;
        let message = &message[message.len().saturating_sub(kept)..];
        let excess = (self.tail.len() + message.len()).saturating_sub(kept).min(self.tail.len());
        if excess > 0 {
            let _ = self.tail.split_to(excess);
        }
        self.tail.extend_from_slice(message);
    }

    /// Makes the file durable. Returns its content ID.
    pub(super) async fn commit(&mut self) -> Result<Cid> {
        if self.uncommitted == 0 {
            return Ok(*self.file.cid());
        }
        let (link, blocks) = self.edit.commit().await?;
        self.node.replace_appended(&self.path, &mut self.file, link, blocks).await?;
        // The last leaf has what is left after full leaves, counted from the last commit.
        let last = match self.uncommitted % LEAF_BYTES {
            0 => LEAF_BYTES,
            rest => rest,
        };
        let keeps = usize::try_from(last).ok().filter(|_| last < MIN_LEAF_BYTES).unwrap_or(0);
        let excess = self.tail.len().checked_sub(keeps);
        let excess = excess.ok_or_else(|| Error::internal("the last leaf is longer than the bytes that are known"))?;
        let _ = self.tail.split_to(excess);
        self.uncommitted = 0;
        self.lease = None;
        Ok(link.cid)
    }
}
