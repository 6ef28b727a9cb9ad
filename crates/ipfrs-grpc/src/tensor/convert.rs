//! Between the messages and what the Node calls things.

use ipfrs_core::{Error, Result};
use ipfrs_node::{Dtype, Slice, TensorFormat};
use ipfrs_proto::tensor::v1::{self, DimensionSlice};

/// What the names of the enumeration begin with; the rest is the name that safetensors gives.
const DTYPE_PREFIX: &str = "DTYPE_";

/// The number of a type in the enumeration. There is one for each, which a test checks.
pub(super) fn dtype_code(dtype: Dtype) -> i32 {
    v1::Dtype::from_str_name(&format!("{DTYPE_PREFIX}{dtype}")).unwrap_or_default().into()
}

/// The type of a number.
pub(super) fn dtype(code: i32) -> Result<Dtype> {
    let known = v1::Dtype::try_from(code).ok().filter(|dtype| *dtype != v1::Dtype::Unspecified);
    let known =
        known.ok_or_else(|| Error::invalid(format!("there is no dtype {code}: say one of ipfrs.tensor.v1.Dtype")))?;
    known.as_str_name().trim_start_matches(DTYPE_PREFIX).parse()
}

/// The framing that is asked for.
pub(super) fn format(code: i32) -> Result<TensorFormat> {
    match v1::TensorFormat::try_from(code) {
        Ok(v1::TensorFormat::Unspecified | v1::TensorFormat::Raw) => Ok(TensorFormat::Raw),
        Ok(v1::TensorFormat::Npy) => Ok(TensorFormat::Npy),
        Ok(v1::TensorFormat::Safetensors) => Ok(TensorFormat::Safetensors),
        Ok(v1::TensorFormat::Arrow) => Ok(TensorFormat::Arrow),
        Err(_) => Err(Error::invalid(format!("there is no format {code}: say one of ipfrs.tensor.v1.TensorFormat"))),
    }
}

/// The slice that is asked for.
pub(super) fn slice(dimensions: Vec<DimensionSlice>) -> Result<Slice> {
    Slice::of_ranges(dimensions.into_iter().map(|taken| (taken.start, taken.stop, taken.step.unwrap_or(1))))
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
        assert!(dtype(0).is_err(), "a type must be said");
    }
}
