//! The textual form of PKCS#8 (RFC 7468).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipfrs_core::{Error, Result};
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN ";
const DASHES: &str = "-----";
const LABEL: &str = "PRIVATE KEY";
const LINE: usize = 64;

/// Returns whether `bytes` contains a PEM block.
pub(super) fn is_pem(bytes: &[u8]) -> bool {
    bytes.windows(BEGIN.len()).any(|window| window == BEGIN.as_bytes())
}

/// Returns the bytes of the first block, which must be an unencrypted private key.
pub(super) fn decode(text: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
    let no_pem = || Error::invalid("PEM block not found: a key in PEM begins with -----BEGIN PRIVATE KEY-----");
    let text = std::str::from_utf8(text).map_err(|_| no_pem())?;
    let (_, block) = text.split_once(BEGIN).ok_or_else(no_pem)?;
    let (label, rest) = block.split_once(DASHES).ok_or_else(no_pem)?;
    if label != LABEL {
        let remedy = "only unencrypted PKCS#8 is accepted (use openssl pkcs8 -topk8 -nocrypt)";
        return Err(Error::invalid(format!("expected {LABEL} in the PEM block but got {label:?}: {remedy}")));
    }
    let unfinished = || Error::invalid("the PEM block has no -----END PRIVATE KEY-----");
    let (body, end) = rest.split_once("-----END ").ok_or_else(unfinished)?;
    if !end.strip_prefix(LABEL).is_some_and(|end| end.starts_with(DASHES)) {
        return Err(unfinished());
    }
    // Allocated once, so that no copy of the secret remains in memory.
    let mut digits = Zeroizing::new(String::with_capacity(body.len()));
    digits.extend(body.chars().filter(|c| !c.is_ascii_whitespace()));
    let bytes = STANDARD.decode(digits.as_bytes());
    // The cause is dropped, because it would quote a byte of the key.
    bytes.map(Zeroizing::new).map_err(|_| Error::invalid("the PEM block does not contain valid base64"))
}

/// Returns the PEM block of a private key.
pub(super) fn encode(pkcs8: &[u8]) -> Zeroizing<String> {
    let digits = Zeroizing::new(STANDARD.encode(pkcs8));
    let mut text = Zeroizing::new(String::with_capacity(digits.len() + digits.len() / LINE + 64));
    text.push_str("-----BEGIN PRIVATE KEY-----\n");
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % LINE == 0 {
            text.push('\n');
        }
        text.push(digit);
    }
    text.push_str("\n-----END PRIVATE KEY-----\n");
    text
}
