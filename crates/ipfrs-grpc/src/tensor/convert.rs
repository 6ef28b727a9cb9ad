//! Conversion between the messages and the types of the Node.

use ipfrs_core::{Error, Result};
use ipfrs_node::{Dtype, Slice, TensorFormat};
use ipfrs_proto::tensor::v1::{self, DimensionSlice};

/// Prefix of the names in the enumeration; the rest is the name in safetensors.
const DTYPE_PREFIX: &str = "DTYPE_";

/// Returns the number of a type in the enumeration. Every type has one, which a test checks.
pub(super) fn dtype_code(dtype: Dtype) -> i32 {
    v1::Dtype::from_str_name(&format!("{DTYPE_PREFIX}{dtype}")).unwrap_or_default().into()
}

/// Returns the type with this number.
pub(super) fn dtype(code: i32) -> Result<Dtype> {
    let known = v1::Dtype::try_from(code).ok().filter(|dtype| *dtype != v1::Dtype::Unspecified);
    let known =
        known.ok_or_else(|| Error::invalid(format!("there is no dtype {code}: use one of ipfrs.tensor.v1.Dtype")))?;
    known.as_str_name().trim_start_matches(DTYPE_PREFIX).parse()
}

/// Returns the format with this number.
pub(super) fn format(code: i32) -> Result<TensorFormat> {
    match v1::TensorFormat::try_from(code) {
        Ok(v1::TensorFormat::Unspecified | v1::TensorFormat::Raw) => Ok(TensorFormat::Raw),
        Ok(v1::TensorFormat::Npy) => Ok(TensorFormat::Npy),
        Ok(v1::TensorFormat::Safetensors) => Ok(TensorFormat::Safetensors),
        Ok(v1::TensorFormat::Arrow) => Ok(TensorFormat::Arrow),
        Err(_) => Err(Error::invalid(format!("there is no format {code}: use one of ipfrs.tensor.v1.TensorFormat"))),
    }
}

/// Returns the slice with these dimensions.
pub(super) fn slice(dimensions: Vec<DimensionSlice>) -> Result<Slice> {
    Slice::of_ranges(
        dimensions.into_iter().map(|dimension| (dimension.start, dimension.stop, dimension.step.unwrap_or(1))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_number_and_every_number_a_dtype() {
        for known in Dtype::all() {
            assert_eq!(dtype(dtype_code(known)).unwrap(), known);
        }
        assert_eq!((1..100).filter(|code| dtype(*code).is_ok()).count(), Dtype::all().count());
        assert!(dtype(0).is_err(), "a type must be specified");
    }
}
