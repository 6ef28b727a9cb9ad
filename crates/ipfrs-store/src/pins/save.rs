//! A copy of the pins at one moment.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ipfrs_core::{Error, Result};
use redb::backends::FileBackend;
use redb::{Database, ReadTransaction, ReadableTable};

use super::table::{CACHE_BYTES, META, PINS, failed};

/// Writes the tables of `moment` to a new file, which opens like the original.
pub(super) fn save(moment: &ReadTransaction, path: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|e| Error::io(format_args!("cannot create the pins {}", path.display()), e))?;
    let saved = FileBackend::new(file).map_err(Into::into).and_then(|file| copy(moment, file));
    saved.map_err(|e| failed("write", &path.display().to_string(), e))
}

fn copy(moment: &ReadTransaction, file: FileBackend) -> Result<(), redb::Error> {
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(file)?;
    let write = database.begin_write()?;
    {
        let mut pins = write.open_table(PINS)?;
        for entry in moment.open_table(PINS)?.iter()? {
            let (key, record) = entry?;
            pins.insert(key.value(), record.value())?;
        }
        let mut meta = write.open_table(META)?;
        for entry in moment.open_table(META)?.iter()? {
            let (key, value) = entry?;
            meta.insert(key.value(), value.value())?;
        }
    }
    Ok(write.commit()?)
}
