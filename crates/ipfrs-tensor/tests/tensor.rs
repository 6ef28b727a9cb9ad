//! Headers, slices and plans against independent readers and writers.

// clippy.toml lets tests unwrap, but does not see that the functions beside them are tests too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use ipfrs_core::ErrorKind;
use ipfrs_tensor::{Catalogue, Dtype, Header, PREFIX_BYTES, Plan, Run, Slice, TensorFormat, safetensors_head};
use proptest::prelude::*;
use safetensors::SafeTensors;

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
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend_from_slice(&u16::try_from(dict.len()).unwrap().to_le_bytes());
    file.extend_from_slice(dict.as_bytes());
    file.resize(file.len() + data, 7);
    file
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
    ] {
        let error = parse(&safetensors_file(&json, data)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{json}");
        assert!(error.to_string().contains(reason), "{error}: {reason}");
    }
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
    }
    for (dict, data, kind) in [
        ("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4, ErrorKind::Unsupported),
        ("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", 16, ErrorKind::Unsupported),
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

fn npy_head(dtype: Dtype, shape: &[u64]) -> ipfrs_core::Result<Vec<u8>> {
    let framing = TensorFormat::Npy.frame("", dtype, shape, &BTreeMap::new())?;
    assert!(framing.tail.is_empty());
    Ok(framing.head)
}

#[test]
fn a_head_for_numpy_is_read_back() {
    for dtype in [Dtype::Bool, Dtype::F16, Dtype::U64, Dtype::C128] {
        for shape in [&[][..], &[5], &[2, 3], &[0], &[1, 1, 1, 1, 1, 1]] {
            let mut file = npy_head(dtype, shape).unwrap();
            assert_eq!(file.len() % 64, 0);
            let bytes = dtype.bytes_of(shape.iter().product()).unwrap();
            file.resize(file.len() + usize::try_from(bytes).unwrap(), 0);
            assert_eq!(parse(&file).unwrap().get("").unwrap().shape, shape);
        }
    }
    assert_eq!(npy_head(Dtype::F4, &[2]).unwrap_err().kind(), ErrorKind::Unsupported);
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
        let plan = Plan::new(Dtype::F32, &slice.select(&[4, 6, 5]).unwrap()).unwrap();
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
        let plan = Plan::new(dtype, &selection).unwrap();
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
    fn slices_of_elements_below_a_byte_are_whole_bytes_or_refused(start in 0_i64..9, stop in 0_i64..9) {
        let slice = Slice::of_ranges([(Some(start), Some(stop), 1)]).unwrap();
        let plan = Plan::new(Dtype::F4, &slice.select(&[8]).unwrap());
        let (from, to) = (start.min(8), stop.min(8).max(start.min(8)));
        if from == to {
            prop_assert_eq!(plan.unwrap().bytes(), 0);
        } else if from % 2 == 0 && to % 2 == 0 {
            prop_assert_eq!(plan.unwrap().bytes(), u64::try_from((to - from) / 2).unwrap());
        } else {
            prop_assert_eq!(plan.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
}
