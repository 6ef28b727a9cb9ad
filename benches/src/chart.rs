//! Charts of the figures. `cargo xtask bench-report` draws them.

use serde::{Deserialize, Serialize};

use crate::figures::Series;

/// Lines over a common x axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Name of the picture: letters, digits and hyphens.
    pub name: String,
    /// Title of the chart.
    pub title: String,
    /// Independent variable.
    pub x: Axis,
    /// Measured quantity.
    pub y: Axis,
    /// Lines, one for each compared item.
    pub lines: Vec<Line>,
}

/// An axis. The numbers of a logarithmic axis are positive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Quantity, with its unit.
    pub label: String,
    /// Whether equal steps on the axis are equal ratios.
    pub is_logarithmic: bool,
    /// Whether the numbers are bytes, labelled in KiB and MiB.
    pub is_bytes: bool,
}

impl Axis {
    /// Creates an axis that starts at 0, with equal steps.
    #[must_use]
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), is_logarithmic: false, is_bytes: false }
    }

    /// Creates an axis in powers of ten.
    #[must_use]
    pub fn logarithmic(label: &str) -> Self {
        Self { label: label.to_owned(), is_logarithmic: true, is_bytes: false }
    }

    /// Creates an axis for sizes in bytes, in powers of two.
    #[must_use]
    pub fn bytes(label: &str) -> Self {
        Self { label: label.to_owned(), is_logarithmic: true, is_bytes: true }
    }
}

/// A line of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Index of the colour, from 0. Lines of the same kind have the same colour.
    pub color: usize,
    /// Whether the line is dashed, to distinguish lines of the same colour.
    pub is_dashed: bool,
    /// Points, from left to right.
    pub points: Vec<Point>,
}

/// Figures at one x value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Position on the x axis.
    pub x: f64,
    /// Median of all rounds.
    pub y: f64,
    /// Smallest figure of all rounds.
    pub least: f64,
    /// Largest figure of all rounds.
    pub most: f64,
}

impl Point {
    /// Creates the point of a series at `x`, with each figure multiplied by `factor`.
    #[must_use]
    pub fn of(x: f64, series: &Series, factor: f64) -> Self {
        Self { x, y: series.median() * factor, least: series.min() * factor, most: series.max() * factor }
    }

    /// Creates the point of a single figure.
    #[must_use]
    pub fn one(x: f64, y: f64) -> Self {
        Self { x, y, least: y, most: y }
    }
}
