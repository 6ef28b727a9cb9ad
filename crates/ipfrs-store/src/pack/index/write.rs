//! Writing a run.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::layout::{Layout, Plan, split_key};
use super::run::Said;

/// Bytes buffered before they are written.
const BUFFER_BYTES: usize = 256 * 1024;

/// Bytes after which a file is synced. Syncing a large run at once would delay syncs of packs.
const SYNC_AFTER_BYTES: u64 = 32 * 1024 * 1024;

/// A part of a file that is written sequentially, and its checksum.
struct Part<'a> {
    file: &'a File,
    at: u64,
    unsynced: u64,
    buffer: Vec<u8>,
    checksum: crc32fast::Hasher,
}

impl<'a> Part<'a> {
    fn new(file: &'a File, at: usize) -> Self {
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        Self { file, at: at as u64, unsynced: 0, buffer, checksum: crc32fast::Hasher::new() }
    }

    /// Writes the buffer if it is nearly full.
    fn relieve(&mut self) -> io::Result<()> {
        if self.buffer.len() < BUFFER_BYTES - 256 { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.at)?;
        self.checksum.update(&self.buffer);
        self.at += self.buffer.len() as u64;
        self.unsynced += self.buffer.len() as u64;
        self.buffer.clear();
        if self.unsynced >= SYNC_AFTER_BYTES {
            self.unsynced = 0;
            self.file.sync_data()?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<u32> {
        self.write()?;
        Ok(self.checksum.finalize())
    }
}

/// Writes a run to a file. Entries are added in the order of their keys.
pub(super) struct RunWriter<'a> {
    file: &'a File,
    layout: Layout,
    fan: Part<'a>,
    entries: Part<'a>,
    /// The family of the last entry, and the number of buckets of its fan-out table that are written.
    family: usize,
    buckets: usize,
}

impl<'a> RunWriter<'a> {
    /// Starts a run for a plan, in an empty file.
    pub(super) fn new(file: &'a File, plan: Plan) -> Self {
        let layout = Layout::new(plan);
        let fan = Part::new(file, layout.header_bytes());
        let entries = Part::new(file, layout.entries_at());
        Self { file, layout, fan, entries, family: 0, buckets: 0 }
    }

    /// Writes the next entry, which must be part of the plan.
    pub(super) fn push(&mut self, key: &[u8], said: Said) -> io::Result<()> {
        let (prefix, digest) = split_key(key);
        while self.layout.families.get(self.family).is_some_and(|family| *family.prefix != *prefix) {
            self.end_family()?;
        }
        let Some(family) = self.layout.families.get(self.family) else {
            return Err(io::Error::other("the entries of a run are out of order"));
        };
        let (bucket, implied) = (family.bucket_of(digest), family.implied_bytes());
        self.end_buckets(bucket)?;
        self.entries.buffer.extend_from_slice(&digest[implied..]);
        self.layout.put_location(said, &mut self.entries.buffer);
        self.layout.families[self.family].count += 1;
        self.entries.relieve()
    }

    /// Writes the header and returns the number of entries. The caller must then sync the file.
    pub(super) fn finish(mut self) -> io::Result<usize> {
        while self.family < self.layout.families.len() {
            self.end_family()?;
        }
        self.layout.fan_checksum = self.fan.finish()?;
        self.layout.entries_checksum = self.entries.finish()?;
        self.file.write_all_at(&self.layout.encode(), 0)?;
        Ok(self.layout.entries())
    }

    fn end_family(&mut self) -> io::Result<()> {
        self.end_buckets(self.layout.families[self.family].buckets())?;
        self.family += 1;
        self.buckets = 0;
        Ok(())
    }

    /// Writes the ends of the buckets before `bucket` that are not written yet.
    fn end_buckets(&mut self, bucket: usize) -> io::Result<()> {
        let count = self.layout.families[self.family].count as u32;
        while self.buckets < bucket {
            self.fan.buffer.extend_from_slice(&count.to_le_bytes());
            self.fan.relieve()?;
            self.buckets += 1;
        }
        Ok(())
    }
}
