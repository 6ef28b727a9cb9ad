//! Position of a request in a distributed trace (W3C Trace Context, <https://www.w3.org/TR/trace-context/>).

use std::fmt;

use http::{HeaderMap, HeaderName};

/// Header, or gRPC metadata key, of the caller's position.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The trace that a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// ID of the trace. It is not zero.
    pub trace_id: [u8; 16],
    /// ID of the current span. It is not zero.
    pub span_id: [u8; 8],
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Reads `traceparent`. Returns `None` if it is missing, repeated or invalid (section 3.2).
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        Self::parse(value.as_bytes())
    }

    /// Parses `version-traceid-parentid-flags`. Versions after 00 may have more fields.
    fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(55)?;
        let [version] = decode::<1>(&known[..2])?;
        let is_whole = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest[0] == b'-' };
        let has_dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        if version == 0xff || !is_whole || !has_dashes {
            return None;
        }
        let (trace_id, span_id) = (decode::<16>(&known[3..35])?, decode::<8>(&known[36..52])?);
        let [flags] = decode::<1>(&known[53..])?;
        let is_valid = trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }

    /// Returns the ID of the trace as 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> impl fmt::Display + use<> {
        Hex(self.trace_id)
    }

    /// Returns the ID of the span as 16 hexadecimal digits.
    #[must_use]
    pub fn span_id(&self) -> impl fmt::Display + use<> {
        Hex(self.span_id)
    }
}

/// The value of `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id(), self.span_id(), u8::from(self.is_sampled))
    }
}

/// Attached to a request that is logged or traced. The front-end then attaches a [`Route`] to the response.
#[derive(Debug, Clone, Copy)]
pub struct Watched {
    /// The trace of the request, if it is recorded.
    pub trace: Option<TraceContext>,
}

/// Route of a request or name of a call, from a bounded set; attached to the response.
#[derive(Debug, Clone)]
pub struct Route(pub String);

struct Hex<const N: usize>([u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Decodes lowercase hexadecimal digits.
fn decode<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn valid_headers_are_read_and_written() {
        for (flags, is_sampled) in [("00", false), ("01", true), ("03", true), ("02", false)] {
            let context = TraceContext::parse(format!("00-{TRACE}-00f067aa0ba902b7-{flags}").as_bytes()).unwrap();
            assert_eq!(context.is_sampled, is_sampled);
            assert_eq!(context.trace_id().to_string(), TRACE);
            let written = format!("00-{TRACE}-00f067aa0ba902b7-0{}", u8::from(is_sampled));
            assert_eq!(context.to_string(), written);
        }
        for later in ["cc-{TRACE}-00f067aa0ba902b7-01", "01-{TRACE}-00f067aa0ba902b7-01-what-the-future-brings"] {
            assert!(TraceContext::parse(later.replace("{TRACE}", TRACE).as_bytes()).is_some(), "{later}");
        }
    }

    #[test]
    fn invalid_headers_count_as_missing() {
        for invalid in [
            "",
            "00",
            "00-{TRACE}-00f067aa0ba902b7",
            "00-{TRACE}-00f067aa0ba902b7-01-more",
            "01-{TRACE}-00f067aa0ba902b7-01.more",
            "ff-{TRACE}-00f067aa0ba902b7-01",
            "00-{TRACE}-0000000000000000-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00_{TRACE}-00f067aa0ba902b7-01",
            "0x-{TRACE}-00f067aa0ba902b7-01",
        ] {
            let invalid = invalid.replace("{TRACE}", TRACE);
            assert_eq!(TraceContext::parse(invalid.as_bytes()), None, "{invalid}");
        }
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("00-{TRACE}-00f067aa0ba902b7-01")).unwrap();
        headers.append(TRACEPARENT, value.clone());
        assert!(TraceContext::of(&headers).is_some());
        headers.append(TRACEPARENT, value);
        assert_eq!(TraceContext::of(&headers), None, "two of them");
    }
}
