//! Scalars.

use async_graphql::{InputValueError, InputValueResult, Scalar, ScalarType, Value};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ipfrs_core::parse_cid;

/// Content ID, as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cid(pub(crate) ipfrs_core::Cid);

/// A content ID (https://github.com/multiformats/cid) as text.
#[Scalar(name = "Cid")]
impl ScalarType for Cid {
    fn parse(value: Value) -> InputValueResult<Self> {
        match value {
            Value::String(text) => parse_cid(&text).map(Self).map_err(InputValueError::custom),
            other => Err(InputValueError::expected_type(other)),
        }
    }

    fn is_valid(value: &Value) -> bool {
        matches!(value, Value::String(text) if parse_cid(text).is_ok())
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.to_string())
    }
}

/// Integer of 64 bits: `Int` has only 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Long(pub(crate) u64);

impl From<usize> for Long {
    fn from(number: usize) -> Self {
        Self(number as u64)
    }
}

/// An integer from 0 to 2^64 - 1, as a JSON number.
#[Scalar(name = "Long")]
impl ScalarType for Long {
    fn parse(value: Value) -> InputValueResult<Self> {
        match &value {
            Value::Number(number) => {
                let number = number.as_u64().map(Self);
                number.ok_or_else(|| InputValueError::custom("a Long is an integer from 0 to 2^64 - 1"))
            }
            _ => Err(InputValueError::expected_type(value)),
        }
    }

    fn is_valid(value: &Value) -> bool {
        matches!(value, Value::Number(number) if number.is_u64())
    }

    fn to_value(&self) -> Value {
        Value::from(self.0)
    }
}

/// Bytes, as base64.
#[derive(Debug, Clone)]
pub(crate) struct Base64(pub(crate) bytes::Bytes);

/// Bytes in base64 with padding (RFC 4648, 4).
#[Scalar(name = "Base64")]
impl ScalarType for Base64 {
    fn parse(value: Value) -> InputValueResult<Self> {
        match value {
            Value::String(text) => {
                let bytes = BASE64_STANDARD.decode(text.as_bytes());
                bytes.map(|bytes| Self(bytes.into())).map_err(|e| InputValueError::custom(format!("not base64: {e}")))
            }
            other => Err(InputValueError::expected_type(other)),
        }
    }

    fn is_valid(value: &Value) -> bool {
        matches!(value, Value::String(_))
    }

    fn to_value(&self) -> Value {
        Value::String(BASE64_STANDARD.encode(&self.0))
    }
}

/// Place of a file in a multipart request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upload(pub(crate) usize);

/// Text in place of a file, which the multipart request puts into the variables. Behind it is the number of the file.
pub(crate) const UPLOAD_MARK: &str = "\u{1}upload:";

/// A file of a multipart request (https://github.com/jaydenseric/graphql-multipart-request-spec).
#[Scalar(name = "Upload")]
impl ScalarType for Upload {
    fn parse(value: Value) -> InputValueResult<Self> {
        let number = match &value {
            Value::String(text) => text.strip_prefix(UPLOAD_MARK).and_then(|number| number.parse().ok()),
            _ => None,
        };
        number.map(Self).ok_or_else(|| {
            InputValueError::custom("a file is sent in a multipart request: see graphql-multipart-request-spec")
        })
    }

    fn is_valid(value: &Value) -> bool {
        Self::parse(value.clone()).is_ok()
    }

    fn to_value(&self) -> Value {
        Value::Null
    }
}
