use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
};
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;

use super::*;

/// Returns keys for signatures, with what they are used for; `None` if they must not be used.
fn signers() -> Vec<(Algorithm, EncodingKey, Option<Algorithm>)> {
    let rsa = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048).unwrap();
    let rsa = EncodingKey::from_rsa_der(&rsa_private_key(&AsDer::as_der(&rsa).unwrap()));
    let p256 = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let p384 = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
    let ed25519 = Ed25519KeyPair::generate().unwrap();
    let ec = |pair: &EcdsaKeyPair| EncodingKey::from_ec_der(pair.to_pkcs8v1().unwrap().as_ref());
    vec![
        (Algorithm::RS256, rsa, Some(Algorithm::RS256)),
        (Algorithm::ES256, ec(&p256), Some(Algorithm::ES256)),
        (Algorithm::ES384, ec(&p384), None),
        (Algorithm::EdDSA, EncodingKey::from_ed_der(ed25519.to_pkcs8v1().unwrap().as_ref()), Some(Algorithm::EdDSA)),
        (Algorithm::HS256, EncodingKey::from_secret(b"a secret with at least 256 bits.."), Some(Algorithm::HS256)),
    ]
}

/// Returns the PKCS#1 key in a PKCS#8 document: its last octet string.
fn rsa_private_key(pkcs8: &aws_lc_rs::encoding::Pkcs8V1Der<'static>) -> Vec<u8> {
    let bytes = pkcs8.as_ref();
    let start = bytes.windows(4).rposition(|window| window == [0x02, 0x01, 0x00, 0x02]).unwrap();
    let start = (0..start).rev().find(|at| bytes[*at] == 0x30 && bytes[at + 1] == 0x82).unwrap();
    bytes[start..].to_vec()
}

#[tokio::test]
async fn each_algorithm_is_verified_with_its_own_key() {
    let (signers, mut keys) = (signers(), Vec::new());
    for (algorithm, signer, _) in &signers {
        let mut jwk = Jwk::from_encoding_key(signer, *algorithm).unwrap();
        jwk.common.key_id = Some(format!("{algorithm:?}"));
        keys.push(jwk);
    }
    let set = serde_json::to_vec(&JwkSet { keys }).unwrap();
    let verifier = |allows_secrets| JwtVerifier {
        source: Source::File(PathBuf::new()),
        scope_claim: "scope".to_owned(),
        issuer: "issuer".to_owned(),
        audience: "ipfrs".to_owned(),
        keys: RwLock::new(KeySet { keys: parse(&set, allows_secrets).unwrap().keys, read: Some(Instant::now()) }),
        reading: Arc::new(Mutex::new(Some(Instant::now()))),
    };
    let (of_file, of_url) = (Arc::new(verifier(true)), Arc::new(verifier(false)));
    let claims = json!({ "iss": "issuer", "aud": "ipfrs", "sub": "s", "exp": 4_000_000_000_u64, "scope": "pin" });
    for (algorithm, signer, used) in &signers {
        let token = |kid: &Algorithm| {
            let header = Header { kid: Some(format!("{kid:?}")), ..Header::new(*algorithm) };
            encode(&header, &claims, signer).unwrap()
        };
        let own = token(algorithm);
        assert_eq!(of_file.verify(&own).await.is_ok(), used.is_some(), "{algorithm:?}");
        let is_secret = *algorithm == Algorithm::HS256;
        assert_eq!(of_url.verify(&own).await.is_ok(), used.is_some() && !is_secret, "{algorithm:?}");
        for (other, ..) in signers.iter().filter(|(other, ..)| other != algorithm) {
            assert_eq!(of_file.verify(&token(other)).await.unwrap_err(), Outcome::Unknown, "{algorithm:?} {other:?}");
        }
    }
}

#[tokio::test]
async fn only_access_tokens_that_are_valid_now_give_access() {
    let signers = ["one", "other"].map(|text| EncodingKey::from_secret(text.repeat(32).as_bytes()));
    let keys = signers.iter().map(|signer| Jwk::from_encoding_key(signer, Algorithm::HS256).unwrap());
    let set = serde_json::to_vec(&JwkSet { keys: keys.collect() }).unwrap();
    let verifier = Arc::new(JwtVerifier {
        source: Source::File(PathBuf::new()),
        scope_claim: "scope".to_owned(),
        issuer: "issuer".to_owned(),
        audience: "ipfrs".to_owned(),
        keys: RwLock::new(KeySet { keys: parse(&set, true).unwrap().keys, read: Some(Instant::now()) }),
        reading: Arc::default(),
    });
    let far = 4_000_000_000_u64;
    // Both keys have no name.
    for signer in &signers {
        let token = |typ: Option<&str>, nbf: u64, exp: u64| {
            let claims = json!({ "iss": "issuer", "aud": "ipfrs", "nbf": nbf, "exp": exp });
            let header = Header { typ: typ.map(str::to_owned), ..Header::new(Algorithm::HS256) };
            encode(&header, &claims, signer).unwrap()
        };
        for typ in [None, Some("JWT"), Some("jwt"), Some("at+jwt"), Some("application/at+JWT")] {
            assert!(verifier.verify(&token(typ, 0, far)).await.is_ok(), "{typ:?}");
        }
        for typ in ["logout+jwt", "dpop+jwt", "", "application/json"] {
            assert_eq!(verifier.verify(&token(Some(typ), 0, far)).await.unwrap_err(), Outcome::Malformed, "{typ}");
        }
        assert_eq!(verifier.verify(&token(None, far, far)).await.unwrap_err(), Outcome::Expired, "not yet");
        assert_eq!(verifier.verify(&token(None, 0, 1)).await.unwrap_err(), Outcome::Expired, "no longer");
    }
    let stranger = EncodingKey::from_secret(&[1; 64]);
    let claims = json!({ "iss": "issuer", "aud": "ipfrs", "exp": far });
    let token = encode(&Header::new(Algorithm::HS256), &claims, &stranger).unwrap();
    assert_eq!(verifier.verify(&token).await.unwrap_err(), Outcome::Unknown);
    let of_signing = r#"{"keys":[{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY","key_ops":["sign"]}]}"#;
    assert!(parse(of_signing.as_bytes(), true).unwrap().keys.is_empty());
}

#[test]
fn each_subject_is_a_caller_of_its_own() {
    let long = |end: char| "p".repeat(MAX_SUBJECT_BYTES) + &end.to_string();
    assert_eq!(shortened(&long('A')[1..]), long('A')[1..]);
    assert_ne!(shortened(&long('A')), shortened(&long('B')));
    assert_ne!(shortened(&long('A')), shortened(&shortened(&long('A'))), "nor one that has the form of another");
}

#[test]
fn malformed_key_sets_are_refused_and_those_without_usable_keys_are_empty() {
    for wrong in ["", "[]", "{}"] {
        assert!(parse(wrong.as_bytes(), true).is_err(), "{wrong}");
    }
    for none in [r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","alg":"HS512","k":"YQ"}]}"#] {
        let parsed = parse(none.as_bytes(), true).unwrap();
        assert_eq!((parsed.keys.len(), parsed.check().is_ok()), (0, parsed.listed == 0), "{none}");
    }
    let set = |secret: &str| format!(r#"{{"keys":[{{"kty":"oct","k":"{secret}"}},{{"kty":"new","x":"y"}}]}}"#);
    let secret = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY";
    assert_eq!(parse(set(secret).as_bytes(), true).unwrap().keys.len(), 1);
    assert!(parse(set(secret).as_bytes(), false).unwrap().check().is_err());
    assert!(parse(set("").as_bytes(), true).is_err() && parse(set(&secret[..40]).as_bytes(), true).is_err());
}

#[tokio::test]
async fn reloaded_keys_are_used_before_others_are_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let signer = |kid: &str| EncodingKey::from_secret(kid.repeat(32).as_bytes());
    let write = |kid: &str| {
        let mut jwk = Jwk::from_encoding_key(&signer(kid), Algorithm::HS256).unwrap();
        jwk.common.key_id = Some(kid.to_owned());
        std::fs::write(file.path(), serde_json::to_vec(&JwkSet { keys: vec![jwk] }).unwrap()).unwrap();
    };
    let token = |kid: &str| {
        let claims = json!({ "iss": "issuer", "aud": "ipfrs", "exp": 4_000_000_000_u64 });
        encode(&Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::HS256) }, &claims, &signer(kid)).unwrap()
    };
    let verifier = Arc::new(JwtVerifier {
        source: Source::File(file.path().to_owned()),
        scope_claim: "scope".to_owned(),
        issuer: "issuer".to_owned(),
        audience: "ipfrs".to_owned(),
        keys: RwLock::default(),
        reading: Arc::default(),
    });
    write("old");
    let apply = Arc::clone(&verifier).reload().await.unwrap();
    write("new");
    assert!(verifier.reading.try_lock().is_err(), "the new keys cannot be read before the old ones are used");
    apply();
    assert!(verifier.verify(&token("new")).await.is_ok());
    assert_eq!(verifier.verify(&token("old")).await.unwrap_err(), Outcome::Unknown);
}
