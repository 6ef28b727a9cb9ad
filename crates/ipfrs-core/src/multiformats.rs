//! Names and codes of multibases, IPLD codecs and hash functions, and multibase text.

use multibase::Base;

use crate::{Error, Result};

/// Multibases, by name.
pub const BASES: [(&str, Base); 21] = [
    ("identity", Base::Identity),
    ("base2", Base::Base2),
    ("base32upper", Base::Base32Upper),
    ("base32padupper", Base::Base32PadUpper),
    ("base16upper", Base::Base16Upper),
    ("base36upper", Base::Base36Upper),
    ("base64pad", Base::Base64Pad),
    ("base32hexpadupper", Base::Base32HexPadUpper),
    ("base64urlpad", Base::Base64UrlPad),
    ("base32hexupper", Base::Base32HexUpper),
    ("base58flickr", Base::Base58Flickr),
    ("base32", Base::Base32Lower),
    ("base32pad", Base::Base32PadLower),
    ("base16", Base::Base16Lower),
    ("base36", Base::Base36Lower),
    ("base64", Base::Base64),
    ("base32hexpad", Base::Base32HexPadLower),
    ("base64url", Base::Base64Url),
    ("base32hex", Base::Base32HexLower),
    ("base58btc", Base::Base58Btc),
    ("base256emoji", Base::Base256Emoji),
];

/// Multicodecs with the tag `ipld`, by code.
pub const IPLD_CODECS: [(u64, &str); 44] = [
    (81, "cbor"),
    (85, "raw"),
    (112, "dag-pb"),
    (113, "dag-cbor"),
    (114, "libp2p-key"),
    (120, "git-raw"),
    (123, "torrent-info"),
    (124, "torrent-file"),
    (128, "blake3-hashseq"),
    (129, "leofcoin-block"),
    (130, "leofcoin-tx"),
    (131, "leofcoin-pr"),
    (133, "dag-jose"),
    (134, "dag-cose"),
    (144, "eth-block"),
    (145, "eth-block-list"),
    (146, "eth-tx-trie"),
    (147, "eth-tx"),
    (148, "eth-tx-receipt-trie"),
    (149, "eth-tx-receipt"),
    (150, "eth-state-trie"),
    (151, "eth-account-snapshot"),
    (152, "eth-storage-trie"),
    (153, "eth-receipt-log-trie"),
    (154, "eth-receipt-log"),
    (176, "bitcoin-block"),
    (177, "bitcoin-tx"),
    (178, "bitcoin-witness-commitment"),
    (192, "zcash-block"),
    (193, "zcash-tx"),
    (208, "stellar-block"),
    (209, "stellar-tx"),
    (224, "decred-block"),
    (225, "decred-tx"),
    (240, "dash-block"),
    (241, "dash-tx"),
    (250, "swarm-manifest"),
    (251, "swarm-feed"),
    (252, "beeson"),
    (297, "dag-json"),
    (496, "swhid-1-snp"),
    (512, "json"),
    (46_083, "rdfc-1"),
    (46_593, "json-jcs"),
];

/// Hash functions of multihashes without those whose codes are ranges.
const HASHES: [(u64, &str); 18] = [
    (0x00, "identity"),
    (0x11, "sha1"),
    (0x12, "sha2-256"),
    (0x13, "sha2-512"),
    (0x14, "sha3-512"),
    (0x15, "sha3-384"),
    (0x16, "sha3-256"),
    (0x17, "sha3-224"),
    (0x18, "shake-128"),
    (0x19, "shake-256"),
    (0x1a, "keccak-224"),
    (0x1b, "keccak-256"),
    (0x1c, "keccak-384"),
    (0x1d, "keccak-512"),
    (0x1e, "blake3"),
    (0x56, "dbl-sha2-256"),
    (0xd5, "md5"),
    (0x1012, "sha2-256-trunc254-padded"),
];

/// Code below that of BLAKE2b with a digest of one byte.
const BLAKE2B: u64 = 0xb200;
/// Longest digest of BLAKE2b, in bytes.
const BLAKE2B_BYTES: u64 = 64;
/// Code below that of BLAKE2s with a digest of one byte.
const BLAKE2S: u64 = 0xb240;
/// Longest digest of BLAKE2s, in bytes.
const BLAKE2S_BYTES: u64 = 32;

/// Returns the multibase with a name or with a code of one character, or `None` for an unknown one.
#[must_use]
pub fn find_base(text: &str) -> Option<Base> {
    let has = |(name, base): &&(&str, Base)| *name == text || text.chars().eq([base.code()]);
    BASES.iter().find(has).map(|(_, base)| *base)
}

/// Returns the name of a multibase, if it is one of [`BASES`].
#[must_use]
pub fn base_name(base: Base) -> Option<&'static str> {
    BASES.iter().find(|(_, known)| *known == base).map(|(name, _)| *name)
}

/// Returns the name of an IPLD codec.
#[must_use]
pub fn ipld_codec_name(code: u64) -> Option<&'static str> {
    IPLD_CODECS.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// Returns the name of the hash function with a multihash code.
#[must_use]
pub fn hash_name(code: u64) -> Option<String> {
    let bits = |below: u64, most: u64| (below + 1..=below + most).contains(&code).then(|| (code - below) * 8);
    let known = HASHES.iter().find(|(known, _)| *known == code).map(|(_, name)| (*name).to_owned());
    known
        .or_else(|| bits(BLAKE2B, BLAKE2B_BYTES).map(|bits| format!("blake2b-{bits}")))
        .or_else(|| bits(BLAKE2S, BLAKE2S_BYTES).map(|bits| format!("blake2s-{bits}")))
}

/// Encodes bytes with the prefix of the base. The result is text, unless the base is `identity`.
#[must_use]
pub fn encode_multibase(base: Base, data: &[u8]) -> Vec<u8> {
    match base {
        Base::Identity => std::iter::once(0).chain(data.iter().copied()).collect(),
        base => multibase::encode(base, data).into_bytes(),
    }
}

/// Decodes bytes in multibase. Line ends are ignored in bases of 32 and 64, as in Go's decoders.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](crate::ErrorKind) for an unknown base and for characters outside of it.
pub fn decode_multibase(encoded: &[u8]) -> Result<(Base, Vec<u8>)> {
    if let [0, data @ ..] = encoded {
        return Ok((Base::Identity, data.to_vec()));
    }
    let text = std::str::from_utf8(encoded).map_err(|_| unsupported())?;
    let code = text.chars().next().ok_or_else(|| Error::invalid("cannot decode multibase for zero length string"))?;
    let base = Base::from_code(code).ok().filter(|base| base_name(*base).is_some()).ok_or_else(unsupported)?;
    let rest = &text[code.len_utf8()..];
    let ignores_lines = base_name(base).is_some_and(|name| name.starts_with("base32") || name.starts_with("base64"));
    let decoded = if ignores_lines && rest.contains(['\r', '\n']) {
        base.decode(rest.replace(['\r', '\n'], ""))
    } else {
        base.decode(rest)
    };
    let name = base_name(base).unwrap_or_default();
    decoded.map(|data| (base, data)).map_err(|e| Error::invalid(format!("illegal {name} data: {e}")))
}

fn unsupported() -> Error {
    Error::invalid("selected encoding not supported")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_base_decodes_what_it_encodes() {
        for (name, base) in BASES {
            let data = b"\x00hello\xff";
            let encoded = encode_multibase(base, data);
            assert_eq!(decode_multibase(&encoded).unwrap(), (base, data.to_vec()), "{name}");
            assert_eq!((find_base(name), base_name(base)), (Some(base), Some(name)));
        }
        assert_eq!(find_base("b"), Some(Base::Base32Lower));
        assert!(find_base("").is_none() && find_base("base8").is_none());
    }

    #[test]
    fn malformed_multibase_is_refused() {
        for text in ["", "nope", "9123", "f6z", "f68656c6c6f0", "z0", "b0", "é"] {
            assert!(decode_multibase(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(decode_multibase(b"uaGVs\nbG8\n").unwrap().1, b"hello");
        assert!(decode_multibase(b"f68656c6c6f\n").is_err());
    }

    #[test]
    fn hash_functions_have_their_names_in_the_table() {
        for (code, name) in
            [(0x12, "sha2-256"), (0xb220, "blake2b-256"), (0xb240, "blake2b-512"), (0xb260, "blake2s-256")]
        {
            assert_eq!(hash_name(code).as_deref(), Some(name));
        }
        assert_eq!((hash_name(0xb200), hash_name(0xb261)), (None, None));
    }
}
