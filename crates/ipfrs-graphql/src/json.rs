//! JSON of responses, in which [`RawJson`](crate::scalars::RawJson) is text already.

use std::io::{self, Write};

use ipfrs_core::{Error, Result};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::context::Budget;

/// Writes bytes as they are. No values other than `RawJson` are bytes.
struct Verbatim;

impl Formatter for Verbatim {
    fn write_byte_array<W: ?Sized + Write>(&mut self, writer: &mut W, bytes: &[u8]) -> io::Result<()> {
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

/// Returns a response like [`to_vec`], between `head` and `tail`, and takes memory for it from its budget.
///
/// # Errors
/// As [`Budget::take_body`].
pub(crate) fn limited<T: Serialize>(response: &T, head: &str, tail: &str, budget: Option<&Budget>) -> Result<Vec<u8>> {
    let mut out = Limited { out: Vec::new(), budget, refused: None };
    let written = out.write_all(head.as_bytes()).map_err(serde_json::Error::io).and_then(|()| {
        response.serialize(&mut Serializer::with_formatter(&mut out, Verbatim))?;
        out.write_all(tail.as_bytes()).map_err(serde_json::Error::io)
    });
    match (out.refused, written) {
        (Some(refused), _) => Err(refused),
        (None, Err(error)) => Err(Error::internal("the response is not JSON").with_source(error)),
        (None, Ok(())) => Ok(out.out),
    }
}

/// A buffer that takes memory from a budget before it grows.
struct Limited<'a> {
    out: Vec<u8>,
    budget: Option<&'a Budget>,
    refused: Option<Error>,
}

impl Limited<'_> {
    fn grow(&mut self, len: usize) -> Result<()> {
        if let Some(budget) = self.budget {
            let size = budget.take_body(len)?;
            self.out.reserve_exact(size - self.out.len());
        }
        Ok(())
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.out.len() + bytes.len();
        if len > self.out.capacity()
            && let Err(refused) = self.grow(len)
        {
            self.refused = Some(refused);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the length of a string in JSON, in bytes. Bytes that are not UTF-8 become U+FFFD.
pub(crate) fn text_len(text: &[u8]) -> usize {
    const REPLACEMENT_BYTES: usize = char::REPLACEMENT_CHARACTER.len_utf8();
    let chunks = text.utf8_chunks().map(|chunk| {
        let valid: usize = chunk.valid().bytes().map(byte_len).sum();
        valid + if chunk.invalid().is_empty() { 0 } else { REPLACEMENT_BYTES }
    });
    chunks.sum::<usize>() + 2
}

/// Returns the length of a byte of a string in JSON (RFC 8259, 7).
fn byte_len(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_text_is_that_of_its_json() {
        let every: Vec<u8> = (0..=255).collect();
        for text in [&b""[..], b"plain", b"\0\x01\x1f\x7f", b"\"\\/\n\r\t\x08\x0c", b"\xe2\x82\xff\xf0\x9f", &every] {
            let written = to_vec(&String::from_utf8_lossy(text));
            assert_eq!(text_len(text), written.len(), "{}", text.escape_ascii());
        }
    }
}
