//! `files/*`: mutable files. The content IDs and error texts are those of Kubo 0.42 for the same commands.

use std::fs;
use std::path::Path;

use ipfrs_core::hash::HashFunction;
use ipfrs_node::{DirectorySize, Profile};
use serde_json::{Value, json};

use crate::harness::{TestGateway, hash_of, ndjson, rpc_failure};
use crate::multipart::Form;
use crate::wire::{Wire, exchange};

/// Returns bytes that repeat after 251 bytes.
pub(crate) fn pattern(len: usize, start: usize) -> Vec<u8> {
    (start..start + len).map(|at| (at % 251) as u8).collect()
}

/// Runs a command that must succeed without output.
pub(crate) async fn run(gateway: &TestGateway, command: &str) {
    assert_eq!(gateway.rpc_bytes(&format!("files/{command}")).await, "", "{command}");
}

pub(crate) async fn write(gateway: &TestGateway, arguments: &str, content: impl AsRef<[u8]>) {
    let form = Form::new().file("data", content);
    let response = gateway.post_form(&format!("files/write?arg={arguments}"), form).await;
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, ""), "{arguments}");
}

async fn stat(gateway: &TestGateway, path: &str) -> Value {
    gateway.rpc_json(&format!("files/stat?arg={path}")).await
}

async fn cid(gateway: &TestGateway, path: &str) -> String {
    hash_of(&stat(gateway, path).await)
}

pub(crate) async fn failure(gateway: &TestGateway, command: &str) -> String {
    rpc_failure(gateway.rpc(&format!("files/{command}")).send().await.unwrap()).await
}

async fn write_failure(gateway: &TestGateway, arguments: &str) -> String {
    let form = Form::new().file("data", "x");
    rpc_failure(gateway.post_form(&format!("files/write?arg={arguments}"), form).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_created_listed_and_read() {
    let gateway = TestGateway::start().await;
    assert_eq!(gateway.rpc_json("files/ls").await, json!({"Entries": null}));
    assert_eq!(cid(&gateway, "/").await, "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn");
    run(&gateway, "mkdir?arg=/a/b&parents=true").await;
    assert_eq!(cid(&gateway, "/").await, "QmZD3r9cZjzU8huNY2JS9TC6n8daDfT8TmE8zBSqG31Wvq");
    write(&gateway, "/a/b/hello&create=true", "hello world").await;
    let hello = "QmRa57sp5M1iouDtNoZscfeHi73JZFxsHpuqvNEug7zmq2";
    let expected = json!({"Hash": hello, "Size": 11, "CumulativeSize": 69, "Blocks": 1, "Type": "file"});
    assert_eq!(stat(&gateway, "/a/b/hello").await, expected);
    assert_eq!(cid(&gateway, "/").await, "QmXiTP4SRFqUV9GAPF7ZWJboSaa2KE3n6yySP7M1mNqoHZ");
    let long = json!({"Entries": [{"Name": "hello", "Type": 0, "Size": 11, "Hash": hello}]});
    assert_eq!(gateway.rpc_json("files/ls?arg=/a/b&long=true").await, long);
    assert_eq!(gateway.rpc_json("files/ls?arg=/a/b/hello&l=true").await, long);
    let short = json!({"Entries": [{"Name": "hello", "Type": 0, "Size": 0, "Hash": ""}]});
    assert_eq!(gateway.rpc_json("files/ls?arg=/a/b&U=true").await, short);
    assert_eq!(gateway.rpc_bytes("files/read?arg=/a/b/hello").await, "hello world");
    assert_eq!(gateway.rpc_bytes("files/read?arg=/a/b/hello&offset=6&count=3").await, "wor");
    assert_eq!(gateway.rpc_json("files/flush").await["Cid"], cid(&gateway, "/").await);
    assert_eq!(gateway.content(&format!("/ipfs/{}/b/hello", cid(&gateway, "/a").await)).await, "hello world");
}

#[tokio::test(flavor = "multi_thread")]
async fn written_files_have_the_content_ids_of_kubo() {
    let gateway = TestGateway::start().await;
    for (arguments, content, path, expected) in [
        ("/big&create=true", pattern(1_000_000, 0), "/big", "QmRyd9XgfxDnFzURMMbVm58CmAmrNKodevcTBV8uXVHNtH"),
        ("/big&offset=262140", b"0123456789".into(), "/big", "QmVvpy9ng2f2ncdwMYDzt9mSEe3hqqTPC1nkm4JQcEaKBt"),
        ("/big&offset=1000000", pattern(300_000, 7), "/big", "Qmf5bPCERQ2NFXEh95kajrjcL8bbR4S7fzBJBu5WE7tTeS"),
        ("/big&offset=1400000", b"end".into(), "/big", "QmVVEQ3WnnEBpJKSgGTEiYmrVZ9oT4pftPXTvN7t2G5zKv"),
        ("/big&truncate=true", b"short".into(), "/big", "QmZ9QcMDnWHZMpcjqTG7Mz8QHGskdQhkoUxzfqVAJEKrUN"),
        (
            "/raw&create=true&cid-version=1",
            pattern(300_000, 0),
            "/raw",
            "bafybeih7gz5kvvg2zafb7vue6izhy6c4tglvwpi3rgunwdag2fidn2y6eq",
        ),
        ("/raw&offset=5", b"xyz".into(), "/raw", "bafybeiaxtvbeeppspyj3b44shfm6xc6cdhls7xecckxl6bieoaqirvw2cq"),
        (
            "/one&create=true&cid-version=1",
            b"one".into(),
            "/one",
            "bafkreidwslb22nkaxoadyaqlhlxgntmiq4jdenhkbrxhcq6avxlt75br5u",
        ),
        ("/one&offset=3", b" two".into(), "/one", "bafybeiamwxo4acmj6qe2bvtnjnwzvouymzysorhymvtog2227kcwfuubv4"),
    ] {
        write(&gateway, arguments, content).await;
        assert_eq!(cid(&gateway, path).await, expected, "{arguments}");
    }
    write(&gateway, "/sha&create=true&hash=sha2-512", "one").await;
    assert!(cid(&gateway, "/sha").await.starts_with("bafkrgqaf64bucb4kz5vanvbd2ilsb6lehvpzknrg3cfaey3nyou6pfmcv2"));
    assert_eq!(gateway.rpc_bytes("files/read?arg=/one").await, "one two");
    assert_eq!(gateway.rpc_bytes("files/read?arg=/big").await, "short");
    write(&gateway, "/big&count=2&offset=1", "HORSE").await;
    assert_eq!(gateway.rpc_bytes("files/read?arg=/big").await, "sHOrt");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_moves_and_attributes_have_the_content_ids_of_kubo() {
    let gateway = TestGateway::start().await;
    write(&gateway, "/a/b/hello&create=true&parents=true", "hello world").await;
    run(&gateway, "cp?arg=/a&arg=/copy").await;
    run(&gateway, "mv?arg=/copy/b/hello&arg=/copy/moved").await;
    assert_eq!(cid(&gateway, "/copy").await, "QmT2xoyWFpqeRUchc6YsvdAvuQzpSitLdhM527Nk99PkaK");
    run(&gateway, "touch?arg=/a&mtime=1700000000&mtime-nsecs=5").await;
    assert_eq!(cid(&gateway, "/a").await, "QmWA4xsKH6FWduY8UYg55vb62vf7DBx7QWfRqcigW1SuD9");
    run(&gateway, "chmod?arg=0755&arg=/a").await;
    let expected = json!({
        "Hash": "QmeiU2ZSQa9AHCcZCMpSFtKeCNUjh2KzbUvVZBMzkz9zZW", "Size": 0, "CumulativeSize": 183, "Blocks": 1,
        "Type": "directory", "WithLocality": true, "Local": true, "SizeLocal": 183, "Mtime": 1_700_000_000,
        "MtimeNsecs": 5, "Mode": "20000000755"
    });
    assert_eq!(stat(&gateway, "/a&with-local=true").await, expected);
    run(&gateway, "chcid?arg=/copy&cid-version=1").await;
    assert_eq!(cid(&gateway, "/copy").await, "bafybeicfyjzhpeeqwn633hpqrbjvgdkxd2ilamtsidsexau3nr6b3elkza");
    let added = gateway.add("cid-version=1", "added").await;
    run(&gateway, &format!("cp?arg=/ipfs/{added}&arg=/new/place/&parents=true")).await;
    assert_eq!(cid(&gateway, &format!("/new/place/{added}")).await, added);
    run(&gateway, &format!("cp?arg=ipfs:{added}&arg=/by-uri")).await;
    assert_eq!(cid(&gateway, "/by-uri").await, added);
    run(&gateway, "rm?arg=/copy&recursive=true").await;
    assert_eq!(failure(&gateway, "stat?arg=/copy").await, "file does not exist");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_commands_fail_with_the_texts_of_kubo_and_change_nothing() {
    let gateway = TestGateway::start().await;
    run(&gateway, "mkdir?arg=/a").await;
    write(&gateway, "/big&create=true", "short").await;
    let before = cid(&gateway, "/").await;
    for (command, message) in [
        ("mkdir?arg=/a", "file already exists"),
        ("mkdir?arg=/", "cannot create directory '/': Already exists"),
        ("mkdir?arg=/x/y", "file does not exist"),
        ("mkdir?arg=a", "paths must start with a leading slash"),
        ("mkdir?arg=", "paths must not be empty"),
        ("mkdir?arg=/big/x", " was not a directory"),
        ("mkdir?arg=/big/x&parents=true", " was not a directory"),
        ("mkdir?arg=/n&cid-version=2", "unknown CID version: 2"),
        ("mkdir?arg=/n&hash=nope", "unrecognized hash function: \"nope\""),
        ("mkdir?arg=/n&hash=shake-128", "potentially insecure hash functions not allowed"),
        ("read?arg=/none", "/none: file does not exist"),
        ("read?arg=/a", "/a was not a file"),
        ("read?arg=/big&offset=9", "offset was past end of file (9 > 5)"),
        ("read?arg=/big&offset=-1", "cannot specify negative offset"),
        ("read?arg=/big&count=-1", "cannot specify negative 'count'"),
        ("read?arg=/big/x", "/big/x: cannot access big/x: Not a directory"),
        ("cp?arg=/none&arg=/y", "cp: cannot get node from path /none: file does not exist"),
        ("cp?arg=/a&arg=/big", "cp: cannot put node in path /big: directory already has entry by that name"),
        ("cp?arg=/big&arg=/none/x", "cp: cannot put node in path /none/x: file does not exist"),
        ("cp?arg=/big&arg=/big/x", "cp: cannot put node in path /big/x: /big/ is not a directory"),
        ("cp?arg=/big&arg=/a&force=true", "cp: cannot unlink existing file: not a file: /a"),
        ("mv?arg=/none&arg=/y", "file does not exist"),
        ("mv?arg=/big&arg=/none/y", "file does not exist"),
        ("mv?arg=/big&arg=/big/y", "/big/ is not a directory"),
        ("mv?arg=/a&arg=/a/b", "cannot move /a into itself"),
        ("ls?arg=/none", "file does not exist"),
        ("flush?arg=/none", "file does not exist"),
        ("chcid?arg=/big&cid-version=1", "can only update directories"),
        ("chmod?arg=x&arg=/big", "strconv.ParseInt: parsing \"x\": invalid syntax"),
        ("chmod?arg=0644&arg=/none", "file does not exist"),
        ("touch?arg=/none", "file does not exist"),
    ] {
        assert_eq!(failure(&gateway, command).await, message, "{command}");
    }
    for (arguments, message) in [
        ("/none", "file does not exist"),
        ("/a", "/a was not a file"),
        ("/big&offset=-1", "cannot have negative write offset"),
        ("/big&count=-1", "cannot have negative byte count"),
        ("/n/m&create=true", "file does not exist"),
        ("/big/m&create=true", "cannot access big/m: Not a directory"),
        ("/big/m&create=true&parents=true", "file already exists"),
    ] {
        assert_eq!(write_failure(&gateway, arguments).await, message, "{arguments}");
    }
    assert!(write_failure(&gateway, "/big&offset=9223372036854775807").await.contains("over the limit"));
    let expected = [
        "/a: path is a directory, use -r to remove directories",
        "/none: file does not exist",
        "/: cannot delete root",
        "x is not a valid path: paths must start with a leading slash",
    ];
    let text = "can't remove some files";
    let request = "POST /api/v0/files/rm?arg=/a&arg=/none&arg=/&arg=x HTTP/1.1\r\nContent-Length: 0";
    let answer = exchange(&gateway, format!("{request}\r\nTE: trailers")).await;
    assert_eq!((answer.status, answer.is_complete), (200, true));
    let lines: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[..4], expected.map(Value::from));
    assert_eq!((lines.len(), lines[4]["Message"].as_str()), (5, Some(text)));
    assert_eq!(answer.trailer("x-stream-error"), text);
    let without_trailers = failure(&gateway, "rm?arg=/a&arg=/none&arg=/&arg=x").await;
    assert_eq!(without_trailers, format!("{text}: {}", expected.join("; ")), "go-ipfs-api ignores lines");
    assert_eq!(cid(&gateway, "/").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_have_sources_of_all_kinds_of_content_paths() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("pin=false", &[("d/a", "content")]).await;
    let name = gateway.rpc_json(&format!("name/publish?arg=/ipfs/{root}&allow-offline=true")).await["Name"].clone();
    let name = name.as_str().unwrap();
    let sources = [
        format!("/ipfs/{root}/a"),
        format!("ipfs://{root}/a"),
        format!("ipfs:{root}/a"),
        format!("/ipns/{name}/a"),
        format!("ipns://{name}/a"),
        format!("IPNS:{name}/a"),
    ];
    for (number, source) in sources.iter().enumerate() {
        run(&gateway, &format!("cp?arg={source}&arg=/{number}")).await;
        assert_eq!(gateway.rpc_bytes(&format!("files/read?arg=/{number}")).await, "content", "{source}");
    }
    let missing = "bafkreigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
    let text = failure(&gateway, &format!("cp?arg=/ipfs/{missing}&arg=/m")).await;
    assert!(text.ends_with(&format!("(offline): ipld: could not find {missing}")), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_copy_of_a_symlink_leaves_the_target() {
    let gateway = TestGateway::start().await;
    let form = Form::new().symlink("link", "target");
    let lines = gateway.add_form("pin=false", form).await;
    let link = hash_of(lines.first().unwrap());
    write(&gateway, "/keep&create=true", "content").await;
    let before = cid(&gateway, "/").await;
    let text = failure(&gateway, &format!("cp?arg=/ipfs/{link}&arg=/keep&force=true")).await;
    assert_eq!(text, "cp: cannot flush the created file /keep: symlinks not yet supported");
    assert_eq!(cid(&gateway, "/").await, before);
    run(&gateway, &format!("cp?arg=/ipfs/{link}&arg=/link&flush=false")).await;
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy_directory(&path, &target);
        } else if path.is_file() {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_leaves_the_last_flushed_root() {
    let gateway = TestGateway::start().await;
    write(&gateway, "/kept/file&create=true&parents=true", pattern(300_000, 0)).await;
    let flushed = cid(&gateway, "/").await;
    write(&gateway, "/kept/file&offset=10&flush=false", "changed").await;
    run(&gateway, "mkdir?arg=/new&flush=false").await;
    let unflushed = cid(&gateway, "/").await;
    assert_ne!(unflushed, flushed);
    // A copy of the repo of a running daemon is what a crash leaves.
    let crashed = tempfile::tempdir().unwrap();
    copy_directory(gateway.repo().path(), crashed.path());
    gateway.stop().await;
    let gateway = TestGateway::start_on(crashed, |_| {}).await;
    assert_eq!(cid(&gateway, "/").await, flushed);
    assert_eq!(gateway.rpc_bytes("files/read?arg=/kept/file").await, pattern(300_000, 0));
    write(&gateway, "/kept/file&offset=10&flush=false", "changed").await;
    run(&gateway, "mkdir?arg=/new&flush=false").await;
    assert_eq!(gateway.rpc_json("files/flush").await["Cid"], unflushed);
    let gateway = TestGateway::start_on(gateway.stop().await, |_| {}).await;
    assert_eq!(cid(&gateway, "/").await, unflushed);
}

#[tokio::test(flavor = "multi_thread")]
async fn unflushed_operations_are_limited() {
    for (max_unflushed, operations) in [(3, 3), (0, 300)] {
        let gateway = TestGateway::start_with(|config| config.mutable_files.max_unflushed = max_unflushed).await;
        for n in 0..operations {
            run(&gateway, &format!("mkdir?arg=/{n}&flush=false")).await;
        }
        if max_unflushed > 0 {
            let message = failure(&gateway, "mkdir?arg=/more&flush=false").await;
            assert!(message.starts_with("reached limit of 3 unflushed MFS operations."), "{message}");
        }
    }
    let gateway = TestGateway::start().await;
    for n in 0..256 {
        run(&gateway, &format!("mkdir?arg=/{n}&flush=false")).await;
    }
    let message = failure(&gateway, "mkdir?arg=/more&flush=false").await;
    assert!(message.starts_with("reached limit of 256 unflushed MFS operations."), "{message}");
    gateway.rpc_json("files/flush").await;
    run(&gateway, "mkdir?arg=/more&flush=false").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_keeps_the_tree_and_unflushed_changes() {
    let gateway = TestGateway::start().await;
    let copied = gateway.add("pin=false", pattern(600_000, 3)).await;
    run(&gateway, &format!("cp?arg=/ipfs/{copied}&arg=/copied")).await;
    write(&gateway, "/flushed&create=true", pattern(300_000, 0)).await;
    write(&gateway, "/unflushed&create=true&flush=false", pattern(300_000, 1)).await;
    gateway.add("pin=false", pattern(300_000, 2)).await;
    let removed = ndjson(gateway.rpc("repo/gc").send().await.unwrap()).await;
    assert!(!removed.is_empty());
    for (path, len, start) in [("/copied", 600_000, 3), ("/flushed", 300_000, 0), ("/unflushed", 300_000, 1)] {
        assert_eq!(gateway.rpc_bytes(&format!("files/read?arg={path}")).await, pattern(len, start), "{path}");
    }
    for path in ["/copied", "/flushed", "/unflushed"] {
        run(&gateway, &format!("rm?arg={path}")).await;
    }
    gateway.rpc_bytes("repo/gc?silent=true").await;
    assert_eq!(gateway.blocks().await, 1, "only the empty root is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_removes_nothing_while_the_root_is_missing_and_the_root_stays() {
    let gateway = TestGateway::start().await;
    write(&gateway, "/d/file&create=true&parents=true", pattern(300_000, 0)).await;
    let root = stat(&gateway, "/").await["Hash"].as_str().unwrap().to_owned();
    let removed = ndjson(gateway.rpc(&format!("block/rm?arg={root}")).send().await.unwrap()).await;
    assert!(removed[0]["Error"].as_str().unwrap().contains("it is the root of the mutable files"), "{removed:?}");
    let repo = gateway.stop().await;
    for lost in ["packs", "index"] {
        fs::remove_dir_all(repo.path().join(lost)).unwrap();
    }
    // The flush was acknowledged, so that the tree of a new process is not an empty one.
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    gateway.add("pin=false", "content").await;
    let message = rpc_failure(gateway.rpc("files/ls").send().await.unwrap()).await;
    assert!(message.contains(&format!("cannot load the root {root}")), "{message}");
    let blocks = gateway.blocks().await;
    let message = rpc_failure(gateway.rpc("repo/gc").send().await.unwrap()).await;
    assert!(message.contains(&format!("the root {root} of the mutable files is missing")), "{message}");
    assert_eq!(gateway.blocks().await, blocks);
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_accepts_copies_whose_blocks_are_missing() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("pin=false", pattern(600_000, 3)).await;
    run(&gateway, &format!("cp?arg=/ipfs/{file}&arg=/partial")).await;
    let leaf = gateway.rpc_json(&format!("ls?arg={file}")).await["Objects"][0]["Links"][1]["Hash"].clone();
    ndjson(gateway.rpc(&format!("block/rm?arg={}", leaf.as_str().unwrap())).send().await.unwrap()).await;
    gateway.rpc_bytes("repo/gc?silent=true").await;
    let stat = stat(&gateway, "/partial&with-local=true").await;
    assert_eq!((&stat["Hash"], &stat["Local"]), (&Value::from(file), &Value::Null));
    assert!(stat["SizeLocal"].as_u64().unwrap() < 600_000, "{stat}");
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_with_a_missing_entry_fails_as_a_whole() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("pin=false", &[("d/a", "here"), ("d/b", "gone")]).await;
    let gone = gateway.rpc_json(&format!("resolve?arg=/ipfs/{root}/b")).await["Path"].as_str().unwrap()[6..].to_owned();
    gateway.rpc(&format!("block/rm?arg={gone}")).send().await.unwrap();
    run(&gateway, &format!("cp?arg=/ipfs/{root}&arg=/d")).await;
    let offline = format!("block was not found locally (offline): ipld: could not find {gone}");
    let only = gateway.add_tree("pin=false", &[("e/b", "gone")]).await;
    gateway.rpc(&format!("block/rm?arg={gone}")).send().await.unwrap();
    for command in ["files/ls?arg=/d&long=true", &format!("ls?arg={only}&stream=true"), "files/read?arg=/d/b"] {
        let response = gateway.rpc(command).send().await.unwrap();
        assert_eq!(response.status(), 500, "{command}");
        let message = rpc_failure(response).await;
        assert!(message.contains(&offline), "{command}: {message}");
    }
    assert_eq!(gateway.rpc_json("files/ls?arg=/d").await["Entries"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn add_puts_files_into_the_tree() {
    let gateway = TestGateway::start().await;
    run(&gateway, "mkdir?arg=/d").await;
    let form = || Form::new().file("a.txt", "a");
    let added = hash_of(&gateway.add_form("to-files=/d/", form()).await[0]);
    assert_eq!(cid(&gateway, "/d/a.txt").await, added);
    gateway.add_form("to-files=/d/b", form()).await;
    assert_eq!(cid(&gateway, "/d/b").await, added);
    gateway.add_form("to-files=", Form::new().file("t/x", "x").file("t/y", "y")).await;
    assert_eq!(gateway.rpc_bytes("files/read?arg=/t/y").await, "y");
    // The content IDs come before the error.
    for (path, form, files, message) in [
        ("/d/", form(), 1, "cannot put node in path \"/d/a.txt\": directory already has entry by that name"),
        ("/none/", form(), 1, "MFS destination directory \"/none/\" does not exist: file does not exist"),
        ("/t/x/", form(), 1, "MFS destination \"/t/x/\" is not a directory"),
        ("/new", form().file("b.txt", "b"), 2, "MFS destination is a file: only one entry can be copied to \"/new\""),
    ] {
        let (kind, body) = (form.content_type(), form.end());
        let head = format!(
            "POST /api/v0/add?to-files={path} HTTP/1.1\r\nTE: trailers\r\nContent-Type: {kind}\r\nHost: localhost\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut wire = Wire::connect(&gateway).await;
        wire.send([head.as_bytes(), &body].concat()).await;
        let answer = wire.answer().await;
        let lines: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((answer.status, &lines[0]["Hash"], lines.len()), (200, &json!(added), files + 1), "{lines:?}");
        let message = format!("to-files: {message}");
        assert_eq!(lines[files]["Message"], message, "{path}");
        assert_eq!(answer.trailer("x-stream-error"), message);
    }
    for (option, message) in [
        ("only-hash", "only-hash and to-files options are not compatible"),
        ("w", "wrap-with-directory and to-files options are not compatible"),
    ] {
        let response = gateway.post_form(&format!("add?to-files=/x&{option}=true"), form()).await;
        assert_eq!(rpc_failure(response).await, message);
    }
}

/// Kubo's CIDs with the same `Import.*`.
#[tokio::test(flavor = "multi_thread")]
async fn new_files_and_directories_have_the_configured_form() {
    let gateway = TestGateway::start_with(|config| {
        config.import.cid_version = Some(1);
        config.import.hash = Some(HashFunction::from_name("sha2-512").unwrap());
        config.import.chunker = Some("size-1024".parse().unwrap());
        config.import.directory_size = Some(DirectorySize::Block);
        config.import.sharding_threshold_bytes = Some(600);
        config.import.max_directory_links = Some(5);
        config.import.max_hamt_fanout = Some(64);
    })
    .await;
    let empty = "bafybgqe5nnhmihs4pga4k4xhbnfzs24sxuhxjdirpqamhpyx5zhst52pkrnfk7vjdmr7g7lopssextjnqmkc4ygusjcultofxzma3wsiifrxa";
    assert_eq!(cid(&gateway, "/").await, empty);
    for n in 0..7_u8 {
        write(&gateway, &format!("/d/{n}&create=true&parents=true"), [n; 3_000]).await;
    }
    let file = "bafybgqhzik33rl35b5gxcejgux6byw7ipnfj7qlq73tabrlsp4prs6y7a5umcjxfztw7ky43zfsan2hzg4vdwg2pyegy3dq7r3u7dsdwder3m";
    assert_eq!(cid(&gateway, "/d/0").await, file);
    let sharded = "bafybgqhmotswm25zk3de5a3wvfzmhfzldmz7lvng7snas464sui76atacuopknuxk7fl6rzrsuvb7glhuqgegrocsg3swjfgdvsg3ifqf2sn2";
    assert_eq!(cid(&gateway, "/d").await, sharded);
    for n in 0..3 {
        run(&gateway, &format!("rm?arg=/d/{n}")).await;
    }
    let unsharded = "bafybgqalrd3dso2babqs7twbfzleolm25ndm4isjlwihd4d3zatuqlnlg573nceg5omjvt45afnrvixjrd4spsv63bozdshfudxfcxu54c2ha";
    assert_eq!(cid(&gateway, "/d").await, unsharded);
    let root = "bafybgqcrnx6rxejc77zaggbjtlzaahnmk3mmjdlushdk5pnxzrcqdml74syqp3jrkqh4y5ilqlmyr6fyakvanrcsfxij73od3qkvj2mwmmubk";
    assert_eq!(cid(&gateway, "/").await, root);
    // Options of a request take precedence.
    write(&gateway, "/v0&create=true&cid-version=0&raw-leaves=false", "x").await;
    run(&gateway, "mkdir?arg=/v0-too&cid-version=0").await;
    assert!(cid(&gateway, "/v0").await.starts_with("Qm"));
    assert!(cid(&gateway, "/v0-too").await.starts_with("Qm"));
    // The hash is also that of blocks and nodes.
    let block = gateway.post_form("block/put", Form::new().file("data", "x")).await.json::<Value>().await.unwrap();
    let of_x = "bafkrgqfevpkejdcjkywyfaiv2e5b7thksj7vfngviwjjp6fuhzbnvcjdrpatmjxehxftrxnqqjeisj7msbh3iicxiq4yh2efqulz2ucvdl7ge";
    assert_eq!(block["Key"], of_x);
    let node = gateway.post_form("dag/put", Form::new().file("data", "{}")).await.json::<Value>().await.unwrap();
    let of_map = "bafyrgqdr25dz4ynvgcr5vzvmwki2j6opp65gwx7zun73vk5mnhoqwbgwgtjd7d4es3lvqui5nas6vpqrcepnrx2lmj4fzkh2w5te5dnmhmaey";
    assert_eq!(node["Cid"]["/"], of_map);
}

#[tokio::test(flavor = "multi_thread")]
async fn profile_in_the_configuration_is_that_of_mutable_files() {
    let gateway = TestGateway::start_with(|config| config.import.profile = Profile::UnixfsV1_2025).await;
    write(&gateway, "/small&create=true", "hello world").await;
    assert_eq!(cid(&gateway, "/small").await, "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e");
    write(&gateway, "/long&create=true", vec![0; 1_500_000]).await;
    assert_eq!(stat(&gateway, "/long").await["Blocks"], 2);
}
