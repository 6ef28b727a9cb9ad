//! Blocks that stay in files: `add?nocopy`, `fscache` and `filestore/*`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::content;
use crate::harness::{TestGateway, hash_of, ndjson, rpc_failure};
use crate::multipart::Form;

const CHUNK: usize = 262_144;

/// A directory with a file of 1000 bytes and one of three chunks.
fn directory() -> (TempDir, [Vec<u8>; 2]) {
    let files = tempfile::tempdir().unwrap();
    fs::create_dir(files.path().join("a b")).unwrap();
    let contents = [content::bytes(1_000).to_vec(), content::bytes(2 * CHUNK + 77).to_vec()];
    fs::write(files.path().join("a b/small"), &contents[0]).unwrap();
    fs::write(files.path().join("a b/large"), &contents[1]).unwrap();
    (files, contents)
}

async fn gateway(files: &Path) -> TestGateway {
    let root = files.to_owned();
    TestGateway::start_with(move |config| config.store.filestore_root = Some(root)).await
}

/// Returns a body with both files, as Kubo's client sends it, in its older or its newer form.
fn form(files: &Path, contents: &[Vec<u8>; 2], is_encoded: bool) -> Form {
    let mut form = Form::new().directory("a b");
    for (name, content) in ["small", "large"].iter().zip(contents) {
        let path = files.join("a b").join(name).display().to_string();
        let header = match is_encoded {
            true => {
                let escaped: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
                format!("abspath-encoded: {escaped}")
            }
            false => format!("abspath: {path}"),
        };
        let disposition = format!("Content-Disposition: form-data; name=\"file\"; filename=\"a+b%2F{name}\"");
        form = form.part(&format!("{header}\r\n{disposition}\r\nContent-Type: application/octet-stream"), content);
    }
    form
}

async fn states(gateway: &TestGateway, command: &str) -> Vec<(i64, String, u64)> {
    let lines = ndjson(gateway.rpc(command).send().await.unwrap()).await;
    let state = |line: &Value| {
        let path = line["FilePath"].as_str().unwrap().to_owned();
        (line["Status"].as_i64().unwrap(), path, line["Offset"].as_u64().unwrap())
    };
    lines.iter().map(state).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_not_copied_are_served_until_they_change() {
    let (files, contents) = directory();
    let gateway = gateway(files.path()).await;
    let plain = TestGateway::start().await;
    let root = hash_of(gateway.add_form("nocopy=true", form(files.path(), &contents, true)).await.last().unwrap());
    assert_eq!(
        root,
        hash_of(plain.add_form("raw-leaves=true", form(files.path(), &contents, true)).await.last().unwrap())
    );
    let expected = |status| -> Vec<(i64, String, u64)> {
        let large = [0, CHUNK as u64, 2 * CHUNK as u64].map(|offset| (status, "a b/large".to_owned(), offset));
        large.into_iter().chain([(0, "a b/small".to_owned(), 0)]).collect()
    };
    assert_eq!(states(&gateway, "filestore/ls?file-order=true").await, expected(0));
    assert_eq!(states(&gateway, "filestore/verify").await.len(), 4);
    // As Kubo's command line prints them.
    let small = gateway.rpc_json(&format!("dag/resolve?arg={root}/small")).await["Cid"]["/"].take();
    let small = format!("{:<50}   1000 a b/small 0\n", small.as_str().unwrap());
    let text = async |command: &str| {
        let text = gateway.rpc_bytes(&format!("{command}&file-order=true&encoding=text")).await;
        String::from_utf8(text.to_vec()).unwrap()
    };
    let listed = text("filestore/ls?").await;
    assert!(listed.ends_with(&small) && listed.lines().count() == 4, "{listed}");
    assert!(text("filestore/verify?").await.ends_with(&format!("ok      {small}")));
    let kept = text("filestore/verify?remove-bad-blocks=true").await;
    assert!(kept.ends_with(&format!("ok      {} keep\n", small.trim_end())), "{kept}");
    // The packs have two nodes only, and everything can be read.
    let packs: u64 = fs::read_dir(gateway.repo().path().join("packs"))
        .unwrap()
        .map(|pack| pack.unwrap().metadata().unwrap().len())
        .sum();
    assert!(packs < 1_000, "{packs}");
    assert_eq!(gateway.rpc_json("repo/stat").await["NumObjects"], 6);
    let large = format!("/ipfs/{root}/large");
    assert!(gateway.content(&large).await == contents[1]);
    assert!(
        gateway.content(&format!("/ipfs/{root}?format=car")).await
            == plain.content(&format!("/ipfs/{root}?format=car")).await
    );
    let range = gateway.request(reqwest::Method::GET, &large).header("Range", "bytes=262140-262150");
    assert!(range.send().await.unwrap().bytes().await.unwrap() == contents[1][262_140..=262_150]);
    // It is pinned: gc removes nothing.
    assert!(gateway.rpc_bytes("repo/gc").await.is_empty());
    assert_eq!(ndjson(gateway.rpc("pin/verify?verbose=true").send().await.unwrap()).await[0]["Ok"], true);

    // Another file, at the first byte.
    let path = files.path().join("a b/large");
    fs::write(&path, [&[!contents[1][0]], &contents[1][1..]].concat()).unwrap();
    let verified = states(&gateway, "filestore/verify?file-order=true").await;
    assert_eq!(verified[0], (12, "a b/large".to_owned(), 0));
    assert_eq!(verified[1..], expected(0)[1..]);
    let changed = text("filestore/verify?").await;
    assert!(changed.starts_with("changed bafkrei"), "{changed}");
    assert!(!gateway.rpc(&format!("cat?arg={root}/large")).send().await.unwrap().status().is_success());
    assert!(gateway.rpc_bytes(&format!("cat?arg={root}/small")).await == contents[0]);
    fs::rename(&path, files.path().join("moved")).unwrap();
    let removed = states(&gateway, "filestore/verify?remove-bad-blocks=true&file-order=true").await;
    assert_eq!(removed, expected(11));
    assert_eq!(states(&gateway, "filestore/ls").await, [(0, "a b/small".to_owned(), 0)]);
    // Added again, by the older form of the header.
    fs::write(&path, &contents[1]).unwrap();
    assert_eq!(
        hash_of(gateway.add_form("nocopy=true", form(files.path(), &contents, false)).await.last().unwrap()),
        root
    );
    let repo = gateway.stop().await;
    let filestore_root = files.path().to_owned();
    let gateway = TestGateway::start_on(repo, |config| config.store.filestore_root = Some(filestore_root)).await;
    assert!(gateway.content(&large).await == contents[1]);
    // Without a pin, gc removes references, and no files.
    gateway.rpc_json(&format!("pin/rm?arg={root}")).await;
    assert_eq!(ndjson(gateway.rpc("repo/gc").send().await.unwrap()).await.len(), 6);
    assert!(states(&gateway, "filestore/ls").await.is_empty());
    assert!(fs::read(&path).unwrap() == contents[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_copied_beside_references_unless_fscache_is_set() {
    let (files, contents) = directory();
    let gateway = gateway(files.path()).await;
    let added = gateway.add_form("nocopy=true", form(files.path(), &contents, true)).await;
    let small = hash_of(&added[0]);
    for (options, duplicates) in [("raw-leaves=true&fscache=true", 0), ("raw-leaves=true", 4)] {
        gateway.add_form(options, form(files.path(), &contents, true)).await;
        let lines = ndjson(gateway.rpc("filestore/dups").send().await.unwrap()).await;
        assert_eq!(lines.len(), duplicates, "{options}");
        assert_eq!(lines.iter().any(|line| *line == json!({ "Ref": small, "Err": "" })), duplicates > 0);
    }
    let absent = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";
    for command in ["ls", "verify"] {
        let request = format!("filestore/{command}?arg={small}&arg={absent}&arg=nonsense");
        let lines = ndjson(gateway.rpc(&request).send().await.unwrap()).await;
        assert_eq!(lines[0]["Size"], 1_000);
        let missing = format!("ipld: could not find {absent}");
        let expected = json!({ "Status": 30, "ErrorMsg": missing, "Key": { "/": absent }, "FilePath": "", "Offset": 0, "Size": 0 });
        assert_eq!(lines[1], expected);
        assert_eq!((&lines[2]["Status"], &lines[2]["Key"]), (&json!(20), &Value::Null));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_that_cannot_refer_to_files_store_nothing() {
    let (files, contents) = directory();
    let gateway = gateway(files.path()).await;
    let outside = tempfile::tempdir().unwrap();
    let elsewhere = directory().0;
    for (options, form, why) in [
        (
            "nocopy=true",
            Form::new().file("small", &contents[0]),
            "missing file path or URL, can't create filestore reference",
        ),
        (
            "nocopy=true",
            Form::new()
                .part("abspath-encoded: \r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"", b"x"),
            "missing file path or URL, can't create filestore reference",
        ),
        (
            "nocopy=true&raw-leaves=false",
            Form::new().file("small", &contents[0]),
            "nocopy option requires '--raw-leaves'",
        ),
        ("nocopy=true", form(outside.path(), &contents, true), "cannot add filestore references outside ipfs root"),
        ("nocopy=true", form(elsewhere.path(), &contents, true), "cannot add filestore references outside ipfs root"),
        (
            "nocopy=true",
            form(files.path(), &[vec![1; 1_000], vec![]], true),
            "does not contain at offset 0 what was sent",
        ),
    ] {
        let failure = rpc_failure(gateway.post_form(&format!("add?{options}"), form).await).await;
        assert!(failure.contains(why), "{options}: {failure}");
        assert!(states(&gateway, "filestore/ls").await.is_empty());
    }
    let hashed = gateway.add_form("nocopy=true&only-hash=true", form(files.path(), &contents, true)).await;
    assert_eq!(hashed.len(), 3);
    assert_eq!(gateway.blocks().await, 0);
    let without = TestGateway::start().await;
    for command in ["filestore/ls", "filestore/verify", "filestore/dups"] {
        let failure = rpc_failure(without.rpc(command).send().await.unwrap()).await;
        assert!(failure.starts_with("filestore is not enabled, see https://git.io/vNItf"), "{failure}");
    }
}
