//! Headers, slices and plans against independent readers and writers.

// clippy.toml lets tests unwrap, but does not see that the functions beside them are tests too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use ipfrs_core::ErrorKind;
use ipfrs_tensor::{
    Catalogue, Dtype, Header, Order, PREFIX_BYTES, Plan, Run, Slice, TensorFormat, safetensors_head, tensor_bytes,
};
use proptest::prelude::*;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

fn parse(file: &[u8]) -> ipfrs_core::Result<Catalogue> {
    let header = Header::of(&file[..file.len().min(PREFIX_BYTES)], file.len() as u64)?;
    Catalogue::parse(&file[..header.bytes], file.len() as u64)
}

/// A file with this header and `data` bytes of data.
fn safetensors_file(json: &str, data: usize) -> Vec<u8> {
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(json.as_bytes());
    file.resize(file.len() + data, 7);
    file
}

fn npy_file(dict: &str, data: usize) -> Vec<u8> {
    npy_file_of(1, dict, data)
}

/// As versions of the format have it: the length has four bytes since the second.
fn npy_file_of(version: u8, dict: &str, data: usize) -> Vec<u8> {
    let length = u32::try_from(dict.len()).unwrap().to_le_bytes();
    let length = &length[..if version == 1 { 2 } else { 4 }];
    let mut file = [b"\x93NUMPY", &[version, 0][..], length, dict.as_bytes()].concat();
    file.resize(file.len() + data, 7);
    file
}

/// Every type of the reference. It gives no list of them, but names all when it is asked for another.
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
        // A slice of it begins and ends where bytes do, or is refused with the numbers that would be right.
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
                assert!(error.to_string().contains(&format!("multiples of {least} elements")), "{error}");
            }
        }
    }
}

#[test]
fn what_is_written_is_read_by_the_reference_and_by_us_for_every_type() {
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
fn no_header_is_written_that_would_not_be_read() {
    // Six bytes of JSON for each of these.
    let metadata = |bytes: usize| BTreeMap::from([(String::new(), "\u{1}".repeat(bytes))]);
    let head = safetensors_head([("a", Dtype::U8, &[0][..])], &metadata(2 * 1024 * 1024)).unwrap();
    assert_eq!(parse(&head).unwrap().metadata(), &metadata(2 * 1024 * 1024));
    let refused = safetensors_head([("a", Dtype::U8, &[0][..])], &metadata(3 * 1024 * 1024)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
}

#[test]
fn headers_that_contradict_themselves_are_refused_with_the_reason() {
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
        (two("[0,4]", "[5,9]"), 9, "bytes that no tensor has"),
        (two("[0,4]", "[4,8]"), 9, "behind the last tensor are 1 bytes"),
        (two("[0,4]", "[4,8]"), 7, "are not in the 7 bytes of data"),
        (two("[0,4]", "[18446744073709551611,18446744073709551615]"), 8, "are not in the 8 bytes"),
        (two("[4,0]", "[4,8]"), 8, "are not in the"),
        (two("[0,4]", "[4,8]").replace("\"b\"", "\"a\""), 8, "names tensor \"a\" twice"),
        (entry("F32", "[4294967296,4294967296,2]", "[0,0]"), 0, "more elements than 64 bits count"),
        (entry("F64", "[4611686018427387904]", "[0,0]"), 0, "more than 2^64"),
        (entry("F4", "[3]", "[0,2]"), 2, "no whole number of bytes"),
        (entry("F99", "[1]", "[0,4]"), 4, "unknown dtype"),
        (entry("C128", "[1]", "[0,16]"), 16, "no dtype C128"),
        (entry("F32", "[2]", "[0,4]"), 4, "4 bytes were written for 8 bytes"),
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
            "no tensor has",
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
    // What the format allows: names of any text, spaces behind the JSON, members that nobody knows.
    let odd = entry("U8", "[1]", "[0,1]").replace("\"a\"", r#""\u0000""#).replace("}}", ",\"x\":[{}]}}   ");
    assert_eq!(parse(&safetensors_file(&odd, 1)).unwrap().get("\0").unwrap().bytes, 1);
    let claims = |length: u64| [&length.to_le_bytes()[..], b"{}"].concat();
    assert_eq!(parse(&claims(100_000_000)).unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(parse(&claims(3)).unwrap_err().to_string().contains("cut off"));
    assert!(parse(&claims(2)).unwrap().tensors().is_empty());
    for file in [&b""[..], b"PK\x03\x04", b"12345678x", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x10"] {
        assert_eq!(parse(file).unwrap_err().kind(), ErrorKind::InvalidInput, "{file:?}");
    }
}

#[test]
fn arrays_of_numpy_are_read_and_what_is_not_offered_is_named() {
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
        // Both orders are one, and so are byte orders.
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

/// Start, stop and step.
type Range = (Option<i64>, Option<i64>, u64);

/// A dimension with a slice of it.
fn dimension() -> impl Strategy<Value = (u64, Range)> {
    (0_u64..6, prop::option::of(-7_i64..7), prop::option::of(-7_i64..7), 1_u64..4)
        .prop_map(|(of, start, stop, step)| (of, (start, stop, step)))
}

/// Every element that NumPy would take, by looking at each one's coordinates.
fn expected(dims: &[(u64, Range)]) -> Vec<u64> {
    let total: u64 = dims.iter().map(|(of, _)| of).product();
    let is_taken = |element: &u64| {
        let mut rest = *element;
        dims.iter().rev().all(|(of, (start, stop, step))| {
            let (at, size) = (i64::try_from(rest % of).unwrap(), i64::try_from(*of).unwrap());
            rest /= of;
            let place = |bound: i64| if bound < 0 { (size + bound).max(0) } else { bound.min(size) };
            let (start, stop) = (start.map_or(0, place), stop.map_or(size, place));
            at >= start && at < stop && (at - start) % i64::try_from(*step).unwrap() == 0
        })
    };
    (0..total).filter(is_taken).collect()
}

/// What headers of `.npy` are made of, and what they are not.
const TOKENS: [&str; 24] = [
    "{",
    "}",
    "}",
    "(",
    ")",
    ")",
    "[",
    "]",
    ",",
    ",",
    ":",
    " ",
    "'descr'",
    "'shape'",
    "\"fortran_order\"",
    "'>c8'",
    "'|O'",
    "'",
    "\\",
    "True",
    "2",
    "3L",
    "99999999999999999999",
    "é\0",
];

/// Few, so that some occur twice.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "é", r"\u0000", "__metadata__", "", "long"])
        .prop_map(|name| if name == "long" { "n".repeat(5_000) } else { name.to_owned() })
}

fn any_dtype() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["U8", "U8", "U8", "F4", "F6_E3M2", "F64", "C128", "none"])
}

fn dim() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0_u64..5, 1 => prop::sample::select(vec![u64::MAX, 1 << 63, 1 << 32])]
}

/// Mostly such as may fit.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![12 => prop::sample::select(vec![0_u64, 1, 2, 3, 4, 8]), 1 => any::<u64>()]
}

proptest! {
    #[test]
    fn plans_have_the_elements_that_a_look_at_each_one_finds(
        dims in prop::collection::vec(dimension(), 0..5),
        dtype in prop::sample::select(vec![Dtype::U8, Dtype::F16, Dtype::F32, Dtype::C128]),
        gap in 0_u64..40,
    ) {
        let shape: Vec<u64> = dims.iter().map(|(of, _)| *of).collect();
        let slice = Slice::of_ranges(dims.iter().map(|(_, range)| *range)).unwrap();
        let selection = slice.select(&shape).unwrap();
        let plan = Plan::new(dtype, &selection, Order::RowMajor).unwrap();
        // Column by column, dimensions are counted from the other end.
        let mut turned = dims.clone();
        turned.reverse();
        let slice = Slice::of_ranges(turned.iter().map(|(_, range)| *range)).unwrap();
        let turned: Vec<u64> = turned.iter().map(|(of, _)| *of).collect();
        let turned = Plan::new(dtype, &slice.select(&turned).unwrap(), Order::ColumnMajor).unwrap();
        prop_assert!(turned.eq(plan.clone()));
        let size = dtype.bytes_of(1).unwrap();
        let elements: Vec<u64> = plan.clone().flat_map(|run| (run.start / size)..(run.end() / size)).collect();
        let expected = expected(&dims);
        prop_assert_eq!(&elements, &expected);
        prop_assert_eq!(plan.bytes(), elements.len() as u64 * size);
        prop_assert_eq!(selection.shape().iter().product::<u64>(), elements.len() as u64);
        // Every run can be the next one.
        let runs: Vec<Run> = plan.clone().collect();
        for (number, run) in runs.iter().enumerate() {
            let mut later = plan.clone();
            later.skip_to(u64::try_from(number).unwrap());
            prop_assert_eq!(later.next(), Some(*run));
            prop_assert_eq!(later.next(), runs.get(number + 1).copied());
        }
        // Joined ones begin with the first and end with the last of their group, and have no wider gaps.
        let (joined, together) = plan.joined(gap);
        let groups: Vec<&[Run]> = runs.chunks(usize::try_from(together).unwrap()).collect();
        let joined: Vec<Run> = joined.collect();
        prop_assert_eq!(joined.len(), groups.len());
        for (one, group) in joined.iter().zip(groups) {
            prop_assert_eq!((one.start, one.end()), (group[0].start, group[group.len() - 1].end()));
            prop_assert!(group.windows(2).all(|pair| pair[1].start - pair[0].end() <= gap));
        }
        prop_assert!(plan.joined(u64::MAX).0.count() <= 1);
    }

    #[test]
    fn no_header_makes_a_reader_fall_over(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..80, is_npy: bool) {
        let mut file = if is_npy {
            npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24)
        } else {
            safetensors_file(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, 4)
        };
        let end = (at + bytes.len()).min(file.len());
        file[at.min(end)..end].copy_from_slice(&bytes[..end - at.min(end)]);
        if let Ok(catalogue) = parse(&file) {
            for tensor in catalogue.tensors() {
                prop_assert!(tensor.offset + tensor.bytes <= file.len() as u64);
            }
        }
        let _ = parse(&bytes);
    }

    #[test]
    fn no_literal_of_python_is_read_as_more_than_it_says(
        tokens in prop::collection::vec(prop::sample::select(TOKENS.to_vec()), 0..24),
        version in 1_u8..4,
        is_begun: bool,
    ) {
        let begin = if is_begun { "{'descr': '<f4', 'fortran_order': True, 'shape': (" } else { "" };
        let file = npy_file_of(version, &format!("{begin}{}", tokens.concat()), 24);
        match parse(&file) {
            Err(error) => prop_assert!(error.to_string().len() < 2_000),
            Ok(catalogue) => {
                let only = &catalogue.tensors()[0];
                prop_assert_eq!(only.bytes, tensor_bytes(only.dtype, &only.shape).unwrap());
                prop_assert_eq!(only.offset + only.bytes, file.len() as u64);
            }
        }
    }

    #[test]
    fn what_is_believed_of_a_header_covers_the_file_and_what_is_said_of_others_is_short(
        entries in prop::collection::vec((name(), any_dtype(), prop::collection::vec(dim(), 0..4), offset(), offset()), 0..5),
        tail in 0_usize..9,
        data in prop::sample::select(vec![0_usize, 1, 2, 3, 4, 8]),
    ) {
        let entries: Vec<String> = entries
            .iter()
            .map(|(name, dtype, shape, start, end)| {
                format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#)
            })
            .collect();
        let json = format!("{{{}}}{}", entries.join(","), " ".repeat(tail));
        let file = safetensors_file(&json, data);
        match parse(&file) {
            Err(error) => prop_assert!(error.to_string().len() < 2_000),
            Ok(catalogue) => {
                prop_assert_eq!(catalogue.tensors().len(), entries.len());
                let mut end = (file.len() - data) as u64;
                for tensor in catalogue.tensors() {
                    prop_assert_eq!(tensor.offset, end);
                    prop_assert_eq!(tensor.bytes, tensor_bytes(tensor.dtype, &tensor.shape).unwrap());
                    end += tensor.bytes;
                }
                prop_assert_eq!(end, file.len() as u64);
                prop_assert!(SafeTensors::deserialize(&file).is_ok(), "the reference refuses it: {}", json);
            }
        }
    }
}
