//! The report: where and how it was measured, the goals, the tables.

use anyhow::Result;
use ipfrs_benches::{Report, Table, machine};

use crate::figures::{Bound, Goal, Measurement};
use crate::site::Site;

/// The place of the figures, as [`ipfrs_benches::check_place`] knows it.
pub(crate) const PLACE: &str = "figures";

/// What all of them have found.
pub(crate) fn render(site: &Site, measurements: &[Box<dyn Measurement>]) -> Result<Report> {
    let tables = measurements.iter().flat_map(|measurement| measurement.tables());
    let goals = goals(measurements.iter().flat_map(|measurement| measurement.goals()));
    Ok(Report {
        circumstances: circumstances(site)?,
        tables: [goals].into_iter().chain(tables).collect(),
        charts: measurements.iter().flat_map(|measurement| measurement.charts()).collect(),
    })
}

fn goals(goals: impl Iterator<Item = Goal>) -> Table {
    let row = |goal: Goal| {
        let (bound, is_reached) = match goal.bound {
            Bound::AtLeast(least) => (format!("at least {least:.1}"), goal.figure >= least),
            Bound::AtMost(most) => (format!("at most {most:.1}"), goal.figure <= most),
        };
        let verdict = if is_reached { "reached" } else { "missed" };
        vec![goal.what, format!("{:.2}", goal.figure), bound, verdict.to_owned()]
    };
    Table { title: "Goals".to_owned(), head: vec!["what", "figure", "goal", ""], rows: goals.map(row).collect() }
}

fn circumstances(site: &Site) -> Result<String> {
    let missing = || "no".to_owned();
    Ok(format!(
        "{machine}{pinned}, {nginx}, {wrk}, {h2load}. Medians of {rounds} rounds, in parentheses the least and the largest.",
        machine = machine()?,
        pinned = if site.cores.is_pinned() { " (one core for the server, another for the client)" } else { "" },
        nginx =
            site.nginx_version.as_deref().map_or_else(|| missing() + " nginx", |text| words(text, "nginx version:")),
        wrk = site.wrk_version.as_deref().map_or_else(|| missing() + " wrk", |text| words(text, "")),
        h2load = site.h2load_version.as_deref().map_or_else(|| missing() + " h2load", |text| words(text, "")),
        rounds = site.options.rounds,
    ))
}

/// The first words of a line, as far as a version is told in them.
fn words(line: &str, prefix: &str) -> String {
    line.trim_start_matches(prefix).split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}
