//! Keys: vectors of the libp2p specification, keys written by Kubo and OpenSSL, and invalid keys.

// Helper functions of tests may unwrap too.
#![allow(clippy::unwrap_used)]

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use ipfrs_core::ErrorKind;
use ipfrs_ipns::{KeyType, Name, PrivateKey, PublicKey};

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Private and public keys from the peer ID specification of libp2p.
const SPECIFIED: [(KeyType, &str, &str); 3] = [
    (
        KeyType::Ed25519,
        "080112407e0830617c4a7de83925dfb2694556b12936c477a0e1feb2e148ec9da60fee7d\
         1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e",
        "080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e",
    ),
    (
        KeyType::Secp256k1,
        "0802122053dadf1d5a164d6b4acdb15e24aa4c5b1d3461bdbd42abedb0a4404d56ced8fb",
        "08021221037777e994e452c21604f91de093ce415f5432f701dd8cd1a7a6fea0e630bfca99",
    ),
    (
        KeyType::Ecdsa,
        "08031279307702010104203e5b1fe9712e6c314942a750bd67485de3c1efe85b1bfb520ae8f9ae3dfa4a4c\
         a00a06082a8648ce3d030107a14403420004de3d300fa36ae0e8f5d530899d83abab44abf3161f162a4bc901d8e6ecda020e\
         8b6d5f8da30525e71d6851510c098e5c47c646a597fb4dcec034e9f77c409e62",
        "0803125b3059301306072a8648ce3d020106082a8648ce3d03010703420004de3d300fa36ae0e8f5d530899d83abab44abf316\
         1f162a4bc901d8e6ecda020e8b6d5f8da30525e71d6851510c098e5c47c646a597fb4dcec034e9f77c409e62",
    ),
];

/// Keys that Kubo 0.44 exported, as PEM and (if short) as protobuf, with the names that Kubo gave them.
const FROM_KUBO: [(KeyType, &str, Option<&str>, &str); 4] = [
    (
        KeyType::Ed25519,
        include_str!("keys/ed25519.pem"),
        Some(
            "08011240e1ab94b0be83e4b71d286e5701024dbba048394a912a0d5bd7762139314fda70\
             ea676836214de0034dd3c7bd8c2e98870bbd726692fef05472e391c2988624c0",
        ),
        "k51qzi5uqu5dm0wsiwt328k2m7h2157b3kl5lkurq7xmg9flhqynqam2ymkxj4",
    ),
    (
        KeyType::Secp256k1,
        include_str!("keys/secp256k1.pem"),
        Some("08021220e19b4adc42c455dca0bddcc7ca0147e3ad3da067963508d7b5d9b027d1b1bd9d"),
        "kzwfwjn5ji4pupup89dwih7g6d74oe9ndy4gfdqb43g23gkxzhpuc3to7v3gyjs",
    ),
    (
        KeyType::Ecdsa,
        include_str!("keys/ecdsa.pem"),
        Some(
            "0803127930770201010420117e3fc030ce93f820e94fa240187a1a63fe664d2199bf82c2d53d5bd2b8c3e0\
             a00a06082a8648ce3d030107a14403420004e91e7e080548b16cb44734e6e6740f086a92f7173eca34bee1f3b0f341e34929\
             8b5890983ee4847096f633204d73703f9213f15dbd79c745a35470b9ce0575be",
        ),
        "k2k4r8krnzlnry1bqv9j19370pqrfv9ajsx65jqswk04ha2had7dj7kf",
    ),
    (KeyType::Rsa, include_str!("keys/rsa.pem"), None, "k2k4r8p4ggykdzhp5n3pq65gl6tf07kiel69y5m67yv8g99inck0natf"),
];

#[test]
fn the_vectors_of_the_specification_hold() {
    for (key_type, private, public) in SPECIFIED {
        let key = PrivateKey::from_protobuf(&bytes(private)).unwrap();
        assert_eq!(key.key_type(), key_type);
        assert_eq!(key.public().to_protobuf(), bytes(public), "{key_type}");
        assert_eq!(*key.to_protobuf().unwrap(), bytes(private), "{key_type}");
        assert_eq!(&PublicKey::from_protobuf(&bytes(public)).unwrap(), key.public());
    }
}

#[test]
fn kubo_keys_keep_their_names_and_encoding() {
    for (key_type, pem, protobuf, name) in FROM_KUBO {
        let key = PrivateKey::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(key.key_type(), key_type);
        assert_eq!(Name::of(key.public()).to_string(), name);
        assert_eq!(*key.to_pem().unwrap(), pem, "{key_type}");
        if let Some(protobuf) = protobuf {
            assert_eq!(*key.to_protobuf().unwrap(), bytes(protobuf), "{key_type}");
        }
    }
}

#[test]
fn the_rsa_message_holds_pkcs1() {
    let key = PrivateKey::from_pem(include_bytes!("keys/rsa.pem")).unwrap();
    assert_eq!(*key.to_protobuf().unwrap(), include_bytes!("keys/rsa.protobuf"));
}

#[test]
fn every_type_signs_verifies_and_comes_back_from_both_forms() {
    for key_type in [KeyType::Ed25519, KeyType::Rsa, KeyType::Secp256k1, KeyType::Ecdsa] {
        let key = PrivateKey::generate(key_type, None).unwrap();
        let other = PrivateKey::generate(key_type, None).unwrap();
        assert_ne!(key.public(), other.public());
        let again = PrivateKey::from_protobuf(&key.to_protobuf().unwrap()).unwrap();
        let once_more = PrivateKey::from_pem(again.to_pem().unwrap().as_bytes()).unwrap();
        let public = PublicKey::from_protobuf(&key.public().to_protobuf()).unwrap();
        for signer in [&key, &again, &once_more] {
            let signature = signer.sign(b"message").unwrap();
            public.verify(b"message", &signature).unwrap();
            assert_eq!(public.verify(b"massage", &signature).unwrap_err().kind(), ErrorKind::Corrupt);
            assert!(other.public().verify(b"message", &signature).is_err());
            assert!(public.verify(b"message", &signature[1..]).is_err());
        }
    }
}

#[test]
fn signatures_of_secp256k1_have_a_low_s() {
    // The half of the order begins with 7f. An `s` of 33 bytes, or of 32 bytes that begin with more, is high.
    let key = PrivateKey::generate(KeyType::Secp256k1, None).unwrap();
    for message in 0..32_u8 {
        let signature = key.sign(&[message]).unwrap();
        let s = 4 + usize::from(signature[3]) + 2;
        assert!(signature.len() - s <= 32, "{signature:?}");
    }
}

#[test]
fn the_older_form_of_ed25519_is_taken_when_its_copies_agree() {
    let (_, private, public) = SPECIFIED[0];
    let mut old = bytes(private);
    old[3] = 96;
    old.extend_from_slice(&bytes(public)[4..]);
    assert_eq!(PrivateKey::from_protobuf(&old).unwrap().public().to_protobuf(), bytes(public));
    old[99] ^= 1;
    assert!(PrivateKey::from_protobuf(&old).is_err());
}

#[test]
fn unsound_keys_are_refused() {
    let (_, private, public) = SPECIFIED[0];
    let (private, public) = (bytes(private), bytes(public));
    let changed = |message: &[u8], at: usize, to: u8| {
        let mut message = message.to_vec();
        message[at] = to;
        message
    };
    for message in [
        // Empty message, unknown type, wrong length, trailing byte.
        Vec::new(),
        changed(&public, 1, 4),
        changed(&public, 3, 0x21),
        [&public[..], b"\0"].concat(),
        // The same fields in the other order.
        [&public[2..], &public[..2]].concat(),
        // A length that is not in the shortest form.
        [&public[..3], &[0xa0, 0x00], &public[4..]].concat(),
        // 32 bytes, which is not the length of a secp256k1 point.
        changed(&public, 1, 2),
    ] {
        assert_eq!(PublicKey::from_protobuf(&message).unwrap_err().kind(), ErrorKind::InvalidInput, "{message:?}");
    }
    // The public half does not match the secret.
    assert!(PrivateKey::from_protobuf(&changed(&private, 67, 0)).is_err());
    // Zero is not a valid secp256k1 key.
    assert!(PrivateKey::from_protobuf(&[&[8, 2, 18, 32][..], &[0; 32]].concat()).is_err());
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMC4=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for pem in ["", "MC4CAQAwBQYDK2Vw", "-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----", encrypted] {
        assert_eq!(PrivateKey::from_pem(pem.as_bytes()).unwrap_err().kind(), ErrorKind::InvalidInput, "{pem}");
    }
    let error = PrivateKey::from_protobuf(FROM_KUBO[0].1.as_bytes()).unwrap_err();
    assert!(error.message().contains("pem-pkcs8-cleartext"), "{error}");
}

#[test]
fn keys_have_the_sizes_of_their_types() {
    for (bits, named) in [(1_024, ">= 2048"), (16_384, "16384")] {
        let error = PrivateKey::generate(KeyType::Rsa, Some(bits)).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains(named), "{error}");
    }
    PrivateKey::generate(KeyType::Secp256k1, Some(256)).unwrap();
    let error = PrivateKey::generate(KeyType::Ed25519, Some(2_048)).unwrap_err();
    assert_eq!(error.message(), "invalid key size 2048: ed25519 keys are always 256 bits");
    // A 1,024-bit key that OpenSSL created.
    assert!(PublicKey::from_protobuf(include_bytes!("keys/rsa-1024.public")).is_err());
}

#[test]
fn private_key_debug_output_hides_secret() {
    for (_, private, _) in SPECIFIED {
        let key = PrivateKey::from_protobuf(&bytes(private)).unwrap();
        let printed = format!("{key:?}");
        let data = key.to_protobuf().unwrap();
        let secret = format!("{:?}", &data[10..20]);
        assert!(printed.starts_with("PrivateKey") && !printed.contains(secret.trim_matches(['[', ']'])), "{printed}");
    }
}

#[test]
fn documents_of_the_second_version_are_read() {
    // RFC 5958, with the public key included: the form of the first identities.
    let pair = Ed25519KeyPair::generate().unwrap();
    let (old, new) = (pair.to_pkcs8().unwrap(), pair.to_pkcs8v1().unwrap());
    let key = PrivateKey::from_pkcs8(old.as_ref()).unwrap();
    assert_ne!(old.as_ref(), new.as_ref());
    assert_eq!(*key.to_pkcs8().unwrap(), new.as_ref());
    assert!(key.public().to_protobuf().ends_with(pair.public_key().as_ref()));
}
