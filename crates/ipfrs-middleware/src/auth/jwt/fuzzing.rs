//! Entry points for fuzzing tokens and sets of keys.

use std::sync::LazyLock;

use aws_lc_rs::hmac;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use super::*;

/// Secret of the issuer.
const SECRET: [u8; 32] = [7; 32];
const ISSUER: &str = "issuer";
const AUDIENCE: &str = "ipfrs";

/// Reads a set of keys. Secrets are used only if they are allowed, and each key for one algorithm.
pub(crate) fn key_set(bytes: &[u8]) {
    let (all, public) = (parse(bytes, true), parse(bytes, false));
    if let Ok(all) = &all {
        let public = public.as_ref().expect("a set is also read without its secrets");
        assert_eq!(public.listed, all.listed);
        assert!(count(public) <= count(all) && count(all) <= all.listed);
    }
    for key in public.iter().flat_map(|public| public.keys.values().flatten()) {
        let is_public = matches!(key.algorithm, Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA);
        assert!(is_public, "{:?} without secrets", key.algorithm);
    }
}

fn count(parsed: &Parsed) -> usize {
    parsed.keys.values().map(Vec::len).sum()
}

static VERIFIER: LazyLock<(Runtime, Arc<JwtVerifier>)> = LazyLock::new(|| {
    let set = json!({ "keys": [{ "kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET) }] }).to_string();
    let keys = parse(set.as_bytes(), true).expect("the set is valid").keys;
    let verifier = JwtVerifier {
        source: Source::File(PathBuf::new()),
        scope_claim: "scope".to_owned(),
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        keys: RwLock::new(KeySet { keys, read: Some(Instant::now()) }),
        reading: Arc::new(Mutex::new(Some(Instant::now()))),
    };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    (runtime, Arc::new(verifier))
});

/// Verifies a token of another issuer, which is refused, and one with these parts of the known issuer. That gives
/// access only if it says what it must.
pub(crate) fn token(foreign: &str, header: &[u8], claims: &[u8]) {
    let (runtime, verifier) = &*VERIFIER;
    assert!(runtime.block_on(verifier.verify(foreign)).is_err(), "{foreign:?} has no signature of the issuer");
    let Ok(principal) = runtime.block_on(verifier.verify(&signed(header, claims))) else { return };
    assert!(principal.name.len() <= PREFIX.len() + MAX_SUBJECT_BYTES + 1 + 2 * HASH_BYTES, "{}", principal.name);
    let header: Map<String, Value> = serde_json::from_slice(header).expect("the header was read");
    assert!(header.get("alg").is_some_and(|alg| alg == "HS256") && !header.contains_key("crit"), "{header:?}");
    let claims: Map<String, Value> = serde_json::from_slice(claims).expect("the claims were read");
    assert!(claims.get("iss").is_some_and(|issuer| issuer == ISSUER), "{claims:?}");
    let is_for_us = claims.get("aud").is_some_and(|audience| match audience {
        Value::Array(all) => all.iter().any(|one| one == AUDIENCE),
        one => one == AUDIENCE,
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let is_valid =
        claims.get("exp").and_then(Value::as_f64).is_some_and(|end| end + LEEWAY_SECONDS as f64 >= now - 1.0);
    assert!(is_for_us && is_valid, "{claims:?}");
    assert_eq!(principal.roots.is_some(), claims.contains_key("roots"));
}

/// Returns a token of the issuer.
fn signed(header: &[u8], claims: &[u8]) -> String {
    let content = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &SECRET), content.as_bytes());
    format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_sets_of_all_kinds_are_read() {
        let (header, claims) = (r#"{"alg":"HS256"}"#, r#"{"iss":"issuer","aud":"ipfrs","exp":4000000000}"#);
        let (runtime, verifier) = &*VERIFIER;
        let valid = signed(header.as_bytes(), claims.as_bytes());
        assert!(runtime.block_on(verifier.verify(&valid)).is_ok(), "the seed gives access");
        let twice = r#"{"iss":"issuer","iss":"other","aud":["ipfrs"],"exp":4e9,"roots":["bafkqaaik"]}"#;
        for claims in [claims, twice, r#"{"exp":-1}"#, r#"{"exp":1e300}"#, "[]", ""] {
            for header in [header, r#"{"alg":"none"}"#, r#"{"alg":"HS256","crit":["x"]}"#, r#"{"alg":"RS256"}"#] {
                token(&valid[..valid.len() - 1], header.as_bytes(), claims.as_bytes());
            }
        }
        let short = r#"{"keys":[{"kty":"oct","k":"AA"}]}"#;
        for set in [r#"{"keys":[]}"#, short, r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":""}]}"#, "{"] {
            key_set(set.as_bytes());
        }
    }
}
