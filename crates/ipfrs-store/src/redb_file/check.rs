//! Checks of a database file when it is opened.

use ipfrs_core::{Error, Result};
use redb::{Database, ReadableDatabase};

use super::{META, RedbFile};

impl RedbFile {
    /// Returns the database, if its format and its contents are valid.
    pub(super) fn checked(&self, database: Database) -> Result<Database> {
        match self.check(&database) {
            Ok(()) => Ok(database),
            Err(error) => {
                self.discard(database);
                Err(error)
            }
        }
    }

    /// Checks the format and the contents.
    fn check(&self, database: &Database) -> Result<()> {
        let format = self.guarded("read", || {
            let meta = database.begin_read()?.open_table(META)?;
            Ok(meta.get("format")?.map(|format| format.value()))
        })?;
        let (expected, place) = (self.contents.format, self.path.display());
        match format {
            Some(format) if format == expected => {}
            Some(other) => {
                return Err(Error::unsupported(format!(
                    "{place} has format {other}, but this version reads format {expected}: use the version that wrote it, \
                     or a newer one"
                )));
            }
            None => return Err(self.damaged(&"it has no format version")),
        }
        self.guarded("read", || (self.contents.check)(database))
    }
}
