//! Scalars.

use async_graphql::{InputValueError, InputValueResult, Scalar, ScalarType, Value};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use ipfrs_core::{Error, ErrorKind, Result, parse_cid};
use serde::de::IgnoredAny;

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
pub(crate) struct Base64(pub(crate) Bytes);

/// Returns the length of bytes as [`Base64`] in JSON.
pub(crate) fn base64_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4 + 2
}

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
        matches!(value, Value::String(text) if BASE64_STANDARD.decode(text).is_ok())
    }

    fn to_value(&self) -> Value {
        Value::String(BASE64_STANDARD.encode(&self.0))
    }
}

/// JSON as text, which responses contain as it is. A parsed value would take up to a hundred times its memory.
#[derive(Debug, Clone)]
pub(crate) struct RawJson(Bytes);

impl RawJson {
    /// Checks the text, and replaces line breaks, which would end a server-sent event.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidContent`](ipfrs_core::ErrorKind) if it is not JSON.
    pub(crate) fn new(text: Bytes) -> Result<Self> {
        let invalid = |e: &dyn std::fmt::Display| Error::new(ErrorKind::InvalidContent, format!("not JSON: {e}"));
        let json = str::from_utf8(&text).map_err(|e| invalid(&e))?;
        serde_json::from_str::<IgnoredAny>(json).map_err(|e| invalid(&e))?;
        let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
        if !text.iter().any(is_break) {
            return Ok(Self(text));
        }
        // Strings contain no line breaks, so these are white space.
        Ok(Self(text.iter().map(|byte| if is_break(byte) { b' ' } else { *byte }).collect()))
    }
}

/// A scalar that can represent any JSON value.
#[Scalar(name = "JSON")]
impl ScalarType for RawJson {
    fn parse(value: Value) -> InputValueResult<Self> {
        Err(InputValueError::expected_type(value))
    }

    fn to_value(&self) -> Value {
        Value::Binary(self.0.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_json_is_one_line_of_valid_json() {
        let raw = |text: &'static [u8]| RawJson::new(Bytes::from_static(text)).map(|json| json.0);
        assert_eq!(raw(b"{\"a\":[1,\"\\n\"]}").unwrap(), "{\"a\":[1,\"\\n\"]}");
        assert_eq!(raw(b"[1,\r\n2]\n").unwrap(), "[1,  2] ");
        for invalid in [&b""[..], b"[1", b"[1] 2", b"\"a\nb\"", b"\"\xff\"", b"{\"a\":1}}"] {
            assert_eq!(raw(invalid).unwrap_err().kind(), ErrorKind::InvalidContent, "{invalid:?}");
        }
    }
}
