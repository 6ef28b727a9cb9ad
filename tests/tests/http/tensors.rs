//! `GET /v1/tensor/{cid}[/path]`: formats, headers, lists, statistics and errors. [`crate::tensor_slices`] tests
//! slices.

use std::collections::HashMap;
use std::io::Cursor;

use arrow_ipc::reader::StreamReader;
use bytes::Bytes;
use reqwest::{Method, Response};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use crate::batch_get::problem;
use crate::content::{self, assert_same};
use crate::harness::{TestGateway, header};
use crate::multipart::Form;
use crate::wire::exchange;

/// Every safetensors type with its name and its NumPy name, if it has one. NumPy does not support types smaller than
/// a byte.
const DTYPES: [(Dtype, &str, Option<&str>); 22] = [
    (Dtype::BOOL, "BOOL", Some("|b1")),
    (Dtype::F4, "F4", None),
    (Dtype::F6_E2M3, "F6_E2M3", None),
    (Dtype::F6_E3M2, "F6_E3M2", None),
    (Dtype::U8, "U8", Some("|u1")),
    (Dtype::I8, "I8", Some("|i1")),
    (Dtype::F8_E5M2, "F8_E5M2", Some("|V1")),
    (Dtype::F8_E4M3, "F8_E4M3", Some("|V1")),
    (Dtype::F8_E8M0, "F8_E8M0", Some("|V1")),
    (Dtype::F8_E4M3FNUZ, "F8_E4M3FNUZ", Some("|V1")),
    (Dtype::F8_E5M2FNUZ, "F8_E5M2FNUZ", Some("|V1")),
    (Dtype::I16, "I16", Some("<i2")),
    (Dtype::U16, "U16", Some("<u2")),
    (Dtype::F16, "F16", Some("<f2")),
    (Dtype::BF16, "BF16", Some("|V2")),
    (Dtype::I32, "I32", Some("<i4")),
    (Dtype::U32, "U32", Some("<u4")),
    (Dtype::F32, "F32", Some("<f4")),
    (Dtype::C64, "C64", Some("<c8")),
    (Dtype::F64, "F64", Some("<f8")),
    (Dtype::I64, "I64", Some("<i8")),
    (Dtype::U64, "U64", Some("<u8")),
];

/// Returns a file of tensors, written by the reference implementation.
pub(crate) fn file(tensors: &[(&str, Dtype, &[usize], &[u8])]) -> Bytes {
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, data)| (name.to_string(), TensorView::new(*dtype, shape.to_vec(), data).unwrap()));
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize(views, Some(metadata)).unwrap().into()
}

/// Returns a file with one tensor of 3 × 8 × 16 elements of every type, and the data of each.
fn every_type() -> (Bytes, Vec<Bytes>) {
    let bytes_of = |dtype: Dtype| 3 * 8 * 16 * dtype.bitsize() / 8;
    let data: Vec<_> = DTYPES.iter().map(|(dtype, name, _)| content::keystream(name, bytes_of(*dtype))).collect();
    let tensors: Vec<_> =
        DTYPES.iter().zip(&data).map(|((dtype, name, _), data)| (*name, *dtype, &[3, 8, 16][..], &data[..])).collect();
    (file(&tensors), data)
}

/// Returns a NumPy array file.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u8::try_from(dict.len()).unwrap();
    [b"\x93NUMPY\x01\x00", &[length, 0][..], dict.as_bytes(), data].concat()
}

async fn get(gateway: &TestGateway, path: &str, name: &str, value: &str) -> Response {
    gateway.request(Method::GET, path).header(name, value).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tensor_type_is_exact_in_every_format() {
    let gateway = TestGateway::start().await;
    let (file, data) = every_type();
    let cid = gateway.add("chunker=size-1000", file).await;
    for ((dtype, name, numpy), data) in DTYPES.iter().zip(&data) {
        let path = format!("/v1/tensor/{cid}?name={name}");
        let raw = gateway.get(&path).await;
        assert_eq!((header(&raw, "x-tensor-dtype"), header(&raw, "x-tensor-shape")), (*name, "3,8,16"));
        assert_eq!(header(&raw, "content-length"), data.len().to_string(), "{name}");
        assert_same(&raw.bytes().await.unwrap(), data, name);

        // Slices are available in every format.
        let row = data.len() / 3;
        let safetensors = gateway.content(&format!("{path}&slice=1:&format=safetensors")).await;
        let reference = SafeTensors::deserialize(&safetensors).unwrap();
        let view = reference.tensor(name).unwrap();
        assert_eq!((view.dtype(), view.shape()), (*dtype, &[2, 8, 16][..]));
        assert_same(view.data(), &data[row..], name);

        let Some(numpy) = numpy else {
            for format in ["npy", "arrow"] {
                problem(gateway.get(&format!("{path}&format={format}")).await, 501, "unsupported").await;
            }
            continue;
        };
        let npy = gateway.content(&format!("{path}&format=npy")).await;
        let head = npy.len() - data.len();
        let dict = format!("{{'descr': '{numpy}', 'fortran_order': False, 'shape': (3, 8, 16), }}");
        assert!(npy.starts_with(b"\x93NUMPY\x01\x00") && head % 64 == 0 && npy[head - 1] == b'\n');
        assert_eq!(String::from_utf8_lossy(&npy[10..head]).trim_end(), dict);
        assert_same(&npy[head..], data, name);

        let arrow = gateway.content(&format!("{path}&format=arrow")).await;
        let mut batches = StreamReader::try_new(Cursor::new(arrow), None).unwrap();
        let batch = batches.next().unwrap().unwrap();
        assert!(batches.next().is_none());
        let schema = batch.schema();
        assert_eq!(schema.field(0).metadata()["dtype"], *name);
        let column = batch.column(0).to_data();
        assert_eq!(column.len(), 3, "a row for each of the outermost dimension");
        assert_same(column.child_data()[0].buffers()[0].as_slice(), data, name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tensor_subset_is_a_valid_safetensors_file() {
    let gateway = TestGateway::start().await;
    let (file, data) = every_type();
    let cid = gateway.add("chunker=size-1000", file).await;
    for (query, names) in [("name=U8&name=BF16&", vec!["U8", "BF16"]), ("", DTYPES.map(|(_, name, _)| name).to_vec())] {
        let subset = gateway.content(&format!("/v1/tensor/{cid}?{query}format=safetensors")).await;
        let (_, described) = SafeTensors::read_metadata(&subset).unwrap();
        assert_eq!(described.metadata().as_ref().unwrap()["format"], "pt", "what loaders look at is kept");
        let reference = SafeTensors::deserialize(&subset).unwrap();
        assert_eq!(reference.len(), names.len());
        for name in names {
            let expected = &data[DTYPES.iter().position(|(_, known, _)| *known == name).unwrap()];
            assert_same(reference.tensor(name).unwrap().data(), expected, name);
        }
        // Ranges cover the header and the tensors.
        let path = format!("/v1/tensor/{cid}?{query}format=safetensors");
        let end = subset.len() - 1;
        for (first, last) in [(0, 9), (5, end), (end - 1_000, end - 1), (end, end)] {
            let part = get(&gateway, &path, "range", &format!("bytes={first}-{last}")).await;
            assert_eq!(
                (part.status().as_u16(), header(&part, "content-range")),
                (206, &*format!("bytes {first}-{last}/{}", end + 1))
            );
            assert_same(&part.bytes().await.unwrap(), &subset[first..=last], &path);
        }
    }
    for query in ["name=U8&name=BF16", "name=U8&name=BF16&format=safetensors&slice=1", "", "format=npy"] {
        problem(gateway.get(&format!("/v1/tensor/{cid}?{query}")).await, 400, "invalid_input").await;
    }
    let twice = gateway.get(&format!("/v1/tensor/{cid}?name=U8&name=U8&format=safetensors")).await;
    problem(twice, 400, "invalid_input").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tensor_responses_support_etags_and_ranges() {
    let gateway = TestGateway::start().await;
    let data = content::bytes(40_000);
    let cid = gateway.add("chunker=size-3000", file(&[("layer/0 w", Dtype::F32, &[100, 100], &data)])).await;
    let path = format!("/v1/tensor/{cid}?name=layer/0+w");
    let sliced = format!("{path}&slice=10:20,5:15");
    for (path, length, shape, extension) in [
        (&path, 40_000, "100,100", "bin"),
        (&sliced, 400, "10,10", "bin"),
        (&format!("{path}&format=npy"), 40_128, "100,100", "npy"),
    ] {
        // Elements are never compressed.
        let whole = get(&gateway, path, "accept-encoding", "gzip, br, zstd").await;
        let head = gateway.request(Method::HEAD, path).send().await.unwrap();
        for name in
            ["content-length", "etag", "x-tensor-shape", "x-tensor-dtype", "content-type", "content-disposition"]
        {
            assert_eq!(header(&head, name), header(&whole, name), "{name} of HEAD");
        }
        assert_eq!(header(&whole, "content-length"), length.to_string());
        assert_eq!((header(&whole, "x-tensor-shape"), header(&whole, "content-encoding")), (shape, ""));
        assert_eq!((header(&whole, "accept-ranges"), header(&whole, "x-content-type-options")), ("bytes", "nosniff"));
        assert!(header(&whole, "cache-control").contains("immutable"));
        assert!(header(&whole, "content-disposition").contains(&format!("\"layer_0 w.{extension}\"")));
        let etag = header(&whole, "etag").to_owned();
        let body = whole.bytes().await.unwrap();
        let known = get(&gateway, path, "if-none-match", &etag).await;
        assert_eq!((known.status().as_u16(), header(&known, "etag")), (304, &*etag));
        assert_eq!(get(&gateway, path, "if-match", "\"other\"").await.status(), 412);
        for (first, last) in [(0, 0), (1, 2), (100, length - 2), (length - 1, length - 1)] {
            let part = get(&gateway, path, "range", &format!("bytes={first}-{last}")).await;
            assert_eq!(part.status(), 206);
            assert_same(&part.bytes().await.unwrap(), &body[first..=last], path);
        }
        let beyond = get(&gateway, path, "range", &format!("bytes={length}-")).await;
        assert_eq!(header(&beyond, "content-range"), format!("bytes */{length}"));
        problem(beyond, 416, "range_not_satisfiable").await;
        let several = get(&gateway, path, "range", "bytes=0-1,5-6").await;
        assert!(header(&several, "content-type").starts_with("multipart/byteranges"));
    }
    let etags = [&path, &sliced, &format!("{path}&format=npy"), &format!("/v1/tensor/{cid}?info")].map(|path| {
        let request = gateway.request(Method::HEAD, path);
        async move { header(&request.send().await.unwrap(), "etag").to_owned() }
    });
    let mut etags = futures::future::join_all(etags).await;
    etags.sort();
    etags.dedup();
    assert_eq!(etags.len(), 4, "one for each sequence of bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn tensors_are_listed_and_an_npy_file_needs_no_name() {
    let gateway = TestGateway::start().await;
    let bytes = file(&[("a", Dtype::F32, &[2, 3], &[7; 24]), ("b \"é\"", Dtype::BF16, &[], &[1, 2])]);
    let start = bytes.len() - 26;
    let npy = npy("<i2", "(2,)", &[1, 0, 2, 0]);
    let model = gateway.add("", bytes).await;
    let array = gateway.add("", npy).await;
    let info: Value = gateway.get(&format!("/v1/tensor/{model}/info")).await.json().await.unwrap();
    let expected = json!([
        {"name": "a", "dtype": "F32", "shape": [2, 3], "size_bytes": 24, "offset": start},
        {"name": "b \"é\"", "dtype": "BF16", "shape": [], "size_bytes": 2, "offset": start + 24},
    ]);
    assert_eq!((&info["tensors"], &info["cid"], &info["format"]), (&expected, &json!(model), &json!("safetensors")));
    assert_eq!(info["metadata"], json!({"format": "pt"}));
    let one: Value = gateway.get(&format!("/v1/tensor/{model}?info&name=a")).await.json().await.unwrap();
    assert_eq!(one["tensors"], json!([expected[0]]));
    let scalar = gateway.get(&format!("/v1/tensor/{model}?name=b+%22%C3%A9%22")).await;
    assert_eq!(scalar.headers()["x-tensor-shape"], "");
    assert_eq!(&scalar.bytes().await.unwrap()[..], [1, 2]);
    assert_eq!(&gateway.content(&format!("/v1/tensor/{array}")).await[..], [1, 0, 2, 0]);
    assert_eq!(&gateway.content(&format!("/v1/tensor/{array}?slice=-1")).await[..], [2, 0]);
    let stats: Value = gateway.get(&format!("/v1/tensor/{array}/stats")).await.json().await.unwrap();
    let sums = json!({"name": "", "dtype": "I16", "shape": [2], "size_bytes": 4, "count": 2, "nan": 0, "inf": 0, "zero": 0,
        "min": 1.0, "max": 2.0, "mean": 1.5, "std": 0.5});
    assert_eq!(stats["tensors"], json!([sums]));
}

#[tokio::test(flavor = "multi_thread")]
async fn info_is_a_view_of_files_and_a_name_in_directories() {
    let gateway = TestGateway::start().await;
    let files = [("d/info", b"i"), ("d/x.npy", b"x"), ("d/stats", b"s")];
    let form = files.iter().fold(Form::new(), |form, (path, value)| form.file(path, npy("|u1", "(1,)", &value[..])));
    let root = gateway.add_form("", form).await.last().unwrap()["Hash"].as_str().unwrap().to_owned();
    for (path, value) in [("info", "i"), ("stats", "s"), ("x.npy", "x")] {
        assert_eq!(gateway.content(&format!("/v1/tensor/{root}/{path}")).await, value);
        for view in ["info", "stats"] {
            for path in [format!("{path}/{view}"), format!("{path}?{view}")] {
                let told: Value = gateway.get(&format!("/v1/tensor/{root}/{path}")).await.json().await.unwrap();
                assert_eq!(told["tensors"][0]["size_bytes"], 1, "{path}");
            }
        }
    }
    assert_eq!(gateway.content(&format!("/v1/tensor/ipfs/{root}/x.npy")).await, "x");
    let name = gateway.rpc_json(&format!("name/publish?arg={root}")).await["Name"].as_str().unwrap().to_owned();
    let named = gateway.get(&format!("/v1/tensor/ipns/{name}/x.npy")).await;
    assert!(!header(&named, "cache-control").contains("immutable"), "its target may change");
    assert_eq!(named.text().await.unwrap(), "x");
    problem(gateway.get(&format!("/v1/tensor/{root}")).await, 400, "invalid_input").await;
    problem(gateway.get(&format!("/v1/tensor/{root}/none")).await, 404, "not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_tensor_headers_are_refused() {
    let gateway = TestGateway::start().await;
    let entry = |name: &str, shape: &str, offsets: &str| {
        format!("\"{name}\":{{\"dtype\":\"U8\",\"shape\":{shape},\"data_offsets\":{offsets}}}")
    };
    let cases = [
        (format!("{{{},{}}}", entry("a", "[4]", "[0,4]"), entry("b", "[4]", "[2,6]")), 6, "\"b\" begins at byte 2"),
        (format!("{{{}}}", entry("a", "[4]", "[4,8]")), 4, "are outside the 4 data bytes"),
        (format!("{{{},{}}}", entry("a", "[2]", "[0,2]"), entry("a", "[2]", "[2,4]")), 4, "\"a\" twice"),
        (format!("{{{}}}", entry("a", "[4294967296,4294967296,2]", "[0,0]")), 0, "number of elements exceeds 64 bits"),
        (format!("{{{}}}", entry("a", "[4]", "[0,4]")), 0, "are outside the 0 data bytes"),
        (String::from("{\"a\":7}"), 0, "cannot be read"),
    ];
    for (json, data, reason) in cases {
        let mut file = (json.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(json.as_bytes());
        file.resize(file.len() + data, 0);
        let cid = gateway.add("", file).await;
        for path in [format!("/v1/tensor/{cid}?name=a"), format!("/v1/tensor/{cid}/info")] {
            let problem = problem(gateway.get(&path).await, 400, "invalid_input").await;
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(reason) && detail.contains(&cid), "{detail}: {reason}");
        }
    }
    // A header length of 100 MB is refused before the header is read.
    let mut file = 100_000_000_u64.to_le_bytes().to_vec();
    file.extend_from_slice(b"{\"a\"");
    file.resize(300_000, b' ');
    let cid = gateway.add("", file).await;
    problem(gateway.get(&format!("/v1/tensor/{cid}/info")).await, 413, "too_large").await;
    let text = gateway.add("", "hello world, this is no model").await;
    problem(gateway.get(&format!("/v1/tensor/{text}")).await, 400, "invalid_input").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tensor_request_errors_name_the_parameter() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", file(&[("a", Dtype::U8, &[4], &[1; 4]), ("f4", Dtype::F4, &[4], &[1; 2])])).await;
    for (query, status, code, named) in [
        ("?name=c", 404, "not_found", "\"c\""),
        ("", 400, "invalid_input", "/info"),
        ("?name=a&slice=0:2,0:2", 400, "invalid_input", "2 parts"),
        ("?name=a&slice=x", 400, "invalid_input", "\"x\""),
        ("?name=a&slice=9", 400, "invalid_input", "index 9"),
        ("?name=a&slices=1", 400, "invalid_input", "\"slices\""),
        ("?name=a&format=pickle", 400, "invalid_input", "\"pickle\""),
        ("?name=a&format=raw&format=npy", 400, "invalid_input", "format"),
        ("?name=f4&slice=1:3", 400, "invalid_input", "a multiple of 2"),
        ("/info?slice=1", 400, "invalid_input", "slice"),
        ("?info&stats", 400, "invalid_input", "stats"),
    ] {
        let problem = problem(gateway.get(&format!("/v1/tensor/{cid}{query}")).await, status, code).await;
        assert!(problem["detail"].as_str().unwrap().contains(named), "{query}: {problem}");
    }
    let off = TestGateway::start_with(|config| config.tensor.enabled = false).await;
    let cid = off.add("", file(&[("a", Dtype::U8, &[4], &[1; 4])])).await;
    for path in ["?name=a", "/info", "/stats"] {
        let problem = problem(off.get(&format!("/v1/tensor/{cid}{path}")).await, 501, "unsupported").await;
        assert!(problem["detail"].as_str().unwrap().contains("tensor.enabled"), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tensor_with_missing_block_aborts() {
    let (whole, gateway) = (TestGateway::start().await, TestGateway::start().await);
    let data = content::bytes(4 * 262_144);
    let bytes = file(&[("a", Dtype::U8, &[4 * 262_144], &data)]);
    let cid = whole.add("", bytes.clone()).await;
    gateway.put_block("format=v0", whole.rpc_bytes(&format!("block/get?arg={cid}")).await).await;
    gateway.add("", bytes.slice(..262_144)).await;
    for query in ["?name=a", "?name=a&slice=::3", "?name=a&format=safetensors", "/stats"] {
        let answer = exchange(&gateway, &format!("GET /v1/tensor/{cid}{query} HTTP/1.1")).await;
        assert!(answer.status >= 400 || !answer.is_complete, "{query}: {} bytes look whole", answer.body.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tensor_operations_are_counted() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", file(&[("a", Dtype::U8, &[4], &[1; 4]), ("b", Dtype::U8, &[2], &[1; 2])])).await;
    for path in ["?name=a", "?name=a&slice=1:", "/info", "/stats", "?name=b&format=safetensors"] {
        gateway.content(&format!("/v1/tensor/{cid}{path}")).await;
    }
    // HEAD requests do not count as reads.
    for path in ["?name=a", "/info", "/stats"] {
        let head = gateway.request(Method::HEAD, &format!("/v1/tensor/{cid}{path}")).send().await.unwrap();
        assert_eq!(head.status(), 200, "{path}");
    }
    for (operation, count) in [("list", 1), ("get", 2), ("slice", 1), ("stats", 2), ("put", 0)] {
        let name = format!("ipfrs_tensor_operations_total{{type=\"{operation}\"}}");
        assert_eq!(gateway.metric(&name).await, count, "{operation}");
    }
    assert_eq!(gateway.metric("ipfrs_tensor_slice_operations_total").await, 1);
    assert_eq!(gateway.metric("ipfrs_tensor_size_bytes_count").await, 5);
    assert_eq!(gateway.metric("ipfrs_tensor_size_bytes_sum").await, 4 + 3 + 4 + 2 + 2);
    let route = "ipfrs_http_requests_total{endpoint=\"/v1/tensor/{*path}\",method=\"GET\",status=\"200\"}";
    assert_eq!(gateway.metric(route).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn info_is_404_once_the_block_of_the_header_is_removed() {
    let gateway = TestGateway::start().await;
    let header = "{\"a\":{\"dtype\":\"U8\",\"shape\":[600000],\"data_offsets\":[0,600000]}}";
    let head = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let file = [head, vec![7; 600_000]].concat();
    let cid = gateway.add("pin=false&raw-leaves=true", file.clone()).await;
    let info = format!("/v1/tensor/{cid}/info");
    gateway.content(&info).await;
    let root = gateway.rpc_json(&format!("dag/get?arg={cid}")).await;
    let first = root["Links"][0]["Hash"]["/"].as_str().unwrap();
    gateway.rpc_bytes(&format!("block/rm?arg={first}")).await;
    for path in [info.clone(), format!("{info}?name=a"), format!("/v1/tensor/{cid}/stats")] {
        assert_eq!(gateway.get(&path).await.status(), 404, "{path}");
    }
    assert_eq!(gateway.add("pin=false&raw-leaves=true", file).await, cid);
    gateway.content(&info).await;
}
