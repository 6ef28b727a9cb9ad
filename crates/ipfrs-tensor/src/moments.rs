//! Extremes, mean and deviation of numbers of any size, in one pass.

/// Numbers that were seen: their extremes, their mean, and the sum of the squares of their distances from it (Welford 1962).
///
/// Squares have twice the exponents of their numbers. So that they neither overflow nor vanish, all of a tensor with
/// numbers beyond 2^400 are divided by 2^700, and all of one that has none above 2^-400 are multiplied by it. Both are
/// exact, and a mean and a deviation that a binary64 can hold are found whatever the numbers are.
#[derive(Debug, Clone)]
pub(crate) struct Moments {
    count: u64,
    min: f64,
    max: f64,
    scale: Scale,
    /// Of the numbers as they are scaled.
    mean: f64,
    /// Of the numbers as they are scaled.
    squares: f64,
}

/// What numbers are multiplied by before they are squared.
#[derive(Debug, Clone, Copy)]
struct Scale {
    up: f64,
    /// The inverse of it.
    down: f64,
    /// Numbers of this size need the next scale.
    limit: f64,
}

const TWO_TO_400: f64 = power_of_two(400);
const TWO_TO_700: f64 = power_of_two(700);

const SMALL: Scale = Scale { up: TWO_TO_700, down: 1.0 / TWO_TO_700, limit: 1.0 / TWO_TO_400 };
const USUAL: Scale = Scale { up: 1.0, down: 1.0, limit: TWO_TO_400 };
const LARGE: Scale = Scale { up: 1.0 / TWO_TO_700, down: TWO_TO_700, limit: f64::INFINITY };

impl Moments {
    /// Of no numbers.
    pub(crate) fn new() -> Self {
        Self { count: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, scale: SMALL, mean: 0.0, squares: 0.0 }
    }

    /// The next number, which is finite.
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

    /// The least and the greatest number; `None` without any.
    pub(crate) fn extremes(&self) -> Option<(f64, f64)> {
        (self.count > 0).then_some((self.min, self.max))
    }

    /// Mean and standard deviation, of all numbers and not of a sample; `None` without any.
    #[expect(clippy::cast_precision_loss, reason = "a mean has 53 bits at best")]
    pub(crate) fn mean_and_deviation(&self) -> Option<(f64, f64)> {
        let (min, max) = self.extremes()?;
        // Rounding would lead out of what is possible, and so to infinity: a deviation is at most half of the range.
        let mean = (self.mean * self.scale.down).clamp(min, max);
        let deviation = (self.squares / self.count as f64).sqrt() * self.scale.down;
        Some((mean, deviation.min(max / 2.0 - min / 2.0)))
    }
}

/// 2 to a power far within the exponents of a binary64, without the loop of `powi`.
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
    fn what_a_number_can_hold_does_not_overflow_on_the_way() {
        let most = f64::MAX;
        let least = f64::from_bits(1);
        for (values, mean, deviation) in [
            (&[most, -most][..], 0.0, most),
            (&[most, most, most], most, 0.0),
            (&[-most, -most, -most, -most, -most, -most, -most], -most, 0.0),
            (&[1.7e308, -1.7e308, 1.7e308, -1.7e308], 0.0, 1.7e308),
            (&[1.5e308, 0.5e308], 1e308, 0.5e308),
            (&[1e-310, 3e-310], 2e-310, 1e-310),
            (&[2.0 * least, 6.0 * least], 4.0 * least, 2.0 * least),
            (&[1e-200, 3e-200], 2e-200, 1e-200),
            (&[1e200, 3e200], 2e200, 1e200),
            (&[1e-300, 1.0, 1e300, 0.0], 2.5e299, 3_f64.sqrt() / 4.0 * 1e300),
            (&[0.0, -0.0], 0.0, 0.0),
            (&[3.0], 3.0, 0.0),
        ] {
            let (found, spread) = of(values);
            let is_near = |found: f64, expected: f64| (found - expected).abs() <= expected.abs() * 1e-14 + 4.0 * least;
            // About 0, an error is as large as what was added up.
            assert!(is_near(found, mean) || (mean == 0.0 && found.abs() < most * 1e-14), "mean {found} of {values:?}");
            assert!(is_near(spread, deviation), "deviation {spread} of {values:?}");
        }
        assert_eq!(Moments::new().mean_and_deviation(), None);
    }
}
