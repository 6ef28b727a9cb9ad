//! Properties that hold for any shape, slice and header.

use ipfrs_tensor::{Dtype, Order, Plan, Run, Slice, tensor_bytes};
use proptest::prelude::*;
use safetensors::SafeTensors;

use super::{npy_file, npy_file_of, parse, safetensors_file};

/// Start, stop and step.
type Range = (Option<i64>, Option<i64>, u64);

/// Generates a dimension and a slice of it.
fn dimension() -> impl Strategy<Value = (u64, Range)> {
    (0_u64..6, prop::option::of(-7_i64..7), prop::option::of(-7_i64..7), 1_u64..4)
        .prop_map(|(of, start, stop, step)| (of, (start, stop, step)))
}

/// Returns every element that NumPy would select, by examining the coordinates of each one.
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

/// Tokens that `.npy` headers consist of, and other tokens.
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

/// Generates one of a few names, so that some are repeated.
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

/// Generates offsets of which most may be valid.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![12 => prop::sample::select(vec![0_u64, 1, 2, 3, 4, 8]), 1 => any::<u64>()]
}

proptest! {
    #[test]
    fn plan_selects_same_elements_as_oracle(
        dims in prop::collection::vec(dimension(), 0..5),
        dtype in prop::sample::select(vec![Dtype::U8, Dtype::F16, Dtype::F32, Dtype::C128]),
        gap in 0_u64..40,
    ) {
        let shape: Vec<u64> = dims.iter().map(|(of, _)| *of).collect();
        let slice = Slice::of_ranges(dims.iter().map(|(_, range)| *range)).unwrap();
        let selection = slice.select(&shape).unwrap();
        let plan = Plan::new(dtype, &selection, Order::RowMajor).unwrap();
        // In column-major order, the dimensions are reversed.
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
        // Every run can be skipped to.
        let runs: Vec<Run> = plan.clone().collect();
        for (number, run) in runs.iter().enumerate() {
            let mut later = plan.clone();
            later.skip_to(u64::try_from(number).unwrap());
            prop_assert_eq!(later.next(), Some(*run));
            prop_assert_eq!(later.next(), runs.get(number + 1).copied());
        }
        // A joined run spans from the first to the last run of its group, and contains no wider gaps.
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
    fn header_parsers_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..80, is_npy: bool) {
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
    fn npy_parser_never_overreads_python_literals(
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
    fn accepted_headers_cover_file_and_errors_are_short(
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
