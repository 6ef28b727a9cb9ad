//! Performance goals.

use serde::{Deserialize, Serialize};

use crate::figures::Table;

/// A goal. Figures are ratios of medians unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Description of the figure.
    pub what: String,
    /// Measured figure.
    pub figure: f64,
    /// Required bound.
    pub bound: Bound,
}

/// Bound of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Bound {
    /// Minimum.
    AtLeast(f64),
    /// Maximum.
    AtMost(f64),
}

impl Goal {
    /// Returns a table of goals that shows whether each was reached.
    pub fn table<'a>(goals: impl IntoIterator<Item = &'a Self>) -> Table {
        let row = |goal: &Self| {
            let (bound, is_reached) = match goal.bound {
                Bound::AtLeast(least) => (format!("at least {}", shown(least)), goal.figure >= least),
                Bound::AtMost(most) => (format!("at most {}", shown(most)), goal.figure <= most),
            };
            let verdict = if is_reached { "reached" } else { "missed" };
            vec![goal.what.clone(), format!("{:.2}", goal.figure), bound, verdict.to_owned()]
        };
        Table::new("Goals", ["what", "figure", "goal", ""], goals.into_iter().map(row))
    }
}

/// Formats a bound with one decimal, or with two if it needs them.
fn shown(bound: f64) -> String {
    let text = format!("{bound:.2}");
    text.strip_suffix('0').map_or(text.clone(), str::to_owned)
}
