//! Reports of a target: circumstances, figures and output files.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::chart::Chart;
use crate::document::Document;
use crate::figures::Table;
use crate::goal::Goal;
use crate::process::PROGRAM;

/// Results of one part of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Name of the part, as in `--only`.
    pub name: String,
    /// Machine, date and method of the measurement.
    pub circumstances: String,
    /// Goals of the part.
    pub goals: Vec<Goal>,
    /// Tables, in order. Tables without rows are omitted.
    pub tables: Vec<Table>,
    /// Charts. Charts without lines are omitted.
    pub charts: Vec<Chart>,
}

impl Section {
    /// Formats the tables and goals, with the circumstances below the first heading. Returns an empty text without any.
    fn markdown(&self) -> String {
        let goals = Table { title: format!("Goals of `{}`", self.name), ..Goal::table(&self.goals) };
        let circumstances = wrapped(&self.circumstances);
        let tables = self.tables.iter().chain([&goals]).filter(|table| !table.rows.is_empty());
        let texts = tables.enumerate().map(|(index, table)| {
            let note = (index == 0).then_some(circumstances.as_str());
            table.markdown(note)
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// Known results of a target: figures of the last run, and earlier figures of the parts that it did not measure.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Report {
    sections: Vec<Section>,
}

impl Report {
    fn read(path: &Path) -> Result<Self> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        serde_json::from_slice(&text)
            .with_context(|| format!("{} has no figures of this version: remove it", path.display()))
    }

    /// Replaces the known sections of the measured parts with `found` and sorts all sections in the order of `parts`.
    fn update(&mut self, parts: &[&str], found: Vec<Section>) {
        self.sections.retain(|old| found.iter().all(|section| section.name != old.name));
        self.sections.extend(found);
        let place = |section: &Section| parts.iter().position(|part| *part == section.name);
        self.sections.retain(|section| place(section).is_some());
        self.sections.sort_by_key(place);
        for section in &mut self.sections {
            section.tables.retain(|table| !table.rows.is_empty());
            section.charts.retain(|chart| chart.lines.iter().any(|line| !line.points.is_empty()));
        }
    }
}

/// Prints the results of a target with these `parts` and writes them to the files in `arguments`. The Markdown file
/// receives them at its marker `place`. Both files keep the results of parts that were not measured in this run.
///
/// # Errors
/// Returns an error if a file cannot be read or written.
pub fn publish(place: &str, parts: &[&str], found: Vec<Section>, arguments: &Arguments) -> Result<()> {
    let texts = found.iter().map(|section| (section.name.clone(), section.markdown()));
    // A part without any figure replaces nothing.
    let texts: Vec<_> = texts.filter(|(_, text)| !text.is_empty()).collect();
    for (_, text) in &texts {
        writeln!(io::stdout(), "{text}").context("the figures cannot be printed")?;
    }
    if let Some(path) = &arguments.json {
        let mut report = Report::read(path)?;
        report.update(parts, found);
        fs::write(path, serde_json::to_vec_pretty(&report)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let Some(path) = &arguments.write else { return Ok(()) };
    let mut document = Document::read(path, place)?;
    for (name, text) in texts {
        document.set(&name, text, parts);
    }
    document.write(path)
}

/// Returns the date and a short description of the machine.
///
/// # Errors
/// Returns an error if the system does not report them.
pub fn machine() -> Result<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo").context("cannot determine the CPU")?;
    let models: Vec<_> = cpus.lines().filter_map(|line| line.strip_prefix("model name")).collect();
    let model = models.first().map_or("unknown CPU", |model| model.trim_start_matches([' ', '\t', ':']));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot determine the kernel")?;
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("cannot run date")?;
    let date = String::from_utf8_lossy(&date.stdout);
    let program = if env::var_os(PROGRAM).is_some() { ", the program in `GATEWAY`" } else { "" };
    Ok(format!("{}, {} cores of {model}, Linux {}{program}", date.trim(), models.len(), kernel.trim()))
}

/// Checks that the requested parts exist and that the output files can be updated, so that a mistake is found before
/// minutes of measurement.
///
/// # Errors
/// Returns an error if `--only` names an unknown part, if the Markdown file has no marker `place` or text that belongs
/// to no part, or if a file cannot be read.
pub fn check(arguments: &Arguments, place: &str, parts: &[&str]) -> Result<()> {
    if let Some(unknown) = arguments.only.iter().find(|only| !parts.contains(&only.as_str())) {
        bail!("there is no part {unknown:?}: pass to --only some of {}", parts.join(","));
    }
    arguments.json.as_deref().map_or(Ok(()), |path| Report::read(path).map(drop))?;
    arguments.write.as_deref().map_or(Ok(()), |path| Document::read(path, place).map(drop))
}

/// Breaks a paragraph into lines of at most 120 characters, as in the rest of the documents.
fn wrapped(text: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        let is_continued = width > 0 && width + 1 + length <= 120;
        if width > 0 {
            out.push(if is_continued { ' ' } else { '\n' });
        }
        width = if is_continued { width + 1 + length } else { length };
        out.push_str(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Bound;

    fn section(name: &str, circumstances: &str, figure: &str) -> Section {
        Section {
            name: name.to_owned(),
            circumstances: circumstances.to_owned(),
            goals: Vec::new(),
            tables: vec![Table::new(name, ["figure"], [vec![figure.to_owned()]]), Table::new("empty", ["x"], [])],
            charts: Vec::new(),
        }
    }

    #[test]
    fn report_replaces_sections_measured_again() {
        let parts = ["one", "two", "three"];
        let mut report = Report::default();
        report.update(&parts, ["three", "one", "gone", "two"].map(|name| section(name, "Monday", "1")).to_vec());
        report.update(&parts, vec![section("two", "Friday", "2")]);
        let found: Vec<_> =
            report.sections.iter().map(|section| (section.name.as_str(), section.circumstances.as_str())).collect();
        assert_eq!(found, [("one", "Monday"), ("two", "Friday"), ("three", "Monday")]);
        assert!(report.sections.iter().all(|section| section.tables.len() == 1));
    }

    #[test]
    fn section_has_circumstances_and_goals_of_its_own() {
        let mut section = section("one", "Monday", "1");
        section.goals.push(Goal { what: "ratio".to_owned(), figure: 1.5, bound: Bound::AtLeast(1.0) });
        assert_eq!(
            section.markdown(),
            "### one\n\nMonday\n\n| figure |\n|---|\n| 1 |\n\n### Goals of `one`\n\n| what | figure | goal |  |\n\
             |---|---|---|---|\n| ratio | 1.50 | at least 1.0 | reached |\n"
        );
        section.tables.clear();
        section.goals.clear();
        assert_eq!(section.markdown(), "");
    }

    #[test]
    fn circumstances_are_wrapped() {
        let text = "word ".repeat(60);
        let wrapped = wrapped(&text);
        assert_eq!(wrapped.lines().map(str::len).collect::<Vec<_>>(), [119, 119, 59]);
        assert_eq!(wrapped.replace('\n', " "), text.trim());
    }
}
