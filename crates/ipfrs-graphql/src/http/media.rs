//! Media types of responses.

use http::HeaderMap;
use ipfrs_middleware::accept::preferred;

/// Media type of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    /// `application/json`: the status is 200 for every request that can be read.
    Json,
    /// `application/graphql-response+json`: the status says whether the operation was executed.
    GraphQlJson,
    /// `text/event-stream`.
    EventStream,
}

impl Media {
    /// Returns the supported type that a request prefers; JSON if there is none.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        const OFFERED: [(&str, Media); 3] = [
            ("application/json", Media::Json),
            ("application/graphql-response+json", Media::GraphQlJson),
            ("text/event-stream", Media::EventStream),
        ];
        preferred(headers, &OFFERED.map(|(name, _)| name)).map_or(Self::Json, |index| OFFERED[index].1)
    }

    /// Returns the name of the media type.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::GraphQlJson => "application/graphql-response+json; charset=utf-8",
            Self::Json | Self::EventStream => "application/json; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::ACCEPT;

    use super::*;

    #[test]
    fn preferred_supported_type_is_chosen() {
        for (accept, media) in [
            ("", Media::Json),
            ("*/*", Media::Json),
            ("text/plain", Media::Json),
            ("application/graphql-response+json, application/json;q=0.9", Media::GraphQlJson),
            ("application/json, application/graphql-response+json", Media::Json),
            ("application/graphql-response+json;q=0, application/json", Media::Json),
            ("application/json;q=0.1, application/graphql-response+json;q=1", Media::GraphQlJson),
            ("text/event-stream;q=0.1, application/json;q=1", Media::Json),
            ("TEXT/EVENT-STREAM", Media::EventStream),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Media::Json),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(Media::accepted(&headers), media, "{accept}");
        }
    }
}
