//! Comparison with content IDs that Kubo produced for the same data and flags.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_unixfs::{Attributes, Entry, ImportOptions, Importer, Layout, LinkName, Mtime, Overrides, Profile, decode};
use serde::Deserialize;

use crate::harness::{Memory, import, import_file, import_file_with, keystream};

#[derive(Deserialize)]
struct Vectors {
    files: Vec<FileVector>,
    trees: Vec<TreeVector>,
}

#[derive(Deserialize)]
struct FileVector {
    size: usize,
    seed: String,
    profile: Profile,
    flags: Vec<String>,
    cid: String,
}

#[derive(Deserialize)]
struct TreeVector {
    tree: String,
    profile: Profile,
    flags: Vec<String>,
    cid: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../vectors/kubo-add.json")).unwrap()
}

/// Returns the options and attributes for Kubo's flags. `-r`, `-w` and `--hidden` select the content and have no
/// effect here.
fn options(profile: Profile, flags: &[String]) -> (ImportOptions, Attributes) {
    let (mut overrides, mut attributes) = (Overrides::default(), Attributes::default());
    for flag in flags {
        match flag.split_once('=').unwrap_or((flag, "true")) {
            ("--cid-version", version) => overrides.cid_version = Some(version.parse().unwrap()),
            ("--raw-leaves", raw) => overrides.raw_leaves = Some(raw.parse().unwrap()),
            ("--chunker", chunker) => overrides.chunker = Some(chunker.parse().unwrap()),
            ("--hash", name) => overrides.hash = Some(HashFunction::from_name(name).unwrap()),
            ("--trickle", _) => overrides.layout = Some(Layout::Trickle),
            ("--inline", _) => overrides.inline_limit = overrides.inline_limit.or(Some(32)),
            ("--inline-limit", limit) => overrides.inline_limit = Some(limit.parse().unwrap()),
            ("--max-file-links", links) => overrides.max_file_links = Some(links.parse().unwrap()),
            ("--mode", octal) => attributes.mode = Some(u32::from_str_radix(octal, 8).unwrap()),
            ("--mtime", seconds) => attributes.mtime = Some(Mtime { seconds: seconds.parse().unwrap(), nanos: 0 }),
            ("--mtime-nsecs", nanos) => attributes.mtime.as_mut().unwrap().nanos = nanos.parse().unwrap(),
            ("-r" | "-w" | "--hidden", _) => {}
            _ => panic!("vector with a flag that this test does not know: {flag}"),
        }
    }
    overrides.attributes = attributes.is_some();
    (ImportOptions::new(Some(profile), overrides).unwrap(), attributes)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_have_the_ids_that_kubo_gives() {
    let mut by_content: BTreeMap<_, Vec<FileVector>> = BTreeMap::new();
    for vector in vectors().files {
        by_content.entry((vector.size, vector.seed.clone())).or_default().push(vector);
    }
    assert_eq!(by_content.len(), 26, "the vectors are there");
    for ((size, seed), vectors) in by_content {
        let content = keystream(&seed, size);
        for vector in vectors {
            let (options, attributes) = options(vector.profile, &vector.flags);
            let (store, entry) = import_file_with(options, attributes, &content, 300_000).await;
            assert_eq!(entry.cid.to_string(), vector.cid, "{size} bytes, {} {:?}", vector.profile, vector.flags);
            assert_eq!(entry.size, size as u64);
            let root = decode(&entry.cid, &store.get(&entry.cid).unwrap()).unwrap();
            assert_eq!(root.attributes(), attributes);
        }
    }
}

/// The files of the `many-N` trees, which many vectors share.
struct NumberedFiles {
    options: ImportOptions,
    entries: Vec<(LinkName, Entry)>,
}

impl NumberedFiles {
    async fn grow(&mut self, importer: &mut Importer, count: usize) -> Vec<(LinkName, Entry)> {
        for i in self.entries.len()..count {
            let content = Bytes::from(i.to_string());
            self.entries.push((format!("file-{i:08}.txt").into(), import(importer, &content, usize::MAX).await));
        }
        self.entries[..count].to_vec()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_have_the_ids_that_kubo_gives() {
    let mut numbered: Vec<NumberedFiles> = Vec::new();
    let vectors = vectors().trees;
    assert_eq!(vectors.len(), 100, "the vectors are there");
    for vector in vectors {
        let (options, _) = options(vector.profile, &vector.flags);
        let mut importer = Importer::new(options.clone(), Arc::new(Memory::default()));
        let mut root = match vector.tree.as_str() {
            "empty" => importer.directory(Vec::new(), Attributes::default()).await.unwrap(),
            "small" => small_tree(&mut importer, vector.flags.iter().any(|flag| flag == "--hidden")).await,
            many => {
                let count = many.strip_prefix("many-").unwrap().parse().unwrap();
                let known = numbered.iter().position(|known| known.options == options).unwrap_or_else(|| {
                    numbered.push(NumberedFiles { options, entries: Vec::new() });
                    numbered.len() - 1
                });
                let files = numbered[known].grow(&mut importer, count).await;
                importer.directory(files, Attributes::default()).await.unwrap()
            }
        };
        if vector.flags.iter().any(|flag| flag == "-w") {
            root = importer.directory(vec![("d".into(), root)], Attributes::default()).await.unwrap();
        }
        assert_eq!(root.cid.to_string(), vector.cid, "{} {} {:?}", vector.tree, vector.profile, vector.flags);
    }
}

async fn small_tree(importer: &mut Importer, hidden: bool) -> Entry {
    let hello = import(importer, &Bytes::from_static(b"hello\n"), 2).await;
    let b = importer.directory(vec![("hello.txt".into(), hello)], Attributes::default()).await.unwrap();
    let a = importer.directory(vec![("b".into(), b)], Attributes::default()).await.unwrap();
    let mut entries = vec![
        ("z".into(), import(importer, &Bytes::from_static(b"z"), 1).await),
        ("link".into(), importer.symlink("a/b/hello.txt", Attributes::default()).await.unwrap()),
        ("ünï çödé".into(), import(importer, &Bytes::from_static(b"u"), 1).await),
        ("empty".into(), importer.directory(Vec::new(), Attributes::default()).await.unwrap()),
        ("a".into(), a),
    ];
    if hidden {
        entries.push((".hidden".into(), import(importer, &Bytes::from_static(b"h"), 1).await));
    }
    importer.directory(entries, Attributes::default()).await.unwrap()
}

/// Vectors from Kubo's test/cli/cid_profiles_test.go.
#[tokio::test(flavor = "multi_thread")]
async fn files_have_the_published_ids_of_their_profile() {
    let hello = Bytes::from_static(b"hello world");
    let (v0, v1) = (Profile::UnixfsV0_2015, Profile::UnixfsV1_2025);
    for (profile, content, cid) in [
        (v0, hello.clone(), "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD"),
        (v0, keystream("chunk-v0-seed", 262_144), "QmWmRj3dFDZdb6ABvbmKhEL6TmPbAfBZ1t5BxsEyJrcZhE"),
        (v0, keystream("chunk-v0-seed", 262_145), "QmYyLxtzZyW22zpoVAtKANLRHpDjZtNeDjQdJrcQNWoRkJ"),
        (v1, hello, "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        (v1, keystream("chunk-v1-seed", 1_048_576), "bafkreiacndfy443ter6qr2tmbbdhadvxxheowwf75s6zehscklu6ezxmta"),
        (v1, keystream("chunk-v1-seed", 1_048_577), "bafybeigmix7t42i6jacydtquhet7srwvgpizfg7gjbq7627d35mjomtu64"),
    ] {
        let options = ImportOptions::new(Some(profile), Overrides::default()).unwrap();
        let (_, entry) = import_file(options, &content, 8192).await;
        assert_eq!(entry.cid.to_string(), cid, "{profile}, {} bytes", content.len());
    }
}

/// Vectors from Kubo's test/cli/cid_profiles_test.go: the largest unsharded directory and the next larger one.
#[tokio::test(flavor = "multi_thread")]
async fn directory_sharding_threshold_equals_kubo() {
    struct Case {
        profile: Profile,
        files: usize,
        name_len: usize,
        last_name_len: usize,
        cid: &'static str,
    }
    let (v0, v1) = (Profile::UnixfsV0_2015, Profile::UnixfsV1_2025);
    for case in [
        Case {
            profile: v0,
            files: 4096,
            name_len: 30,
            last_name_len: 30,
            cid: "QmX5GtRk3TSSEHtdrykgqm4eqMEn3n2XhfkFAis5fjyZmN",
        },
        Case {
            profile: v0,
            files: 4033,
            name_len: 31,
            last_name_len: 31,
            cid: "QmeMiJzmhpJAUgynAcxTQYek5PPKgdv3qEvFsdV3XpVnvP",
        },
        Case {
            profile: v1,
            files: 4766,
            name_len: 11,
            last_name_len: 21,
            cid: "bafybeic3h7rwruealwxkacabdy45jivq2crwz6bufb5ljwupn36gicplx4",
        },
        Case {
            profile: v1,
            files: 4766,
            name_len: 11,
            last_name_len: 22,
            cid: "bafybeiegvuterwurhdtkikfhbxcldohmxp566vpjdofhzmnhv6o4freidu",
        },
    ] {
        let options = ImportOptions::new(Some(case.profile), Overrides::default()).unwrap();
        let mut importer = Importer::new(options, Arc::new(Memory::default()));
        let file = import(&mut importer, &Bytes::from_static(b"x"), 1).await;
        let mut letters = keystream(&format!("hamt-{}", case.profile), 1 << 20).into_iter().map(letter);
        // A map, because writing a file twice leaves one file.
        let mut entries = HashMap::new();
        for i in 1..=case.files {
            let len = if i == case.files { case.last_name_len } else { case.name_len };
            let name = LinkName::from(letters.by_ref().take(len).collect::<String>());
            entries.insert(name, file.clone());
        }
        let root = importer.directory(entries.into_iter().collect(), Attributes::default()).await.unwrap();
        assert_eq!(root.cid.to_string(), case.cid, "{}, {} files", case.profile, case.files);
    }
}

fn letter(byte: u8) -> char {
    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz01234567890-_";
    char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])
}

/// Without a profile, Kubo derives the kind of leaves from the CID version unless another flag decides it.
#[tokio::test]
async fn cid_version_1_implies_raw_leaves_unless_overridden() {
    let hello = Bytes::from_static(b"hello world");
    let v1 = Overrides { cid_version: Some(1), ..Overrides::default() };
    let raw = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";
    let dag_pb = "bafybeihykld7uyxzogax6vgyvag42y7464eywpf55gxi5qpoisibh3c5wa";
    for (profile, overrides, cid) in [
        (None, v1, raw),
        (None, Overrides { raw_leaves: Some(false), ..v1 }, dag_pb),
        (Some(Profile::UnixfsV0_2015), v1, dag_pb),
        (None, Overrides { raw_leaves: Some(true), ..Overrides::default() }, raw),
        (None, Overrides::default(), "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD"),
    ] {
        let options = ImportOptions::new(profile, overrides).unwrap();
        let (_, entry) = import_file(options, &hello, 4).await;
        assert_eq!(entry.cid.to_string(), cid, "{profile:?} {overrides:?}");
    }
}
