//! Hash functions that options name.

use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, Result};

use super::options::go_number;

/// Error of Kubo for functions that it knows and does not allow.
const INSECURE: &str = "potentially insecure hash functions not allowed";

/// Names of functions that Kubo does not allow, besides short digests of BLAKE2b.
const NOT_ALLOWED: [&str; 3] = ["md5", "murmur3-x64-64", "shake-128"];

/// Number of bits of the shortest digest of BLAKE2b that is allowed.
const MIN_BLAKE2B_BITS: u32 = 160;

/// Returns the function with a name. `unknown` converts the error for a name that Kubo does not know either.
pub(super) fn named(name: &str, unknown: impl FnOnce(Error) -> Error) -> Result<HashFunction> {
    HashFunction::from_name(name).map_err(|e| if is_insecure(name) { Error::unsupported(INSECURE) } else { unknown(e) })
}

/// Same as [`named`], with the error of Kubo for a name that it does not know. The case of the name does not matter.
pub(super) fn known(name: &str) -> Result<HashFunction> {
    let name = name.to_lowercase();
    named(&name, |_| Error::unsupported(format!("unrecognized hash function: {name:?}")))
}

/// Same as [`named`], with the errors of Kubo where it looks up the name, or the number, among all multicodecs.
pub(super) fn multicodec(name: &str) -> Result<HashFunction> {
    if let Some(code) = go_number(name) {
        let unknown = format!("invalid cid: unknown multihash code {code} (0x{code:x}): no such hash registered");
        return HashFunction::from_code(code).map_err(|_| Error::unsupported(unknown));
    }
    named(name, |_| Error::unsupported(format!("unknown multicodec: {name:?}")))
}

fn is_insecure(name: &str) -> bool {
    let is_short = |size: &str| (8..MIN_BLAKE2B_BITS).step_by(8).any(|bits| size == bits.to_string());
    NOT_ALLOWED.contains(&name) || name.strip_prefix("blake2b-").is_some_and(is_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_kubo_does_not_allow_are_told_from_unknown_ones() {
        for name in ["md5", "murmur3-x64-64", "shake-128", "blake2b-8", "blake2b-152"] {
            assert_eq!(known(name).unwrap_err().message(), INSECURE, "{name}");
        }
        for name in ["sha0", "murmur3-128", "blake2b-0", "blake2b-12", "blake2b-520", ""] {
            let text = format!("unrecognized hash function: {name:?}");
            assert_eq!(known(name).unwrap_err().message(), text, "{name}");
        }
        assert!(known("blake2b-160").is_ok());
        assert!(known("SHA2-256").is_ok());
        assert_eq!(known("MD5").unwrap_err().message(), INSECURE);
        assert_eq!(known("Nope").unwrap_err().message(), "unrecognized hash function: \"nope\"");
    }
}
