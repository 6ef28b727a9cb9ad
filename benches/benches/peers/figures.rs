//! Measurements, and the comparison of servers.

use anyhow::Result;
use ipfrs_benches::{Bound, Chart, Goal, Series, Table};

use crate::site::{Site, Target};
use ipfrs_benches::nginx::NGINX;

/// A measurement with one figure per round.
pub(crate) trait Measurement {
    /// Measures every server once. `round` counts from 0 and determines the order of the servers.
    fn round(&mut self, site: &Site, round: usize) -> Result<()>;
    /// Returns tables of the medians.
    fn tables(&self) -> Vec<Table>;
    /// Returns charts of the figures.
    fn charts(&self) -> Vec<Chart> {
        Vec::new()
    }
    /// Returns the goals.
    fn goals(&self) -> Vec<Goal> {
        Vec::new()
    }
}

/// Returns the indices of `count` servers. Each round starts with the next server, so that no server always follows
/// the same one.
pub(crate) fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| (step + round) % count)
}

/// Returns goals that compare the median of each server except nginx with the best median of nginx. Returns no goals
/// without nginx.
pub(crate) fn goals_beside_nginx(what: &str, servers: &[(&'static str, &Series)], bound: Bound) -> Vec<Goal> {
    let (nginx, others): (Vec<_>, Vec<_>) = servers.iter().partition(|(name, _)| name.starts_with(NGINX));
    let medians = nginx.iter().map(|(_, series)| series.median());
    let best = match bound {
        Bound::AtLeast(_) => medians.max_by(f64::total_cmp),
        Bound::AtMost(_) => medians.min_by(f64::total_cmp),
    };
    let Some(best) = best else { return Vec::new() };
    let goal = |(name, series): &(&str, &Series)| Goal {
        what: format!("{what}: {name} / best of nginx"),
        figure: series.median() / best,
        bound,
    };
    others.iter().map(goal).collect()
}

/// Returns the names of the servers, in order.
pub(crate) fn names(targets: &[Target]) -> Vec<&'static str> {
    targets.iter().map(|target| target.name).collect()
}
