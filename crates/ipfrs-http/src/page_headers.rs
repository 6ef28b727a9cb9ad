//! Security headers of the HTML pages that the daemon writes itself. Pages in content have those of their format.

use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};

/// Part of a page's address that browsers send to the targets of its links and for the files that it loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Referrer {
    /// The address of the page, within its own origin: websites may depend on it.
    SameOrigin,
    /// Nothing.
    Never,
}

/// Adds the headers that each page has: what it may load and who may frame it (`policy`), that browsers do not guess
/// its type, and what its links tell.
pub(crate) fn protect(headers: &mut HeaderMap, policy: HeaderValue, referrer: Referrer) {
    let referrer = match referrer {
        Referrer::SameOrigin => "same-origin",
        Referrer::Never => "no-referrer",
    };
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static(referrer));
}
