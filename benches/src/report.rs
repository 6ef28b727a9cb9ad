//! Reports of a target: circumstances, figures and output files.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::chart::Chart;
use crate::figures::Table;
use crate::goal::Goal;
use crate::serve::PROGRAM;

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

    /// Formats the report. Circumstances that most sections share appear once; the other sections state their own.
    fn markdown(&self) -> String {
        let alike = |section: &&Section| {
            self.sections.iter().filter(|other| other.circumstances == section.circumstances).count()
        };
        // If several are equally common, the first of them.
        let usual = self.sections.iter().rev().max_by_key(alike).map_or("", |section| &section.circumstances);
        let goals: Vec<_> = self
            .sections
            .iter()
            .flat_map(|section| {
                let apart = if section.circumstances == usual { "" } else { " (measured apart)" };
                section.goals.iter().map(move |goal| Goal { what: format!("{}{apart}", goal.what), ..goal.clone() })
            })
            .collect();
        let goals = Goal::table(&goals);
        let goals = (!goals.rows.is_empty()).then(|| goals.markdown(None));
        let tables = self.sections.iter().flat_map(|section| {
            let note = (section.circumstances != usual).then(|| format!("Measured apart: {}", section.circumstances));
            section.tables.iter().map(move |table| table.markdown(note.as_deref()))
        });
        let tables: Vec<_> = goals.into_iter().chain(tables).collect();
        format!("{usual}\n\n{}", tables.join("\n"))
    }
}

/// Prints the results of a target with these `parts` and writes them to the files in `arguments`. The Markdown file
/// receives them at its marker `place`, together with the results in the JSON file of parts that were not measured in
/// this run.
///
/// # Errors
/// Returns an error if a file cannot be read or written.
pub fn publish(place: &str, parts: &[&str], found: Vec<Section>, arguments: &Arguments) -> Result<()> {
    let mut report = arguments.json.as_deref().map_or_else(|| Ok(Report::default()), Report::read)?;
    report.update(parts, found);
    let text = report.markdown();
    writeln!(io::stdout(), "{text}").context("the figures cannot be printed")?;
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_vec_pretty(&report)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    arguments.write.as_deref().map_or(Ok(()), |path| write_figures(path, place, &text))
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

/// Checks that the requested parts exist and that the output files can be written, so that a mistake is found before
/// minutes of measurement.
///
/// # Errors
/// Returns an error if `--only` names an unknown part, if it would remove the figures of all other parts, if the
/// Markdown file has no marker `place`, or if a file cannot be read.
pub fn check(arguments: &Arguments, place: &str, parts: &[&str]) -> Result<()> {
    if let Some(unknown) = arguments.only.iter().find(|only| !parts.contains(&only.as_str())) {
        bail!("there is no part {unknown:?}: pass to --only some of {}", parts.join(","));
    }
    let is_alone = !arguments.only.is_empty() && arguments.write.is_some();
    ensure!(!is_alone || arguments.json.is_some(), "--only and --write need --json FILE with the other figures");
    arguments.json.as_deref().map_or(Ok(()), |path| Report::read(path).map(drop))?;
    arguments.write.as_deref().map_or(Ok(()), |path| replaced(path, place, "").map(drop))
}

/// Writes `report` into the file, between the lines `<!-- PLACE:begin -->` and `<!-- PLACE:end -->`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_replaces_sections_measured_again() {
        let section = |name: &str, circumstances: &str, figure: &str| Section {
            name: name.to_owned(),
            circumstances: circumstances.to_owned(),
            goals: Vec::new(),
            tables: vec![Table::new(name, ["figure"], [vec![figure.to_owned()]]), Table::new("empty", ["x"], [])],
            charts: Vec::new(),
        };
        let parts = ["one", "two", "three"];
        let mut report = Report::default();
        report.update(&parts, ["three", "one", "gone", "two"].map(|name| section(name, "Monday", "1")).to_vec());
        report.update(&parts, vec![section("two", "Friday", "2")]);
        assert_eq!(
            report.markdown(),
            "Monday\n\n### one\n\n| figure |\n|---|\n| 1 |\n\n### two\n\nMeasured apart: Friday\n\n| figure |\n|---|\n\
             | 2 |\n\n### three\n\n| figure |\n|---|\n| 1 |\n"
        );
    }
}
