//! Counts, extremes and moments of a tensor's elements, in one pass over its bytes.

use crate::Dtype;
use crate::moments::{Moments, power_of_two};

/// Statistics of the elements. A complex number counts as two elements, and booleans count as 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of elements.
    pub count: u64,
    /// Number of elements that are NaN.
    pub nan: u64,
    /// Number of infinite elements.
    pub infinite: u64,
    /// Number of elements that are zero.
    pub zero: u64,
    /// Least finite element; `None` if no element is finite.
    pub min: Option<f64>,
    /// Greatest finite element; `None` if no element is finite.
    pub max: Option<f64>,
    /// Mean of the finite elements; `None` if no element is finite.
    pub mean: Option<f64>,
    /// Population standard deviation of the finite elements; `None` if no element is finite.
    pub std: Option<f64>,
}

/// Accumulates statistics from the bytes of a tensor, in pieces of any size. 64-bit integers beyond 2^53 are rounded.
/// The mean and the deviation exist for any finite elements, because intermediate values do not overflow.
#[derive(Debug, Clone)]
pub struct Stats {
    dtype: Dtype,
    /// The start of an incomplete group of elements.
    partial: Vec<u8>,
    count: u64,
    nan: u64,
    infinite: u64,
    zero: u64,
    /// Moments of the finite elements.
    moments: Moments,
}

impl Stats {
    /// Creates statistics without elements.
    #[must_use]
    pub fn new(dtype: Dtype) -> Self {
        let moments = Moments::new();
        Self { dtype, partial: Vec::with_capacity(16), count: 0, nan: 0, infinite: 0, zero: 0, moments }
    }

    /// Adds the next bytes of the tensor.
    pub fn add(&mut self, mut bytes: &[u8]) {
        let group = group_bytes(self.dtype);
        if !self.partial.is_empty() {
            let missing = (group - self.partial.len()).min(bytes.len());
            self.partial.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.partial.len() < group {
                return;
            }
            let whole = std::mem::take(&mut self.partial);
            self.add_groups(&whole);
        }
        let whole = bytes.len() - bytes.len() % group;
        self.add_groups(&bytes[..whole]);
        self.partial.extend_from_slice(&bytes[whole..]);
    }

    /// Returns the statistics of all elements so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let (extremes, moments) = (self.moments.extremes(), self.moments.mean_and_deviation());
        Summary {
            count: self.count,
            nan: self.nan,
            infinite: self.infinite,
            zero: self.zero,
            min: extremes.map(|(min, _)| min),
            max: extremes.map(|(_, max)| max),
            mean: moments.map(|(mean, _)| mean),
            std: moments.map(|(_, std)| std),
        }
    }

    /// Adds bytes that consist of whole groups.
    fn add_groups(&mut self, bytes: &[u8]) {
        macro_rules! numbers {
            ($type:ty) => {
                for element in bytes.as_chunks::<{ size_of::<$type>() }>().0 {
                    #[allow(clippy::cast_lossless, clippy::cast_precision_loss, reason = "one line for all numbers")]
                    self.see(<$type>::from_le_bytes(*element) as f64);
                }
            };
        }
        match self.dtype {
            Dtype::Bool | Dtype::U8 => numbers!(u8),
            Dtype::I8 => numbers!(i8),
            Dtype::I16 => numbers!(i16),
            Dtype::U16 => numbers!(u16),
            Dtype::I32 => numbers!(i32),
            Dtype::U32 => numbers!(u32),
            Dtype::I64 => numbers!(i64),
            Dtype::U64 => numbers!(u64),
            Dtype::F32 | Dtype::C64 => numbers!(f32),
            Dtype::F64 | Dtype::C128 => numbers!(f64),
            Dtype::F16 => self.see_small::<2>(bytes, &F16),
            Dtype::Bf16 => self.see_small::<2>(bytes, &BF16),
            Dtype::F8E5M2 => self.see_small::<1>(bytes, &F8_E5M2),
            Dtype::F8E4M3 => self.see_small::<1>(bytes, &F8_E4M3),
            Dtype::F8E4M3Fnuz => self.see_small::<1>(bytes, &F8_E4M3_FNUZ),
            Dtype::F8E5M2Fnuz => self.see_small::<1>(bytes, &F8_E5M2_FNUZ),
            Dtype::F8E8M0 => bytes.iter().for_each(|code| self.see(e8m0(*code))),
            Dtype::F4 => self.see_packed(bytes, &F4),
            Dtype::F6E2M3 => self.see_packed(bytes, &F6_E2M3),
            Dtype::F6E3M2 => self.see_packed(bytes, &F6_E3M2),
        }
    }

    fn see_small<const BYTES: usize>(&mut self, bytes: &[u8], format: &Small) {
        for element in bytes.as_chunks::<BYTES>().0 {
            let code = element.iter().rev().fold(0, |code, byte| code << 8 | u32::from(*byte));
            self.see(format.value(code));
        }
    }

    /// Adds elements of less than a byte, lowest bits first.
    fn see_packed(&mut self, bytes: &[u8], format: &Small) {
        let bits = format.bits();
        for group in bytes.chunks_exact(group_bytes(self.dtype)) {
            let word = group.iter().rev().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
            for index in 0..8 * u32::try_from(group.len()).unwrap_or(1) / bits {
                self.see(format.value(word >> (index * bits) & ((1 << bits) - 1)));
            }
        }
    }

    fn see(&mut self, value: f64) {
        self.count += 1;
        if value.is_nan() {
            self.nan += 1;
        } else if value.is_infinite() {
            self.infinite += 1;
        } else {
            self.zero += u64::from(value == 0.0);
            self.moments.add(value);
        }
    }
}

/// Returns the smallest number of bytes that hold a whole number of elements.
fn group_bytes(dtype: Dtype) -> usize {
    match dtype.bits() {
        4 => 1,
        6 => 3,
        bits => usize::try_from(bits / 8).unwrap_or(1),
    }
}

/// A floating-point format of at most 16 bits: sign, exponent and mantissa.
struct Small {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    special: Special,
}

/// The meaning of the codes at the end of a format's range.
enum Special {
    /// As in IEEE 754, codes whose exponent is all ones are infinities and NaNs.
    Ieee,
    /// The code in which all bits except the sign are ones is NaN. There is no infinity.
    OneNan,
    /// The code of negative zero is NaN. There is no infinity.
    NegativeZero,
    /// Every code is a number.
    None,
}

const F16: Small = Small { exponent_bits: 5, mantissa_bits: 10, bias: 15, special: Special::Ieee };
const BF16: Small = Small { exponent_bits: 8, mantissa_bits: 7, bias: 127, special: Special::Ieee };
const F8_E5M2: Small = Small { exponent_bits: 5, mantissa_bits: 2, bias: 15, special: Special::Ieee };
const F8_E4M3: Small = Small { exponent_bits: 4, mantissa_bits: 3, bias: 7, special: Special::OneNan };
const F8_E5M2_FNUZ: Small = Small { exponent_bits: 5, mantissa_bits: 2, bias: 16, special: Special::NegativeZero };
const F8_E4M3_FNUZ: Small = Small { exponent_bits: 4, mantissa_bits: 3, bias: 8, special: Special::NegativeZero };
const F6_E3M2: Small = Small { exponent_bits: 3, mantissa_bits: 2, bias: 3, special: Special::None };
const F6_E2M3: Small = Small { exponent_bits: 2, mantissa_bits: 3, bias: 1, special: Special::None };
const F4: Small = Small { exponent_bits: 2, mantissa_bits: 1, bias: 1, special: Special::None };

impl Small {
    fn bits(&self) -> u32 {
        1 + self.exponent_bits + self.mantissa_bits
    }

    fn value(&self, code: u32) -> f64 {
        let mantissa = code & ((1 << self.mantissa_bits) - 1);
        let exponents = (1 << self.exponent_bits) - 1;
        let exponent = code >> self.mantissa_bits & exponents;
        let is_negative = code >> (self.exponent_bits + self.mantissa_bits) & 1 == 1;
        let sign = if is_negative { -1.0 } else { 1.0 };
        match self.special {
            Special::Ieee if exponent == exponents && mantissa == 0 => return sign * f64::INFINITY,
            Special::Ieee if exponent == exponents => return f64::NAN,
            Special::OneNan if exponent == exponents && mantissa + 1 == 1 << self.mantissa_bits => return f64::NAN,
            Special::NegativeZero if is_negative && exponent == 0 && mantissa == 0 => return f64::NAN,
            _ => {}
        }
        // Subnormal numbers have no hidden bit.
        let (whole, exponent) = match exponent {
            0 => (mantissa, 1),
            _ => (mantissa | 1 << self.mantissa_bits, exponent),
        };
        let scale = exponent.cast_signed() - self.bias - self.mantissa_bits.cast_signed();
        sign * f64::from(whole) * power_of_two(scale)
    }
}

/// Decodes E8M0, which is only an exponent, with a bias of 127. The last code is NaN.
fn e8m0(code: u8) -> f64 {
    if code == u8::MAX { f64::NAN } else { power_of_two(i32::from(code) - 127) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(dtype: Dtype, bytes: &[u8]) -> Summary {
        let mut stats = Stats::new(dtype);
        stats.add(bytes);
        let mut by_byte = Stats::new(dtype);
        bytes.iter().for_each(|byte| by_byte.add(&[*byte]));
        assert_eq!(stats.summary(), by_byte.summary(), "pieces of one byte");
        stats.summary()
    }

    #[test]
    fn small_formats_have_the_ranges_of_their_specifications() {
        let all: Vec<u8> = (0..=255).collect();
        for (dtype, max, nan, infinite) in [
            (Dtype::F8E5M2, 57_344.0, 6, 2),
            (Dtype::F8E4M3, 448.0, 2, 0),
            (Dtype::F8E5M2Fnuz, 57_344.0, 1, 0),
            (Dtype::F8E4M3Fnuz, 240.0, 1, 0),
            (Dtype::F8E8M0, 2_f64.powi(127), 1, 0),
        ] {
            let summary = summary(dtype, &all);
            assert_eq!(
                (summary.count, summary.max, summary.nan, summary.infinite),
                (256, Some(max), nan, infinite),
                "{dtype}"
            );
        }
        let every_16: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        assert_eq!(summary(Dtype::F16, &every_16).max, Some(65_504.0));
        assert_eq!(summary(Dtype::Bf16, &every_16).max, Some(f64::from(f32::from_bits(0x7f7f_0000))));
        let ends = |dtype, bytes| (summary(dtype, bytes).min, summary(dtype, bytes).max, summary(dtype, bytes).count);
        assert_eq!(ends(Dtype::F4, &all), (Some(-6.0), Some(6.0), 512));
        // 0x1f is the greatest code, and 0x3f is its negative.
        assert_eq!(ends(Dtype::F6E2M3, &[0xdf, 0x0f, 0x00]), (Some(-7.5), Some(7.5), 4));
        assert_eq!(ends(Dtype::F6E3M2, &[0xdf, 0x0f, 0x00]), (Some(-28.0), Some(28.0), 4));
    }

    #[test]
    fn moments_are_those_of_the_finite_elements() {
        let bytes: Vec<u8> =
            [1.0, f32::NAN, 2.0, f32::INFINITY, 0.0, 5.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let summary = summary(Dtype::F32, &bytes);
        assert_eq!((summary.count, summary.nan, summary.infinite, summary.zero), (6, 1, 1, 1));
        assert_eq!((summary.min, summary.max, summary.mean), (Some(0.0), Some(5.0), Some(2.0)));
        assert!((summary.std.unwrap() - 3.5_f64.sqrt()).abs() < 1e-12);
        assert_eq!(self::summary(Dtype::F32, &[]).mean, None);
        assert_eq!(self::summary(Dtype::C64, &bytes).count, 6);
        // The largest finite numbers, together with values that are not finite.
        let bytes: Vec<u8> =
            [f64::MAX, f64::NEG_INFINITY, -f64::MAX, f64::NAN].into_iter().flat_map(f64::to_le_bytes).collect();
        for dtype in [Dtype::F64, Dtype::C128] {
            let summary = self::summary(dtype, &bytes);
            assert_eq!((summary.count, summary.nan, summary.infinite), (4, 1, 1));
            assert_eq!((summary.mean, summary.std), (Some(0.0), Some(f64::MAX)));
        }
    }
}
