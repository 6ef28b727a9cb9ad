//! Iteration over one run, or over several merged runs, in key order.

use std::sync::Arc;

use ipfrs_core::{Error, Result};

use super::layout::split_key;
use super::run::{Run, Said};
use crate::pack::record::{Key, Location};

/// A position in a run.
struct Cursor {
    run: Arc<Run>,
    /// Index of the current family, and index of the next entry in it.
    family: usize,
    next: usize,
    /// Bucket of the entry, and the index after the last entry of that bucket.
    bucket: usize,
    bucket_end: usize,
    key: Vec<u8>,
    said: Said,
}

impl Cursor {
    /// Returns a cursor at the first entry of `run` whose key is greater than `after`.
    fn seek(run: &Arc<Run>, after: Option<&[u8]>) -> Result<Option<Self>> {
        let (prefix, digest) = split_key(after.unwrap_or_default());
        let families = &run.layout().families;
        let number = families.partition_point(|family| *family.prefix < *prefix);
        let run = Arc::clone(run);
        let mut cursor = Self { run, family: number, next: 0, bucket: 0, bucket_end: 0, key: Vec::new(), said: None };
        cursor.enter(number)?;
        let families = &cursor.run.layout().families;
        if let (Some(family), Some(_)) = (families.get(number).filter(|family| *family.prefix == *prefix), after) {
            // Starts at the bucket of `after`. Starting at the first bucket would scan the fan-out table for each
            // page.
            cursor.bucket = family.bucket_of(digest);
            cursor.bucket_end = cursor.run.bucket_end(family, cursor.bucket)?;
            cursor.next = match cursor.run.place_of(family, digest)? {
                Ok(place) => place + 1,
                Err(place) => place,
            };
        }
        Ok(cursor.advance()?.then_some(cursor))
    }

    /// Moves before the first entry of the family with this number, if there is one.
    fn enter(&mut self, number: usize) -> Result<()> {
        (self.family, self.next, self.bucket) = (number, 0, 0);
        if let Some(family) = self.run.layout().families.get(number) {
            self.bucket_end = self.run.bucket_end(family, 0)?;
            self.key.clear();
            self.key.extend_from_slice(&family.prefix);
            self.key.resize(family.prefix.len() + family.digest_bytes, 0);
        }
        Ok(())
    }

    /// Moves to the next entry. Returns `false` at the end.
    fn advance(&mut self) -> Result<bool> {
        loop {
            let Some(family) = self.run.layout().families.get(self.family) else { return Ok(false) };
            if self.next < family.count {
                while self.next >= self.bucket_end {
                    self.bucket += 1;
                    self.bucket_end = self.run.bucket_end(family, self.bucket)?;
                }
                let (implied, start) = (family.implied_bytes(), family.prefix.len());
                self.key[start..start + implied].copy_from_slice(&family.beginning_of(self.bucket)[..implied]);
                let tail = &mut self.key[start + implied..];
                tail.copy_from_slice(&self.run.entry(family, self.next)[..tail.len()]);
                self.said = self.run.said(family, self.next)?;
                self.next += 1;
                return Ok(true);
            }
            self.enter(self.family + 1)?;
        }
    }
}

/// The entries of several runs in the order of their keys. Of entries with the same key, only the newest is returned.
pub(super) struct Merged {
    /// Cursors, newest run first.
    cursors: Vec<Cursor>,
}

impl Merged {
    /// Returns the entries of `runs`, ordered from oldest to newest, whose keys are greater than `after`.
    pub(super) fn new(runs: &[Arc<Run>], after: Option<&[u8]>) -> Result<Self> {
        let mut cursors = Vec::with_capacity(runs.len());
        for run in runs.iter().rev() {
            cursors.extend(Cursor::seek(run, after)?);
        }
        Ok(Self { cursors })
    }

    /// Returns the next entry and stores its key in `key`. Returns `None` at the end.
    pub(super) fn next(&mut self, key: &mut Vec<u8>) -> Result<Option<Said>> {
        // The first of several equal keys is the newest.
        let Some(first) = self.cursors.iter().min_by(|a, b| a.key.cmp(&b.key)) else { return Ok(None) };
        let said = first.said;
        key.clear();
        key.extend_from_slice(&first.key);
        let mut place = 0;
        while let Some(cursor) = self.cursors.get_mut(place) {
            if cursor.key != *key || cursor.advance()? {
                place += 1;
            } else {
                self.cursors.remove(place);
            }
        }
        Ok(Some(said))
    }
}

/// Returns up to `limit` blocks after `after` and up to `until`, from `runs`, overridden by the `recent` entries.
pub(super) fn page_of(
    recent: Vec<(Key, Said)>,
    runs: &[Arc<Run>],
    after: Option<&[u8]>,
    until: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<(Key, Location)>> {
    let mut page = Vec::with_capacity(limit);
    let mut merged = Merged::new(runs, after)?;
    let mut key = Vec::new();
    let mut next = merged.next(&mut key)?;
    let mut recent = recent.into_iter().peekable();
    while page.len() < limit {
        let from_run = next.filter(|_| recent.peek().is_none_or(|(recent, _)| *key < **recent));
        let (key, said) = match (from_run, recent.peek()) {
            (Some(said), _) => {
                let this = Key::from(key.as_slice());
                next = merged.next(&mut key)?;
                if next.is_some() && *key <= *this {
                    let why = "its entries are out of order";
                    return Err(runs.first().map_or_else(|| Error::corrupt(why), |run| run.damaged(why)));
                }
                (this, said)
            }
            (None, Some(_)) => {
                let Some(entry) = recent.next() else { break };
                if next.is_some() && *key == *entry.0 {
                    next = merged.next(&mut key)?;
                }
                entry
            }
            (None, None) => break,
        };
        if until.is_some_and(|until| *key > *until) {
            break;
        }
        page.extend(said.map(|location| (key, location)));
    }
    Ok(page)
}
