//! `tensor`, with and without a daemon.

use std::fs;

use crate::harness::Place;

/// Returns a file with two tensors: `w`, F32 [2,3] with the values 0 to 5, and `b/1`, U8 [4].
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
        (&["get", cid], "select one by name"),
        (&["ls", "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN"], "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN"),
    ] {
        let failure = place.fails(&[&["tensor"], arguments].concat());
        assert!(failure.contains(message) && !failure.contains("problem"), "{failure}");
    }
    assert!(!place.path("none.bin").exists());
}

/// Returns an F64 [2,2] array as saved by NumPy in column-major order.
fn by_columns() -> Vec<u8> {
    let dict = "{'descr': '>f8', 'fortran_order': True, 'shape': (2, 2), }\n";
    let bytes = [1_f64, 3.0, 2.0, 4.0].into_iter().flat_map(f64::to_be_bytes);
    let length = [u8::try_from(dict.len()).unwrap(), 0];
    [b"\x93NUMPY\x01\x00", &length[..], dict.as_bytes(), &bytes.collect::<Vec<u8>>()].concat()
}

#[test]
fn long_names_keep_table_aligned_and_file_extension() {
    let place = Place::new();
    let long = "n".repeat(300);
    let entry = |name: &str, place: usize| {
        format!(r#""{name}":{{"dtype":"U8","shape":[1],"data_offsets":[{place},{}]}}"#, place + 1)
    };
    let json = format!("{{{},{},{}}}", entry("short", 0), entry(&long, 1), entry(r"a\u001b[1m", 2));
    let file = [&u64::try_from(json.len()).unwrap().to_le_bytes()[..], json.as_bytes(), &[1, 2, 3]].concat();
    place.write("m.safetensors", &file);
    let root = place.ok(&["add", "-Q", "-w", "m.safetensors"]);
    let path = format!("{root}/m.safetensors");
    for command in ["ls", "stat"] {
        let table = place.ok(&["tensor", command, &path]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].len() < 120 && lines[1].len() < 120, "{table}");
        assert_eq!(lines[0].find("DTYPE"), lines[1].find("U8"), "{table}");
        assert!(lines[2].starts_with(&long) && lines[3].starts_with(r"a\u{1b}[1m "), "{table}");
    }
    assert_eq!(place.ok(&["tensor", "get", &path, "--format=safetensors", "-o", "."]), "saved ./m.safetensors");
    assert_eq!(place.ok(&["tensor", "get", &path, "short", "--format=npy"]), "saved short.npy (U8 [1])");
    assert!(place.ok(&["tensor", "get", &path, "a\u{1b}[1m"]).starts_with("saved a_[1m.bin "));

    place.write("f.npy", &by_columns());
    let array = place.ok(&["add", "-Q", "f.npy"]);
    let listed = place.ok(&["--json", "tensor", "ls", &array]);
    assert!(listed.ends_with(r#","fortran_order":true,"big_endian":true}"#), "{listed}");
    assert!(place.fails(&["tensor", "get", &array]).contains("format npy"));
    let column = place.run(&["tensor", "get", &array, "--slice=:,0", "-o", "-"]);
    assert_eq!(column.stdout, [1_f64, 3.0].map(f64::to_le_bytes).concat());
    assert!(place.ok(&["tensor", "get", &array, "--format=npy"]).ends_with(".npy (F64 [2,2])"));
}

#[test]
fn tensor_commands_work_with_and_without_daemon() {
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
