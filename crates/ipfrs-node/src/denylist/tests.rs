//! Tests of denylist semantics: the examples of the specification, and file contents.

use std::io::Cursor;

use ipfrs_core::hash::{HashFunction, sha2_256};
use ipfrs_core::{Cid, ErrorKind, parse_cid};
use multibase::Base;
use proptest::prelude::*;

use super::list::List;
use super::rule::{Root, Rule, Target};
use super::{DenylistMetrics, Denylists, Kind};
use crate::fingerprint::Fingerprints;

/// The example of the specification, extended by the kinds of rules that it lacks.
const EXAMPLE: &str = "version: 1
name: Example IPFSCorp blocking list
description: A collection of bad things we have found in the universe
author: abuse-ipfscorp@example.com
hints:
  hint: value
  hint2: value2
---
# Blocking by CID is codec-agnostic
/ipfs/bafybeihvvulpp4evxj7x7armbqcyg6uezzuig6jp3lktpbovlqfkuqeuoq

/ipfs/Qmah2YDTfrox4watLCr3YgKyBwvjq8FJZEFdWY6WtJ3Xt2/test*
/ipfs/QmTuvSQbEDR3sarFAN9kAeXBpiBCyYYNxdxciazBba11eC/test/*
/ipfs/QmUboz9UsQBDeS6Tug1U8jgoFkgYxyYood9NDyVURAY9pK/blocked*
!/ipfs/QmUboz9UsQBDeS6Tug1U8jgoFkgYxyYood9NDyVURAY9pK/blockednot
!/ipfs/QmUboz9UsQBDeS6Tug1U8jgoFkgYxyYood9NDyVURAY9pK/blocked/not
!/ipfs/QmUboz9UsQBDeS6Tug1U8jgoFkgYxyYood9NDyVURAY9pK/blocked/exceptions*
/ipns/domain.example
/ipns/domain2.example/path
/ipns/k51qzi5uqu5dhmzyv3zac033i7rl9hkgczxyl81lwoukda2htteop7d3x0y1mf
//QmX9dhRcQcKUw3Ws8485T5a9dtjrSCQaUAHnG4iK9i4ceM
//gW813G35CnLsy7gRYYHuf63hrz71U1xoLFDVeV7actx6oX
//d9d295bde21f422d471a90f2a37ec53049fdf3e5fa3ee2e8f20e10003da429e7
//c555c4de78827ba42527dd3dc5398db38d6c0a8c345a88e0158b2d100f317e50
//3f8b9febd851873b3774b937cce126910699ceac56e72e64b866f8e258d09572
/ipfs/QmdWFA9FL52hx3j9EJZPQP1ZUH8Ygi5tLCX2cRDs6knSf8/*
/ipfs/QmecDgNqCRirkc3Cjz9eoRBNwXGckJ9WvTdmY16HP88768/a%20b%2A
";

fn lists(texts: &[&str]) -> Denylists {
    Denylists::of_texts(texts, DenylistMetrics::new().unwrap())
}

/// Whether the path `/ipfs/...` or `/ipns/...` is blocked.
fn blocks(lists: &Denylists, path: &str) -> bool {
    let (namespace, rest) = path[1..].split_once('/').unwrap();
    let (root, below) = rest.split_once('/').unwrap_or((rest, ""));
    let root = match namespace {
        "ipfs" => Root::Content(parse_cid(root).unwrap()),
        _ => Root::name(root),
    };
    lists.check_path(&root, below.as_bytes(), Kind::Path, &path).is_err()
}

#[test]
fn denylist_specification_example_applies() {
    let lists = lists(&[EXAMPLE]);
    for blocked in [
        "/ipfs/bafybeihvvulpp4evxj7x7armbqcyg6uezzuig6jp3lktpbovlqfkuqeuoq",
        "/ipfs/bafkreihvvulpp4evxj7x7armbqcyg6uezzuig6jp3lktpbovlqfkuqeuoq",
        "/ipfs/QmesfgDQ3q6prBy2Kg2gKbW4MAGuWiRP2DVuGA5MZSERLo",
        "/ipfs/Qmah2YDTfrox4watLCr3YgKyBwvjq8FJZEFdWY6WtJ3Xt2/test",
        "/ipfs/Qmah2YDTfrox4watLCr3YgKyBwvjq8FJZEFdWY6WtJ3Xt2/test/one",
        "/ipfs/QmTuvSQbEDR3sarFAN9kAeXBpiBCyYYNxdxciazBba11eC/test2",
        "/ipfs/QmUboz9UsQBDeS6Tug1U8jgoFkgYxyYood9NDyVURAY9pK/blocked2",
        "/ipns/domain.example",
        "/ipns/Domain.Example.",
        "/ipns/domain-example",
        "/ipns/domain2.example/path",
        "/ipns/12D3KooWDkNqEJNmreF3NYYFK1ws7Ra2fuW6cHBTu567SPV3LdYA",
        "/ipns/bafzaajaiaejcaotjfs57kieazxny5japcmy5p2pgv2cic77tu6ogghttvurnrufx",
        "/ipfs/QmVTF1yEejXd9iMgoRTFDxBv7HAz9kuZcQNBzHrceuK9HR",
        "/ipfs/bafybeidjwik6im54nrpfg7osdvmx7zojl5oaxqel5cmsz46iuelwf5acja/",
        "/ipfs/bafyb4ieqht3b2rssdmc7sjv2cy2gfdilxkfh7623nvndziyqnawkmo266a/path",
        "/ipfs/f01701e20903cf61d46521b05f926ba1634628d0bba8a7ffb5b6d5a3ca310682ca63b5ef0/path",
        "/ipfs/bafybeiefwqslmf6zyyrxodaxx4vwqircuxpza5ri45ws3y5a62ypxti42e",
        "/ipfs/bafybeiefwqslmf6zyyrxodaxx4vwqircuxpza5ri45ws3y5a62ypxti42e/path",
        "/ipns/bad-domain-name.tld",
        "/ipfs/QmdWFA9FL52hx3j9EJZPQP1ZUH8Ygi5tLCX2cRDs6knSf8",
        "/ipfs/QmdWFA9FL52hx3j9EJZPQP1ZUH8Ygi5tLCX2cRDs6knSf8/z/",
        "/ipfs/QmecDgNqCRirkc3Cjz9eoRBNwXGckJ9WvTdmY16HP88768/a b*",
    ] {
        assert!(blocks(&lists, blocked), "{blocked} is to be blocked");
    }
    for allowed in [
        "/ipfs/bafybeihvvulpp4evxj7x7armbqcyg6uezzuig6jp3lktpbovlqfkuqeuoq/below",
        "/ipfs/Qmah2YDTfrox4watLCr3YgKyBwvjq8FJZEFdWY6WtJ3Xt2",
        "/ipfs/Qmah2YDTfrox4watLCr3YgKyBwvjq8FJZEFdWY6WtJ3Xt2/tes",
        "/ipfs/Qmah2YDTfrox4watLCr3YgKyBwvjq8FJZEFdWY6WtJ3Xt2/one/test",
        "/ipfs/QmUboz9UsQBDeS6Tug1U8jgoFkgYxyYood9NDyVURAY9pK/blockednot",
        "/ipfs/QmUboz9UsQBDeS6Tug1U8jgoFkgYxyYood9NDyVURAY9pK/blocked/not",
        "/ipfs/QmUboz9UsQBDeS6Tug1U8jgoFkgYxyYood9NDyVURAY9pK/blocked/exceptions/one",
        "/ipns/domain.example/path",
        "/ipns/domain--example",
        "/ipns/domain2.example",
        "/ipns/domain2.example/path2",
        "/ipns/12D3KooWDkNqEJNmreF3NYYFK1ws7Ra2fuW6cHBTu567SPV3LdYA/path",
        "/ipfs/bafyb4ieqht3b2rssdmc7sjv2cy2gfdilxkfh7623nvndziyqnawkmo266a/path2",
        "/ipfs/bafyb4ieqht3b2rssdmc7sjv2cy2gfdilxkfh7623nvndziyqnawkmo266a",
        // A legacy double hash applies to one codec.
        "/ipfs/bafkreiefwqslmf6zyyrxodaxx4vwqircuxpza5ri45ws3y5a62ypxti42e",
        "/ipfs/bafybeiefwqslmf6zyyrxodaxx4vwqircuxpza5ri45ws3y5a62ypxti42e/path2",
        "/ipfs/QmecDgNqCRirkc3Cjz9eoRBNwXGckJ9WvTdmY16HP88768/a bc",
        // A CID and a name with the same multihash are distinct.
        "/ipfs/k51qzi5uqu5dhmzyv3zac033i7rl9hkgczxyl81lwoukda2htteop7d3x0y1mf",
    ] {
        assert!(!blocks(&lists, allowed), "{allowed} is not to be blocked");
    }
}

#[test]
fn double_hash_of_a_name_covers_key_or_path() {
    let base58 = |text: &str| Base::Base58Btc.encode(sha2_256(text.as_bytes()).to_bytes());
    let hex = |text: &str| Base::Base16Lower.encode(sha2_256(text.as_bytes()).digest());
    let base32 = |text: &str| {
        multibase::encode(Base::Base32Lower, HashFunction::Blake3.digest(text.as_bytes()).unwrap().to_bytes())
    };
    let peer = "12D3KooWDkNqEJNmreF3NYYFK1ws7Ra2fuW6cHBTu567SPV3LdYA";
    let key = "bafzaajaiaejcaotjfs57kieazxny5japcmy5p2pgv2cic77tu6ogghttvurnrufx";
    let in_base36 = "k51qzi5uqu5dhmzyv3zac033i7rl9hkgczxyl81lwoukda2htteop7d3x0y1mf";
    for (rule, blocked, allowed) in [
        (base58("/ipns/my.example"), "/ipns/my.example".to_owned(), "/ipns/my.example/path".to_owned()),
        (base58("/ipns/my.example/path"), "/ipns/my.example/path".into(), "/ipns/my.example".into()),
        (base58(peer), format!("/ipns/{key}"), format!("/ipns/{key}/path")),
        (base32(&format!("{peer}/path")), format!("/ipns/{in_base36}/path"), format!("/ipns/{in_base36}")),
        (hex(&format!("{key}/")), format!("/ipns/{peer}"), format!("/ipns/{peer}/path")),
        (hex(&format!("{key}/path")), format!("/ipns/{in_base36}/path"), format!("/ipns/{in_base36}")),
        (hex("my.example/path").to_uppercase(), "/ipns/my.example/path".into(), "/ipns/my.example".into()),
    ] {
        let lists = lists(&[&format!("//{rule}\n")]);
        assert!(blocks(&lists, &blocked), "{rule} blocks {blocked}");
        assert!(!blocks(&lists, &allowed), "{rule} does not block {allowed}");
    }
}

/// Double hashes from other implementations, from the fixtures that the specification links to.
#[test]
fn double_hashes_of_other_implementations_match() {
    let key = "k51qzi5uqu5dixwsch9wpd9rolqby1m0uqj5hhxwtxal0dwltastfmh01d";
    for (hash, blocked, allowed) in [
        ("QmX6zeaAb8mC285YbXe4ac7LmX3jvrHBiFrw8kNnCM1bk4", "my.domain.com", "my.domain.com/path"),
        ("QmcwfDuZYijxztHVR7w71WtdDaETsrGUU3ARWbNiYD3Hhp", "my.domain2.com/path", "my.domain2.com"),
        ("QmdGtYErkPjfpUPjVMUypoX8XTE9PUTBBF6KE9AwWaBs1e", &format!("{key}abcd"), &format!("{key}1234")),
        ("QmQouNeftXbxGRt4U8s838diCuMPPHCfpHTR5w8bRREs9d", &format!("{key}1234/mypath"), &format!("{key}1234")),
        (
            "6ef262a67f2c7caa9722b0fe46aced2f1559c749eab2bcf2f2701f43f802e900",
            "bafzaajaiaejca3vrvdzmu4qntwa2pn6apsd4ug5k63ckdyhnd3g6vdvgvujdw62s",
            "bafzaajaiaejca3vrvdzmu4qntwa2pn6apsd4ug5k63ckdyhnd3g6vdvgvujdw62s/path",
        ),
        ("fb5a70b1aade810d21e8195a0da05f40ebd099e4b4d6bf088dc604e4fcf34263", "very-bad-example.eth", "bad-example.eth"),
    ] {
        let lists = lists(&[&format!("//{hash}")]);
        assert!(blocks(&lists, &format!("/ipns/{blocked}")), "{hash} blocks {blocked}");
        assert!(!blocks(&lists, &format!("/ipns/{allowed}")), "{hash} does not block {allowed}");
    }
}

const CID: &str = "bafybeihvvulpp4evxj7x7armbqcyg6uezzuig6jp3lktpbovlqfkuqeuoq";

#[test]
fn last_matching_rule_of_the_last_list_applies() {
    let double = Base::Base58Btc.encode(sha2_256(b"QmesfgDQ3q6prBy2Kg2gKbW4MAGuWiRP2DVuGA5MZSERLo").to_bytes());
    let block = |texts: &[&str]| lists(texts).check_block(&parse_cid(CID).unwrap()).is_err();
    let (deny, allow) = (format!("/ipfs/{CID}\n"), format!("!/ipfs/{CID}\n"));
    assert!(block(&[&deny]));
    assert!(block(&[CID]), "a CID alone, at the end of the file");
    assert!(block(&[&format!("{allow}{deny}")]));
    assert!(!block(&[&format!("{deny}{allow}")]));
    assert!(!block(&[&format!("{deny}+/ipfs/{CID}")]));
    assert!(!block(&[&deny, &allow]));
    assert!(block(&[&allow, &deny]));
    // The order also decides between rules of different kinds.
    assert!(block(&[&format!("//{double}\n")]));
    assert!(!block(&[&format!("//{double}\n{allow}")]));
    assert!(block(&[&format!("{allow}//{double}\n")]));
    assert!(!block(&[&format!("{deny}!//{double}\n")]));
    assert!(!block(&[&format!("/ipfs/{CID}/*\n{allow}")]));
    assert!(block(&[&format!("{allow}/ipfs/{CID}/*\n")]));
    assert!(!block(&[&format!("/ipfs/{CID}/path*\n")]), "a path is not a block");
}

#[test]
fn empty_blocks_files_and_directories_are_never_blocked() {
    for empty in ["bafkqaaa", "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn"] {
        assert!(lists(&[&format!("/ipfs/{empty}")]).check_block(&parse_cid(empty).unwrap()).is_ok());
    }
}

#[test]
fn rule_hints_override_list_hints() {
    let header = "name: Court\nhints:\n  gateway_status: 451\n  reason: everything\n---\n";
    let error = |rule: &str| lists(&[&format!("{header}{rule}\n")]).check_block(&parse_cid(CID).unwrap()).unwrap_err();
    let inherited = error(&format!("/ipfs/{CID}"));
    assert_eq!(inherited.kind(), ErrorKind::LegalReasons);
    assert!(inherited.message().ends_with("is blocked and cannot be provided (denylist Court, reason: everything)"));
    let own = error(&format!("/ipfs/{CID} gateway_status=410 reason:dmca other"));
    assert_eq!(own.kind(), ErrorKind::Gone);
    assert!(own.message().contains("reason: dmca"), "{own}");
    let part = error(&format!("/ipfs/{CID}\treason=spam"));
    assert_eq!((part.kind(), part.message().contains("reason: spam")), (ErrorKind::LegalReasons, true));
    let nameless = lists(&[CID]).check_block(&parse_cid(CID).unwrap()).unwrap_err();
    assert!(nameless.message().ends_with("(denylist 0.deny)"), "{nameless}");
}

fn read(content: &[u8]) -> ipfrs_core::Result<List> {
    List::read(Cursor::new(content), &Fingerprints::default())
}

#[test]
fn malformed_lines_are_reported_and_other_rules_apply() {
    let text = format!(
        "name: x\n---\n# comment\n\n/ipfs/{CID}\r\n/mime/text/html\nnonsense\n/ipfs/\n/ipns/\n//zz\n/ipfs/{CID}/%zz\n\
         /ipfs/{CID}/%ff\n  /ipns/indented.example\n/path/alone*\n/ipfs/{CID}*\n"
    );
    let mut content = text.into_bytes();
    content.extend(b"/ipfs/\xff\xfe\n/ipns/last.example");
    let list = read(&content).unwrap();
    assert_eq!((list.count(), list.malformed()), (4, 9));
    let lines: Vec<_> = list.problems().iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [6, 7, 8, 9, 10, 11, 14, 15, 16]);
}

#[test]
fn denylist_paths_may_be_non_utf8() {
    let list = lists(&[&format!("/ipfs/{CID}/%FF.txt\n/ipfs/{CID}/sub%fe/*")]);
    let root = Root::Content(parse_cid(CID).unwrap());
    for (path, is_blocked) in [
        (&b"\xff.txt"[..], true),
        (b"\xfe.txt", false),
        ("\u{fffd}.txt".as_bytes(), false),
        (b"sub\xfe/x\xff", true),
        (b"sub\xff/x", false),
    ] {
        let found = list.check_path(&root, path, Kind::Path, &"it").is_err();
        assert_eq!(found, is_blocked, "{}", path.escape_ascii());
    }
}

#[test]
fn invalid_denylist_file_is_an_error() {
    let long = [b"/ipns/a.example\n/ipns/".as_slice(), &vec![b'a'; 2 * 1024 * 1024]].concat();
    let error = read(&long).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("line 2"), "{error}");
    assert_eq!(read(b"version: 7\n---\n").unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(read(b"a: ]\n---\n").unwrap_err().kind(), ErrorKind::InvalidInput);
    let page = read(b"\n<html><body>502 Bad Gateway</body></html>\n").unwrap_err();
    assert_eq!(page.kind(), ErrorKind::InvalidInput);
    assert!(page.message().contains("line 2"), "{page}");
    // The longest accepted line.
    let longest = [b"/ipns/".as_slice(), &vec![b'a'; 2 * 1024 * 1024 - 7], b"\n"].concat();
    assert_eq!(read(&longest).unwrap().count(), 1);
}

#[test]
fn separator_after_one_mebibyte_is_not_a_header() {
    let filler = "# filler\n".repeat(1024 * 1024 / 9 + 1);
    let list = read(format!("/ipns/a.example\n{filler}---\n/ipns/b.example\n").as_bytes()).unwrap();
    assert_eq!((list.count(), list.malformed()), (2, 1), "the separator itself is not a rule");
    assert_eq!(read(b"---\n/ipns/a.example\n").unwrap().count(), 1);
    assert_eq!(read(b"").unwrap().count(), 0);
}

proptest! {
    #[test]
    fn denylist_read_never_panics(content in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = read(&content);
    }

    #[test]
    fn denylist_rule_parse_never_panics(line in "[!+-]?(//?|/ipfs/|/ipns/|/ipld/)?[\\PC%*/ =:]{0,64}") {
        let _ = Rule::parse(&line);
    }

    #[test]
    fn denylist_rule_blocks_exactly_its_path(
        digest in any::<[u8; 32]>(), path in "[a-zA-Z0-9 é%*?#]{1,12}(/[a-z]{1,5}){0,2}", is_double in any::<bool>(),
    ) {
        let cid = Cid::new_v1(0x55, ipfrs_core::Multihash::wrap(0x12, &digest).unwrap());
        let encoded: String = path.bytes().map(|byte| match byte {
            b'/' => "/".to_owned(),
            byte => format!("%{byte:02X}"),
        }).collect();
        let root = Root::Content(cid);
        let rule = match is_double {
            true => format!("//{}", Base::Base58Btc.encode(sha2_256(&root.modern(path.as_bytes())).to_bytes())),
            false => format!("/ipfs/{cid}/{encoded}"),
        };
        let lists = lists(&[&rule]);
        let blocks = |path: &str| lists.check_path(&root, path.as_bytes(), Kind::Path, &"it").is_err();
        prop_assert!(blocks(&path));
        prop_assert!(!blocks(&(path.clone() + "x")));
        prop_assert!(!blocks(""));
        prop_assert!(lists.check_block(&cid).is_ok());
    }
}

#[test]
fn encoded_asterisk_is_not_a_wildcard() {
    let target = |line: &str| Rule::parse(line).unwrap().unwrap().target;
    let path = |line| matches!(target(line), Target::Path { path, .. } if path == b"a*");
    assert!(path(&format!("/ipfs/{CID}/a%2a")));
    assert!(matches!(target(&format!("/ipfs/{CID}/a*")), Target::Prefix { prefix, .. } if prefix == b"a"));
}
