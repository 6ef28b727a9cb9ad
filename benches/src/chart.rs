//! What is drawn of the figures: `cargo xtask bench-report` makes pictures of it.

use serde::{Deserialize, Serialize};

use crate::figures::Series;

/// Lines over one axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Names the picture: letters, digits and hyphens.
    pub name: String,
    /// What is shown.
    pub title: String,
    /// What figures depend on.
    pub x: Axis,
    /// What is measured.
    pub y: Axis,
    /// One for each thing that is compared.
    pub lines: Vec<Line>,
}

/// An axis. Its numbers are positive where it is logarithmic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it counts, with the unit.
    pub label: String,
    /// Whether equal steps are equal ratios.
    pub is_logarithmic: bool,
    /// Whether its numbers are bytes, which are told in KiB and MiB.
    pub is_bytes: bool,
}

impl Axis {
    /// From 0, in equal steps.
    #[must_use]
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), is_logarithmic: false, is_bytes: false }
    }

    /// In powers of ten.
    #[must_use]
    pub fn logarithmic(label: &str) -> Self {
        Self { label: label.to_owned(), is_logarithmic: true, is_bytes: false }
    }

    /// Of sizes, in powers of two.
    #[must_use]
    pub fn bytes(label: &str) -> Self {
        Self { label: label.to_owned(), is_logarithmic: true, is_bytes: true }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What the legend says.
    pub name: String,
    /// Lines of one kind have one colour, counted from 0.
    pub color: usize,
    /// Tells lines of one colour apart.
    pub is_dashed: bool,
    /// From left to right.
    pub points: Vec<Point>,
}

/// The figures at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// The least figure of all rounds.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

impl Point {
    /// What a series comes to, times `factor`.
    #[must_use]
    pub fn of(x: f64, series: &Series, factor: f64) -> Self {
        Self { x, y: series.median() * factor, least: series.min() * factor, most: series.max() * factor }
    }

    /// A figure that there is only one of.
    #[must_use]
    pub fn one(x: f64, y: f64) -> Self {
        Self { x, y, least: y, most: y }
    }
}
