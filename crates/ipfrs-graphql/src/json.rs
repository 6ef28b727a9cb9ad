//! JSON of responses, in which [`RawJson`](crate::scalars::RawJson) is text already.

use std::io::{Result, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Writes bytes as they are. No values other than `RawJson` are bytes.
struct Verbatim;

impl Formatter for Verbatim {
    fn write_byte_array<W: ?Sized + Write>(&mut self, writer: &mut W, bytes: &[u8]) -> Result<()> {
        writer.write_all(bytes)
    }
}

/// Returns a response as JSON without line breaks.
pub(crate) fn to_vec<T: Serialize>(response: &T) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing to memory succeeds, and the keys of responses are strings.
    let _ = response.serialize(&mut Serializer::with_formatter(&mut out, Verbatim));
    out
}

/// Returns a response as JSON without line breaks.
pub(crate) fn to_string<T: Serialize>(response: &T) -> String {
    String::from_utf8(to_vec(response)).unwrap_or_default()
}
