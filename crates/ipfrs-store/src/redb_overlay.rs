//! Read-only access to a redb database file: redb's writes stay in memory.
//!
//! redb has a read-only mode, but that mode refuses a file that was not closed cleanly and cannot repair it. Over an
//! [`Overlay`], repair and all later writes work as usual, and the file and its directory stay unchanged:
//!
//! ```text
//! let database = Database::builder().create_with_backend(Overlay::open(path)?)?;
//! ```
//!
//! The caller holds the store lock, at least shared, so that no other process writes the file meanwhile.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use parking_lot::RwLock;
use redb::StorageBackend;

/// Bytes per page. A write copies whole pages.
const PAGE: usize = 4096;

/// A file, or nothing, with changes on top that are discarded on drop. The changed pages are kept in memory.
#[derive(Debug)]
pub(crate) struct Overlay {
    /// `None` if there is no file: everything is then in memory.
    file: Option<File>,
    changes: RwLock<Changes>,
}

#[derive(Debug)]
struct Changes {
    /// Length seen by redb, in bytes.
    len: u64,
    /// Length of the part of the file that is visible where no page was written, in bytes. It only shrinks: a part
    /// that was cut off once never reappears.
    visible: u64,
    /// Written pages, by page number.
    pages: HashMap<u64, Box<[u8; PAGE]>>,
}

impl Overlay {
    /// Creates an overlay over the file at `path`, or over nothing if there is no such file.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = match File::open(path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let len = file.as_ref().map_or(Ok(0), |file| file.metadata().map(|metadata| metadata.len()))?;
        Ok(Self { file, changes: RwLock::new(Changes { len, visible: len, pages: HashMap::new() }) })
    }

    /// Reads the file's content at `offset`, with zeros beyond its visible part.
    fn read_file(&self, visible: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = visible.saturating_sub(offset).min(out.len() as u64) as usize;
        let (shown, rest) = out.split_at_mut(there);
        rest.fill(0);
        match &self.file {
            Some(file) => file.read_exact_at(shown, offset),
            None => Ok(()),
        }
    }
}

/// Splits `offset..offset + len` by page into page number, offset within the page, and range of the whole.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let count = (PAGE - within).min(len - done);
        let part = (count > 0).then(|| (at / PAGE as u64, within, done..done + count));
        done += count;
        part
    })
}

fn check_range(len: u64, offset: u64, count: usize) -> io::Result<()> {
    match offset.checked_add(count as u64) {
        Some(end) if end <= len => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{count} bytes at {offset} of {len}"))),
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changes.read().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changes = self.changes.read();
        check_range(changes.len, offset, out.len())?;
        if changes.pages.is_empty() {
            return self.read_file(changes.visible, offset, out);
        }
        for (page, within, range) in parts(offset, out.len()) {
            let out = &mut out[range];
            match changes.pages.get(&page) {
                Some(page) => out.copy_from_slice(&page[within..within + out.len()]),
                None => self.read_file(changes.visible, page * PAGE as u64 + within as u64, out)?,
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changes = self.changes.write();
        if len < changes.len {
            changes.visible = changes.visible.min(len);
            changes.pages.retain(|page, _| page * (PAGE as u64) < len);
            let within = (len % PAGE as u64) as usize;
            if let Some(last) = changes.pages.get_mut(&(len / PAGE as u64)) {
                last[within..].fill(0);
            }
        }
        changes.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes.write();
        check_range(changes.len, offset, data.len())?;
        let visible = changes.visible;
        for (number, within, range) in parts(offset, data.len()) {
            let data = &data[range];
            if let Some(page) = changes.pages.get_mut(&number) {
                page[within..within + data.len()].copy_from_slice(data);
                continue;
            }
            let mut page = Box::new([0; PAGE]);
            self.read_file(visible, number * PAGE as u64, page.as_mut_slice())?;
            page[within..within + data.len()].copy_from_slice(data);
            changes.pages.insert(number, page);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, Vec<u8>),
        SetLen(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let write = (0..30_000_u64, vec(1..=255_u8, 1..9_000)).prop_map(|(offset, data)| Step::Write(offset, data));
        vec(prop_oneof![3 => write, 1 => (0..40_000_u64).prop_map(Step::SetLen)], 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn an_overlay_reads_like_the_file_that_it_does_not_write(steps in steps(), file_len in 0..20_000_usize) {
            let before: Vec<u8> = (0..file_len).map(|n| n as u8 | 1).collect();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            std::fs::write(&path, &before).unwrap();
            let overlay = Overlay::open(&path).unwrap();
            let mut model = before.clone();
            for step in steps {
                match step {
                    Step::Write(offset, data) => {
                        let end = offset as usize + data.len();
                        let written = overlay.write(offset, &data);
                        prop_assert_eq!(written.is_ok(), end <= model.len());
                        if written.is_ok() {
                            model[offset as usize..end].copy_from_slice(&data);
                        }
                    }
                    Step::SetLen(len) => {
                        overlay.set_len(len).unwrap();
                        model.resize(len as usize, 0);
                    }
                }
                let mut read = vec![0xaa; model.len()];
                overlay.read(0, &mut read).unwrap();
                prop_assert!(read == model);
                prop_assert!(overlay.read(model.len() as u64, &mut [0]).is_err());
            }
            prop_assert!(std::fs::read(&path).unwrap() == before);
        }
    }
}
