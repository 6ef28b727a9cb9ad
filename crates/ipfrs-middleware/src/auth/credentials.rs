//! Credentials in the headers of a request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
use ipfrs_core::Result;
use zeroize::Zeroizing;

use super::Proof;
use super::failure::unauthenticated;
use super::sessions::SESSION_COOKIE;

/// Credential in a request. It has no `Debug`, because it is secret.
pub(super) enum Credential {
    /// An API key or a JSON Web Token.
    Token(Zeroizing<String>),
    /// The same as a password, with the user: `USER:TOKEN`.
    Basic {
        pair: Zeroizing<Vec<u8>>,
        /// The part behind the colon.
        token: Zeroizing<String>,
    },
    /// Value of the cookie of a console session.
    Session(Zeroizing<String>),
}

impl Credential {
    pub(super) fn token(text: &str) -> Self {
        let token = text.strip_prefix("Bearer ").unwrap_or(text);
        Self::Token(Zeroizing::new(token.trim().to_owned()))
    }

    /// Returns the token, or that of the session.
    pub(super) fn as_token(&self) -> &str {
        match self {
            Self::Token(token) | Self::Session(token) | Self::Basic { token, .. } => token,
        }
    }

    /// Reads the headers of a request: `Authorization: Bearer TOKEN` (RFC 6750), or `Authorization: Basic ...` (RFC
    /// 7617) with any user and the token as password.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`](ipfrs_core::ErrorKind) if the header is malformed, repeated or of another
    /// scheme.
    pub(super) fn read(headers: &HeaderMap, proof: Proof) -> Result<Option<Self>> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            let cookie = (proof == Proof::HeaderOrSession).then(|| session_cookie(headers)).flatten();
            return Ok(cookie.map(Self::Session));
        };
        if values.next().is_some() {
            return Err(unauthenticated("several Authorization headers: send one"));
        }
        let Some((scheme, rest)) = value.to_str().ok().and_then(|value| value.trim().split_once(' ')) else {
            return Err(unauthenticated("malformed Authorization header: send `Authorization: Bearer TOKEN`"));
        };
        if scheme.eq_ignore_ascii_case("bearer") {
            return Ok(Some(Self::Token(Zeroizing::new(rest.trim().to_owned()))));
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return Err(unauthenticated("the Authorization header needs the scheme Bearer or Basic"));
        }
        let basic = Basic::decode(rest.as_bytes()).and_then(|Basic { decoded, colon }| {
            let token = Zeroizing::new(std::str::from_utf8(&decoded[colon + 1..]).ok()?.to_owned());
            Some(Self::Basic { pair: decoded, token })
        });
        let malformed = "malformed Authorization header: Basic needs base64 of USER:TOKEN (RFC 7617)";
        basic.ok_or_else(|| unauthenticated(malformed)).map(Some)
    }
}

/// User and password of basic authentication (RFC 7617). It has no `Debug`, because it is secret.
#[expect(missing_debug_implementations, reason = "secret")]
pub struct Basic {
    decoded: Zeroizing<Vec<u8>>,
    /// Position of the colon between them.
    colon: usize,
}

impl Basic {
    /// Reads the header `Authorization` of a request. Returns `None` if it is missing, malformed, repeated or of
    /// another scheme.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (value, None) = (values.next()?.as_bytes(), values.next()) else { return None };
        let (scheme, rest) = value.split_at(value.iter().position(|byte| *byte == b' ')?);
        if scheme.eq_ignore_ascii_case(b"basic") { Self::decode(rest) } else { None }
    }

    fn decode(base64: &[u8]) -> Option<Self> {
        let decoded = Zeroizing::new(STANDARD.decode(base64.trim_ascii()).ok()?);
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        Some(Self { decoded, colon })
    }

    /// Returns the user.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.decoded[..self.colon]
    }

    /// Returns the password.
    #[must_use]
    pub fn password(&self) -> &[u8] {
        &self.decoded[self.colon + 1..]
    }
}

/// Returns the cookie of a console session.
pub(super) fn session_cookie(headers: &HeaderMap) -> Option<Zeroizing<String>> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(';'));
    let mut values = pairs.filter_map(|pair| pair.trim().split_once('=')).filter(|(name, _)| *name == SESSION_COOKIE);
    values.next().map(|(_, value)| Zeroizing::new(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, &str)], proof: Proof) -> std::result::Result<Option<String>, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let credential = Credential::read(&headers, proof).map_err(|e| e.to_string())?;
        Ok(credential.map(|credential| match credential {
            Credential::Token(token) => format!("token {}", *token),
            Credential::Basic { token, .. } => format!("token {}", *token),
            Credential::Session(cookie) => format!("session {}", *cookie),
        }))
    }

    #[test]
    fn tokens_are_read_from_both_schemes_and_sessions_only_where_they_may() {
        let token = Ok(Some("token abc".to_owned()));
        for value in ["Bearer abc", "bearer  abc ", "BASIC OmFiYw==", "Basic dXNlcjphYmM=", "Basic auRyZzphYmM="] {
            assert_eq!(read(&[("authorization", value)], Proof::Header), token, "{value}");
        }
        for value in ["abc", "", "Digest abc", "Basic", "Basic %%%", "Basic YWJj"] {
            let error = read(&[("authorization", value)], Proof::HeaderOrSession).unwrap_err();
            assert!(error.contains("Authorization"), "{error}");
        }
        assert!(read(&[("authorization", "Bearer a"), ("authorization", "Bearer b")], Proof::Header).is_err());
        let cookie = ("cookie", "a=b; __Host-ipfrs=xyz; c=d");
        assert_eq!(read(&[cookie], Proof::HeaderOrSession), Ok(Some("session xyz".to_owned())));
        assert_eq!(read(&[cookie], Proof::Header), Ok(None));
        assert_eq!(read(&[cookie, ("authorization", "Bearer abc")], Proof::HeaderOrSession), token);
    }
}
