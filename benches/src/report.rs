//! Where figures are written to, and where they were taken.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The day and the machine, in a few words.
///
/// # Errors
/// When the system does not tell.
pub fn machine() -> Result<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo").context("the CPU cannot be told")?;
    let models: Vec<_> = cpus.lines().filter_map(|line| line.strip_prefix("model name")).collect();
    let model = models.first().map_or("unknown CPU", |model| model.trim_start_matches([' ', '\t', ':']));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("the kernel cannot be told")?;
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("date cannot be run")?;
    let date = String::from_utf8_lossy(&date.stdout);
    Ok(format!("{}, {} cores of {model}, Linux {}", date.trim(), models.len(), kernel.trim()))
}

/// Whether the file has a place of this name for figures.
///
/// # Errors
/// When it has none, or cannot be read.
pub fn check_place(path: &Path, place: &str) -> Result<()> {
    replaced(path, place, "").map(drop)
}

/// Puts `report` into the file, between the lines `<!-- PLACE:begin -->` and `<!-- PLACE:end -->`.
///
/// # Errors
/// As [`check_place`], and when the file cannot be written.
pub fn write_figures(path: &Path, place: &str, report: &str) -> Result<()> {
    let text = replaced(path, place, report)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn replaced(path: &Path, place: &str, report: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {place}:begin -->"), format!("<!-- {place}:end -->"));
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let parts = text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = parts else { bail!("{} has no lines {begin} and {end}", path.display()) };
    Ok(format!("{before}{begin}\n{report}\n{end}{after}"))
}
