//! Axes: their ranges and ticks.

use crate::plot::Axis;

/// A number on an axis, with its label.
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) label: String,
}

/// Range and ticks of an axis.
pub(crate) struct Scale {
    first: f64,
    last: f64,
    is_logarithmic: bool,
    pub(crate) ticks: Vec<Tick>,
}

impl Scale {
    /// Creates a scale that covers all of `numbers`. A logarithmic scale omits numbers that are not positive; a
    /// linear scale starts at 0.
    pub(crate) fn new(axis: &Axis, numbers: impl Iterator<Item = f64>) -> Self {
        let mut numbers: Vec<_> = numbers.filter(|number| *number > 0.0 || !axis.is_logarithmic).collect();
        numbers.sort_by(f64::total_cmp);
        let (minimum, maximum) = match (numbers.first(), numbers.last()) {
            (Some(minimum), Some(maximum)) => (*minimum, *maximum),
            _ => (1.0, 1.0),
        };
        if axis.is_bytes {
            numbers.dedup();
            let ticks = numbers.iter().map(|at| Tick { at: *at, label: bytes(*at) }).collect();
            Self { first: minimum, last: maximum.max(minimum * 2.0), is_logarithmic: true, ticks }
        } else if axis.is_logarithmic {
            decades(minimum, maximum)
        } else {
            steps(maximum)
        }
    }

    /// Returns the position of a number: 0 at the start of the axis, 1 at its end. Smaller numbers are moved to the
    /// start.
    pub(crate) fn place(&self, number: f64) -> f64 {
        let place = if self.is_logarithmic {
            (number.max(self.first) / self.first).ln() / (self.last / self.first).ln()
        } else {
            (number - self.first) / (self.last - self.first)
        };
        place.clamp(0.0, 1.0)
    }
}

/// Returns a scale of whole powers of ten around both numbers, with ticks at 2 and 5 times each if there are few
/// powers.
fn decades(minimum: f64, maximum: f64) -> Scale {
    let first = (minimum.log10() + 1e-9).floor() as i32;
    let last = ((maximum.log10() - 1e-9).ceil() as i32).max(first + 1);
    let factors: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let (start, end) = (10_f64.powi(first), 10_f64.powi(last));
    let powers = (first..=last).flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
    let ticks = powers.filter(|at| *at <= end * 1.001).map(|at| Tick { at, label: plain(at) });
    Scale { first: start, last: end, is_logarithmic: true, ticks: ticks.collect() }
}

/// Returns a scale from 0 in about five round steps.
fn steps(maximum: f64) -> Scale {
    let rough = maximum.max(f64::MIN_POSITIVE) / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let count = (maximum / step).ceil().max(1.0);
    let ticks =
        (0..=count as u32).map(|index| Tick { at: f64::from(index) * step, label: plain(f64::from(index) * step) });
    Scale { first: 0.0, last: count * step, is_logarithmic: false, ticks: ticks.collect() }
}

/// Formats a number: `0.05`, `20`, `10,000`.
fn plain(number: f64) -> String {
    if number < 1.0 {
        let text = format!("{number:.6}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let text = format!("{:.2}", number);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let (whole, rest) = text.find('.').map_or((text, ""), |at| text.split_at(at));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

fn bytes(number: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("GiB", 1_073_741_824.0), ("MiB", 1_048_576.0), ("KiB", 1_024.0)];
    let unit = UNITS.into_iter().find(|(_, unit)| number >= *unit);
    unit.map_or_else(|| format!("{} B", plain(number)), |(name, unit)| format!("{} {name}", plain(number / unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(is_logarithmic: bool, is_bytes: bool, numbers: &[f64]) -> (Vec<String>, Scale) {
        let axis = Axis { label: String::new(), is_logarithmic, is_bytes };
        let scale = Scale::new(&axis, numbers.iter().copied());
        (scale.ticks.iter().map(|tick| tick.label.clone()).collect(), scale)
    }

    #[test]
    fn axis_ticks_are_round_and_cover_all_figures() {
        let (linear, scale) = labels(false, false, &[3.0, 41.0]);
        assert_eq!(linear, ["0", "10", "20", "30", "40", "50"]);
        assert_eq!((scale.place(0.0), scale.place(25.0), scale.place(50.0)), (0.0, 0.5, 1.0));
        let (decades, scale) = labels(true, false, &[1.0, 10_000.0]);
        assert_eq!(decades, ["1", "10", "100", "1,000", "10,000"]);
        assert!((scale.place(100.0) - 0.5).abs() < 1e-9);
        assert_eq!(labels(true, false, &[0.07, 0.9]).0, ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"]);
        assert_eq!(labels(true, true, &[1_024.0, 65_536.0, 10_485_760.0]).0, ["1 KiB", "64 KiB", "10 MiB"]);
    }

    #[test]
    fn chart_with_at_most_one_number_has_an_axis() {
        for numbers in [&[][..], &[0.0], &[1.0], &[5.0, 5.0]] {
            for (is_logarithmic, is_bytes) in [(false, false), (true, false), (true, true)] {
                let (_, scale) = labels(is_logarithmic, is_bytes, numbers);
                assert!(scale.place(5.0).is_finite() && scale.last > scale.first, "{numbers:?}");
            }
        }
    }
}
