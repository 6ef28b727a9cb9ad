//! The opening handshake (RFC 6455, 4.2).

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use ipfrs_core::Error;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Length of `Sec-WebSocket-Key`: 16 bytes in base64.
const KEY_CHARACTERS: usize = 24;

/// Reason why a handshake is refused.
#[derive(Debug)]
pub enum HandshakeError {
    /// The request is not a handshake.
    NotWebSocket,
    /// The version is not 13.
    Version,
    /// `Sec-WebSocket-Key` is missing or malformed.
    Key,
    /// The client supports none of these subprotocols.
    Protocol(&'static [&'static str]),
    /// The request did not arrive on a connection of the daemon that can be taken over.
    NoConnection,
    /// The daemon drains.
    Draining,
    /// No permit is free.
    Refused(Error),
}

impl HandshakeError {
    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotWebSocket | Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Key | Self::Protocol(_) => StatusCode::BAD_REQUEST,
            Self::NoConnection => StatusCode::NOT_IMPLEMENTED,
            Self::Draining => StatusCode::SERVICE_UNAVAILABLE,
            Self::Refused(_) => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Returns the text of the response.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::NotWebSocket => {
                "this address needs a WebSocket: send a GET with \"Upgrade: websocket\" over HTTP/1.1 (RFC 6455, 4.1)"
                    .to_owned()
            }
            Self::Version => "the version of the WebSocket must be 13 (RFC 6455, 4.1)".to_owned(),
            Self::Key => "Sec-WebSocket-Key must be 16 bytes in base64 (RFC 6455, 4.1)".to_owned(),
            Self::Protocol(supported) => {
                format!("Sec-WebSocket-Protocol must name one of the subprotocols {}", supported.join(", "))
            }
            Self::NoConnection => "WebSockets need the gateway's own listener".to_owned(),
            Self::Draining => "the daemon is shutting down".to_owned(),
            Self::Refused(error) => error.to_string(),
        }
    }

    /// Returns the headers of the response.
    #[must_use]
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if matches!(self, Self::NotWebSocket | Self::Version) {
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade, close"));
        }
        headers
    }
}

/// Returns whether a request asks for a WebSocket, correctly or not.
#[must_use]
pub fn is_websocket<B>(request: &Request<B>) -> bool {
    has_token(request.headers(), &UPGRADE, "websocket")
}

/// Checks a handshake. Returns the response and the subprotocol.
pub(super) fn check<B>(
    request: &Request<B>,
    protocols: &[&'static str],
) -> Result<(Response<()>, Option<&'static str>), HandshakeError> {
    let headers = request.headers();
    let is_handshake = request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && has_token(headers, &CONNECTION, "upgrade")
        && is_websocket(request);
    if !is_handshake {
        return Err(HandshakeError::NotWebSocket);
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(HandshakeError::Version);
    }
    let mut keys = headers.get_all(SEC_WEBSOCKET_KEY).iter();
    let key = keys.next().filter(|key| is_key(key.as_bytes()) && keys.next().is_none()).ok_or(HandshakeError::Key)?;
    let protocol = protocols.iter().find(|protocol| has_token(headers, &SEC_WEBSOCKET_PROTOCOL, protocol)).copied();
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let accepted = response.headers_mut();
    accepted.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    accepted.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes())).map_err(|_| HandshakeError::Key)?;
    accepted.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        accepted.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok((response, protocol))
}

/// Whether a header is a list that contains `token`, in upper or lower case.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
}

fn is_key(key: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == KEY_CHARACTERS && key.ends_with(b"==") && key[..KEY_CHARACTERS - 2].iter().all(is_base64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(lines: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().uri("/ws");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    const UPGRADES: [(&str, &str); 2] = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
    const VERSION: (&str, &str) = ("sec-websocket-version", "13");
    const KEY: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");

    #[test]
    fn accept_is_that_of_the_specification() {
        let whole = request(&[UPGRADES[0], UPGRADES[1], VERSION, KEY, ("sec-websocket-protocol", "b, a")]);
        let (response, protocol) = check(&whole, &["a", "b"]).unwrap();
        assert_eq!(response.status(), 101);
        assert_eq!(response.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(
            (protocol, &response.headers()[SEC_WEBSOCKET_PROTOCOL]),
            (Some("a"), &HeaderValue::from_static("a"))
        );
    }

    #[test]
    fn incomplete_handshakes_are_refused() {
        let status = |lines: &[(&str, &str)]| check(&request(lines), &[]).unwrap_err().status().as_u16();
        assert_eq!(status(&[]), 426);
        assert_eq!(status(&[UPGRADES[0], VERSION, KEY]), 426);
        assert_eq!(status(&[UPGRADES[1], VERSION, KEY]), 426);
        assert_eq!(status(&[UPGRADES[0], UPGRADES[1], ("sec-websocket-version", "8"), KEY]), 426);
        assert_eq!(status(&[UPGRADES[0], UPGRADES[1], VERSION]), 400);
        assert_eq!(status(&[UPGRADES[0], UPGRADES[1], VERSION, KEY, KEY]), 400);
        for key in ["", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZQ=!", "dGhlIHNhbXBsZSBub25jZQAA"] {
            assert_eq!(status(&[UPGRADES[0], UPGRADES[1], VERSION, ("sec-websocket-key", key)]), 400, "{key}");
        }
    }
}
