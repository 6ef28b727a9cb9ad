//! The report: where and how it was measured, the goals, the tables.

use anyhow::Result;
use ipfrs_benches::{Table, machine};

use crate::figures::{Goal, Measurement};
use crate::site::Site;

/// The place of the figures, as [`ipfrs_benches::write_figures`] knows it.
pub(crate) const PLACE: &str = "figures";

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
    let missing = || "no".to_owned();
    Ok(format!(
        "{machine}{pinned}, {nginx}, {wrk}. Medians of {rounds} rounds, in parentheses the least and the largest.\n",
        machine = machine()?,
        pinned = if site.cores.is_pinned() { " (one core for the server, another for the client)" } else { "" },
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
