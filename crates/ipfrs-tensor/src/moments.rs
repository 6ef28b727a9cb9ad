//! Extremes, mean and standard deviation of numbers of any magnitude, in one pass.

/// Running statistics of numbers: their extremes, their mean, and the sum of squared differences from the mean
/// (Welford 1962).
///
/// Squares have twice the exponent of their numbers. To prevent overflow and underflow, all numbers are divided by
/// 2^700 once one of them exceeds 2^400, and multiplied by 2^700 while none exceeds 2^-400. Both operations are
/// exact. The mean and the deviation are therefore correct for any numbers, if a binary64 can hold them.
#[derive(Debug, Clone)]
pub(crate) struct Moments {
    count: u64,
    min: f64,
    max: f64,
    scale: Scale,
    /// Mean of the scaled numbers.
    mean: f64,
    /// Sum of squared differences of the scaled numbers.
    squares: f64,
}

/// The factor by which numbers are multiplied before they are squared.
#[derive(Debug, Clone, Copy)]
struct Scale {
    up: f64,
    /// Inverse of `up`.
    down: f64,
    /// Magnitude from which numbers need the next scale.
    limit: f64,
}

const TWO_TO_400: f64 = power_of_two(400);
const TWO_TO_700: f64 = power_of_two(700);

const SMALL: Scale = Scale { up: TWO_TO_700, down: 1.0 / TWO_TO_700, limit: 1.0 / TWO_TO_400 };
const USUAL: Scale = Scale { up: 1.0, down: 1.0, limit: TWO_TO_400 };
const LARGE: Scale = Scale { up: 1.0 / TWO_TO_700, down: TWO_TO_700, limit: f64::INFINITY };

impl Moments {
    /// Creates the statistics of an empty set of numbers.
    pub(crate) fn new() -> Self {
        Self { count: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, scale: SMALL, mean: 0.0, squares: 0.0 }
    }

    /// Adds a number, which must be finite.
    #[expect(clippy::cast_precision_loss, reason = "a mean has 53 bits at best")]
    pub(crate) fn add(&mut self, value: f64) {
        while value.abs() >= self.scale.limit {
            self.scale = if self.scale.limit < 1.0 { USUAL } else { LARGE };
            self.mean /= TWO_TO_700;
            self.squares = self.squares / TWO_TO_700 / TWO_TO_700;
        }
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let scaled = value * self.scale.up;
        let distance = scaled - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (scaled - self.mean);
    }

    /// Returns the least and the greatest number, or `None` if no number was added.
    pub(crate) fn extremes(&self) -> Option<(f64, f64)> {
        (self.count > 0).then_some((self.min, self.max))
    }

    /// Returns the mean and the standard deviation of the population, or `None` if no number was added.
    #[expect(clippy::cast_precision_loss, reason = "a mean has 53 bits at best")]
    pub(crate) fn mean_and_deviation(&self) -> Option<(f64, f64)> {
        let (min, max) = self.extremes()?;
        // Rounding could produce impossible values, even infinity. The mean is within the range, and a deviation is
        // at most half of the range.
        let mean = (self.mean * self.scale.down).clamp(min, max);
        let deviation = (self.squares / self.count as f64).sqrt() * self.scale.down;
        Some((mean, deviation.min(max / 2.0 - min / 2.0)))
    }
}

/// Returns 2 to a power well within the exponents of a binary64, without the loop of `powi`.
pub(crate) const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent).cast_unsigned() as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> (f64, f64) {
        let mut moments = Moments::new();
        values.iter().for_each(|value| moments.add(*value));
        moments.mean_and_deviation().unwrap()
    }

    #[test]
    fn moments_do_not_overflow_for_extreme_numbers() {
        let largest = f64::MAX;
        let smallest = f64::from_bits(1);
        for (values, mean, deviation) in [
            (&[largest, -largest][..], 0.0, largest),
            (&[largest, largest, largest], largest, 0.0),
            (&[-largest, -largest, -largest, -largest, -largest, -largest, -largest], -largest, 0.0),
            (&[1.7e308, -1.7e308, 1.7e308, -1.7e308], 0.0, 1.7e308),
            (&[1.5e308, 0.5e308], 1e308, 0.5e308),
            (&[1e-310, 3e-310], 2e-310, 1e-310),
            (&[2.0 * smallest, 6.0 * smallest], 4.0 * smallest, 2.0 * smallest),
            (&[1e-200, 3e-200], 2e-200, 1e-200),
            (&[1e200, 3e200], 2e200, 1e200),
            (&[1e-300, 1.0, 1e300, 0.0], 2.5e299, 3_f64.sqrt() / 4.0 * 1e300),
            (&[0.0, -0.0], 0.0, 0.0),
            (&[3.0], 3.0, 0.0),
        ] {
            let (found, spread) = of(values);
            let is_near =
                |found: f64, expected: f64| (found - expected).abs() <= expected.abs() * 1e-14 + 4.0 * smallest;
            // Near 0, the error can be as large as the terms of the sum.
            assert!(
                is_near(found, mean) || (mean == 0.0 && found.abs() < largest * 1e-14),
                "mean {found} of {values:?}"
            );
            assert!(is_near(spread, deviation), "deviation {spread} of {values:?}");
        }
        assert_eq!(Moments::new().mean_and_deviation(), None);
    }
}
