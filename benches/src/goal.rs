//! What was to be reached.

use serde::{Deserialize, Serialize};

use crate::figures::Table;

/// A goal. Figures are ratios of medians where they do not say otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// What the figure is of.
    pub what: String,
    /// What was measured.
    pub figure: f64,
    /// What it is to be.
    pub bound: Bound,
}

/// What a figure is to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Bound {
    /// Not under this.
    AtLeast(f64),
    /// Not over this.
    AtMost(f64),
}

impl Goal {
    /// A table of goals, and whether each was reached.
    pub fn table<'a>(goals: impl IntoIterator<Item = &'a Self>) -> Table {
        let row = |goal: &Self| {
            let (bound, is_reached) = match goal.bound {
                Bound::AtLeast(least) => (format!("at least {least:.1}"), goal.figure >= least),
                Bound::AtMost(most) => (format!("at most {most:.1}"), goal.figure <= most),
            };
            let verdict = if is_reached { "reached" } else { "missed" };
            vec![goal.what.clone(), format!("{:.2}", goal.figure), bound, verdict.to_owned()]
        };
        Table::new("Goals", ["what", "figure", "goal", ""], goals.into_iter().map(row))
    }
}
