//! Every method, called by a client that uses only reflection, as `grpcurl` does.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine};
use futures::stream;
use http::uri::PathAndQuery;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use serde_json::{Value, json};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::harness::TestGateway;

/// Codec for messages of a type that is known only from its descriptor.
struct Dynamic(MessageDescriptor);

impl Codec for Dynamic {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self(self.0.clone())
    }

    fn decoder(&mut self) -> Self {
        Self(self.0.clone())
    }
}

impl Encoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer).map_err(|e| Status::internal(e.to_string()))
    }
}

impl Decoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        DynamicMessage::decode(self.0.clone(), buffer).map(Some).map_err(|e| Status::internal(e.to_string()))
    }
}

async fn ask(channel: &Channel, question: MessageRequest) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let mut client = ServerReflectionClient::new(channel.clone());
    let mut answers = client.server_reflection_info(stream::iter([request])).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap().message_response.unwrap()
}

/// Returns all ipfrs methods by path.
async fn methods(channel: &Channel) -> BTreeMap<String, MethodDescriptor> {
    let MessageResponse::ListServicesResponse(services) =
        ask(channel, MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list of services")
    };
    let mut pool = DescriptorPool::new();
    let mut methods = BTreeMap::new();
    for service in services.service.into_iter().map(|service| service.name).filter(|name| name.starts_with("ipfrs.")) {
        let question = MessageRequest::FileContainingSymbol(service.clone());
        let MessageResponse::FileDescriptorResponse(files) = ask(channel, question).await else {
            panic!("no descriptors of {service}")
        };
        for file in files.file_descriptor_proto {
            pool.decode_file_descriptor_proto(&file[..]).unwrap();
        }
        let described = pool.get_service_by_name(&service).unwrap();
        methods.extend(described.methods().map(|method| (format!("/{service}/{}", method.name()), method)));
    }
    methods
}

async fn call(channel: &Channel, method: &MethodDescriptor, messages: &[Value]) -> Result<Vec<Value>, Status> {
    let messages = messages.iter().map(|message| DynamicMessage::deserialize(method.input(), message).unwrap());
    let messages = Request::new(stream::iter(messages.collect::<Vec<_>>()));
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let sent = client.streaming(messages, PathAndQuery::try_from(path).unwrap(), Dynamic(method.output()));
    let mut answers = sent.await?.into_inner();
    let mut found = Vec::new();
    while let Some(answer) = answers.message().await? {
        found.push(serde_json::to_value(&answer).unwrap());
    }
    Ok(found)
}

/// Returns requests with an invalid content ID, path, option or description, which the method must refuse. Methods
/// for several blocks report errors per block and succeed, so there is no such request for them.
fn refused(method: &MethodDescriptor) -> Option<Vec<Value>> {
    let message = match method.name() {
        "BatchGetBlocks" | "BatchPutBlocks" | "StreamBlocks" => return None,
        "GetBlock" | "HasBlock" | "DeleteBlock" => json!({"cid": "what"}),
        "PutBlock" => json!({"cid": "what", "data": ""}),
        "PutDag" => json!({"data": BASE64_STANDARD.encode("{")}),
        "AddFile" => json!({"metadata": {"profile": "what"}}),
        "PutTensor" => json!({"info": {"name": "t", "shape": ["1"]}}),
        _ => json!({"path": "what"}),
    };
    Some(vec![message])
}

/// Returns a valid request for each method.
fn requests(block: &str, tree: &str, tensors: &str) -> Vec<(&'static str, Vec<Value>)> {
    let bytes = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    let file = format!("{tree}/in/a.txt");
    let tensor = json!({"path": tensors, "name": "a"});
    vec![
        ("ipfrs.block.v1.BlockService/GetBlock", vec![json!({"cid": block})]),
        ("ipfrs.block.v1.BlockService/PutBlock", vec![json!({"data": bytes(b"put")})]),
        ("ipfrs.block.v1.BlockService/HasBlock", vec![json!({"cid": block})]),
        ("ipfrs.block.v1.BlockService/DeleteBlock", vec![json!({"cid": super::ABSENT})]),
        ("ipfrs.block.v1.BlockService/BatchGetBlocks", vec![json!({"cids": [block, super::ABSENT]})]),
        (
            "ipfrs.block.v1.BlockService/BatchPutBlocks",
            vec![json!({"data": bytes(b"1")}), json!({"data": bytes(b"2")})],
        ),
        ("ipfrs.block.v1.BlockService/StreamBlocks", vec![json!({"id": "7", "get": {"cid": block}})]),
        ("ipfrs.dag.v1.DagService/GetDag", vec![json!({"path": tree})]),
        ("ipfrs.dag.v1.DagService/PutDag", vec![json!({"data": bytes(br#"{"a":1}"#)})]),
        ("ipfrs.dag.v1.DagService/ResolvePath", vec![json!({"path": file})]),
        ("ipfrs.dag.v1.DagService/TraverseDag", vec![json!({"path": tree, "includeData": true})]),
        ("ipfrs.dag.v1.DagService/GetDagStats", vec![json!({"path": tree})]),
        (
            "ipfrs.file.v1.FileService/AddFile",
            vec![json!({"metadata": {"name": "f", "cidVersion": 1}}), json!({"chunk": bytes(b"content")})],
        ),
        ("ipfrs.file.v1.FileService/GetFile", vec![json!({"path": file, "offset": "1", "length": "2"})]),
        ("ipfrs.file.v1.FileService/ListDirectory", vec![json!({"path": tree, "pageSize": 1})]),
        ("ipfrs.file.v1.FileService/GetFileInfo", vec![json!({"path": file})]),
        ("ipfrs.file.v1.FileService/PinFile", vec![json!({"path": file, "name": "mine"})]),
        ("ipfrs.file.v1.FileService/UnpinFile", vec![json!({"path": file})]),
        (
            "ipfrs.tensor.v1.TensorService/PutTensor",
            vec![
                json!({"options": {"metadata": {"format": "pt"}}}),
                json!({"info": {"name": "t", "dtype": "DTYPE_U8", "shape": ["2", "2"]}}),
                json!({"data": bytes(b"1234")}),
            ],
        ),
        ("ipfrs.tensor.v1.TensorService/GetTensor", vec![tensor.clone()]),
        ("ipfrs.tensor.v1.TensorService/GetTensorInfo", vec![json!({"path": tensors})]),
        (
            "ipfrs.tensor.v1.TensorService/SliceTensor",
            vec![json!({"path": tensors, "name": "a", "slice": [{"start": "1", "stop": "2"}]})],
        ),
        ("ipfrs.tensor.v1.TensorService/GetTensorStats", vec![tensor.clone()]),
        ("ipfrs.tensor.v1.TensorService/StreamTensors", vec![json!({"path": tensors})]),
    ]
}

#[tokio::test]
async fn every_reflected_method_works_and_is_counted() {
    let gateway = TestGateway::start().await;
    let block = gateway.add("cid-version=1", "a block").await;
    let tree = gateway.add_tree("cid-version=1", &[("d/in/a.txt", "hello"), ("d/b.txt", "b")]).await;
    let head = ipfrs_node::safetensors_head([("a", ipfrs_node::Dtype::U8, &[4_u64][..])], &BTreeMap::new()).unwrap();
    let tensors = gateway.add("cid-version=1", [head.as_slice(), b"1234"].concat()).await;
    let channel = gateway.channel();
    let methods = methods(&channel).await;
    let mut uncalled = methods.clone();
    let mut answers = BTreeMap::new();
    for (name, messages) in requests(&block, &tree, &tensors) {
        let method = uncalled.remove(&format!("/{name}")).unwrap_or_else(|| panic!("no method {name}"));
        let found = call(&channel, &method, &messages).await.unwrap_or_else(|status| panic!("{name}: {status}"));
        assert!(!found.is_empty(), "{name} answers nothing");
        answers.insert(name.split_once('/').unwrap().1, found);
    }
    assert!(uncalled.is_empty(), "methods without a call here: {:?}", uncalled.keys());
    // The responses contain the content that was stored before, through all type conversions.
    assert_eq!(answers["GetBlock"][0]["block"]["data"], BASE64_STANDARD.encode("a block"));
    assert_eq!(answers["GetFile"], [json!({"data": BASE64_STANDARD.encode("el"), "fileSize": "5"})]);
    assert_eq!(answers["ListDirectory"][0]["entries"].as_array().unwrap().len(), 1);
    assert_eq!(answers["SliceTensor"][0]["data"], BASE64_STANDARD.encode("2"));
    assert_eq!(answers["GetTensorStats"][0]["max"], 52.0);

    for method in methods.values() {
        let (service, name) = (method.parent_service().full_name(), method.name());
        let labels = format!("method=\"{name}\",service=\"{service}\"");
        let requests = format!("ipfrs_grpc_requests_total{{code=\"OK\",{labels}}}");
        gateway.assert_metric(&requests, 1).await;
        let durations = format!("ipfrs_grpc_request_duration_seconds_count{{{labels}}}");
        gateway.assert_metric(&durations, 1).await;

        let Some(messages) = refused(method) else { continue };
        let status = call(&channel, method, &messages).await.expect_err(name);
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{name}: {status}");
        let requests = format!("ipfrs_grpc_requests_total{{code=\"INVALID_ARGUMENT\",{labels}}}");
        gateway.assert_metric(&requests, 1).await;
        gateway.assert_metric(&durations, 2).await;
    }
}
