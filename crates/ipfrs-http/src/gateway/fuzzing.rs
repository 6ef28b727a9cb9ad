//! Entry points for fuzzing headers that choose what a response has.

use http::header::{ACCEPT, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE};
use http::{HeaderMap, HeaderValue};
use ipfrs_middleware::accept::preferred;

use super::conditional::{Modified, if_match_fails, if_none_match, is_not_modified, range_applies};
use super::format::{Format, accepts_others, format_by_accept, formats_by_accept};
use super::range::{self, Ranges};

/// Maximum number of ranges.
const MAX_RANGES: usize = 16;

/// Reads `Range` for content of `size` bytes. All ranges are within it. The same ranges in their plain form mean the
/// same.
pub(crate) fn range(value: &[u8], size: u64) {
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let read = range::parse(Some(&value), size, MAX_RANGES);
    let spans = match &read {
        Ranges::Whole => return,
        Ranges::Unsatisfiable => return assert!(size > 0),
        Ranges::One(span) => vec![*span],
        Ranges::Many(spans) => spans.clone(),
    };
    assert!(spans.len() <= MAX_RANGES);
    for span in &spans {
        let end = span.start.checked_add(span.len);
        assert!(span.len > 0 && end.is_some_and(|end| end <= size), "{span:?} of {size} bytes");
    }
    let total = spans.iter().try_fold(0_u64, |sum, span| sum.checked_add(span.len));
    assert!(spans.len() == 1 || total.is_some_and(|total| total <= size), "{spans:?} of {size} bytes");
    let plain: Vec<_> = spans.iter().map(|span| format!("{}-{}", span.start, span.start + (span.len - 1))).collect();
    let plain = HeaderValue::from_str(&format!("bytes={}", plain.join(", "))).expect("it is ASCII");
    assert_eq!(range::parse(Some(&plain), size, MAX_RANGES), read);
}

/// Reads `Accept`. All parts of the gateway agree about its formats.
pub(crate) fn accept(values: &[&[u8]]) {
    const OFFERED: [&str; 3] = ["application/json", "application/vnd.ipld.car", "text/event-stream"];
    let mut headers = HeaderMap::new();
    for value in values {
        let Ok(value) = HeaderValue::from_bytes(value) else { return };
        headers.append(ACCEPT, value);
    }
    let formats = formats_by_accept(&headers);
    assert_eq!(format_by_accept(&headers), formats.first().copied().unwrap_or(Format::Deserialised));
    let _ = accepts_others(&headers);
    let Some(chosen) = preferred(&headers, &OFFERED) else { return };
    // A type that is offered alone is accepted too, and so is one that the client also names.
    assert_eq!(preferred(&headers, &OFFERED[chosen..=chosen]), Some(0));
    headers.append(ACCEPT, HeaderValue::from_static(OFFERED[chosen]));
    assert!(preferred(&headers, &OFFERED).is_some());
}

/// Reads a list of entity tags, and a date. A tag that is added to the list is found in it.
pub(crate) fn conditions(list: &str, date: &[u8]) {
    const TAG: &str = "\"bafkqaaik\"";
    let is_open = list.bytes().filter(|byte| *byte == b'"').count() % 2 == 1;
    let with_tag = format!("{list}{}, {TAG}", if is_open { "\"" } else { "" });
    let (Ok(list), Ok(with_tag)) = (HeaderValue::from_str(list), HeaderValue::from_str(&with_tag)) else { return };
    let with = |name, value: &HeaderValue| HeaderMap::from_iter([(name, value.clone())]);
    let _ = (if_none_match(&with(IF_NONE_MATCH, &list), TAG), range_applies(&with(IF_RANGE, &list), TAG, None));
    if with_tag.to_str().is_ok() {
        assert!(if_none_match(&with(IF_NONE_MATCH, &with_tag), TAG), "{with_tag:?}");
        assert!(!if_match_fails(&with(IF_MATCH, &with_tag), TAG, None), "{with_tag:?}");
    }
    let Ok(date) = HeaderValue::from_bytes(date) else { return };
    // Content that is older than every date of a client was not modified since, if the date can be read.
    let oldest = Modified { seconds: i64::MIN, is_final: true };
    let newest = Modified { seconds: i64::MAX, is_final: true };
    let headers = with(IF_MODIFIED_SINCE, &date);
    assert!(!is_not_modified(&headers, TAG, Some(newest)), "{date:?}");
    let _ = (is_not_modified(&headers, TAG, Some(oldest)), range_applies(&with(IF_RANGE, &date), TAG, Some(newest)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_all_kinds_are_read() {
        for value in ["bytes=0-0", "bytes=-5, 1-2", "bytes=5-", "bytes=20-", "bytes=0-99999999999999999999", "x"] {
            range(value.as_bytes(), 10);
            range(value.as_bytes(), u64::MAX);
        }
        for value in ["*/*", "application/json;q=0, */*", "application/vnd.ipld.raw; q=0.5, text/html"] {
            accept(&[value.as_bytes(), b"text/event-stream"]);
        }
        for list in ["\"a\"", "W/\"a\", *", "\"open, ", ",,", "\u{e9}"] {
            conditions(list, b"Wed, 21 Oct 2015 07:28:00 GMT");
        }
    }
}
