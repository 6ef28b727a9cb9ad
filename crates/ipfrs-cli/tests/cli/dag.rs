//! Import and export of whole DAGs, with and without a daemon.

use std::fs;

use crate::harness::{Place, content_of, noise};

/// Adds a tree and returns its root.
fn add(place: &Place, name: &str) -> String {
    place.ok(&["add", "-rQ", name])
}

/// Returns the end offsets of the header and of each section of a CAR.
fn ends(car: &[u8]) -> Vec<usize> {
    let (mut ends, mut at) = (Vec::new(), 0);
    while at < car.len() {
        let digits = car[at..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let len = car[at..at + digits].iter().rev().fold(0, |len, byte| len << 7 | usize::from(byte & 0x7f));
        at += digits + len;
        ends.push(at);
    }
    ends
}

fn left_behind(place: &Place) -> usize {
    let names = fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("partial")).count()
}

#[test]
fn dag_export_imports_into_another_repo() {
    let (here, there) = (Place::new(), Place::new());
    here.tree("tree");
    let root = add(&here, "tree");
    here.write("out.car", b"old");
    assert_eq!(here.ok(&["dag", "export", &root, "-o", "out.car"]), "saved out.car");
    let car = fs::read(here.path("out.car")).unwrap();
    let daemon = here.start(&[]);
    assert!(here.run(&["dag", "export", &format!("/ipfs/{root}")]).stdout == car, "the same from a daemon");
    assert!(here.run(&["dag", "export", &root, "-o", "-"]).stdout == car);
    drop(daemon);

    there.write("in.car", &car);
    let printed = there.ok(&["dag", "import", "--stats", "in.car"]);
    let (pinned, stats) = printed.split_once('\n').unwrap();
    assert_eq!(pinned, format!("Pinned root\t{root}\tsuccess"));
    assert!(stats.starts_with("Imported ") && stats.contains(" blocks ("), "{stats}");
    there.ok(&["get", &root, "-o", "tree"]);
    assert_eq!(content_of(&there.path("tree")), content_of(&here.path("tree")));

    let daemon = there.start(&[]);
    let from_input = there.run_with_input(&["dag", "import", "--json", "--pin-roots=false", "--stats", "-"], &car);
    let stats: String = from_input.text().to_owned();
    assert!(stats.starts_with(r#"{"Stats":{"BlockCount":"#), "{from_input:?}");
    assert_eq!(there.ok(&["dag", "import", "--silent", "--stats", "in.car", "in.car"]), "");
    drop(daemon);
}

#[test]
fn incomplete_dag_is_reported_and_leaves_no_file() {
    let (here, there) = (Place::new(), Place::new());
    here.write("file", &noise(600_000));
    let root = add(&here, "file");
    here.ok(&["dag", "export", &root, "-o", "out.car"]);
    let car = fs::read(here.path("out.car")).unwrap();
    there.write("cut.car", &car[..car.len() - 5]);
    let message = there.fails(&["dag", "import", "cut.car"]);
    assert!(message.contains("cut.car: section at byte ") && message.contains("the CAR is truncated"), "{message}");
    there.write("part.car", &car[..ends(&car)[2]]);
    let message = there.fails(&["dag", "import", "part.car"]);
    assert!(message.contains(&format!("the root {root} was not pinned")), "{message}");
    let message = there.fails(&["dag", "export", &root, "-o", "out.car"]);
    assert!(message.contains("is not in this store"), "{message}");
    assert!(!there.path("out.car").exists());
    assert_eq!(left_behind(&there), 0);
    assert!(there.fails(&["dag", "export", "Qmnonsense"]).contains("invalid path"));
    assert!(there.fails(&["dag", "import", "missing.car"]).contains("cannot read missing.car"));
}

#[test]
fn stat_counts_blocks_and_bytes() {
    let place = Place::new();
    place.write("file", &noise(600_000));
    place.write("start", &noise(600_000)[..524_288]);
    let ids = place.ok(&["add", "-q", "--cid-version=1", "file", "start"]);
    let ids: Vec<_> = ids.lines().collect();
    let printed = place.ok(&["dag", "stat", ids[0], ids[1]]);
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines[0].starts_with(&format!("{} 4 blocks, ", ids[0])), "{printed}");
    assert!(lines[1].starts_with(&format!("{} 3 blocks, ", ids[1])), "{printed}");
    assert!(lines[2].starts_with("total: 5 blocks, ") && lines[2].contains("; 524288 bytes shared"), "{printed}");
    let json = place.ok(&["dag", "stat", "--json", ids[0]]);
    assert!(json.starts_with(r#"{"UniqueBlocks":4,"TotalSize":"#), "{json}");
}

#[test]
fn available_part_of_a_dag_is_exported() {
    let (here, there) = (Place::new(), Place::new());
    here.write("file", &noise(600_000));
    let root = here.ok(&["add", "-Q", "--raw-leaves", "file"]);
    let leaves = here.ok(&["refs", &root]);
    let leaves: Vec<_> = leaves.lines().collect();
    here.ok(&["pin", "rm", &root]);
    here.ok(&["block", "rm", leaves[1]]);
    assert!(here.fails(&["dag", "export", &root, "-o", "out.car"]).contains("is not in this store"));
    here.ok(&["dag", "export", "--local-only", &root, "-o", "out.car"]);
    there.write("in.car", &fs::read(here.path("out.car")).unwrap());
    let message = there.fails(&["dag", "import", "--local-only", "--pin-roots", "in.car"]);
    assert!(message.contains("cannot be combined"), "{message}");
    let stats = there.ok(&["dag", "import", "--local-only", "--stats", "in.car"]);
    assert!(stats.starts_with("Imported 3 blocks ("), "{stats}");
    for (leaf, is_there) in leaves.iter().zip([true, false, true]) {
        assert_eq!(there.run(&["block", "stat", leaf]).code == Some(0), is_there, "{leaf}");
    }
    assert!(here.fails(&["dag", "export", "--local-only", leaves[1]]).contains("block was not found locally"));
}

#[test]
fn big_blocks_are_stored_only_if_they_are_allowed() {
    const REFUSAL: &str = "produced block is over 2MiB: big blocks can't be exchanged with other peers. consider \
                           using UnixFS for automatic chunking of bigger files, or pass --allow-big-block to override";
    let (here, there) = (Place::new(), Place::new());
    let daemon = here.start(&[]);
    here.write("exact", &noise(2 << 20));
    here.ok(&["block", "put", "exact"]);
    here.write("big", &noise((2 << 20) + 1));
    let dag_put = ["dag", "put", "--input-codec=raw", "--store-codec=raw"];
    assert!(here.fails(&["block", "put", "big"]).contains(REFUSAL));
    assert!(here.fails(&[&dag_put[..], &["big"]].concat()).contains(REFUSAL));
    let cid = here.ok(&["block", "put", "--allow-big-block", "big"]);
    assert_eq!(here.ok(&[&dag_put[..], &["--allow-big-block", "big"]].concat()), cid);
    here.write("largest", &noise(4 << 20));
    let largest = here.ok(&["block", "put", "--allow-big-block", "largest"]);
    here.write("over", &noise((4 << 20) + 1));
    assert!(here.fails(&["block", "put", "--allow-big-block", "over"]).contains("limit of 4194304 bytes"));
    assert!(here.fails(&["block", "put", "over"]).contains(REFUSAL));
    // The same after a restart, which reads the packs again.
    drop(daemon);
    let daemon = here.start(&[]);
    for (name, cid) in [("big", &cid), ("largest", &largest)] {
        assert!(here.run(&["block", "get", cid]).stdout == fs::read(here.path(name)).unwrap(), "{name}");
    }
    assert_eq!(here.ok(&["repo", "verify"]), "verify complete, all blocks validated.");
    here.ok(&["dag", "export", &largest, "-o", "out.car"]);
    there.write("in.car", &fs::read(here.path("out.car")).unwrap());
    assert!(there.fails(&["dag", "import", "in.car"]).contains(REFUSAL));
    there.ok(&["dag", "import", "--allow-big-block", "in.car"]);
    drop(daemon);
}
