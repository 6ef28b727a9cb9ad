//! Bodies of requests in a content coding: none is taken.

use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Why the body of a request with these headers is not taken. What is stored is what was sent, byte for byte, and its
/// content ID must be that of the content, not of one of its codings.
pub(crate) fn refusal(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONTENT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = values.flat_map(|value| value.split(',')).map(str::trim).filter(|coding| !coding.is_empty());
    let coding = codings.find(|coding| !coding.eq_ignore_ascii_case("identity"))?;
    Some(format!(
        "the body is in the content coding {coding:?} (Content-Encoding), and would be stored coded: send it as it is"
    ))
}
