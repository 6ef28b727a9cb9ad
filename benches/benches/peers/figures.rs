//! Figures over the rounds, and the tables that they come to.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::nginx::NGINX;
use crate::site::{Site, Target};

/// Something that is measured once in each round.
pub(crate) trait Measurement {
    /// What the progress line says.
    fn name(&self) -> &'static str;
    /// Measures every server once. `round` counts from 0 and decides who is first.
    fn round(&mut self, site: &Site, round: usize) -> Result<()>;
    /// The medians.
    fn tables(&self) -> Vec<Table>;
    /// What was to be reached.
    fn goals(&self) -> Vec<Goal> {
        Vec::new()
    }
}

/// One figure, as it was in each round.
#[derive(Debug, Default, Clone)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle value; between the two middle ones where there is none. 0 before the first round.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => 0.0,
            length if length % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    /// The largest value; 0 before the first round.
    pub(crate) fn max(&self) -> f64 {
        self.sorted().last().copied().unwrap_or_default()
    }

    /// The median, with the least and the largest value in parentheses.
    pub(crate) fn show(&self, decimals: usize) -> String {
        let sorted = self.sorted();
        match (sorted.first(), sorted.last()) {
            (Some(least), Some(most)) if sorted.len() > 1 => {
                format!("{:.decimals$} ({least:.decimals$}–{most:.decimals$})", self.median())
            }
            _ => format!("{:.decimals$}", self.median()),
        }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// A goal: a figure of ours divided by the one that it is held against.
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) ratio: f64,
    pub(crate) least: f64,
}

/// A table of the report.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// As Markdown, under a heading.
    pub(crate) fn markdown(&self) -> String {
        let mut out =
            format!("### {}\n\n| {} |\n|{}\n", self.title, self.head.join(" | "), "---|".repeat(self.head.len()));
        for row in &self.rows {
            out.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        out
    }
}

/// The indices of `count` servers, each round beginning with the next: none has always the same neighbour in time.
pub(crate) fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| (step + round) % count)
}

/// Repeats `work` for `time`, at least once, and gives the seconds that each repetition took on average.
pub(crate) fn seconds_each(time: Duration, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let (start, mut count) = (Instant::now(), 0_u32);
    loop {
        work()?;
        count += 1;
        let elapsed = start.elapsed();
        if elapsed >= time {
            return Ok(elapsed.as_secs_f64() / f64::from(count));
        }
    }
}

/// The median of each server but nginx divided by the best of nginx, as goals of at least `least`. Empty without nginx.
pub(crate) fn goals_beside_nginx(what: &str, servers: &[(&'static str, &Series)], least: f64) -> Vec<Goal> {
    let (nginx, others): (Vec<_>, Vec<_>) = servers.iter().partition(|(name, _)| name.starts_with(NGINX));
    let Some(best) = nginx.iter().map(|(_, series)| series.median()).max_by(f64::total_cmp) else { return Vec::new() };
    let goal = |(name, series): &(&str, &Series)| Goal {
        what: format!("{what}: {name} / best of nginx"),
        ratio: series.median() / best,
        least,
    };
    others.iter().map(goal).collect()
}

/// The names of the servers, in their order.
pub(crate) fn names(targets: &[Target]) -> Vec<&'static str> {
    targets.iter().map(|target| target.name).collect()
}
