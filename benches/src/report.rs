//! What a target has found: where and how it was measured, the figures, and where they are written to.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::arguments::Arguments;
use crate::chart::Chart;
use crate::figures::Table;

/// The figures of one run of a target.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine, and how it was measured.
    pub circumstances: String,
    /// In their order. Those without rows are left out.
    pub tables: Vec<Table>,
    /// Those without lines are left out.
    pub charts: Vec<Chart>,
}

impl Report {
    /// Prints it, and writes it to where `arguments` say; in a Markdown file to its place `place`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn publish(mut self, place: &str, arguments: &Arguments) -> Result<()> {
        self.tables.retain(|table| !table.rows.is_empty());
        self.charts.retain(|chart| chart.lines.iter().any(|line| !line.points.is_empty()));
        let tables: Vec<_> = self.tables.iter().map(Table::markdown).collect();
        let text = format!("{}\n\n{}", self.circumstances, tables.join("\n"));
        writeln!(io::stdout(), "{text}").context("the figures cannot be printed")?;
        if let Some(path) = &arguments.json {
            fs::write(path, serde_json::to_vec_pretty(&self)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        arguments.write.as_deref().map_or(Ok(()), |path| write_figures(path, place, &text))
    }
}

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

/// Whether what will be written can be: found out at once, not after minutes of measuring.
///
/// # Errors
/// When the Markdown file has no place of this name for figures, or cannot be read.
pub fn check_place(arguments: &Arguments, place: &str) -> Result<()> {
    arguments.write.as_deref().map_or(Ok(()), |path| replaced(path, place, "").map(drop))
}

/// Puts `report` into the file, between the lines `<!-- PLACE:begin -->` and `<!-- PLACE:end -->`.
fn write_figures(path: &Path, place: &str, report: &str) -> Result<()> {
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
