//! `get`: TAR archives and gzip, parsed by hand.

use std::io::Read;

use bytes::Bytes;
use ipfrs_core::{Cid, codec, hash, parse_cid};
use reqwest::Response;

use crate::content::{self, assert_same};
use crate::harness::{TestGateway, hash_of, header, rpc_failure};
use crate::multipart::Form;
use crate::wire::exchange;

const CHUNK: usize = 262_144;

/// An entry of an archive, including the records of its extended header. Bytes that are not UTF-8 are escaped.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Entry {
    path: String,
    kind: char,
    mode: u64,
    pub(crate) mtime: String,
    target: String,
    pub(crate) content: Bytes,
}

/// Parses a TAR archive (POSIX.1-2017, pax), and checks every header's checksum and the end of the archive.
pub(crate) fn untar(archive: &Bytes) -> Vec<Entry> {
    let (mut entries, mut records, mut at) = (Vec::new(), Vec::new(), 0);
    loop {
        let block = archive.slice(at..at + 512);
        if block.iter().all(|byte| *byte == 0) {
            assert_eq!(archive.len(), at + 1024, "two blocks of zeros at the end");
            assert!(archive[at..].iter().all(|byte| *byte == 0));
            return entries;
        }
        let text = |from: usize, len: usize| {
            let field = &block[from..from + len];
            let field = field.split(|byte| *byte == 0).next().unwrap();
            std::str::from_utf8(field).map_or_else(|_| field.escape_ascii().to_string(), str::to_owned)
        };
        let octal = |from: usize, len: usize| u64::from_str_radix(text(from, len).trim(), 8).unwrap();
        let sum: u64 =
            block.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u64::from(*b) }).sum();
        assert_eq!((octal(148, 8), text(257, 6).as_str()), (sum, "ustar"));
        let size = octal(124, 12) as usize;
        let content = archive.slice(at + 512..at + 512 + size);
        at += 512 + size.div_ceil(512) * 512;
        let kind = char::from(block[156]);
        if kind == 'x' {
            records = records_of(&content);
            continue;
        }
        let record =
            |key: &str| records.iter().find(|(known, _)| known == key).map(|(_, value): &(_, String)| value.clone());
        entries.push(Entry {
            path: record("path").unwrap_or_else(|| text(0, 100)),
            kind,
            mode: octal(100, 8),
            mtime: record("mtime").unwrap_or_else(|| octal(136, 12).to_string()),
            target: record("linkpath").unwrap_or_else(|| text(157, 100)),
            content,
        });
        records.clear();
    }
}

fn records_of(mut rest: &[u8]) -> Vec<(String, String)> {
    let mut records = Vec::new();
    while !rest.is_empty() {
        let digits = rest.iter().position(|byte| *byte == b' ').unwrap();
        let len: usize = std::str::from_utf8(&rest[..digits]).unwrap().parse().unwrap();
        let record = std::str::from_utf8(&rest[digits + 1..len]).unwrap().strip_suffix('\n').unwrap();
        let (key, value) = record.split_once('=').unwrap();
        records.push((key.to_owned(), value.to_owned()));
        rest = &rest[len..];
    }
    records
}

pub(crate) fn paths(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.path.as_str()).collect()
}

async fn get(gateway: &TestGateway, query: &str) -> Response {
    let response = gateway.rpc(&format!("get?arg={query}")).send().await.unwrap();
    assert_eq!(response.status(), 200, "{query}");
    assert_eq!(header(&response, "x-stream-output"), "1");
    assert_eq!(header(&response, "trailer"), "X-Stream-Error");
    response
}

async fn archive(gateway: &TestGateway, path: &str) -> Vec<Entry> {
    untar(&get(gateway, path).await.bytes().await.unwrap())
}

/// Puts a hand-written dag-pb directory with names that no importer creates.
pub(crate) async fn directory(gateway: &TestGateway, entries: &[(&str, &str)]) -> String {
    let mut block = Vec::new();
    for (name, cid) in entries {
        let cid = parse_cid(cid).unwrap().to_bytes();
        let link =
            [&[0x0a, cid.len() as u8][..], &cid, &[0x12, name.len() as u8], name.as_bytes(), &[0x18, 0]].concat();
        block.extend([&[0x12, link.len() as u8][..], &link].concat());
    }
    block.extend([0x0a, 2, 8, 1]);
    gateway.put_block("cid-codec=dag-pb", block).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_archived_under_the_last_name_of_its_path() {
    let gateway = TestGateway::start().await;
    let large = content::bytes(5 * CHUNK + 1);
    let long = format!("{}.txt", "long-".repeat(30));
    let form = Form::new()
        .file("d/a", &large)
        .file("d/empty", "")
        .file("d/block", &large[..512])
        .file("d/sub/ü", "umlaut")
        .file(format!("d/sub/{long}"), "long")
        .directory("d/none")
        .symlink("d/link", "../elsewhere");
    let root = hash_of(gateway.add_form("", form).await.last().unwrap());
    let response = get(&gateway, &root).await;
    assert_eq!(header(&response, "content-type"), "application/x-tar");
    assert_eq!(header(&response, "x-content-length"), "", "nobody knows before the end");
    let bytes = response.bytes().await.unwrap();
    let entries = untar(&bytes);
    let below = |names: &[&str]| names.iter().map(|name| format!("{root}/{name}")).collect::<Vec<_>>();
    let long = format!("sub/{long}");
    // Directories have no trailing slash, because the `ipfs` command refuses a root with one.
    let expected = below(&["a", "block", "empty", "link", "none", "sub", &long, "sub/ü"]);
    assert_eq!(paths(&entries), [&[root.clone()][..], &expected].concat());
    assert_eq!(entries.iter().map(|entry| entry.kind).collect::<String>(), "500025500");
    assert_same(&entries[1].content, &large, "the file");
    assert_eq!(entries[4].target, "../elsewhere");
    assert_eq!((entries[7].content.as_ref(), entries[8].content.as_ref()), (&b"long"[..], &b"umlaut"[..]));
    assert_eq!(
        entries.iter().map(|entry| entry.mode).collect::<Vec<_>>(),
        [0o755, 0o644, 0o644, 0o644, 0o777, 0o755, 0o755, 0o644, 0o644]
    );
    assert_same(&get(&gateway, &format!("{root}&archive=true")).await.bytes().await.unwrap(), &bytes, "the same bytes");
    assert_eq!(paths(&archive(&gateway, &format!("/ipfs/{root}/sub")).await), ["sub", &long, "sub/ü"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_file_or_symlink_has_a_known_length() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(CHUNK + 100);
    let form = Form::new().file("d/file", &content).symlink("d/link", "file");
    let root = hash_of(gateway.add_form("", form).await.last().unwrap());
    for (name, kind, size) in [("file", '0', CHUNK + 100), ("link", '2', 0)] {
        let response = get(&gateway, &format!("{root}/{name}")).await;
        let length = 512 + size.div_ceil(512) * 512 + 1024;
        assert_eq!(header(&response, "x-content-length"), length.to_string());
        assert_eq!(header(&response, "content-length"), length.to_string());
        let entries = untar(&response.bytes().await.unwrap());
        assert_eq!((paths(&entries), entries[0].kind), (vec![name], kind));
        assert_same(&entries[0].content, &content[..size], name);
    }
    let cid = gateway.rpc_json(&format!("dag/resolve?arg={root}/file")).await;
    let cid = cid["Cid"]["/"].as_str().unwrap();
    assert_eq!(paths(&archive(&gateway, cid).await), [cid], "a CID is its own name");
}

#[tokio::test(flavor = "multi_thread")]
async fn sharded_directories_and_mode_and_time_are_archived() {
    let gateway = TestGateway::start().await;
    let form = (0..500).fold(Form::new(), |form, name| form.file(format!("d/{name}"), name.to_string()));
    let options = "max-directory-links=100&cid-version=1&mode=0750&mtime=1700000000&mtime-nsecs=5";
    let root = hash_of(gateway.add_form(options, form).await.last().unwrap());
    let mut entries = archive(&gateway, &root).await;
    assert!(entries.iter().all(|entry| entry.mode == 0o750 && entry.mtime == "1700000000.000000005"));
    entries.remove(0);
    entries.sort_by_key(|entry| entry.path[root.len() + 1..].parse::<u32>().unwrap());
    assert_eq!(entries.len(), 500);
    for (at, entry) in entries.iter().enumerate() {
        assert_eq!((entry.path.clone(), entry.content.as_ref()), (format!("{root}/{at}"), at.to_string().as_bytes()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn get_refuses_names_that_escape_the_archive() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("cid-version=1", "x").await;
    for name in ["..", ".", "", "/etc/passwd", "a/../../x", "../x", "nul\0"] {
        let root = directory(&gateway, &[("fine", &file), (name, &file)]).await;
        for path in [root.clone(), format!("{}/d", directory(&gateway, &[("d", &root)]).await)] {
            let message = rpc_failure(gateway.rpc(&format!("get?arg={path}")).send().await.unwrap()).await;
            assert!(message.contains("cannot be archived"), "{name:?}: {message}");
        }
    }
    // A name that is a path is resolved if the result is within the root, unless a symlink may be on that path.
    let inner = directory(&gateway, &[("../b", &file), ("c/d", &file)]).await;
    let root = directory(&gateway, &[("a", &inner)]).await;
    let expected = ["", "/a", "/b", "/a/c/d"].map(|path| format!("{root}{path}"));
    assert_eq!(paths(&archive(&gateway, &root).await), expected);
    let link = gateway.put_block("cid-codec=dag-pb", b"\x0a\x08\x08\x04\x12\x04/etc".to_vec()).await;
    for entries in [[("c", &link), ("d", &inner)], [("d", &inner), ("e", &link)]] {
        let root = directory(&gateway, &entries.map(|(name, cid): (_, &String)| (name, cid.as_str()))).await;
        let message = rpc_failure(gateway.rpc(&format!("get?arg={root}")).send().await.unwrap()).await;
        assert!(message.contains("cannot be archived"), "{message}");
    }
    // A symlink and a directory with the same name: the files in the directory would be unpacked at the target of the
    // symlink.
    let inner = directory(&gateway, &[("passwd", &file)]).await;
    let root = directory(&gateway, &[("a", &link), ("a", &inner)]).await;
    let message = rpc_failure(gateway.rpc(&format!("get?arg={root}")).send().await.unwrap()).await;
    assert!(message.contains("a symlink and another entry"), "{message}");
    assert_eq!(paths(&archive(&gateway, &directory(&gateway, &[("a", &link), ("b", &inner)]).await).await).len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn get_fails_before_the_head_or_aborts() {
    let gateway = TestGateway::start_with(|config| config.streaming.max_dag_depth = 128).await;
    let absent = Cid::new_v1(codec::RAW, hash::sha2_256(b"absent")).to_string();
    let cbor = gateway.put_block("cid-codec=dag-cbor", b"\xa0".to_vec()).await;
    let absent_message = format!("block {absent} of ");
    let root = directory(&gateway, &[("absent", &absent)]).await;
    for (query, named) in [
        (absent.clone(), absent.as_str()),
        (cbor.clone(), "dag-cbor"),
        (format!("{root}/absent"), &absent),
        (format!("{root}/nothing"), "nothing"),
        (format!("{root}&compress=true&compression-level=10"), "compression-level=10"),
    ] {
        let message = rpc_failure(gateway.rpc(&format!("get?arg={query}")).send().await.unwrap()).await;
        assert!(message.contains(named), "{query}: {message}");
    }
    let large = gateway.add("cid-version=1", content::bytes(2 * CHUNK)).await;
    for (entry, named) in [(absent, absent_message.as_str()), (cbor, "dag-cbor")] {
        // An error at the start fails with a status; a later error aborts the archive.
        let root = directory(&gateway, &[("x", &entry)]).await;
        let message = rpc_failure(gateway.rpc(&format!("get?arg={root}")).send().await.unwrap()).await;
        assert!(message.contains(named), "{message}");
        let root = directory(&gateway, &[("large", &large), ("x", &entry)]).await;
        let request = format!("POST /api/v0/get?arg={root} HTTP/1.1\r\nContent-Length: 0");
        let answer = exchange(&gateway, &request).await;
        assert!(answer.status == 200 && !answer.is_complete, "{named}: {}", answer.status);
        let answer = exchange(&gateway, format!("{request}\r\nTE: trailers")).await;
        assert!(answer.trailer("x-stream-error").contains(named), "{:?}", answer.trailers);
    }
    let mut deep = directory(&gateway, &[]).await;
    for _ in 0..129 {
        deep = directory(&gateway, &[("d", &deep)]).await;
    }
    let request = format!("POST /api/v0/get?arg={deep} HTTP/1.1\r\nContent-Length: 0\r\nTE: trailers");
    let answer = exchange(&gateway, request).await;
    assert!(answer.trailer("x-stream-error").contains("limit of 128"), "{:?}", answer.trailers);
}

#[tokio::test(flavor = "multi_thread")]
async fn get_with_compress_returns_gzip() {
    let gateway = TestGateway::start().await;
    let file: Vec<u8> = content::bytes(600_000).iter().map(|byte| byte & 0x0f).collect();
    let root = hash_of(gateway.add_form("", Form::new().file("d/file", &file)).await.last().unwrap());
    let gunzip = |bytes: &[u8]| {
        let mut content = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut content).unwrap();
        Bytes::from(content)
    };
    let mut sizes = Vec::new();
    for level in ["1", "9"] {
        let query = format!("{root}/file&compress=true&compression-level={level}");
        let response = get(&gateway, &query).await;
        assert_eq!(header(&response, "content-type"), "application/gzip");
        assert_eq!(header(&response, "x-content-length"), "");
        let bytes = response.bytes().await.unwrap();
        assert_same(&gunzip(&bytes), &file, &query);
        sizes.push(bytes.len());
    }
    let plain = get(&gateway, &format!("{root}/file&compression-level=-1")).await;
    assert_eq!(header(&plain, "content-type"), "application/x-tar", "a level without compress says nothing");
    assert!(sizes[1] < sizes[0] && sizes[0] < file.len(), "{sizes:?}");
    let empty = gateway.add("", "").await;
    assert!(gunzip(&get(&gateway, &format!("{empty}&compress=true")).await.bytes().await.unwrap()).is_empty());
    let link = hash_of(gateway.add_form("", Form::new().symlink("link", "target")).await.last().unwrap());
    let compressed = get(&gateway, &format!("{link}&compress=true")).await.bytes().await.unwrap();
    assert_eq!(gunzip(&compressed), "target", "as in Kubo");
    let directory = gateway.rpc(&format!("get?arg={root}&compress=true")).send().await.unwrap();
    assert_eq!(rpc_failure(directory).await, "file is not regular");
    for query in ["/file&compress=true&archive=true", "&compress=true&archive=true"].map(|it| format!("{root}{it}")) {
        let entries = untar(&gunzip(&get(&gateway, &query).await.bytes().await.unwrap()));
        assert_same(&entries.last().unwrap().content, &file, &query);
    }
}
