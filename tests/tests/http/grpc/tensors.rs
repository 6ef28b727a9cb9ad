//! `ipfrs.tensor.v1.TensorService`.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use ipfrs_node::Dtype as Known;
use ipfrs_proto::tensor::v1::get_tensor_response::Part as Got;
use ipfrs_proto::tensor::v1::put_tensor_request::Part;
use ipfrs_proto::tensor::v1::stream_tensors_response::Part as Streamed;
use ipfrs_proto::tensor::v1::tensor_service_client::TensorServiceClient;
use ipfrs_proto::tensor::v1::{
    DimensionSlice, Dtype, GetTensorInfoRequest, GetTensorRequest, GetTensorStatsRequest, PutTensorOptions,
    PutTensorRequest, PutTensorResponse, SliceTensorRequest, StreamTensorsRequest, TensorFormat, TensorInfo,
};
use safetensors::SafeTensors;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::assert_failed;
use super::blocks::received;
use crate::content::{self, assert_same};
use crate::harness::TestGateway;
use crate::tensor_limits::array;

fn tensor_client(gateway: &TestGateway) -> TensorServiceClient<Channel> {
    TensorServiceClient::new(gateway.channel())
}

fn info(name: &str, dtype: Dtype, shape: &[u64]) -> TensorInfo {
    TensorInfo { name: name.to_owned(), dtype: dtype.into(), shape: shape.to_vec(), ..TensorInfo::default() }
}

fn message(part: Part) -> PutTensorRequest {
    PutTensorRequest { part: Some(part) }
}

fn data(bytes: impl Into<Bytes>) -> PutTensorRequest {
    message(Part::Data(bytes.into()))
}

async fn put(gateway: &TestGateway, messages: Vec<PutTensorRequest>) -> Result<PutTensorResponse, Status> {
    Ok(tensor_client(gateway).put_tensor(stream::iter(messages)).await?.into_inner())
}

/// Returns every safetensors type with bytes for 4 × 8 elements.
fn every_type() -> Vec<(Dtype, Bytes)> {
    let in_safetensors = Known::all().filter(|known| known.is_in_safetensors());
    let types = in_safetensors.map(|known| {
        let dtype = Dtype::from_str_name(&format!("DTYPE_{known}")).unwrap();
        (dtype, content::keystream(known.name(), usize::try_from(known.bits() * 32 / 8).unwrap()))
    });
    types.collect()
}

fn name_of(dtype: Dtype) -> String {
    format!("layer.{}", dtype.as_str_name())
}

/// Puts a tensor of every type, with metadata.
async fn put_every_type(gateway: &TestGateway) -> PutTensorResponse {
    let types = every_type();
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let options = PutTensorOptions { metadata, name: "model".to_owned(), no_pin: false };
    let mut messages = vec![message(Part::Options(options))];
    messages.extend(types.iter().map(|(dtype, _)| message(Part::Info(info(&name_of(*dtype), *dtype, &[4, 8])))));
    // Chunk boundaries need not match tensor boundaries.
    let bytes = types.iter().map(|(_, bytes)| &bytes[..]).collect::<Vec<_>>().concat();
    messages.extend(bytes.chunks(7).map(|chunk| data(chunk.to_vec())));
    put(gateway, messages).await.unwrap()
}

fn get(path: &str, name: &str) -> GetTensorRequest {
    GetTensorRequest { path: path.to_owned(), name: name.to_owned(), ..GetTensorRequest::default() }
}

/// Returns the description and the bytes of a tensor, after checking the announced length.
async fn read(gateway: &TestGateway, request: GetTensorRequest) -> Result<(TensorInfo, Vec<u8>), Status> {
    let mut messages = tensor_client(gateway).get_tensor(request).await?.into_inner();
    let first = messages.message().await?.unwrap();
    let Some(Got::Info(info)) = first.part else { panic!("the first message is no description") };
    let mut bytes = Vec::new();
    while let Some(message) = messages.message().await? {
        let Some(Got::Data(data)) = message.part else { panic!("two descriptions") };
        bytes.extend_from_slice(&data);
    }
    assert_eq!(first.content_bytes, Some(bytes.len() as u64));
    Ok((info, bytes))
}

fn range(start: i64, stop: i64) -> DimensionSlice {
    DimensionSlice { start: Some(start), stop: Some(stop), step: None }
}

#[tokio::test]
async fn put_tensors_match_the_reference_for_every_type() {
    let gateway = TestGateway::start().await;
    let stored = put_every_type(&gateway).await;
    let file = gateway.content(&format!("/ipfs/{}", stored.cid)).await;
    assert_eq!(file.len() as u64, stored.size);
    let reference = SafeTensors::deserialize(&file).unwrap();
    let (_, described) = SafeTensors::read_metadata(&file).unwrap();
    assert_eq!(described.metadata().as_ref().unwrap()["format"], "pt");
    let types = every_type();
    assert_eq!((reference.len(), stored.tensors.len()), (types.len(), types.len()));
    for ((dtype, bytes), put) in types.iter().zip(&stored.tensors) {
        let name = name_of(*dtype);
        let view = reference.tensor(&name).unwrap();
        assert_eq!(format!("DTYPE_{}", view.dtype()), dtype.as_str_name());
        assert_eq!(view.shape(), [4, 8]);
        assert_same(view.data(), bytes, &name);
        let at = usize::try_from(put.offset.unwrap()).unwrap();
        assert_eq!((put.name.as_str(), put.dtype(), put.size_bytes), (name.as_str(), *dtype, bytes.len() as u64));
        assert_same(&file[at..at + bytes.len()], bytes, &name);
    }
    assert_eq!(gateway.rpc_json("pin/ls?names=true").await["Keys"][&stored.cid]["Name"], "model");
    let puts = gateway.metric("ipfrs_tensor_operations_total{type=\"put\"}").await;
    assert_eq!(puts, types.len() as u64);
}

#[tokio::test]
async fn grpc_tensor_methods_return_the_stored_tensors() {
    let gateway = TestGateway::start().await;
    let stored = put_every_type(&gateway).await;
    let mut client = tensor_client(&gateway);
    let asked = GetTensorInfoRequest { path: format!("/ipfs/{}", stored.cid), name: None };
    let listed = client.get_tensor_info(asked).await.unwrap().into_inner();
    assert_eq!((listed.cid, listed.format.as_str()), (stored.cid.clone(), "safetensors"));
    assert_eq!((&listed.tensors, listed.metadata["format"].as_str()), (&stored.tensors, "pt"));

    for ((dtype, bytes), expected) in every_type().iter().zip(&stored.tensors) {
        let name = name_of(*dtype);
        let one = GetTensorInfoRequest { path: stored.cid.clone(), name: Some(name.clone()) };
        assert_eq!(client.get_tensor_info(one).await.unwrap().into_inner().tensors, std::slice::from_ref(expected));
        let (info, whole) = read(&gateway, get(&stored.cid, &name)).await.unwrap();
        assert_eq!(&info, expected);
        assert_same(&whole, bytes, &name);

        let rows = SliceTensorRequest { path: stored.cid.clone(), name: name.clone(), slice: vec![range(-3, 3)] };
        let rows = client.slice_tensor(rows).await.unwrap().into_inner();
        let info = rows.info.unwrap();
        assert_eq!((info.shape.as_slice(), info.size_bytes, info.offset), (&[2, 8][..], bytes.len() as u64 / 2, None));
        assert_same(&rows.data, &bytes[bytes.len() / 4..bytes.len() * 3 / 4], &name);

        let stats = GetTensorStatsRequest { path: stored.cid.clone(), name: name.clone() };
        let stats = client.get_tensor_stats(stats).await.unwrap().into_inner();
        assert_eq!((stats.count, stats.info.as_ref()), (if *dtype == Dtype::C64 { 64 } else { 32 }, Some(expected)));
        assert_eq!(stats.min.is_some(), stats.mean.is_some());
    }

    let wanted = [Dtype::F32, Dtype::Bool, Dtype::U8];
    for names in [vec![], wanted.map(name_of).to_vec()] {
        let expected: Vec<_> =
            stored.tensors.iter().filter(|tensor| names.is_empty() || names.contains(&tensor.name)).collect();
        let request = StreamTensorsRequest { path: stored.cid.clone(), names: names.clone() };
        let mut messages = client.stream_tensors(request).await.unwrap().into_inner();
        let mut streamed: Vec<(TensorInfo, Vec<u8>)> = Vec::new();
        while let Some(message) = messages.message().await.unwrap() {
            match message.part.unwrap() {
                Streamed::Info(info) => streamed.push((info, Vec::new())),
                Streamed::Data(data) => streamed.last_mut().unwrap().1.extend_from_slice(&data),
            }
        }
        assert_eq!(streamed.iter().map(|(info, _)| info).collect::<Vec<_>>(), expected, "in the order of the file");
        for (info, bytes) in streamed {
            let (_, expected) = every_type().into_iter().find(|(dtype, _)| *dtype == info.dtype()).unwrap();
            assert_same(&bytes, &expected, &info.name);
        }
    }
    let count = every_type().len() as u64;
    for (operation, least) in [("list", count + 1), ("get", count * 2 + 3), ("slice", count), ("stats", count)] {
        let name = format!("ipfrs_tensor_operations_total{{type=\"{operation}\"}}");
        assert_eq!(gateway.metric(&name).await, least, "{operation}");
    }
    assert_eq!(gateway.metric("ipfrs_tensor_slice_operations_total").await, count);
    let sized = count + (count * 2 + 3) + count + count;
    assert_eq!(gateway.metric("ipfrs_tensor_size_bytes_count").await, sized, "what was put, got, sliced and summed up");
}

#[tokio::test]
async fn grpc_tensor_formats_include_npy() {
    let gateway = TestGateway::start().await;
    let bytes = content::bytes(2 * 3 * 16);
    let dict = "{'descr': '<c16', 'fortran_order': False, 'shape': (2, 3), }\n";
    let head = [b"\x93NUMPY\x01\x00", &[u8::try_from(dict.len()).unwrap(), 0][..], dict.as_bytes()].concat();
    let npy = gateway.add("", [head.as_slice(), &bytes].concat()).await;
    let (info, raw) = read(&gateway, get(&npy, "")).await.unwrap();
    assert_eq!((info.dtype(), info.shape, info.offset), (Dtype::C128, vec![2, 3], Some(head.len() as u64)));
    assert_same(&raw, &bytes, "raw");
    let as_safetensors = GetTensorRequest { format: TensorFormat::Safetensors.into(), ..get(&npy, "") };
    let refused = read(&gateway, as_safetensors).await.unwrap_err();
    assert_failed(&refused, Code::Unimplemented, "UNSUPPORTED", Some("format"));

    let stored = put_every_type(&gateway).await;
    let name = name_of(Dtype::F32);
    for (format, magic) in [
        (TensorFormat::Npy, &b"\x93NUMPY"[..]),
        (TensorFormat::Safetensors, b""),
        (TensorFormat::Arrow, b"\xff\xff\xff\xff"),
    ] {
        let slice = vec![range(1, 3), DimensionSlice { step: Some(2), ..DimensionSlice::default() }];
        let request = GetTensorRequest { format: format.into(), slice, ..get(&stored.cid, &name) };
        let (info, framed) = read(&gateway, request).await.unwrap();
        assert_eq!((info.shape, info.size_bytes), (vec![2, 4], 32));
        assert!(framed.starts_with(magic), "{format:?}");
        let path = format!("/v1/tensor/{}?name={name}&slice=1:3,::2&format=", stored.cid);
        let format = format.as_str_name().trim_start_matches("TENSOR_FORMAT_").to_lowercase();
        assert_same(&framed, &gateway.content(&format!("{path}{format}")).await, &format);
    }
}

#[tokio::test]
async fn grpc_tensor_layouts_are_converted_or_reported() {
    let gateway = TestGateway::start().await;
    let turned = gateway.add("", array(true, false)).await;
    let (info, raw) = read(&gateway, get(&turned, "")).await.unwrap();
    assert_eq!((info.dtype(), info.offset), (Dtype::U16, None), "its bytes are not in the file as they are sent");
    assert_same(&raw, &(0..12_u16).flat_map(u16::to_le_bytes).collect::<Vec<_>>(), "turned around");
    let by_columns = gateway.add("", array(false, true)).await;
    let path = || by_columns.clone();
    let npy = GetTensorRequest { format: TensorFormat::Npy.into(), ..get(&by_columns, "") };
    let (info, npy) = read(&gateway, npy).await.unwrap();
    assert_eq!((info.offset, String::from_utf8_lossy(&npy).contains("'fortran_order': True")), (None, true));
    let refused = read(&gateway, get(&by_columns, "")).await.unwrap_err();
    assert_failed(&refused, Code::Unimplemented, "UNSUPPORTED", Some("format"));
    let mut client = tensor_client(&gateway);
    let slice = vec![range(0, 2), range(0, 2)];
    let refused =
        client.slice_tensor(SliceTensorRequest { path: path(), name: String::new(), slice }).await.unwrap_err();
    assert_failed(&refused, Code::Unimplemented, "UNSUPPORTED", None);
    let slice = vec![range(1, 2)];
    let row = client.slice_tensor(SliceTensorRequest { path: path(), name: String::new(), slice }).await.unwrap();
    assert_same(&row.into_inner().data, &(4..8_u16).flat_map(u16::to_le_bytes).collect::<Vec<_>>(), "one row");
    let streamed = client.stream_tensors(StreamTensorsRequest { path: path(), names: Vec::new() }).await;
    let last = streamed.unwrap().into_inner().collect::<Vec<_>>().await.pop().unwrap();
    assert_failed(&last.unwrap_err(), Code::Unimplemented, "UNSUPPORTED", None);
}

#[tokio::test]
async fn put_tensor_must_match_its_description() {
    let gateway = TestGateway::start().await;
    let tensor = |name: &str| message(Part::Info(info(name, Dtype::U8, &[4])));
    let sized = |size_bytes| message(Part::Info(TensorInfo { size_bytes, ..info("a", Dtype::U8, &[4]) }));
    let options = || message(Part::Options(PutTensorOptions::default()));
    let named = |name: &str| message(Part::Options(PutTensorOptions { name: name.into(), ..Default::default() }));
    let typed = |dtype, shape: &[u64]| message(Part::Info(info("a", dtype, shape)));
    for (messages, field) in [
        (vec![], None),
        (vec![options()], None),
        (vec![data("1234")], None),
        (vec![tensor("a"), data("123")], None),
        (vec![tensor("a"), tensor("b"), data("1234")], None),
        (vec![tensor("a"), data("12345")], None),
        (vec![tensor("a"), tensor("a"), data("12341234")], None),
        (vec![tensor("__metadata__"), data("1234")], None),
        (vec![tensor("a"), data("1234"), tensor("b"), data("1234")], Some("info")),
        (vec![tensor("a"), options(), data("1234")], Some("options")),
        (vec![tensor("a"), data("12"), options()], Some("options")),
        (vec![options(), options()], Some("options")),
        (vec![named("a/b"), tensor("a"), data("1234")], Some("options.name")),
        (vec![PutTensorRequest { part: None }], Some("part")),
        (vec![tensor("a"), data("12"), PutTensorRequest { part: None }], Some("data")),
        (vec![sized(5), data("1234")], Some("info.size_bytes")),
        (vec![typed(Dtype::Unspecified, &[4]), data("1234")], Some("info.dtype")),
        (vec![typed(Dtype::F4, &[3]), data("12")], Some("info.shape")),
        (vec![typed(Dtype::U8, &[u64::MAX, 2])], Some("info.shape")),
    ] {
        let shown = format!("{messages:?}");
        let refused = put(&gateway, messages).await.expect_err(&shown);
        assert_failed(&refused, Code::InvalidArgument, "INVALID_INPUT", field);
    }
    let refused = put(&gateway, vec![typed(Dtype::C128, &[1]), data([0; 16].to_vec())]).await.unwrap_err();
    assert_failed(&refused, Code::Unimplemented, "UNSUPPORTED", None);
    assert_eq!(gateway.rpc_json("pin/ls").await["Keys"], serde_json::json!({}));
    // Scalars and tensors without elements are valid.
    let odd = vec![typed(Dtype::F32, &[]), message(Part::Info(info("none", Dtype::U64, &[0, u64::MAX]))), sized(0)];
    assert!(put(&gateway, odd).await.is_err(), "two of them are called a");
    let odd = vec![typed(Dtype::F32, &[]), message(Part::Info(info("none", Dtype::U64, &[0, u64::MAX]))), data("1234")];
    let odd = put(&gateway, odd).await.unwrap();
    assert_eq!(read(&gateway, get(&odd.cid, "a")).await.unwrap().1, b"1234");
    assert_eq!(read(&gateway, get(&odd.cid, "none")).await.unwrap().1, b"");
}

#[tokio::test]
async fn put_tensor_memory_is_bounded_per_call() {
    let gateway = TestGateway::start().await;
    let long = |number: usize| info(&format!("{number}.{}", "layer".repeat(200)), Dtype::U8, &[1]);
    let described: Vec<_> = (0..300).map(|number| message(Part::Info(long(number)))).collect();
    // More calls than would fit into the memory limit if each reserved the maximum size of its descriptions.
    let (senders, calls): (Vec<_>, Vec<_>) = (0..33)
        .map(|_| {
            let (sender, receiver) = mpsc::channel::<PutTensorRequest>(1);
            let messages = stream::iter([&described[..], &[data("1")]].concat()).chain(received(receiver));
            let mut client = tensor_client(&gateway);
            (sender, tokio::spawn(async move { client.put_tensor(messages).await }))
        })
        .unzip();
    let uploads = "ipfrs_streaming_operations_active{direction=\"upload\"}";
    let all = gateway.until_metric(uploads, |active| active == 33);
    timeout(Duration::from_secs(60), all).await.expect("some were kept waiting for room");
    drop(senders);
    for call in calls {
        assert_failed(&call.await.unwrap().unwrap_err(), Code::InvalidArgument, "INVALID_INPUT", None);
    }
    let stored = put(&gateway, [&described[..], &[data(vec![7; 300])]].concat()).await.unwrap();
    let asked = GetTensorInfoRequest { path: stored.cid, name: None };
    let listed = tensor_client(&gateway).get_tensor_info(asked).await.unwrap().into_inner();
    assert_eq!(listed.tensors, stored.tensors);
}

#[tokio::test]
async fn grpc_tensor_errors_state_the_reason() {
    let gateway = TestGateway::start().await;
    let large = vec![message(Part::Info(info("a", Dtype::U8, &[3 << 20]))), data(vec![7; 3 << 20])];
    let large = put(&gateway, large).await.unwrap().cid;
    let two = [info("a", Dtype::U8, &[2]), info("b", Dtype::U8, &[2])].map(|info| message(Part::Info(info)));
    let two = put(&gateway, [&two[..], &[data("1122")]].concat()).await.unwrap().cid;
    let text = gateway.add("", "no tensors").await;
    let sliced = |slice| GetTensorRequest { slice: vec![slice], ..get(&two, "a") };
    let step = DimensionSlice { step: Some(0), ..DimensionSlice::default() };
    for (request, code, reason, field) in [
        (get(&two, "c"), Code::NotFound, "NOT_FOUND", None),
        (get(&two, ""), Code::InvalidArgument, "INVALID_INPUT", Some("name")),
        (get(&text, ""), Code::InvalidArgument, "INVALID_INPUT", Some("path")),
        (get("what", ""), Code::InvalidArgument, "INVALID_INPUT", Some("path")),
        (GetTensorRequest { format: 9, ..get(&two, "a") }, Code::InvalidArgument, "INVALID_INPUT", Some("format")),
        (sliced(step), Code::InvalidArgument, "INVALID_INPUT", Some("slice")),
        (
            GetTensorRequest { slice: vec![range(0, 1); 2], ..get(&two, "a") },
            Code::InvalidArgument,
            "INVALID_INPUT",
            Some("slice"),
        ),
    ] {
        let shown = format!("{request:?}");
        assert_failed(&read(&gateway, request).await.expect_err(&shown), code, reason, field);
    }
    assert_eq!(read(&gateway, get(&large, "")).await.unwrap().1.len(), 3 << 20, "the only tensor needs no name");
    let slice = |slice| SliceTensorRequest { path: large.clone(), name: "a".to_owned(), slice };
    let mut client = tensor_client(&gateway);
    let refused = client.slice_tensor(slice(vec![])).await.unwrap_err();
    assert_failed(&refused, Code::ResourceExhausted, "TOO_LARGE", None);
    let fits = client.slice_tensor(slice(vec![range(0, 2 << 20)])).await.unwrap().into_inner();
    assert_eq!(fits.data.len(), 2 << 20);
    let missing = StreamTensorsRequest { path: two, names: vec!["a".to_owned(), "c".to_owned()] };
    assert_failed(&client.stream_tensors(missing).await.unwrap_err(), Code::NotFound, "NOT_FOUND", None);
}

#[tokio::test]
async fn disabled_tensors_make_methods_unimplemented() {
    let gateway = TestGateway::start_with(|config| config.tensor.enabled = false).await;
    let mut client = tensor_client(&gateway);
    let (path, name) = (String::from("what"), String::new());
    let refusals = [
        client.get_tensor(get(&path, "")).await.err(),
        client.put_tensor(stream::iter([data("1")])).await.err(),
        client.get_tensor_info(GetTensorInfoRequest { path: path.clone(), name: None }).await.err(),
        client.slice_tensor(SliceTensorRequest { path: path.clone(), name: name.clone(), slice: vec![] }).await.err(),
        client.get_tensor_stats(GetTensorStatsRequest { path: path.clone(), name }).await.err(),
        client.stream_tensors(StreamTensorsRequest { path, names: vec![] }).await.err(),
    ];
    for refused in refusals {
        let refused = refused.unwrap();
        assert_failed(&refused, Code::Unimplemented, "UNSUPPORTED", None);
        assert!(refused.message().contains("tensor.enabled"), "{refused}");
    }
}
