//! Verifies arbitrary JSON Web Tokens: of strangers, and with the signature of the issuer. They give access only if
//! they say what they must.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Header of half of the tokens: the fuzzer need not find it.
const HEADER: &[u8] = br#"{"alg":"HS256"}"#;

fuzz_target!(|input: (&str, Option<&[u8]>, &[u8])| {
    let (foreign, header, claims) = input;
    ipfrs_middleware::fuzzing::json_web_token(foreign, header.unwrap_or(HEADER), claims);
});
