//! Request bodies in a content coding, which are refused.

use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Returns why a request body with these headers is refused, or `None` if it is accepted. The daemon stores the body
/// byte for byte, and the content ID must be that of the content, not of an encoding of it.
pub(crate) fn refusal(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONTENT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = values.flat_map(|value| value.split(',')).map(str::trim).filter(|coding| !coding.is_empty());
    let coding = codings.find(|coding| !coding.eq_ignore_ascii_case("identity"))?;
    Some(format!(
        "the body has the content coding {coding:?} (Content-Encoding) and would be stored encoded: send it unencoded"
    ))
}
