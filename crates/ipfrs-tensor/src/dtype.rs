//! Element types.

use std::fmt;
use std::str::FromStr;

use ipfrs_core::Error;

use crate::shown::shown;

/// The type of a tensor's elements: all types of safetensors (<https://github.com/huggingface/safetensors#format>),
/// and [`Dtype::C128`] of NumPy. All types are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// Boolean in one byte: 0 or 1.
    Bool,
    /// 4-bit floating point: E2M1 of the OCP Microscaling formats. Two elements per byte.
    F4,
    /// 6-bit floating point: E2M3 of the OCP Microscaling formats. Four elements per three bytes.
    F6E2M3,
    /// 6-bit floating point: E3M2 of the OCP Microscaling formats. Four elements per three bytes.
    F6E3M2,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// 8-bit floating point: E5M2 of the OCP 8-bit floating point specification.
    F8E5M2,
    /// 8-bit floating point: E4M3 of the OCP 8-bit floating point specification (no infinities).
    F8E4M3,
    /// 8-bit power of two: E8M0 of the OCP Microscaling formats.
    F8E8M0,
    /// 8-bit floating point: E4M3 with one NaN, without infinities and negative zero.
    F8E4M3Fnuz,
    /// 8-bit floating point: E5M2 with one NaN, without infinities and negative zero.
    F8E5M2Fnuz,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of an IEEE 754 binary32.
    Bf16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// IEEE 754 binary32.
    F32,
    /// Two binary32 numbers: real and imaginary part.
    C64,
    /// IEEE 754 binary64.
    F64,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// Two binary64 numbers: real and imaginary part. NumPy only.
    C128,
}

/// Table of types: the type, its name, its size in bits, and its name in `.npy` files. NumPy has no type for names of
/// kind `V` and reads such elements as bytes, which `ndarray.view` with the package `ml_dtypes` can interpret. NumPy
/// cannot hold elements of less than a byte.
const TABLE: [(Dtype, &str, u64, Option<&str>); 23] = [
    (Dtype::Bool, "BOOL", 8, Some("|b1")),
    (Dtype::F4, "F4", 4, None),
    (Dtype::F6E2M3, "F6_E2M3", 6, None),
    (Dtype::F6E3M2, "F6_E3M2", 6, None),
    (Dtype::U8, "U8", 8, Some("|u1")),
    (Dtype::I8, "I8", 8, Some("|i1")),
    (Dtype::F8E5M2, "F8_E5M2", 8, Some("|V1")),
    (Dtype::F8E4M3, "F8_E4M3", 8, Some("|V1")),
    (Dtype::F8E8M0, "F8_E8M0", 8, Some("|V1")),
    (Dtype::F8E4M3Fnuz, "F8_E4M3FNUZ", 8, Some("|V1")),
    (Dtype::F8E5M2Fnuz, "F8_E5M2FNUZ", 8, Some("|V1")),
    (Dtype::I16, "I16", 16, Some("<i2")),
    (Dtype::U16, "U16", 16, Some("<u2")),
    (Dtype::F16, "F16", 16, Some("<f2")),
    (Dtype::Bf16, "BF16", 16, Some("|V2")),
    (Dtype::I32, "I32", 32, Some("<i4")),
    (Dtype::U32, "U32", 32, Some("<u4")),
    (Dtype::F32, "F32", 32, Some("<f4")),
    (Dtype::C64, "C64", 64, Some("<c8")),
    (Dtype::F64, "F64", 64, Some("<f8")),
    (Dtype::I64, "I64", 64, Some("<i8")),
    (Dtype::U64, "U64", 64, Some("<u8")),
    (Dtype::C128, "C128", 128, Some("<c16")),
];

impl Dtype {
    /// Returns every type, in the order of the list in the format specification.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(dtype, ..)| *dtype)
    }

    /// Returns the size of an element in bits.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.row().2
    }

    /// Returns the name in the spelling of safetensors: `BF16`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the name in `.npy` files (`<f4`), if NumPy can hold the type.
    #[must_use]
    pub fn npy(self) -> Option<&'static str> {
        self.row().3
    }

    /// Returns the type with this name in `.npy` files, and whether its numbers are big-endian. Untyped bytes (`|V2`)
    /// are not a type.
    #[must_use]
    pub fn from_npy(descr: &str) -> Option<(Self, bool)> {
        // Without an order, or with that of the machine, NumPy reads its own order, which is nearly always this one.
        let (order, kind) = match descr.split_at_checked(1)? {
            ("=", kind) => ("<", kind),
            (first, _) if first.starts_with(|c: char| c.is_ascii_alphabetic()) => ("<", descr),
            split => split,
        };
        let of = |order: &str| {
            let named = |npy: &str| npy.strip_prefix(order) == Some(kind) && !npy.contains('V');
            TABLE.iter().find(|(.., npy)| npy.is_some_and(named)).map(|(dtype, ..)| *dtype)
        };
        match order {
            // For single bytes, NumPy writes the byte order "not applicable" and reads any byte order.
            "<" => of("<").or_else(|| of("|")).map(|dtype| (dtype, false)),
            ">" => of("<").map(|dtype| (dtype, true)).or_else(|| of("|").map(|dtype| (dtype, false))),
            "|" => of("|").map(|dtype| (dtype, false)),
            _ => None,
        }
    }

    /// Returns the size in bytes of one number, the unit of the byte order: half of a complex element.
    #[must_use]
    pub fn number_bytes(self) -> usize {
        match self {
            Self::C64 => 4,
            Self::C128 => 8,
            _ => usize::try_from(self.bits().div_ceil(8)).unwrap_or(1),
        }
    }

    /// Returns whether safetensors has this type.
    #[must_use]
    pub fn is_in_safetensors(self) -> bool {
        self != Self::C128
    }

    /// Returns the size in bytes of `elements` elements, or `None` if it is not a whole number of bytes or exceeds
    /// 2^64.
    #[must_use]
    pub fn bytes_of(self, elements: u64) -> Option<u64> {
        let bits = u128::from(elements) * u128::from(self.bits());
        if bits % 8 == 0 { u64::try_from(bits / 8).ok() } else { None }
    }

    fn row(self) -> &'static (Self, &'static str, u64, Option<&'static str>) {
        // The table has the order of the enum's variants.
        &TABLE[self as usize]
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = TABLE.iter().find(|(_, known, ..)| *known == name).map(|(dtype, ..)| *dtype);
        found.ok_or_else(|| {
            let known: Vec<_> = TABLE.iter().map(|(_, name, ..)| *name).collect();
            Error::invalid(format!("unknown dtype {}: use one of {}", shown(name), known.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_type() {
        for (index, (dtype, name, ..)) in TABLE.iter().enumerate() {
            assert_eq!(*dtype as usize, index);
            assert_eq!(name.parse::<Dtype>().unwrap(), *dtype);
        }
    }

    #[test]
    fn types_of_numpy_are_known_in_the_orders_that_it_writes() {
        for (descr, dtype, is_big_endian) in [
            ("<f4", Dtype::F32, false),
            (">f4", Dtype::F32, true),
            (">c16", Dtype::C128, true),
            ("|b1", Dtype::Bool, false),
            ("<u1", Dtype::U8, false),
            (">i1", Dtype::I8, false),
            ("=f4", Dtype::F32, false),
            ("f8", Dtype::F64, false),
            ("b1", Dtype::Bool, false),
        ] {
            assert_eq!(Dtype::from_npy(descr), Some((dtype, is_big_endian)), "{descr}");
        }
        for refused in ["|f4", "V2", "|V2", "<V2", "<U5", "|O", "<M8[ns]", "<f16", "é4", "", "|"] {
            assert_eq!(Dtype::from_npy(refused), None, "{refused}");
        }
    }

    #[test]
    fn elements_below_a_byte_have_exact_sizes() {
        assert_eq!(Dtype::F4.bytes_of(2), Some(1));
        assert_eq!(Dtype::F4.bytes_of(3), None);
        assert_eq!(Dtype::F6E2M3.bytes_of(4), Some(3));
        assert_eq!(Dtype::F6E2M3.bytes_of(2), None);
        assert_eq!(Dtype::F64.bytes_of(u64::MAX), None);
        assert_eq!(Dtype::F64.bytes_of(0), Some(0));
    }
}
