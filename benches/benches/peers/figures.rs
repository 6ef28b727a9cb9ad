//! What a measurement is, and how servers are compared.

use anyhow::Result;
use ipfrs_benches::{Bound, Chart, Goal, Series, Table};

use crate::nginx::NGINX;
use crate::site::{Site, Target};

/// Something that is measured once in each round.
pub(crate) trait Measurement {
    /// Measures every server once. `round` counts from 0 and decides who is first.
    fn round(&mut self, site: &Site, round: usize) -> Result<()>;
    /// The medians.
    fn tables(&self) -> Vec<Table>;
    /// What is drawn of them.
    fn charts(&self) -> Vec<Chart> {
        Vec::new()
    }
    /// What was to be reached.
    fn goals(&self) -> Vec<Goal> {
        Vec::new()
    }
}

/// The indices of `count` servers, each round beginning with the next: none has always the same neighbour in time.
pub(crate) fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| (step + round) % count)
}

/// The median of each server but nginx divided by the best of nginx, as goals. Empty without nginx.
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

/// The names of the servers, in their order.
pub(crate) fn names(targets: &[Target]) -> Vec<&'static str> {
    targets.iter().map(|target| target.name).collect()
}
