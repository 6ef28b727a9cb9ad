//! Persisted queries: a client sends the SHA-256 of a document in place of the document
//! (<https://www.apollographql.com/docs/apollo-server/performance/apq/>).

use async_graphql::{Request, ServerError, Value};
use ipfrs_core::hash;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::Deserialize;

use crate::error::with_code;
use crate::limits::PERSISTED_BYTES;

/// Documents by their hash, limited by their length.
pub(crate) struct PersistedQueries(Cache<[u8; 32], std::sync::Arc<str>, Length>);

#[derive(Clone)]
struct Length;

impl Weighter<[u8; 32], std::sync::Arc<str>> for Length {
    fn weight(&self, _: &[u8; 32], document: &std::sync::Arc<str>) -> u64 {
        document.len() as u64 + 128
    }
}

/// The extension `persistedQuery` of a request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PersistedQuery {
    version: i32,
    sha256_hash: String,
}

impl Default for PersistedQueries {
    fn default() -> Self {
        Self(Cache::with_weighter(1_024, PERSISTED_BYTES, Length))
    }
}

impl PersistedQueries {
    /// Completes a request that has a hash in place of a document, and keeps the document of one that has both.
    ///
    /// # Errors
    /// `PersistedQueryNotFound` if the document is unknown: the client sends both then.
    pub(crate) fn complete(&self, mut request: Request) -> Result<Request, ServerError> {
        let Some(extension) = request.extensions.remove("persistedQuery") else { return Ok(request) };
        let invalid = |why: &str| with_code(ServerError::new(why, None), "invalid_input");
        let Ok(PersistedQuery { version: 1, sha256_hash }) = read(extension) else {
            return Err(invalid("the extension persistedQuery must have version 1 and a sha256Hash"));
        };
        let Some(wanted) = digest_of(&sha256_hash) else {
            return Err(invalid("sha256Hash must have 64 hexadecimal digits"));
        };
        if request.query.is_empty() {
            let Some(document) = self.0.get(&wanted) else {
                let error = ServerError::new("PersistedQueryNotFound", None);
                return Err(with_code(error, "PERSISTED_QUERY_NOT_FOUND"));
            };
            document.as_ref().clone_into(&mut request.query);
            return Ok(request);
        }
        let digest = hash::sha2_256(request.query.as_bytes());
        if digest.digest() != wanted.as_slice() {
            return Err(invalid("sha256Hash is not the hash of the query"));
        }
        self.0.insert(wanted, request.query.as_str().into());
        Ok(request)
    }
}

fn read(extension: Value) -> Result<PersistedQuery, serde_json::Error> {
    serde_json::from_value(extension.into_json()?)
}

fn digest_of(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(digest)
}
