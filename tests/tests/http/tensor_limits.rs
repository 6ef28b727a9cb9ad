//! Tensors with blocked content, slow blocks, or unusual layouts.

use std::fs;
use std::time::Duration;

use futures::future::join_all;
use ipfrs_core::codec;
use reqwest::Method;
use safetensors::Dtype;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::batch_get::problem;
use crate::content::{self, assert_same};
use crate::crafted::Dag;
use crate::harness::{TestGateway, header};
use crate::multipart::Form;
use crate::tensors::file;
use crate::wire::exchange;
use crate::withholding::Withholding;

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

const CHUNK: usize = 262_144;

#[tokio::test(flavor = "multi_thread")]
async fn blocked_tensors_are_refused_in_every_format() {
    let gateway = TestGateway::start().await;
    let data = content::bytes(3 * CHUNK);
    let model = file(&[("a", Dtype::U8, &[3, CHUNK], &data)]);
    let small = file(&[("a", Dtype::U8, &[3], &[1, 2, 3])]);
    let blocked = gateway.add("cid-version=1", small.clone()).await;
    let other = file(&[("a", Dtype::U8, &[2], &[4, 5])]);
    let form = Form::new().file("d/in/bad.safetensors", other);
    let root = gateway.add_form("cid-version=1", form).await.last().unwrap()["Hash"].as_str().unwrap().to_owned();
    let large = gateway.add("cid-version=1", model.clone()).await;
    let leaf = gateway.add("cid-version=1", model.slice(2 * CHUNK..3 * CHUNK)).await;
    let name = gateway.rpc_json(&format!("name/publish?arg={blocked}")).await["Name"].as_str().unwrap().to_owned();
    let repo = gateway.stop().await;
    fs::write(repo.path().join("0.deny"), format!("/ipfs/{blocked}\n/ipfs/{root}/in/*\n/ipfs/{leaf}\n")).unwrap();
    let gateway = TestGateway::start_on(repo, |config| config.gateway.denylists = vec!["0.deny".into()]).await;
    let paths =
        [blocked.clone(), format!("ipfs/{blocked}"), format!("ipns/{name}"), format!("{root}/in/bad.safetensors")];
    for path in &paths {
        for query in ["", "?name=a", "?name=a&slice=::2", "?name=a&format=npy", "?info", "?stats", "/info", "/stats"] {
            let refused = problem(gateway.get(&format!("/v1/tensor/{path}{query}")).await, 410, "gone").await;
            let detail = refused["detail"].as_str().unwrap();
            assert!(detail.contains("is blocked and cannot be provided"), "{path}{query}: {detail}");
        }
        let tagged = gateway.request(Method::GET, &format!("/v1/tensor/{path}")).header("if-none-match", "*");
        problem(tagged.send().await.unwrap(), 410, "gone").await;
    }
    // The rows before the blocked block are served.
    let row = gateway.content(&format!("/v1/tensor/{large}?name=a&slice=0")).await;
    assert_same(&row, &data[..CHUNK], "the first row");
    problem(gateway.get(&format!("/v1/tensor/{large}?name=a&slice=2")).await, 410, "gone").await;
    for query in ["?name=a", "?name=a&slice=:,::200000", "?format=safetensors", "/stats"] {
        let answer = exchange(&gateway, &format!("GET /v1/tensor/{large}{query} HTTP/1.1")).await;
        assert!(answer.status == 410 || !answer.is_complete, "{query}: {} looks whole", answer.status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tensors_with_stalled_blocks_return_504_or_abort() {
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), |config| config.gateway.retrieval_timeout_seconds = 1).await;
    let data = content::bytes(40 * CHUNK);
    let model = file(&[("a", Dtype::U8, &[40, CHUNK], &data)]);
    let cid = gateway.add("raw-leaves=true", model.clone()).await;
    let small = gateway.add("raw-leaves=true", file(&[("a", Dtype::U8, &[1], &[1])])).await;
    let leaf = gateway.add("raw-leaves=true", model.slice(39 * CHUNK..40 * CHUNK)).await;
    store.withhold(&small);
    store.withhold(&leaf);
    let first =
        [format!("{small}?name=a"), format!("{small}/info"), format!("{cid}?name=a&slice=39"), format!("{cid}/stats")];
    let heads = join_all(first.iter().map(async |path| {
        let text = problem(gateway.get(&format!("/v1/tensor/{path}")).await, 504, "timeout").await.to_string();
        assert!(text.contains("gateway.retrieval_timeout_seconds = 1"), "{path}: {text}");
    }));
    let bodies = join_all(["?name=a", "?name=a&slice=:,:40000", "?format=safetensors"].map(async |query| {
        let answer = exchange(&gateway, &format!("GET /v1/tensor/{cid}{query} HTTP/1.1")).await;
        assert_eq!((answer.status, answer.is_complete), (200, false), "{query}");
    }));
    timeout(WATCHDOG, async { tokio::join!(heads, bodies) }).await.unwrap();
    assert!(gateway.metric("ipfrs_refusals_total{limit=\"retrieval_timeout\"}").await >= 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn tensor_requests_take_request_permits() {
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), |config| config.gateway.max_concurrent_requests = 1).await;
    let cid = gateway.add("", file(&[("b", Dtype::U8, &[1], &[1])])).await;
    gateway.until_idle().await;
    store.withhold(&cid);
    let path = format!("/v1/tensor/{cid}");
    let held = tokio::spawn(gateway.request(Method::GET, &path).send());
    timeout(WATCHDOG, store.waiting(1)).await.unwrap();
    let refused = gateway.get(&path).await;
    assert_eq!(header(&refused, "retry-after"), "1");
    problem(refused, 429, "rate_limited").await;
    store.release();
    assert_eq!(held.await.unwrap().unwrap().bytes().await.unwrap()[..], [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tensor_requests_have_limits_on_ranges_parts_and_dimensions() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_ranges = 2).await;
    let data = content::bytes(1_000);
    let cid = gateway.add("", file(&[("a", Dtype::U8, &[1_000], &data)])).await;
    let path = format!("/v1/tensor/{cid}?name=a");
    for (ranges, status) in [("0-1,5-6", 206), ("0-1,5-6,8-9", 200)] {
        let request = gateway.request(Method::GET, &path).header("range", format!("bytes={ranges}"));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{ranges}");
        response.bytes().await.unwrap();
    }
    // More than 64 parts, and more than 64 dimensions.
    let parts = ["0"; 65].join(",");
    problem(gateway.get(&format!("{path}&slice={parts}")).await, 400, "invalid_input").await;
    let json = format!(r#"{{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[0,1]}}}}"#, ["1"; 65].join(","));
    let deep = [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), &[7]].concat();
    let deep = gateway.add("", deep).await;
    problem(gateway.get(&format!("/v1/tensor/{deep}/info")).await, 400, "invalid_input").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distant_rows_are_read_concurrently_within_a_bound() {
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), |_| {}).await;
    let mut dag = Dag::default();
    let leaves: Vec<_> = (0..40_u8).map(|row| dag.put(codec::RAW, vec![row; 1 << 20])).collect();
    let json = format!("{{\"t\":{{\"dtype\":\"U8\",\"shape\":[40,1048576],\"data_offsets\":[0,{}]}}}}", 40 << 20);
    let head = [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
    let mut parts = vec![(dag.put(codec::RAW, head.clone()), head.len() as u64)];
    parts.extend(leaves.iter().map(|leaf| (*leaf, 1 << 20)));
    let cid = dag.file(&[], &parts).to_string();
    dag.import(&gateway).await;
    gateway.get(&format!("/v1/tensor/{cid}/info")).await.bytes().await.unwrap();
    leaves.iter().for_each(|leaf| store.withhold(&leaf.to_string()));
    let column = tokio::spawn(gateway.request(Method::GET, &format!("/v1/tensor/{cid}?name=t&slice=:,7:9")).send());
    // The readahead is 4 MiB, and each part counts as 256 KiB.
    let waiting = timeout(WATCHDOG, store.waiting(16)).await.expect("one block is read after the other");
    assert_eq!(waiting, 16);
    store.release();
    let column = column.await.unwrap().unwrap().bytes().await.unwrap();
    assert_same(&column, &(0..40).flat_map(|row| [row, row]).collect::<Vec<u8>>(), "the column");
}

/// Returns a NumPy array file of U16 [3, 4] with the values 0 to 11 in C order.
pub(crate) fn array(is_big_endian: bool, is_fortran: bool) -> Vec<u8> {
    let (order, fortran) = (if is_big_endian { '>' } else { '<' }, if is_fortran { "True" } else { "False" });
    let dict = format!("{{'descr': '{order}u2', 'fortran_order': {fortran}, 'shape': (3, 4), }}\n");
    let values: Vec<u16> = match is_fortran {
        true => (0..12).map(|place| place % 3 * 4 + place / 3).collect(),
        false => (0..12).collect(),
    };
    let bytes =
        values.into_iter().flat_map(|value| if is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    [b"\x93NUMPY\x01\x00", &[u8::try_from(dict.len()).unwrap(), 0][..], dict.as_bytes(), &bytes.collect::<Vec<_>>()]
        .concat()
}

fn little_endian(values: &[u16]) -> Vec<u8> {
    values.iter().copied().flat_map(u16::to_le_bytes).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn npy_arrays_are_little_endian_and_report_their_order() {
    let slicing = TestGateway::start().await;
    let copying = TestGateway::start_with(|config| config.tensor.zero_copy = false).await;
    for (gateway, is_big_endian, is_fortran) in
        [(&slicing, true, false), (&slicing, false, true), (&slicing, true, true), (&copying, true, true)]
    {
        let what = format!("big-endian: {is_big_endian}, Fortran order: {is_fortran}");
        // Chunks so small that elements cross block boundaries.
        let cid = gateway.add("chunker=size-11", array(is_big_endian, is_fortran)).await;
        let info: Value = gateway.get(&format!("/v1/tensor/{cid}/info")).await.json().await.unwrap();
        let listed = &info["tensors"][0];
        assert_eq!((&listed["dtype"], &listed["shape"]), (&json!("U16"), &json!([3, 4])), "{what}");
        for (flag, is_set) in [("fortran_order", is_fortran), ("big_endian", is_big_endian)] {
            assert_eq!(listed[flag].as_bool().unwrap_or(false), is_set, "{what}");
        }
        let stats: Value = gateway.get(&format!("/v1/tensor/{cid}/stats")).await.json().await.unwrap();
        let stats = &stats["tensors"][0];
        assert_eq!((&stats["count"], &stats["max"], &stats["mean"]), (&json!(12), &json!(11.0), &json!(5.5)), "{what}");
        // A single row or column has the same layout in both orders.
        for (slice, values) in [("1", &[4, 5, 6, 7][..]), (":,-1", &[3, 7, 11]), ("2,::3", &[8, 11]), ("3:", &[])] {
            let path = format!("/v1/tensor/{cid}?slice={slice}");
            let expected = little_endian(values);
            assert_same(&gateway.content(&path).await, &expected, &format!("{slice}, {what}"));
            for first in 0..expected.len() {
                let part = gateway.request(Method::GET, &path).header("range", format!("bytes={first}-"));
                assert_same(&part.send().await.unwrap().bytes().await.unwrap(), &expected[first..], &what);
            }
        }
        for (slice, by_rows, by_columns, shape) in [
            ("", (0..12).collect::<Vec<_>>(), vec![0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11], "(3, 4)"),
            ("&slice=::2,1:3", vec![1, 2, 9, 10], vec![1, 9, 2, 10], "(2, 2)"),
        ] {
            let path = format!("/v1/tensor/{cid}?format=npy{slice}");
            let (values, fortran) = if is_fortran { (by_columns, "True") } else { (by_rows, "False") };
            let npy = gateway.content(&path).await;
            let dict = format!("{{'descr': '<u2', 'fortran_order': {fortran}, 'shape': {shape}, }}");
            assert_eq!(String::from_utf8_lossy(&npy[10..128]).trim_end(), dict, "{what}");
            assert_same(&npy[128..], &little_endian(&values), &what);
            for format in ["raw", "safetensors", "arrow"] {
                let path = format!("/v1/tensor/{cid}?format={format}{slice}");
                if is_fortran {
                    let refused = problem(gateway.get(&path).await, 501, "unsupported").await;
                    assert!(refused["detail"].as_str().unwrap().contains("format npy"), "{refused}");
                } else {
                    assert!(gateway.content(&path).await.windows(values.len() * 2).any(|at| at == &npy[128..]));
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_tensor_list_is_parsed_once() {
    let gateway = TestGateway::start_with(|config| config.cache.max_bytes = 1 << 20).await;
    let text = "\"é\u{1}\n".repeat(100_000);
    let json = json!({"__metadata__": {"text": text, "": "b"}}).to_string();
    let cid = gateway.add("", [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat()).await;
    for _ in 0..3 {
        let info: Value = gateway.get(&format!("/v1/tensor/{cid}/info")).await.json().await.unwrap();
        assert_eq!(
            info,
            json!({"cid": cid, "format": "safetensors", "metadata": {"text": text, "": "b"}, "tensors": []})
        );
    }
    assert_eq!(gateway.metric("ipfrs_cache_misses_total{cache=\"tensor\"}").await, 1);
    assert_eq!(gateway.metric("ipfrs_cache_hits_total{cache=\"tensor\"}").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn tensor_without_elements_is_served() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", file(&[("none", Dtype::F32, &[0, 4], &[]), ("some", Dtype::U8, &[2], &[1, 2])])).await;
    for (query, length) in [("", 0), ("&slice=0:0", 0), ("&format=npy", 128)] {
        let response = gateway.get(&format!("/v1/tensor/{cid}?name=none{query}")).await;
        assert_eq!(
            (header(&response, "content-length"), header(&response, "x-tensor-shape")),
            (&*length.to_string(), "0,4")
        );
        assert_eq!(response.bytes().await.unwrap().len(), length);
    }
    gateway.content(&format!("/v1/tensor/{cid}?name=some&slice=2:")).await;
    gateway.content(&format!("/v1/tensor/{cid}/stats")).await;
    for (operation, count) in [("get", 2), ("slice", 2), ("stats", 2)] {
        let name = format!("ipfrs_tensor_operations_total{{type=\"{operation}\"}}");
        assert_eq!(gateway.metric(&name).await, count, "{operation}");
    }
    assert_eq!(gateway.metric("ipfrs_tensor_size_bytes_count").await, 6);
}
