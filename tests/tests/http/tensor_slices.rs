//! Slices of tensors: their elements, and the blocks that are read for them.

use futures::StreamExt;
use ipfrs_core::{Cid, codec};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use reqwest::Method;
use safetensors::Dtype;
use tokio::runtime::Builder;

use crate::content::{self, assert_same};
use crate::crafted::Dag;
use crate::harness::{TestGateway, header};
use crate::tensors::file;
use crate::withholding::Withholding;

const CHUNK: usize = 262_144;

/// Slice of one dimension.
#[derive(Debug, Clone)]
enum Part {
    At(i64),
    Range(Option<i64>, Option<i64>, Option<usize>),
    /// Indices and ranges, only for the first dimension.
    List(Vec<Part>),
}

/// Generates a tensor's dimensions, with slices that fit them.
fn dimensions() -> impl Strategy<Value = Vec<(usize, Part)>> {
    let list = (1_usize..9).prop_flat_map(|size| {
        let end = i64::try_from(size).unwrap();
        let range = (prop::option::of(-10_i64..10), prop::option::of(-10_i64..10));
        let range = range.prop_map(|(start, stop)| Part::Range(start, stop, None));
        let item = prop_oneof![1 => range, 3 => (-end..end).prop_map(Part::At)];
        (Just(size), vec(item, 0..12).prop_map(Part::List))
    });
    let first = prop_oneof![1 => dimension().boxed(), 1 => list.boxed()];
    prop_oneof![
        1 => Just(Vec::new()).boxed(),
        9 => (first, vec(dimension(), 0..4)).prop_map(|(first, rest)| [vec![first], rest].concat()).boxed(),
    ]
}

/// Generates a dimension and a slice that fits it.
fn dimension() -> impl Strategy<Value = (usize, Part)> {
    (0_usize..9).prop_flat_map(|size| {
        let (bound, end) = (prop::option::of(-10_i64..10), i64::try_from(size).unwrap());
        let range = (bound.clone(), bound, prop::option::of(1_usize..4));
        let range = range.prop_map(|(start, stop, step)| Part::Range(start, stop, step)).boxed();
        let part = if size == 0 { range } else { prop_oneof![3 => range, 1 => (-end..end).prop_map(Part::At)].boxed() };
        (Just(size), part)
    })
}

impl Part {
    /// Returns the slice in the syntax of the query.
    fn text(&self) -> String {
        let bound = |bound: Option<i64>| bound.map(|bound| bound.to_string()).unwrap_or_default();
        match self {
            Self::At(index) => index.to_string(),
            Self::Range(start, stop, None) => format!("{}:{}", bound(*start), bound(*stop)),
            Self::Range(start, stop, Some(step)) => format!("{}:{}:{step}", bound(*start), bound(*stop)),
            Self::List(items) => format!("[{}]", items.iter().map(Self::text).collect::<Vec<_>>().join(",")),
        }
    }

    /// Returns the indices that the slice selects in a dimension of `size`, as Python's `range(*slice.indices(size))`
    /// does.
    fn places(&self, size: usize) -> Vec<usize> {
        let end = i64::try_from(size).unwrap();
        let from_start = |place: i64| if place < 0 { place + end } else { place };
        let all = 0..end;
        let taken: Vec<i64> = match self {
            Self::List(items) => return items.iter().flat_map(|item| item.places(size)).collect(),
            Self::At(index) => vec![from_start(*index)],
            Self::Range(start, stop, step) => {
                let (start, stop) = (start.map_or(0, from_start).max(0), stop.map_or(end, from_start));
                all.filter(|place| (start..stop).contains(place)).step_by(step.unwrap_or(1)).collect()
            }
        };
        taken.into_iter().map(|place| usize::try_from(place).unwrap()).collect()
    }
}

/// Returns the elements at all combinations of indices, outermost dimension first.
fn taken(data: &[u8], element: usize, dims: &[(usize, Vec<usize>)]) -> Vec<u8> {
    let Some(((_, places), inner)) = dims.split_first() else { return data[..element].to_vec() };
    let each = element * inner.iter().map(|(size, _)| size).product::<usize>();
    places.iter().flat_map(|place| taken(&data[place * each..], element, inner)).collect()
}

/// Requests a slice of a random tensor from `gateway`, completely and from `cut` on, and compares it.
async fn check(gateway: &TestGateway, dims: &[(usize, Part)], dtype: Dtype, named: usize, chunk: usize, cut: usize) {
    // Dimensions that the slice does not name are complete.
    let named = named.min(dims.len());
    let whole = |size: usize| (size, (0..size).collect::<Vec<_>>());
    let places = dims.iter().enumerate();
    let places =
        places.map(|(index, (size, part))| if index < named { (*size, part.places(*size)) } else { whole(*size) });
    let places: Vec<_> = places.collect();
    let shape: Vec<usize> = dims.iter().map(|(size, _)| *size).collect();
    let element = dtype.bitsize() / 8;
    let data = content::bytes(shape.iter().product::<usize>() * element);
    let expected = taken(&data, element, &places);
    let kept = dims.iter().zip(&places).enumerate();
    let kept = kept.filter(|(index, ((_, part), _))| *index >= named || !matches!(part, Part::At(_)));
    let expected_shape: Vec<_> = kept.map(|(_, (_, (_, places)))| places.len().to_string()).collect();

    let cid = gateway.add(&format!("pin=false&chunker=size-{chunk}"), file(&[("t", dtype, &shape, &data)])).await;
    let mut parts: Vec<_> = dims[..named].iter().map(|(_, part)| part.text()).collect();
    parts.extend((named < dims.len()).then(|| "...".to_owned()));
    let path = format!("/v1/tensor/{cid}?name=t&slice={}", parts.join(","));
    let response = gateway.get(&path).await;
    assert_eq!(
        (response.status().as_u16(), header(&response, "x-tensor-shape")),
        (200, &*expected_shape.join(",")),
        "{path}"
    );
    assert_same(&response.bytes().await.unwrap(), &expected, &path);
    if cut < expected.len() {
        let request = gateway.request(Method::GET, &path).header("range", format!("bytes={cut}-"));
        assert_same(&request.send().await.unwrap().bytes().await.unwrap(), &expected[cut..], &path);
    }
}

#[test]
fn slices_match_an_independent_implementation() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (slicing, copying) = runtime.block_on(async {
        (TestGateway::start().await, TestGateway::start_with(|config| config.tensor.zero_copy = false).await)
    });
    let dtype = prop::sample::select(vec![Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::C64]);
    let cases = (dimensions(), dtype, 0_usize..5, 50_usize..700, 0_usize..200);
    let config = Config { cases: 96, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&cases, |(dims, dtype, named, chunk, cut)| {
        runtime.block_on(async {
            check(&slicing, &dims, dtype, named, chunk, cut).await;
            check(&copying, &dims, dtype, named, chunk, cut).await;
        });
        Ok(())
    });
    outcome.unwrap();
    runtime.block_on(async {
        slicing.stop().await;
        copying.stop().await;
    });
}

/// Returns a gateway with the root of a file of one 16 MiB tensor, [8, 4, 512 KiB] of U8, and only the leaves in
/// `has`; and the content ID of the file, its bytes, and the offset of the tensor.
async fn with_some_leaves(has: &[usize]) -> (TestGateway, String, bytes::Bytes, usize) {
    let (whole, gateway) = (TestGateway::start().await, TestGateway::start().await);
    let data = content::bytes(64 * CHUNK);
    let bytes = file(&[("t", Dtype::U8, &[8, 4, 2 * CHUNK], &data)]);
    let cid = whole.add("raw-leaves=true&cid-version=0", bytes.clone()).await;
    let root = whole.rpc_bytes(&format!("block/get?arg={cid}")).await;
    gateway.put_block("format=v0", root).await;
    for leaf in has {
        let end = ((leaf + 1) * CHUNK).min(bytes.len());
        gateway.add("raw-leaves=true&cid-version=0", bytes.slice(leaf * CHUNK..end)).await;
    }
    let start = bytes.len() - data.len();
    (gateway, cid, bytes, start)
}

#[tokio::test(flavor = "multi_thread")]
async fn slice_reads_only_the_blocks_it_needs() {
    // Each row of 512 KiB spans three leaves, because the header precedes the data in the first leaf.
    for (slice, has, bytes) in [
        // Leading dimensions: one span of the file.
        ("2,1", &[0, 18, 19, 20][..], (18 * CHUNK, 2 * CHUNK)),
        ("2,1:2,:300000", &[0, 18, 19], (18 * CHUNK, 300_000)),
        // Two bytes of each of four distant rows.
        ("2,:,1:3", &[0, 16, 18, 20, 22], (16 * CHUNK + 1, 2)),
        ("::3,0,5:7", &[0, 24, 48], (5, 2)),
    ] {
        let (gateway, cid, file, start) = with_some_leaves(has).await;
        let info = gateway.get(&format!("/v1/tensor/{cid}/info")).await;
        assert_eq!(info.status(), 200, "the header is here");
        info.bytes().await.unwrap();
        let before = gateway.metric("ipfrs_blocks_retrieved_total").await;
        let sliced = gateway.content(&format!("/v1/tensor/{cid}?name=t&slice={slice}")).await;
        let (from, len) = bytes;
        assert_same(&sliced[..len], &file[start + from..start + from + len], slice);
        let read = gateway.metric("ipfrs_blocks_retrieved_total").await - before;
        let touched = u64::try_from(has.len()).unwrap();
        // The root, and each leaf once. The leaf with the header counts if the slice includes it.
        assert!(read <= touched + 1, "{slice}: {read} blocks were read where {touched} are touched");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slice_is_flushed_while_waiting_for_a_block() {
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), |_| {}).await;
    let mut dag = Dag::default();
    let (usual, late) = (dag.put(codec::RAW, vec![1; 1 << 20]), dag.put(codec::RAW, vec![2; 1 << 20]));
    let head = head("[100,1048576]", 100 << 20);
    let mut parts = vec![(usual, 1 << 20); 100];
    parts[80] = (late, 1 << 20);
    parts.insert(0, (dag.put(codec::RAW, head.clone()), u64::try_from(head.len()).unwrap()));
    let cid = dag.file(&[], &parts).to_string();
    dag.import(&gateway).await;
    store.withhold(&late.to_string());
    // Two bytes of each mebibyte, so a piece would never be full.
    let mut body = gateway.get(&format!("/v1/tensor/{cid}?name=t&slice=:,5:7")).await.bytes_stream();
    let mut all = body.next().await.unwrap().unwrap().to_vec();
    assert_same(&all, &vec![1; all.len()], "before the block that is late");
    store.release();
    while let Some(piece) = body.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    let expected: Vec<u8> = (0..200).map(|byte| if byte / 2 == 80 { 2 } else { 1 }).collect();
    assert_same(&all, &expected, "all");
}

/// Returns the header of a file of one U8 tensor.
fn head(shape: &str, bytes: u64) -> Vec<u8> {
    let json = format!("{{\"t\":{{\"dtype\":\"U8\",\"shape\":{shape},\"data_offsets\":[0,{bytes}]}}}}");
    [&u64::try_from(json.len()).unwrap().to_le_bytes()[..], json.as_bytes()].concat()
}

/// Adds a tensor of a terabyte in a few blocks: the header, and the same mebibyte repeatedly.
async fn terabyte(gateway: &TestGateway) -> String {
    let mut dag = Dag::default();
    let head = head("[1048576,1048576]", 1 << 40);
    let mebibyte: Vec<u8> = (0..1_u32 << 20).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
    let mut below: (Cid, u64) = (dag.put(codec::RAW, mebibyte), 1 << 20);
    for width in [128, 128, 64] {
        below = (dag.file(&[], &vec![below; width]), below.1 * u64::try_from(width).unwrap());
    }
    let head = (dag.put(codec::RAW, head.clone()), u64::try_from(head.len()).unwrap());
    let root = dag.file(&[], &[head, below]);
    dag.import(gateway).await;
    root.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_of_a_terabyte_need_no_element_list() {
    let gateway = TestGateway::start().await;
    let cid = terabyte(&gateway).await;
    // Slice, bytes of the result and of each of its rows, and first byte and step of a row within the mebibyte.
    for (slice, length, row, first, step) in [
        ("::2,::2", 1_u64 << 38, 1 << 19, 0, 2),
        (":,7:1000000:10", (1 << 20) * 100_000, 100_000, 7, 10),
        ("::1000", 1_049 << 20, 1 << 20, 0, 1),
    ] {
        let path = format!("/v1/tensor/{cid}?name=t&slice={slice}");
        let head = gateway.request(Method::HEAD, &path).send().await.unwrap();
        assert_eq!(header(&head, "content-length"), length.to_string());
        // A range from the middle.
        let middle = length / 2 / row * row;
        let request = gateway.request(Method::GET, &path).header("range", format!("bytes={middle}-{}", middle + 4_999));
        let expected: Vec<u8> =
            (0..5_000_u32).map(|index| u8::try_from((first + index * step) % 251).unwrap()).collect();
        assert_same(&request.send().await.unwrap().bytes().await.unwrap(), &expected, slice);
        // A client that reads the beginning and disconnects does not wait for the rest.
        let mut body = gateway.get(&path).await.bytes_stream();
        assert_same(&body.next().await.unwrap().unwrap()[..100], &expected[..100], slice);
    }
}
