//! Media types of responses.

use http::HeaderMap;
use http::header::ACCEPT;

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
    /// Returns the first supported type that a request accepts; JSON if there is none.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut ranges = values.flat_map(|value| value.split(',')).map(|range| {
            let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
            let is_refused = parameters.split(';').any(|parameter| {
                let weight = parameter.trim().strip_prefix("q=");
                weight.is_some_and(|weight| weight.parse() == Ok(0.0_f32))
            });
            (name.trim().to_ascii_lowercase(), is_refused)
        });
        let known = ranges.find_map(|(name, is_refused)| match name.as_str() {
            _ if is_refused => None,
            "application/json" | "application/*" | "*/*" => Some(Self::Json),
            "application/graphql-response+json" => Some(Self::GraphQlJson),
            "text/event-stream" => Some(Self::EventStream),
            _ => None,
        });
        known.unwrap_or(Self::Json)
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

    use super::*;

    #[test]
    fn first_supported_type_is_chosen() {
        for (accept, media) in [
            ("", Media::Json),
            ("*/*", Media::Json),
            ("text/plain", Media::Json),
            ("application/graphql-response+json, application/json;q=0.9", Media::GraphQlJson),
            ("application/json, application/graphql-response+json", Media::Json),
            ("application/graphql-response+json;q=0, application/json", Media::Json),
            ("TEXT/EVENT-STREAM", Media::EventStream),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Media::Json),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(Media::accepted(&headers), media, "{accept}");
        }
    }
}
