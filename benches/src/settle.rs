//! The machine as it is before something that fills memory or the disk is timed, the same for all that are compared.

use std::fs::{self, File};
use std::io::{self, Read};

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create, sync};

/// Waits until the disk has ended what others left it to do, telling it of removed files included, and has memory for
/// `bytes` of page cache in the machine.
///
/// The host of a virtual machine takes back what was free for some seconds ("free page reporting", virtio 1.2, section 5.5.6.7),
/// and who touches it first waits for it: writing 1 GiB into the page cache then takes 2.6 s of CPU in place of 0.5. Whoever
/// came after something large, or was the second to write a file, would not pay for it.
///
/// # Errors
/// When the system does not tell how much memory is free, or does not give it.
pub fn settle(bytes: u64) -> Result<()> {
    sync();
    // Of memory that is in use there is nothing to take back, and the page cache is to stay.
    let touched = bytes.min(free_memory()? / 2);
    // A file in memory takes pages as others do, and gives them back at once, which an allocator might not.
    let mut file = File::from(memfd_create("settle", MemfdFlags::CLOEXEC)?);
    io::copy(&mut io::repeat(1).take(touched), &mut file).context("memory cannot be filled")?;
    Ok(())
}

/// Bytes that nobody uses, the page cache neither.
fn free_memory() -> Result<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").context("/proc/meminfo cannot be read")?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemFree:")).context("/proc/meminfo lacks MemFree")?;
    let kib = line.trim().trim_end_matches(" kB").parse::<u64>().context("MemFree of /proc/meminfo is no number")?;
    Ok(kib << 10)
}
