//! The report: where and how it was measured, the goals, the tables.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::figures::{Goal, Measurement, Table};
use crate::site::Site;

const BEGIN: &str = "<!-- figures:begin -->";
const END: &str = "<!-- figures:end -->";

/// As Markdown.
pub(crate) fn render(site: &Site, measurements: &[Box<dyn Measurement>]) -> Result<String> {
    let tables = measurements.iter().flat_map(|measurement| measurement.tables());
    let goals = goals(measurements.iter().flat_map(|measurement| measurement.goals()));
    let sections = [goals].into_iter().chain(tables).filter(|table| !table.rows.is_empty());
    let sections: Vec<_> = sections.map(|table| table.markdown()).collect();
    Ok(format!("{}\n{}", circumstances(site)?, sections.join("\n")))
}

fn goals(goals: impl Iterator<Item = Goal>) -> Table {
    let row = |goal: Goal| {
        let verdict = if goal.ratio >= goal.least { "reached" } else { "missed" };
        vec![goal.what, format!("{:.2}", goal.ratio), format!("{:.1}", goal.least), verdict.to_owned()]
    };
    Table {
        title: "Goals".to_owned(),
        head: vec!["what", "ratio of medians", "goal", ""],
        rows: goals.map(row).collect(),
    }
}

fn circumstances(site: &Site) -> Result<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo").context("the CPU cannot be told")?;
    let models: Vec<_> = cpus.lines().filter_map(|line| line.strip_prefix("model name")).collect();
    let model = models.first().map_or("unknown CPU", |model| model.trim_start_matches([' ', '\t', ':']));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("the kernel cannot be told")?;
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("date cannot be run")?;
    let missing = || "no".to_owned();
    Ok(format!(
        "{date}, {count} cores of {model}{pinned}, Linux {kernel}, {nginx}, {wrk}. Medians of {rounds} rounds, in parentheses the \
         least and the largest.\n",
        date = String::from_utf8_lossy(&date.stdout).trim(),
        count = models.len(),
        pinned = if site.cores.is_pinned() { " (one for the server, another for the client)" } else { "" },
        kernel = kernel.trim(),
        nginx =
            site.nginx_version.as_deref().map_or_else(|| missing() + " nginx", |text| words(text, "nginx version:")),
        wrk = site.wrk_version.as_deref().map_or_else(|| missing() + " wrk", |text| words(text, "")),
        rounds = site.options.rounds,
    ))
}

/// The first words of a line, as far as a version is told in them.
fn words(line: &str, prefix: &str) -> String {
    line.trim_start_matches(prefix).split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// Whether there is a place for the figures in the file.
pub(crate) fn check_markers(path: &Path) -> Result<()> {
    replaced(path, "").map(drop)
}

/// Puts the report between the markers of the file.
pub(crate) fn write(path: &Path, report: &str) -> Result<()> {
    let text = replaced(path, report)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn replaced(path: &Path, report: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else { bail!("{} has no lines {BEGIN} and {END}", path.display()) };
    Ok(format!("{before}{BEGIN}\n{report}\n{END}{after}"))
}
