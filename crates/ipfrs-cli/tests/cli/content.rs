//! Adding and fetching, with a daemon and without one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::harness::{Place, content_of, noise};

/// Content ID of `hello\n` added by `ipfs add`.
const HELLO: &str = "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN";

fn round_trip(place: &Place, target: &str) -> String {
    let tree = place.path("tree");
    let added = place.ok(&["add", "-r", "tree"]);
    let root = added.lines().last().unwrap().split(' ').nth(1).unwrap().to_owned();
    assert!(added.lines().any(|line| line.ends_with(" tree/names/per%20cent")), "{added}");
    assert_eq!(place.ok(&["get", &root, "-o", target]), format!("saved {target}"));
    assert_eq!(content_of(&place.path(target)), content_of(&tree));
    root
}

#[test]
fn tree_round_trips_with_and_without_daemon() {
    let place = Place::new();
    place.tree("tree");
    let without = round_trip(&place, "without");
    let daemon = place.start(&[]);
    let with = round_trip(&place, "with");
    assert_eq!(with, without);
    // With a repo that does not exist, and the URL of a daemon.
    let elsewhere = place.path("elsewhere");
    let by_url = place.ok(&["ls", &with, "--api", daemon.url(), "--repo", elsewhere.to_str().unwrap()]);
    assert_eq!(by_url, place.ok(&["ls", &with]));
    assert!(!elsewhere.exists());
}

#[test]
fn get_ipns_path_saves_under_name() {
    let place = Place::new();
    place.tree("tree");
    let added = place.ok(&["add", "-rQ", "tree"]);
    let name = format!("/ipns/{}", place.ok(&["name", "publish", "-Q", &added]));
    assert_eq!(place.ok(&["get", &name]), format!("saved {}", &name[6..]));
    assert_eq!(content_of(&place.path(&name[6..])), content_of(&place.path("tree")));
    place.ok(&["get", &name, "-o", "again"]);
    assert_eq!(place.ok(&["ls", &name]), place.ok(&["ls", &added]));
}

#[test]
fn add_content_ids_and_output_match_kubo() {
    let place = Place::new();
    place.write("hello", b"hello\n");
    assert_eq!(place.ok(&["add", "hello"]), format!("added {HELLO} hello"));
    assert_eq!(place.ok(&["add", "-q", "hello"]), HELLO);
    assert_eq!(place.run_with_input(&["add", "-Q"], b"hello\n").text(), HELLO);
    assert_eq!(place.run_with_input(&["add", "-q", "-"], b"hello\n").text(), HELLO);
    let v1 = "bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am";
    assert_eq!(place.ok(&["add", "-Q", "--cid-version", "1", "hello"]), v1);
    assert_eq!(place.ok(&["add", "-Q", "--profile", "unixfs-v1-2025", "hello"]), v1);
    assert_eq!(place.ok(&["add", "-Q", "--cid-version=1", "--raw-leaves=false", "hello"]).get(..7), Some("bafybei"));
    // Expected values from Kubo 0.44.
    place.write("fifty", "0123456789".repeat(5).as_bytes());
    for n in 1..=6 {
        place.write(&format!("dir/file-{n}"), n.to_string().as_bytes());
    }
    let few = place.ok(&["add", "-Q", "--chunker=size-10", "--max-file-links=2", "fifty"]);
    assert_eq!(few, "QmR8FzNZnJksCPn74wpPknyn1RJNFdXQEtUrM9qs3VhR2w");
    let sharded = ["add", "-rQ", "--cid-version=1", "--max-directory-links=2", "dir", "--max-hamt-fanout=16"];
    assert_eq!(place.ok(&sharded), "bafybeigz3vgj7dg2qnwjmigozs6dlry3e3f2zg3wy5expvosutv6mlt6ie");
    let wrapped = place.ok(&["add", "-w", "hello"]);
    let root = wrapped.lines().nth(1).unwrap().strip_prefix("added ").unwrap();
    assert_eq!(place.ok(&["cat", &format!("/ipfs/{root}/hello")]), "hello");
    let row = format!("{HELLO} 6          hello");
    assert_eq!(place.ok(&["ls", root]), row);
    // As in Kubo, the line has the mode and time of the file, although they are not stored.
    let added = place.ok(&["--json", "add", "hello"]);
    assert!(added.starts_with(&format!(r#"{{"Name":"hello","Hash":"{HELLO}","Size":"14","Mode":"0"#)), "{added}");
    let listed = place.ok(&["ls", "--json", root]);
    assert_eq!(
        listed,
        format!(
            r#"{{"Name":"hello","Hash":"{HELLO}","Size":6,"Type":2,"Target":"","Mode":0,"ModTime":"0001-01-01T00:00:00Z"}}"#
        )
    );
}

#[test]
fn uris_name_the_content_of_their_paths() {
    let place = Place::new();
    place.write("tree/hello", b"hello\n");
    let root = place.ok(&["add", "-rQ", "tree"]);
    let uris = ["ipfs://", "ipfs:", "IPFS:/", "ipld:"].map(|start| format!("{start}{root}"));
    for (number, uri) in uris.iter().enumerate() {
        // Below /ipld/, a directory has the fields of its block, not its files.
        if !uri.starts_with("ipld:") {
            assert_eq!(place.ok(&["cat", &format!("{uri}/hello")]), "hello");
        }
        let target = format!("saved-{number}");
        assert_eq!(place.ok(&["get", uri, "-o", &target]), format!("saved {target}"));
        assert_eq!(content_of(&place.path(&target)), content_of(&place.path("tree")), "{uri}");
    }
}

#[test]
fn only_hash_stores_nothing() {
    let place = Place::new();
    place.write("hello", b"hello\n");
    assert_eq!(place.ok(&["add", "-Q", "-n", "hello"]), HELLO);
    assert!(place.fails(&["cat", HELLO]).contains(HELLO));
}

#[test]
fn add_includes_hidden_files_if_requested_or_named() {
    let place = Place::new();
    place.write("tree/.hidden/file", b"1");
    place.write("tree/shown", b"2");
    assert!(!place.ok(&["add", "-r", "tree"]).contains("hidden"));
    assert!(place.ok(&["add", "-r", "-H", "tree"]).contains(" tree/.hidden/file\n"));
    assert!(place.ok(&["add", "-r", "tree/.hidden"]).ends_with(" .hidden"));
}

#[test]
fn add_leaves_out_what_rules_name() {
    let place = Place::new();
    for file in ["a.log", "keep.log", "sub/b.log", "sub/c", "build/d", "sub/build", "deep/build/e", ".hidden"] {
        place.write(&format!("tree/{file}"), b"1");
    }
    fs::create_dir(place.path("tree/empty")).unwrap();
    place.write("rules", b"# comment\n*.log\n!keep.log\n");
    let added = |options: &[&str]| {
        let output = place.ok(&[&["add", "-r", "tree"], options].concat());
        let names = output.lines().map(|line| line.split_once(" tree").unwrap().1.to_owned());
        names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let without = ["--ignore", "build/", "--ignore-rules-path", "rules"];
    assert_eq!(added(&without), "/keep.log /sub/build /sub/c /deep /empty /sub");
    assert_eq!(added(&["--ignore", "/sub", "--ignore", "*.log", "--ignore=build", "-E=false"]), "");
    assert_eq!(added(&["--ignore=*", "--ignore=!sub", "--ignore=!sub/c"]), "/sub/c /sub");
    let refused = |options: &[&str], reason: &str| {
        let error = place.fails(&[&["add", "tree"], options].concat());
        assert!(error.contains(reason), "{error}");
    };
    refused(&["-r", "--ignore", "a{b"], "the rule \"a{b\"");
    refused(&["-r", "--ignore-rules-path", "missing"], "missing");
}

#[test]
fn add_names_standard_input_on_request() {
    let place = Place::new();
    place.write("hello", b"hello\n");
    let wrapped = place.ok(&["add", "-wQ", "hello"]);
    let ran = place.run_with_input(&["add", "-wQ", "--stdin-name", "hello"], b"hello\n");
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim_end(), wrapped, "{}", ran.stderr);
    assert!(place.fails(&["add", "--stdin-name", "name", "hello"]).contains("--stdin-name needs standard input"));
}

#[test]
fn add_follows_symlinks_on_request() {
    let place = Place::new();
    place.write("tree/file", b"1");
    symlink("file", place.path("tree/link")).unwrap();
    symlink("tree", place.path("root")).unwrap();
    let file = place.ok(&["add", "-Q", "tree/file"]);
    assert_ne!(place.ok(&["add", "-Q", "tree/link"]), file);
    assert_eq!(place.ok(&["add", "-Q", "--dereference-args", "tree/link"]), file);
    let tree = place.ok(&["add", "-rQ", "tree"]);
    assert_eq!(place.ok(&["add", "-rQ", "--dereference-args", "root"]), tree);
    place.write("copies/file", b"1");
    place.write("copies/link", b"1");
    let copies = place.ok(&["add", "-rQ", "copies"]);
    assert_eq!(place.ok(&["add", "-rQ", "--dereference-symlinks", "tree"]), copies);
    symlink("..", place.path("tree/back")).unwrap();
    let error = place.fails(&["add", "-rQ", "--dereference-symlinks", "tree"]);
    assert!(error.contains("tree/back") && error.contains("leads back"), "{error}");
}

#[test]
fn add_names_unreadable_input_and_prints_no_id() {
    let place = Place::new();
    place.write("tree/a", b"1");
    let socket = UnixListener::bind(place.path("tree/socket")).unwrap();
    assert!(place.fails(&["add", "tree"]).contains("tree is a directory: use -r"));
    assert!(place.fails(&["add", "missing"]).contains("cannot read missing: No such file"));
    let message = place.fails(&["add", "-r", "tree"]);
    assert!(message.contains("tree/socket is neither a file nor a directory nor a symlink"), "{message}");
    let daemon = place.start(&[]);
    let message = place.fails(&["add", "-rQ", "tree"]);
    assert!(message.contains("tree/socket is neither"), "{message}");
    drop((daemon, socket));
}

#[test]
fn get_sets_the_permissions_and_times_that_are_stored() {
    let place = Place::new();
    let tree = place.tree("tree");
    let (directory, file) = (tree.join("names"), place.write("tree/names/private", b"secret"));
    let refused = place.run(&["add", "--mode", "rw-r--r--", "tree/names/private"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("is not octal permissions"), "{}", refused.stderr);
    symlink("private", directory.join("link")).unwrap();
    // Before 1970.
    let time = UNIX_EPOCH - Duration::new(100_000_000, 500);
    for path in [&file, &directory, &tree] {
        fs::File::open(path).unwrap().set_modified(time).unwrap();
    }
    // The names of a read-only directory are written before its permissions.
    for (path, mode) in [(&file, 0o4640), (&directory, 0o500), (&tree, 0o550)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let add = |flags: &[&str]| place.ok(&[&["add", "-rQ", "tree"], flags].concat());
    let (bare, full) = (add(&[]), add(&["--preserve-mode", "--preserve-mtime"]));
    let seen = |path: &Path| {
        let metadata = fs::symlink_metadata(path).unwrap();
        (metadata.permissions().mode() & 0o7777, metadata.modified().unwrap())
    };
    place.ok(&["get", &full, "-o", "full"]);
    place.ok(&["get", &format!("{full}/names/private"), "-o", "file"]);
    assert_eq!(seen(&place.path("full")), (0o550, time));
    assert_eq!(seen(&place.path("full/names")), (0o500, time));
    assert_eq!(seen(&place.path("full/names/private")), (0o640, time), "and does not run as its owner");
    assert_eq!(seen(&place.path("file")), (0o640, time));
    assert_eq!(seen(&place.path("full/names/link")).1, seen(&directory.join("link")).1);
    place.ok(&["get", &bare, "-o", "bare"]);
    assert!(seen(&place.path("bare/names/private")).1 > UNIX_EPOCH, "nothing is stored");

    assert_eq!(place.ok(&["get", &format!("{full}/names/private"), "-o", "-"]), "secret");
    assert!(place.fails(&["get", &full, "-o", "-"]).contains("add -a"));
    assert!(place.run(&["get", "-a", &full, "-o", "-"]).stdout.windows(6).any(|bytes| bytes == b"secret"));
    for path in ["tree", "full"] {
        for directory in [place.path(path), place.path(path).join("names")] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
}

#[test]
fn server_error_messages_are_printed() {
    let place = Place::new();
    place.write("hello", b"hello\n");
    let complain = || {
        assert!(place.fails(&["add", "--hash", "blake3", "--cid-version", "0", "hello"]).contains("sha2-256"));
        assert!(
            place
                .fails(&["cat", "Qmnonsense"])
                .contains("invalid path \"Qmnonsense\": path does not have enough components")
        );
        for command in ["cat", "ls", "get"] {
            assert!(place.fails(&[command, HELLO]).contains(&format!("could not find {HELLO}")), "{command}");
        }
    };
    complain();
    let daemon = place.start(&[]);
    complain();
    drop(daemon);
}

#[test]
fn cat_concatenates_files_and_applies_range_to_all() {
    let place = Place::new();
    let content = noise(600_000);
    place.write("first", &content);
    place.write("second", b"second");
    let ids = place.ok(&["add", "-q", "first", "second"]);
    let ids: Vec<_> = ids.lines().collect();
    let daemon = place.start(&[]);
    let whole = [&content[..], b"second"].concat();
    assert_eq!(place.run(&["cat", ids[0], ids[1]]).stdout, whole);
    assert_eq!(place.run(&["cat", "-o", "262140", "-l", "10", ids[0]]).stdout, content[262_140..262_150]);
    assert_eq!(
        place.run(&["cat", "--offset", "599999", "--length", "4", ids[0], ids[1]]).stdout,
        whole[599_999..600_003]
    );
    drop(daemon);
    assert_eq!(place.run(&["cat", "-o", "600001", ids[0], ids[1]]).stdout, b"econd");
}

#[test]
fn get_replaces_file_and_refuses_other_targets() {
    let place = Place::new();
    place.write("hello", b"hello\n");
    let root = place.ok(&["add", "-Qw", "hello"]);
    place.write("saved", b"old");
    place.ok(&["get", &format!("{root}/hello"), "-o", "saved"]);
    assert_eq!(fs::read(place.path("saved")).unwrap(), b"hello\n");
    assert!(place.fails(&["get", &root, "-o", "saved"]).contains("saved already exists"));
    // A symlink that the user names is followed, and a device is not replaced.
    symlink("saved", place.path("alias")).unwrap();
    fs::write(place.path("saved"), b"old").unwrap();
    place.ok(&["get", &format!("{root}/hello"), "-o", "alias"]);
    assert_eq!(fs::read(place.path("saved")).unwrap(), b"hello\n");
    assert!(place.path("alias").is_symlink());
    // A socket in place of a device, which a faulty command would replace for all programs if root runs the test.
    let _device = UnixListener::bind(place.path("device")).unwrap();
    assert!(place.fails(&["get", &format!("{root}/hello"), "-o", "device"]).contains("-o -"));
    // An output directory keeps the original name.
    fs::create_dir(place.path("directory")).unwrap();
    assert_eq!(place.ok(&["get", &format!("{root}/hello"), "-o", "directory"]), "saved directory/hello");
    assert_eq!(place.ok(&["get", &root]), format!("saved {root}"));
    assert!(place.fails(&["get", &root]).contains("already exists"));
    let left = fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.contains("partial")).count(), 0);
}

#[test]
fn preserve_flags_keep_mode_and_time() {
    let place = Place::new();
    let path = place.write("hello", b"hello\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_700_000_000, 500);
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let add = |flags: &[&str]| place.ok(&[&["add", "-Q", "hello"], flags].concat());
    assert_eq!(add(&[]), HELLO);
    let mode = add(&["--preserve-mode"]);
    let both = add(&["--preserve-mode", "--preserve-mtime"]);
    assert!(mode != HELLO && both != mode);
    for octal in ["0640", "640", "0o640"] {
        assert_eq!(add(&["--mode", octal]), mode);
    }
    assert_eq!(add(&["--mode", "0640", "--mtime", "1700000000", "--mtime-nsecs", "500"]), both);
    let line = place.ok(&["add", "--json", "--preserve-mode", "--preserve-mtime", "hello"]);
    assert!(line.starts_with(&format!(r#"{{"Name":"hello","Hash":"{both}","Size":""#)), "{line}");
    assert!(line.ends_with(r#"","Mode":"0640","Mtime":1700000000,"MtimeNsecs":500}"#), "{line}");
}

#[test]
fn blocks_round_trip_unchanged() {
    let place = Place::new();
    let data = noise(100_000);
    place.write("block", &data);
    let cid = place.ok(&["block", "put", "block"]);
    assert!(cid.starts_with("bafkrei"), "{cid}");
    assert_eq!(place.run(&["block", "get", &cid]).stdout, data);
    assert_eq!(place.ok(&["block", "stat", &cid]), format!("Key: {cid}\nSize: 100000"));
    assert_eq!(place.ok(&["block", "stat", "--json", &cid]), format!(r#"{{"Key":"{cid}","Size":100000}}"#));
    let as_cbor = place.run_with_input(&["block", "put", "--cid-codec", "dag-cbor", "--mhtype", "sha2-256"], b"\xa0");
    assert!(as_cbor.text().starts_with("bafyrei"), "{as_cbor:?}");
    place.write("large", &noise(2 * 1024 * 1024 + 1));
    assert!(place.fails(&["block", "put", "large"]).contains("produced block is over 2MiB"));
}

#[test]
fn non_utf8_names_round_trip() {
    let place = Place::new();
    let path = |bytes: &[u8]| place.path("tree").join(OsStr::from_bytes(bytes));
    fs::create_dir_all(path(b"sub\xff")).unwrap();
    for name in [&b"\xff.txt"[..], b"caf\xe9", b"caf\xc3\xa9", b"back\\slash", b"sub\xff/\xfe"] {
        fs::write(path(name), name).unwrap();
    }
    symlink(OsStr::from_bytes(b"\xff.txt"), path(b"link\xff")).unwrap();
    for options in [&["add", "-r", "tree"][..], &["add", "-r", "--cid-version=1", "--max-directory-links=1", "tree"]] {
        let added = place.ok(options);
        for name in [r"\xff.txt", r"caf\xe9", "caf\u{e9}", r"back\\slash", r"sub\xff/\xfe", r"link\xff"] {
            assert!(added.lines().any(|line| line.ends_with(&format!(" tree/{name}"))), "{name} in {added}");
        }
        let root = added.lines().last().unwrap().split(' ').nth(1).unwrap();
        let listed = place.ok(&["ls", root]);
        for row in [r" \xff.txt", r" caf\xe9", " caf\u{e9}", r" sub\xff/", r" link\xff -> \xff.txt"] {
            assert!(listed.lines().any(|line| line.ends_with(row)), "{row} in {listed}");
        }
        place.ok(&["get", root, "-o", "again"]);
        assert_eq!(content_of(&place.path("again")), content_of(&place.path("tree")));
        fs::remove_dir_all(place.path("again")).unwrap();
        // As an argument, and as the name of the saved file.
        let file = [root.as_bytes(), b"/\xff.txt"].concat();
        let run = |command: &str| place.command(&[command]).arg(OsStr::from_bytes(&file)).output().unwrap();
        assert_eq!(run("cat").stdout, b"\xff.txt");
        let saved = run("get");
        assert_eq!(saved.stdout, b"saved \\xff.txt\n", "{}", String::from_utf8_lossy(&saved.stderr));
        assert_eq!(fs::read(place.path("").join(OsStr::from_bytes(b"\xff.txt"))).unwrap(), b"\xff.txt");
        let missing = [root.as_bytes(), b"/\xfe.txt"].concat();
        let missing = place.command(&["cat"]).arg(OsStr::from_bytes(&missing)).output().unwrap();
        assert!(String::from_utf8_lossy(&missing.stderr).contains(r#"no link named "\xfe.txt""#));
    }
}
