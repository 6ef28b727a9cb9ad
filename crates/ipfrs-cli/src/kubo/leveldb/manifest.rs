//! The manifest: which files belong to the current version.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::bytes::{number, string};
use super::log;

/// The current version.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    /// Number of the oldest log whose entries no table has.
    pub(super) log: u64,
    pub(super) previous_log: u64,
    /// Tables by number.
    pub(super) tables: BTreeMap<u64, TableFile>,
}

/// A table.
#[derive(Debug)]
pub(super) struct TableFile {
    pub(super) number: u64,
    /// First key.
    pub(super) smallest: Vec<u8>,
    largest: Vec<u8>,
}

impl TableFile {
    /// Whether the table may have keys with a prefix.
    pub(super) fn may_have(&self, prefix: &[u8]) -> bool {
        self.largest.as_slice() >= prefix && (self.smallest.as_slice() <= prefix || self.smallest.starts_with(prefix))
    }
}

impl Manifest {
    pub(super) fn parse(content: &[u8]) -> Result<Self> {
        let mut manifest = Self::default();
        log::records(content, |edit| manifest.apply(edit))?;
        Ok(manifest)
    }

    fn apply(&mut self, edit: &[u8]) -> Result<()> {
        let rest = &mut { edit };
        while !rest.is_empty() {
            match number(rest)? {
                1 => match string(rest)? {
                    b"leveldb.BytewiseComparator" => {}
                    other => bail!("the keys have the order {:?}", String::from_utf8_lossy(other)),
                },
                2 => self.log = number(rest)?,
                3 | 4 => drop(number(rest)?),
                5 => drop((number(rest)?, string(rest)?)),
                6 => {
                    let _level = number(rest)?;
                    let table = number(rest)?;
                    self.tables.remove(&table);
                }
                7 => {
                    let _level = number(rest)?;
                    let (number, _size) = (number(rest)?, number(rest)?);
                    let (smallest, largest) = (user_key(string(rest)?), user_key(string(rest)?));
                    self.tables.insert(number, TableFile { number, smallest, largest });
                }
                9 => self.previous_log = number(rest)?,
                tag => bail!("the manifest has the unknown field {tag}"),
            }
        }
        Ok(())
    }
}

/// Returns the key of the user in an internal key, which ends with a sequence number and a type.
fn user_key(internal: &[u8]) -> Vec<u8> {
    internal[..internal.len().saturating_sub(8)].to_vec()
}
