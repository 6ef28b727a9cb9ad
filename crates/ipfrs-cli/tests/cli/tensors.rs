//! `tensor`, with a daemon and without one.

use std::fs;

use crate::harness::Place;

/// Two tensors: `w`, F32 [2,3] of 0 to 5, and `b/1`, U8 [4].
fn model() -> Vec<u8> {
    let json = r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b/1":{"dtype":"U8","shape":[4],"data_offsets":[24,28]}}"#;
    let mut file = u64::try_from(json.len()).unwrap().to_le_bytes().to_vec();
    file.extend_from_slice(json.as_bytes());
    file.extend([0_f32, 1.0, 2.0, 3.0, 4.0, 5.0].into_iter().flat_map(f32::to_le_bytes));
    file.extend([7, 0, 0, 9]);
    file
}

fn round(place: &Place, cid: &str) {
    let data = model().split_off(model().len() - 28);
    let start = model().len() - 28;
    let listed = place.ok(&["tensor", "ls", cid]);
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let (w, b) = (start.to_string(), (start + 24).to_string());
    assert_eq!(rows[1], ["w", "F32", "[2,3]", "24", &w]);
    assert_eq!(rows[2], ["b/1", "U8", "[4]", "4", &b]);
    let json = place.ok(&["--json", "tensor", "ls", cid]);
    let first = format!(r#"{{"name":"w","dtype":"F32","shape":[2,3],"size_bytes":24,"offset":{start}}}"#);
    assert_eq!(json.lines().next(), Some(&*first));

    assert_eq!(place.ok(&["tensor", "get", cid, "w", "-o", "w"]), "saved w (F32 [2,3])");
    assert_eq!(fs::read(place.path("w")).unwrap(), data[..24]);
    assert_eq!(place.ok(&["tensor", "get", cid, "b/1", "--slice", "-1:"]), "saved b_1.bin (U8 [1])");
    assert_eq!(fs::read(place.path("b_1.bin")).unwrap(), [9]);
    let out = place.run(&["tensor", "get", cid, "w", "--slice", "1,::2", "--format", "npy", "-o", "-"]);
    assert!(out.stdout.starts_with(b"\x93NUMPY") && out.stdout.ends_with(&5_f32.to_le_bytes()), "{out:?}");
    let both = place.ok(&["--json", "tensor", "get", cid, "--format=safetensors", "-o", "m"]);
    assert_eq!(both, r#"{"dtype":null,"path":"m","shape":null}"#);
    assert!(fs::read(place.path("m")).unwrap().ends_with(&data));

    let stats = place.ok(&["tensor", "stat", cid]);
    let rows: Vec<Vec<&str>> = stats.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["w", "F32", "6", "0", "5", "2.5", "1.707825", "0", "0", "1"]);
    assert_eq!(rows[2], ["b/1", "U8", "4", "0", "9", "4", "4.062019", "0", "0", "2"]);
    let one = place.ok(&["--json", "tensor", "stat", cid, "b/1"]);
    assert!(one.starts_with(r#"{"name":"b/1","#) && one.lines().count() == 1, "{one}");

    for (arguments, message) in [
        (&["get", cid, "none"][..], "no tensor named \"none\" among the 2 of the file"),
        (&["get", cid, "w", "--slice", "9"], "index 9"),
        (&["get", cid], "say which"),
        (&["ls", "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN"], "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN"),
    ] {
        let failure = place.fails(&[&["tensor"], arguments].concat());
        assert!(failure.contains(message) && !failure.contains("problem"), "{failure}");
    }
    assert!(!place.path("none.bin").exists());
}

#[test]
fn tensors_are_listed_saved_and_summed_up_with_a_daemon_and_without() {
    let place = Place::new();
    place.write("model.safetensors", &model());
    let cid = place.ok(&["add", "-Q", "model.safetensors"]);
    round(&place, &cid);
    let _daemon = place.start(&[]);
    for file in ["w", "b_1.bin", "m"] {
        fs::remove_file(place.path(file)).unwrap();
    }
    round(&place, &cid);
    assert_eq!(
        place.run(&["tensor", "get", &cid, "w", "--slice", "x"]).code,
        Some(2),
        "found out before anything is asked"
    );
}
