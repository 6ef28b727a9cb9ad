//! `add` of directories, and malformed forms.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::content::{self, vectors};
use crate::harness::{TestGateway, hash_of, rpc_failure};
use crate::multipart::Form;
use crate::wire::Wire;

const EMPTY_DIRECTORY: &str = "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn";

/// Returns the form of the tree `small` in the vectors, with or without parts for its directories.
fn small(has_directories: bool, has_hidden: bool) -> Form {
    let form = if has_directories { Form::new().directory("d") } else { Form::new() };
    small_at("d/", form, has_directories, has_hidden)
}

/// Appends the entries of `small` below the path `at`.
fn small_at(at: &str, mut form: Form, has_directories: bool, has_hidden: bool) -> Form {
    let path = |name: &str| format!("{at}{name}");
    if has_directories {
        form = form.directory(path("a")).directory(path("a/b"));
    }
    // An empty directory needs its own part.
    form = form.file(path("a/b/hello.txt"), "hello\n").directory(path("empty")).symlink(path("link"), "a/b/hello.txt");
    form = form.file(path("z"), "z").file(path("ünï çödé"), "u");
    if has_hidden { form.file(path(".hidden"), "h") } else { form }
}

#[tokio::test(flavor = "multi_thread")]
async fn mode_and_time_are_kept_when_asked_and_listed() {
    let gateway = TestGateway::start().await;
    let part = |kind: &str, path: &str, attributes: &str| {
        format!(
            "Content-Disposition: form-data; name=\"file?{attributes}\"; filename=\"{path}\"\r\nContent-Type: application/{kind}"
        )
    };
    let form = || {
        Form::new()
            .part(&part("x-directory", "d", "mode=020000000755"), b"")
            .part(&part("x-directory", "d%2Fe", "mode=020000000750&mtime=0"), b"")
            .part(&part("octet-stream", "d%2Fa", "mode=0640&mtime=1700000000&mtime-nsecs=500000000"), b"hello world")
            .part(&part("symlink", "d%2Fl", "mode=01000000777&mtime=-1"), b"a")
    };
    let plain = gateway.add_form("", form()).await;
    let lines = gateway.add_form("preserve-mode=true&preserve-mtime=true", form()).await;
    assert_ne!(hash_of(&plain[0]), hash_of(&lines[0]));
    let root = hash_of(lines.last().unwrap());
    let kept: Vec<_> =
        lines.iter().map(|line| json!([line["Name"], line["Mode"], line["Mtime"], line["MtimeNsecs"]])).collect();
    assert_eq!(
        Value::from(kept),
        json!([
            ["d/a", "0640", 1_700_000_000, 500_000_000],
            ["d/l", null, -1, null],
            ["d/e", "020000000750", null, null],
            ["d", "020000000755", null, null],
        ])
    );
    // As in Kubo, the lines have the attributes that the client sent, also without the options.
    assert_eq!(plain[0]["Mode"], "0640", "{plain:?}");
    assert_eq!(gateway.content(&format!("/ipfs/{root}/a")).await, "hello world");
    let listed = gateway.rpc_json(&format!("ls?arg={root}")).await;
    let links = listed["Objects"][0]["Links"].as_array().unwrap();
    let told: Vec<_> = links.iter().map(|link| (&link["Name"], &link["Mode"], &link["ModTime"])).collect();
    assert_eq!(
        serde_json::to_value(told).unwrap(),
        json!([
            ["a", 0o640, "2023-11-14T22:13:20.5Z"],
            ["e", 0o750_u32 | 1 << 31, "1970-01-01T00:00:00Z"],
            ["l", 0, "1969-12-31T23:59:59Z"],
        ])
    );
    let listed = gateway.rpc_json(&format!("ls?arg={}", hash_of(plain.last().unwrap()))).await;
    assert_eq!(listed["Objects"][0]["Links"][0]["Mode"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_have_the_content_ids_of_kubo_for_every_flag() {
    let gateway = TestGateway::start().await;
    let vectors: Vec<_> = vectors().trees.into_iter().filter(|vector| vector.tree == "small").collect();
    assert_eq!(vectors.len(), 10, "the vectors are there");
    for vector in vectors {
        let options = content::options(&vector.profile, &vector.flags);
        let has_hidden = vector.flags.iter().any(|flag| flag == "--hidden");
        for has_directories in [true, false] {
            let lines = gateway.add_form(&options, small(has_directories, has_hidden)).await;
            assert_eq!(hash_of(lines.last().unwrap()), vector.cid, "{options}, {has_directories}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unnamed_directory_is_the_root_of_the_import() {
    let gateway = TestGateway::start().await;
    let vectors = vectors().trees.into_iter().filter(|vector| vector.tree == "small");
    for vector in vectors.filter(|vector| !vector.flags.iter().any(|flag| flag == "-w")) {
        let options = content::options(&vector.profile, &vector.flags);
        let has_hidden = vector.flags.iter().any(|flag| flag == "--hidden");
        for (root, has_directories) in [("", true), ("", false), ("/", true), (".", false)] {
            let form = small_at("", Form::new().directory(root), has_directories, has_hidden);
            let lines = gateway.add_form(&format!("{options}&stream-channels=true"), form).await;
            let last = lines.last().unwrap();
            assert_eq!((&last["Name"], hash_of(last)), (&json!(""), vector.cid.clone()), "{options} {root:?}");
            assert_eq!(lines.iter().filter(|line| line["Name"] == "").count(), 1, "{lines:?}");
            assert_eq!(lines[0]["Name"], "a/b/hello.txt");
        }
    }
    // The format of the Go client: `attachment` instead of `form-data`, and names without a leading slash.
    let part = |path: &str, kind: &str| {
        format!(
            "Content-Disposition: attachment; filename=\"{path}\"\r\nContent-Type: application/{kind}\r\nabspath-encoded: "
        )
    };
    let form = Form::new().part(&part("", "x-directory"), b"").part(&part("x", "octet-stream"), b"hello world");
    let lines = gateway.add_form("", form).await;
    let root = hash_of(lines.last().unwrap());
    assert_eq!(
        root,
        hash_of(gateway.add_form("", Form::new().directory("d").file("d/x", "hello world")).await.last().unwrap())
    );
    assert!(
        gateway.rpc_json("pin/ls?type=recursive").await["Keys"].get(hash_of(&lines[0])).is_none(),
        "the root only is pinned"
    );
    let empty = gateway.add_form("", Form::new().directory("")).await;
    assert_eq!(empty.iter().map(hash_of).collect::<Vec<_>>(), [EMPTY_DIRECTORY]);
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_without_a_name_that_is_no_root_is_refused() {
    let gateway = TestGateway::start().await;
    for (options, form, named) in [
        ("", Form::new().file("a", "1").directory("").file("b", "2"), "send it first"),
        ("", Form::new().directory("d").directory(""), "send it first"),
        ("w=1", Form::new().directory("").file("a", "1"), "wrap-with-directory"),
    ] {
        let answer = gateway.post_form(&format!("add?{options}"), form).await.text().await.unwrap_or_default();
        assert_no_root(named, &answer);
        assert!(answer.contains(named), "{answer}");
    }
    let twice = gateway.add_form("", Form::new().directory("").file("a", "1").directory("")).await;
    assert_eq!(twice.last().unwrap()["Name"], "", "the same one again");
    for command in ["block/put", "dag/put?input-codec=raw&store-codec=raw", "dag/import", "key/sign"] {
        let response = gateway.post_form(command, Form::new().directory("d").file("d/x", "x")).await;
        assert!(rpc_failure(response).await.contains("is a directory"), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_many_files_is_sharded_as_kubo_shards_it() {
    let gateway = TestGateway::start().await;
    let vectors = vectors().trees;
    let vector = vectors.iter().find(|vector| {
        vector.tree == "many-6000" && vector.profile == "unixfs-v0-2015" && vector.flags.as_slice() == ["-r"]
    });
    let names: Vec<_> = (0..6_000).map(|i| (format!("d/file-{i:08}.txt"), i.to_string())).collect();
    let form = names.iter().fold(Form::new(), |form, (name, content)| form.file(name, content));
    let lines = gateway.add_form("", form).await;
    let root = hash_of(lines.last().unwrap());
    assert_eq!(root, vector.unwrap().cid);
    assert_eq!(gateway.content(&format!("/ipfs/{root}/file-00004321.txt")).await, "4321");
    assert_eq!(gateway.get(&format!("/ipfs/{root}/file-00006000.txt")).await.status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn add_reports_files_then_directories_with_paths() {
    let gateway = TestGateway::start().await;
    let lines = gateway.add_form("wrap-with-directory=true", small(false, false)).await;
    let names: Vec<_> = lines.iter().map(|line| line["Name"].as_str().unwrap()).collect();
    let (files, directories) = names.split_at(4);
    assert_eq!(files, ["d/a/b/hello.txt", "d/link", "d/z", "d/ünï çödé"]);
    assert_eq!(directories, ["d/a/b", "d/a", "d/empty", "d", ""], "each after what it holds, the wrapping one last");
    assert!(lines.iter().all(|line| line["Size"].as_str().unwrap().parse::<u64>().is_ok()), "sizes are text");
    assert_eq!(lines[0]["Size"], "14", "of the file's DAG, not of its bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_directory_can_be_added() {
    let gateway = TestGateway::start().await;
    let lines = gateway.add_form("", Form::new().directory("e")).await;
    assert_eq!(lines, [json!({"Name": "e", "Hash": EMPTY_DIRECTORY, "Size": "4"})]);
    assert_eq!(gateway.get(&format!("/ipfs/{EMPTY_DIRECTORY}/")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrapped_file_is_found_by_name_below_the_root() {
    let gateway = TestGateway::start().await;
    let lines = gateway.add_form("wrap-with-directory=true", Form::new().file("a b.txt", "x")).await;
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["Name"], "");
    assert_eq!(gateway.content(&format!("/ipfs/{}/a%20b.txt", hash_of(&lines[1]))).await, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn add_reads_names_in_every_client_format() {
    let gateway = TestGateway::start().await;
    for (disposition, name) in [
        (r#"form-data; name="file"; filename="plain.txt""#, "plain.txt"),
        (r#"form-data; name="file"; filename="a+b%C3%BC%2Fc%25.txt""#, "a bü/c%.txt"),
        (r#"form-data; name="file"; filename="as curl sends it ü.txt""#, "as curl sends it ü.txt"),
        (r#"form-data; name="file"; filename="100%.txt""#, "100%.txt"),
        (r#"form-data; name="file-0"; filename="quoted \"name\".txt""#, "quoted \"name\".txt"),
        (r#"attachment; filename="not-form-data.txt""#, "not-form-data.txt"),
    ] {
        let headers = format!("Content-Disposition: {disposition}\r\nContent-Type: application/octet-stream");
        let lines = gateway.add_form("", Form::new().part(&headers, b"x")).await;
        assert_eq!(lines[0]["Name"], name, "{disposition}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn add_stores_symlink_targets() {
    let gateway = TestGateway::start().await;
    let lines = gateway.add_form("", Form::new().symlink("d/link", "../there")).await;
    let response = gateway.get(&format!("/ipfs/{}/link", hash_of(&lines[1]))).await;
    assert_eq!(response.headers()["content-type"], "inode/symlink");
    assert_eq!(response.text().await.unwrap(), "../there");
}

#[tokio::test(flavor = "multi_thread")]
async fn add_refuses_escaping_or_clashing_names() {
    let gateway = TestGateway::start().await;
    let deep = "d/".repeat(1_000) + "x";
    for (what, form) in [
        ("NUL", Form::new().file("d/a\0b", "x")),
        ("too deep", Form::new().file(&deep, "x")),
        ("twice", Form::new().file("d/a", "1").file("d/a", "2")),
        ("file below a file", Form::new().file("d/a", "1").file("d/a/b", "2")),
        ("file over a directory", Form::new().file("d/a/b", "1").file("d/a", "2")),
        ("directory over a file", Form::new().file("d/a", "1").directory("d/a")),
    ] {
        assert_no_root(what, &gateway.post_form("add", form).await.text().await.unwrap_or_default());
    }
    // The daemon still works.
    assert_eq!(gateway.add("", "hello world").await, "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD");
}

/// Checks that the response reports no root, and that it ends with an error unless the connection was reset.
#[track_caller]
fn assert_no_root(what: &str, answer: &str) {
    let lines: Vec<Value> = answer.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(lines.iter().all(|line| line["Name"] != "d" && line["Name"] != ""), "{what}: {answer}");
    if let Some(last) = lines.last() {
        assert_eq!(last["Type"], "error", "{what}: {answer}");
        assert!(!last["Message"].as_str().unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absolute_path_stays_inside_the_import() {
    let gateway = TestGateway::start().await;
    let lines = gateway.add_form("", Form::new().file("/etc/passwd", "x")).await;
    assert_eq!(lines[0]["Name"], "etc/passwd");
    assert_eq!(lines[1]["Name"], "etc");
}

#[tokio::test(flavor = "multi_thread")]
async fn add_of_truncated_form_fails_without_a_root() {
    let gateway = TestGateway::start().await;
    let form = || Form::new().file("d/whole", "whole").file("d/half", content::bytes(300_000));
    for missing in [0, 1, 299_999, 300_000] {
        let content_type = form().content_type();
        let request = gateway.rpc("add").header("content-type", content_type).body(form().cut(missing));
        let answer = match request.send().await {
            Ok(response) => response.bytes().await.map(|body| String::from_utf8_lossy(&body).into_owned()),
            Err(e) => Err(e),
        };
        let answer = answer.unwrap_or_default();
        assert_no_root("cut", &answer);
        assert!(!answer.contains("d/half"), "{missing}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_add_releases_its_import_permit() {
    let gateway = TestGateway::start_with(|config| config.concurrency.max_concurrent_tasks = 1).await;
    for keeps_reading in [true, false] {
        let form = Form::new().file("d/half", content::bytes(300_000));
        let (content_type, body) = (form.content_type(), form.cut(100_000));
        let mut wire = Wire::connect(&gateway).await;
        let head = format!(
            "POST /api/v0/add HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nContent-Length: 1000000\r\n\r\n"
        );
        wire.send([head.as_bytes(), &body].concat()).await;
        if keeps_reading {
            wire.finish().await;
            let answer = wire.answer().await;
            assert_ne!(answer.status, 200, "{}", answer.text());
            assert_no_root("cut", &answer.text());
        }
    }
    // The limit is one import at a time, so this would wait forever if one of the others still ran.
    let lines = gateway.add_form("", Form::new().file("d/half", content::bytes(300_000))).await;
    assert_eq!(lines.len(), 2);
    let found = gateway.content(&format!("/ipfs/{}/half", hash_of(&lines[1]))).await;
    assert_eq!(found, content::bytes(300_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_without_a_boundary_or_with_a_wrong_one_is_an_error() {
    let gateway = TestGateway::start().await;
    for content_type in ["multipart/form-data", "multipart/form-data; boundary=another"] {
        let body = Form::new().file("a", "a").end();
        let request = gateway.rpc("add").header("content-type", content_type).body(body);
        assert!(!rpc_failure(request.send().await.unwrap()).await.is_empty(), "{content_type}");
    }
    assert_eq!(gateway.blocks().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn add_refuses_form_whose_parts_never_begin() {
    let gateway = TestGateway::start().await;
    for form in ["x".repeat(3 << 20), format!("--b\r\nContent-Disposition: {}", "x".repeat(3 << 20))] {
        let request = gateway.rpc("add").header("content-type", "multipart/form-data; boundary=b").body(form);
        let refused = rpc_failure(request.send().await.unwrap()).await;
        assert!(refused.contains("boundary"), "{refused}");
    }
    assert_eq!(gateway.blocks().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_line_is_the_last_root_of_the_import() {
    let gateway = TestGateway::start().await;
    let tree = |names: &[&str]| names.iter().fold(Form::new(), |form, name| form.file(name, name));
    for (names, last) in [
        (&["d/x", "z"][..], "z"),
        (&["b/x", "a/y"], "a"),
        (&["a/x", "b/y", "c", "a2"], "a2"),
        (&["z", "d/x"], "d"),
        (&["a", "b"], "b"),
    ] {
        let lines = gateway.add_form("", tree(names)).await;
        assert_eq!(lines.last().unwrap()["Name"], last, "{names:?}");
        let roots: HashSet<_> = names.iter().map(|name| name.split('/').next().unwrap()).collect();
        assert_eq!(lines.len(), names.len() + names.iter().filter(|name| name.contains('/')).count());
        let pins = gateway.rpc_json("pin/ls?type=recursive").await;
        for line in lines.iter().filter(|line| roots.contains(line["Name"].as_str().unwrap())) {
            assert!(pins["Keys"].get(hash_of(line)).is_some(), "{names:?}: {line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn form_without_parts_is_an_error_unless_wrapped() {
    let gateway = TestGateway::start().await;
    let text = rpc_failure(gateway.post_form("add", Form::new()).await).await;
    assert!(text.contains("expected a file argument"), "{text}");
    let lines = gateway.add_form("wrap-with-directory=true", Form::new()).await;
    assert_eq!(lines.iter().map(hash_of).collect::<Vec<_>>(), [EMPTY_DIRECTORY]);
}
