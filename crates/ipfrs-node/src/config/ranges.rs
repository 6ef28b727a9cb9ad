//! Check of numbers in the configuration.

use ipfrs_core::{Error, Result};

pub(crate) fn in_range(key: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{key} = {value}: accepted values are {least} to {most}")))
}
