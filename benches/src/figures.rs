//! Figures over the rounds of a measurement, and tables of them.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// One figure, with its value in each round.
#[derive(Debug, Default, Clone)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds the figure of another round.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Returns the median: the middle value, or the mean of the two middle values. Returns 0 before the first round.
    #[must_use]
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => 0.0,
            length if length % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    /// Returns the largest value, or 0 before the first round.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.sorted().last().copied().unwrap_or_default()
    }

    /// Returns the sum of all values.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Returns the smallest value, or 0 before the first round.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.sorted().first().copied().unwrap_or_default()
    }

    /// Formats the median, with the smallest and the largest value in parentheses.
    #[must_use]
    pub fn show(&self, decimals: usize) -> String {
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

/// A table of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Heading of the table.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Rows, with one cell for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table. Each row must have one cell for each name in `head`.
    pub fn new<const COLUMNS: usize>(
        title: impl Into<String>,
        head: [&str; COLUMNS],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        Self { title: title.into(), head: head.map(str::to_owned).to_vec(), rows: rows.into_iter().collect() }
    }

    /// Formats the table as Markdown under a heading. `note` is a paragraph between heading and table.
    #[must_use]
    pub fn markdown(&self, note: Option<&str>) -> String {
        let note = note.map(|note| format!("{note}\n\n")).unwrap_or_default();
        let mut out =
            format!("### {}\n\n{note}| {} |\n|{}\n", self.title, self.head.join(" | "), "---|".repeat(self.head.len()));
        for row in &self.rows {
            out.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        out
    }
}

/// Repeats `work` for `time`, at least once, and returns the average seconds per repetition.
///
/// # Errors
/// Returns the first error of `work`.
pub fn seconds_each(time: Duration, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
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
