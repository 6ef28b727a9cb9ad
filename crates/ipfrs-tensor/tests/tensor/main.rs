//! Headers, slices and plans, compared with independent readers and writers.

// clippy.toml allows tests to unwrap, but does not recognize helper functions as test code.
#![allow(clippy::unwrap_used)]

mod properties;

use std::collections::BTreeMap;

use ipfrs_core::ErrorKind;
use ipfrs_tensor::{
    Catalogue, Dtype, Header, Order, PREFIX_BYTES, Plan, Slice, TensorFormat, safetensors_head, tensor_bytes,
};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

fn parse(file: &[u8]) -> ipfrs_core::Result<Catalogue> {
    let header = Header::of(&file[..file.len().min(PREFIX_BYTES)], file.len() as u64)?;
    Catalogue::parse(&file[..header.bytes], file.len() as u64)
}

/// Creates a file with this header and `data` bytes of data.
fn safetensors_file(json: &str, data: usize) -> Vec<u8> {
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(json.as_bytes());
    file.resize(file.len() + data, 7);
    file
}

fn npy_file(dict: &str, data: usize) -> Vec<u8> {
    npy_file_of(1, dict, data)
}

/// Creates a file of this format version. The length has four bytes since version 2.
fn npy_file_of(version: u8, dict: &str, data: usize) -> Vec<u8> {
    let length = u32::try_from(dict.len()).unwrap().to_le_bytes();
    let length = &length[..if version == 1 { 2 } else { 4 }];
    let mut file = [b"\x93NUMPY", &[version, 0][..], length, dict.as_bytes()].concat();
    file.resize(file.len() + data, 7);
    file
}

/// Returns every type of the reference. It has no list of them, but its error for an unknown type names all.
fn dtypes_of_the_reference() -> Vec<safetensors::Dtype> {
    let all = serde_json::from_str::<safetensors::Dtype>("\"none\"").unwrap_err().to_string();
    let (_, names) = all.split_once("expected one of ").unwrap();
    let names = names.split('`').skip(1).step_by(2);
    names.map(|name| serde_json::from_value(name.into()).unwrap()).collect()
}

#[test]
fn types_are_those_of_the_reference_with_its_sizes() {
    let theirs = dtypes_of_the_reference();
    let names: Vec<_> = theirs.iter().map(ToString::to_string).collect();
    let ours: Vec<_> = Dtype::all().filter(|dtype| dtype.is_in_safetensors()).map(Dtype::name).collect();
    assert_eq!(ours, names);
    for (theirs, name) in theirs.into_iter().zip(ours) {
        let ours: Dtype = name.parse().unwrap();
        for elements in 0..=24 {
            let bytes = tensor_bytes(ours, &[elements]).ok();
            let data = vec![0; usize::try_from(bytes.unwrap_or(elements)).unwrap()];
            let view = TensorView::new(theirs, vec![usize::try_from(elements).unwrap()], &data);
            assert_eq!(view.is_ok(), bytes.is_some(), "{elements} of {name}");
        }
        // A slice either begins and ends at byte boundaries, or is rejected with a message that names the required
        // multiple.
        let least = (1..=8).find(|elements| ours.bytes_of(*elements).is_some()).unwrap();
        for (start, stop) in (0..=24).flat_map(|start| (start..=24).map(move |stop| (start, stop))) {
            let slice = Slice::of_ranges([(Some(start), Some(stop), 1)]).unwrap();
            let plan = Plan::new(ours, &slice.select(&[24]).unwrap(), Order::RowMajor);
            let elements = stop.abs_diff(start);
            if elements == 0 || start.unsigned_abs() % least == 0 && elements % least == 0 {
                assert_eq!(plan.unwrap().bytes(), ours.bytes_of(elements).unwrap(), "{name} {start}:{stop}");
            } else {
                let error = plan.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains(&format!("a multiple of {least} elements")), "{error}");
            }
        }
    }
}

#[test]
fn safetensors_head_is_read_by_reference_for_every_type() {
    let shapes: Vec<(String, Dtype, Vec<u64>)> =
        Dtype::all().filter(|d| d.is_in_safetensors()).map(|d| (format!("t.{d}"), d, vec![2, 4])).collect();
    let metadata = BTreeMap::from([(String::from("format"), String::from("pt"))]);
    let described = || shapes.iter().map(|(name, dtype, shape)| (name.as_str(), *dtype, shape.as_slice()));
    let mut file = safetensors_head(described(), &metadata).unwrap();
    assert_eq!(file.len() % 8, 0);
    let data: u64 = shapes.iter().map(|(_, dtype, _)| dtype.bytes_of(8).unwrap()).sum();
    file.extend((0..data).map(|byte| u8::try_from(byte % 251).unwrap()));
    let reference = SafeTensors::deserialize(&file).unwrap();
    let ours = parse(&file).unwrap();
    assert_eq!(ours.metadata(), &metadata);
    let without = "{\"__metadata__\":null,\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    assert!(parse(&safetensors_file(without, 1)).unwrap().metadata().is_empty(), "the reference reads it too");
    for (name, dtype, shape) in &shapes {
        let (view, info) = (reference.tensor(name).unwrap(), ours.get(name).unwrap());
        assert_eq!(view.dtype().to_string(), dtype.name());
        assert_eq!((info.dtype, &info.shape), (*dtype, shape));
        let start = usize::try_from(info.offset).unwrap();
        assert_eq!(view.data(), &file[start..start + usize::try_from(info.bytes).unwrap()], "{name}");
    }
    assert_eq!(ours.get("t.F31").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn unknown_name_in_a_large_model_suggests_the_closest() {
    let names: Vec<String> =
        (0..400).flat_map(|layer| ["norm", "mlp"].map(|part| format!("model.layers.{layer}.{part}.weight"))).collect();
    let file = safetensors_head(names.iter().map(|name| (name.as_str(), Dtype::U8, &[0][..])), &BTreeMap::new());
    let model = parse(&file.unwrap()).unwrap();
    for (unknown, known) in [
        ("model.layers.7.norm.wieght", "model.layers.7.norm.weight"),
        ("model.layers.399.mlp.weigt", "model.layers.399.mlp.weight"),
        ("modle.layers.0.mlp.weight", "model.layers.0.mlp.weight"),
    ] {
        let error = model.get(unknown).unwrap_err().to_string();
        assert!(error.contains(&format!("did you mean \"{known}\"?")), "{error}");
    }
    assert!(!model.get("optimizer").unwrap_err().to_string().contains("did you mean"));
}

#[test]
fn safetensors_head_over_read_limit_is_rejected() {
    // Each of these takes six bytes of JSON.
    let metadata = |bytes: usize| BTreeMap::from([(String::new(), "\u{1}".repeat(bytes))]);
    let head = safetensors_head([("a", Dtype::U8, &[0][..])], &metadata(2 * 1024 * 1024)).unwrap();
    assert_eq!(parse(&head).unwrap().metadata(), &metadata(2 * 1024 * 1024));
    let refused = safetensors_head([("a", Dtype::U8, &[0][..])], &metadata(3 * 1024 * 1024)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
}

#[test]
fn contradictory_headers_are_rejected_with_reason() {
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{b}}}}}"#
        )
    };
    for (json, data, reason) in [
        (two("[0,4]", "[2,6]"), 6, "within another tensor"),
        (two("[0,4]", "[5,9]"), 9, "belong to no tensor"),
        (two("[0,4]", "[4,8]"), 9, "the 1 bytes after the last tensor"),
        (two("[0,4]", "[4,8]"), 7, "are outside the 7 data bytes"),
        (two("[0,4]", "[18446744073709551611,18446744073709551615]"), 8, "are outside the 8 data bytes"),
        (two("[4,0]", "[4,8]"), 8, "are outside the"),
        (two("[0,4]", "[4,8]").replace("\"b\"", "\"a\""), 8, "names tensor \"a\" twice"),
        (entry("F32", "[4294967296,4294967296,2]", "[0,0]"), 0, "number of elements exceeds 64 bits"),
        (entry("U8", "[9223372036854775808,2,0]", "[0,0]"), 0, "number of elements exceeds 64 bits"),
        (entry("F64", "[4611686018427387904]", "[0,0]"), 0, "exceed 2^64"),
        (entry("F4", "[3]", "[0,2]"), 2, "not a whole number of bytes"),
        (entry("F99", "[1]", "[0,4]"), 4, "unknown dtype"),
        (entry("C128", "[1]", "[0,16]"), 16, "no dtype C128"),
        (entry("F32", "[2]", "[0,4]"), 4, "it has 4 bytes, but F32 [2] needs 8"),
        (entry("F32", "[-1]", "[0,4]"), 4, "cannot be read"),
        (entry("F32", &format!("[{}]", ["1"; 65].join(",")), "[0,4]"), 4, "over 64 dimensions"),
        (entry("F32", "[1]", "[0,4]").replace("\"shape\"", "\"dtype\""), 4, "cannot be read"),
        (String::from("{\"__metadata__\":{\"a\":1}}"), 0, "cannot be read"),
        (String::from("{\"__metadata__\":{},\"__metadata__\":{}}"), 0, "twice"),
        (String::from("{\"a\":"), 0, "cannot be read"),
        (format!("{{\"a\":{}", "[".repeat(10_000)), 0, "cannot be read"),
        (entry("F32", "[1]", "[0,4]").replace("}}", &format!(",\"x\":{}", "[".repeat(100_000))), 4, "cannot be read"),
        (format!("{{\"a\":{}}}", "{\"a\":".repeat(10_000)), 0, "cannot be read"),
        (format!("{{\"a\":\"{}\"}}", "x".repeat(1_000_000)), 0, "… at line 1 column"),
        (entry(&"x".repeat(1_000_000), "[1]", "[0,4]"), 4, "unknown dtype \"xxx"),
        (
            entry("U8", "[1]", "[0,1]").replace("\"a\"", &format!("\"{}\"", "\\u0000".repeat(100_000))),
            2,
            "belong to no tensor",
        ),
        (entry("U8", "[1]", "[0,1]") + "\0", 1, "cannot be read"),
        (entry("U8", "[1]", "[0,1]") + "{}", 1, "cannot be read"),
        (entry("U8", "[1]", "[0,1]").replace("0,1]}", "0,1,2]}"), 1, "cannot be read"),
        (entry("U8", "[1e0]", "[0,1]"), 1, "cannot be read"),
        (entry("U8", "null", "[0,1]"), 1, "cannot be read"),
    ] {
        let start: String = json.chars().take(200).collect();
        let error = parse(&safetensors_file(&json, data)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{start}");
        let text = error.to_string();
        assert!(text.contains(reason) && text.len() < 2_000, "{start}: {} bytes: {reason}", text.len());
    }
    let mut not_utf8 = safetensors_file(&entry("U8", "[1]", "[0,1]").replace("}}", ",\"x\":\"?\"}}"), 1);
    let question = not_utf8.iter().position(|byte| *byte == b'?').unwrap();
    not_utf8[question] = 0xff;
    assert!(parse(&not_utf8).unwrap_err().to_string().contains("not UTF-8"));
    // The format allows names of any text, spaces after the JSON, and unknown members.
    let odd = entry("U8", "[1]", "[0,1]").replace("\"a\"", r#""\u0000""#).replace("}}", ",\"x\":[{}]}}   ");
    assert_eq!(parse(&safetensors_file(&odd, 1)).unwrap().get("\0").unwrap().bytes, 1);
    let claims = |length: u64| [&length.to_le_bytes()[..], b"{}"].concat();
    assert_eq!(parse(&claims(100_000_000)).unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(parse(&claims(3)).unwrap_err().to_string().contains("truncated"));
    assert!(parse(&claims(2)).unwrap().tensors().is_empty());
    for file in [&b""[..], b"PK\x03\x04", b"12345678x", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x10"] {
        assert_eq!(parse(file).unwrap_err().kind(), ErrorKind::InvalidInput, "{file:?}");
    }
}

#[test]
fn npy_arrays_are_read_and_unsupported_types_rejected() {
    for (dict, data, shape, dtype) in [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24, &[2, 3][..], Dtype::F32),
        ("{'descr': '|b1', 'fortran_order': False, 'shape': (), }  \n", 1, &[], Dtype::Bool),
        ("{\"shape\": (3L,), \"descr\": \"<c16\", \"fortran_order\": True}", 48, &[3], Dtype::C128),
        ("{'descr':'<i8','fortran_order':False,'shape':(0,7)}", 0, &[0, 7], Dtype::I64),
    ] {
        let catalogue = parse(&npy_file(dict, data)).unwrap();
        let info = catalogue.get("").unwrap();
        assert_eq!((info.shape.as_slice(), info.dtype, info.offset), (shape, dtype, 10 + dict.len() as u64), "{dict}");
        assert_eq!((info.order, info.is_big_endian), (Order::RowMajor, false), "{dict}");
        for version in [2, 3] {
            let info = parse(&npy_file_of(version, dict, data)).unwrap().get("").unwrap().clone();
            assert_eq!((info.shape.as_slice(), info.offset), (shape, 12 + dict.len() as u64), "{version}: {dict}");
        }
    }
    for (descr, fortran, shape, order, is_big_endian) in [
        ("<f4", "True", "(2, 3)", Order::ColumnMajor, false),
        (">f4", "False", "(2, 3)", Order::RowMajor, true),
        // With one long dimension or no elements, both orders are the same.
        (">i4", "True", "(1, 6)", Order::RowMajor, true),
        ("<f4", "True", "(2, 0, 3)", Order::RowMajor, false),
    ] {
        let dict = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
        let file = npy_file(&dict, if shape.contains('0') { 0 } else { 24 });
        let info = parse(&file).unwrap().get("").unwrap().clone();
        assert_eq!((info.order, info.is_big_endian), (order, is_big_endian), "{dict}");
    }
    for (version, minor) in [(0, 0), (1, 1), (4, 0), (2, 7)] {
        let mut file = npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4);
        (file[6], file[7]) = (version, minor);
        let error = parse(&file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(&format!("version {version}.{minor}")), "{error}");
    }
    let pickle = parse(&npy_file("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8)).unwrap_err();
    assert!(pickle.to_string().contains("\"|O\"") && pickle.to_string().contains("pickle"), "{pickle}");
    let mut long = npy_file_of(2, "{}", 70_000);
    long[8..12].copy_from_slice(&70_000_u32.to_le_bytes());
    assert_eq!(parse(&long).unwrap_err().kind(), ErrorKind::TooLarge);
    for (dict, data, kind) in [
        ("{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (1,)}", 8, ErrorKind::Unsupported),
        ("{'descr': '<U2', 'fortran_order': False, 'shape': (1,)}", 8, ErrorKind::Unsupported),
        ("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,)}", 8, ErrorKind::Unsupported),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (01,)}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (0x1,)}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", 4, ErrorKind::InvalidInput),
        ("{'de\\x73cr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4, ErrorKind::InvalidInput),
        ("{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,)}", 4, ErrorKind::InvalidInput),
        ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, ErrorKind::Unsupported),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, ErrorKind::Unsupported),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4', 'fortran_order': False}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4, ErrorKind::InvalidInput),
        ("{'evil': '<f4', 'fortran_order': False, 'shape': (1,)}", 4, ErrorKind::InvalidInput),
        ("{'descr': '<f4", 4, ErrorKind::InvalidInput),
        ("", 4, ErrorKind::InvalidInput),
    ] {
        assert_eq!(parse(&npy_file(dict, data)).unwrap_err().kind(), kind, "{dict}");
    }
}

fn npy_head(dtype: Dtype, shape: &[u64], order: Order) -> ipfrs_core::Result<Vec<u8>> {
    let framing = TensorFormat::Npy.frame("", dtype, shape, order, &BTreeMap::new())?;
    assert!(framing.tail.is_empty());
    Ok(framing.head)
}

#[test]
fn a_head_for_numpy_is_read_back() {
    for dtype in [Dtype::Bool, Dtype::F16, Dtype::U64, Dtype::C128] {
        for shape in [&[][..], &[5], &[2, 3], &[0], &[1, 1, 1, 1, 1, 1]] {
            let mut file = npy_head(dtype, shape, Order::RowMajor).unwrap();
            assert_eq!(file.len() % 64, 0);
            let bytes = dtype.bytes_of(shape.iter().product()).unwrap();
            file.resize(file.len() + usize::try_from(bytes).unwrap(), 0);
            assert_eq!(parse(&file).unwrap().get("").unwrap().shape, shape);
        }
    }
    let mut file = npy_head(Dtype::F32, &[2, 3], Order::ColumnMajor).unwrap();
    file.resize(file.len() + 24, 0);
    assert_eq!(parse(&file).unwrap().get("").unwrap().order, Order::ColumnMajor);
    assert_eq!(npy_head(Dtype::F4, &[2], Order::RowMajor).unwrap_err().kind(), ErrorKind::Unsupported);
    for format in TensorFormat::ALL.into_iter().filter(|format| *format != TensorFormat::Npy) {
        let refused = format.frame("", Dtype::F32, &[2, 3], Order::ColumnMajor, &BTreeMap::new()).unwrap_err();
        assert!(refused.to_string().contains("format npy"), "{format}: {refused}");
    }
}

#[test]
fn whole_tensors_and_leading_slices_are_one_run() {
    for (text, one) in [
        ("", Some((0, 480))),
        ("1", Some((120, 120))),
        ("1:3", Some((120, 240))),
        ("1,2:4", Some((160, 40))),
        ("1:2,2:4", Some((160, 40))),
        (":,0", None),
        ("::2", None),
        ("3:4:2", Some((360, 120))),
        ("0:0", None),
    ] {
        let slice: Slice = text.parse().unwrap();
        let plan = Plan::new(Dtype::F32, &slice.select(&[4, 6, 5]).unwrap(), Order::RowMajor).unwrap();
        assert_eq!(plan.as_one().map(|run| (run.start, run.bytes)), one, "{text}");
    }
}
