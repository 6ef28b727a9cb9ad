//! Compressed messages: coding headers of clients, and the coding of the messages that they receive.

use std::io::Read;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::read::GzDecoder;
use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use ipfrs_proto::block::v1::{GetBlockRequest, GetBlockResponse};
use ipfrs_proto::file::v1::file_service_client::FileServiceClient;
use ipfrs_proto::file::v1::{GetFileRequest, ListDirectoryRequest, ListDirectoryResponse};
use prost::Message;
use reqwest::Response;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{raw, stored};
use crate::content::{self, assert_same};
use crate::harness::{TestGateway, client, header};

const GET_BLOCK: &str = "/ipfrs.block.v1.BlockService/GetBlock";
const LIST: &str = "/ipfrs.file.v1.FileService/ListDirectory";

/// Sends a call with `coded` as the message. If `is_compressed`, it has the coding that `headers` declare.
async fn call(
    gateway: &TestGateway,
    path: &str,
    headers: &[(&str, &str)],
    is_compressed: bool,
    coded: &[u8],
) -> Response {
    let mut frame = BytesMut::new();
    frame.put_u8(is_compressed.into());
    frame.put_u32(u32::try_from(coded.len()).unwrap());
    frame.put_slice(coded);
    let http2 = client().http2_prior_knowledge().build().unwrap();
    let request = http2.post(format!("http://{}{path}", gateway.grpc_address()));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.header("content-type", "application/grpc").body(frame.freeze()).send().await.unwrap()
}

/// Returns the compression flag and the encoded bytes of the only message of a response.
async fn answer(response: Response) -> (u8, Bytes) {
    let mut body = response.bytes().await.unwrap();
    let (flag, length) = (body.get_u8(), body.get_u32() as usize);
    assert_eq!(body.len(), length);
    (flag, body)
}

fn decoded(coding: &str, message: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut plain = Vec::new();
            GzDecoder::new(message).read_to_end(&mut plain).unwrap();
            plain
        }
        "zstd" => zstd::decode_all(message).unwrap(),
        _ => message.to_vec(),
    }
}

#[tokio::test]
async fn grpc_response_coding_follows_client_preference() {
    let gateway = TestGateway::start().await;
    let text = "the same again and again; ".repeat(10_000);
    let cid = stored(&gateway, text.clone()).await;
    let files: Vec<_> = (0..100).map(|number| (format!("d/{number}"), number.to_string())).collect();
    let files: Vec<_> = files.iter().map(|(name, content)| (name.as_str(), content.as_str())).collect();
    let tree = gateway.add_tree("cid-version=1", &files).await;
    let block = GetBlockRequest { cid }.encode_to_vec();
    let list = ListDirectoryRequest { path: tree, ..ListDirectoryRequest::default() }.encode_to_vec();
    for (accepted, encoding) in [
        (None, ""),
        (Some("identity"), ""),
        // Lists of codings that clients support by default: C++, Python, Ruby and Node; .NET; Java and Go.
        (Some("identity,deflate,gzip"), ""),
        (Some("identity,gzip,deflate"), ""),
        (Some("gzip"), ""),
        // Clients that request compression.
        (Some("gzip,identity"), "gzip"),
        (Some("zstd"), "zstd"),
        (Some("identity, deflate, gzip, zstd"), "zstd"),
    ] {
        let headers: Vec<_> = accepted.map(|list| ("grpc-accept-encoding", list)).into_iter().collect();
        for (path, request) in [(GET_BLOCK, &block), (LIST, &list)] {
            let response = call(&gateway, path, &headers, false, request).await;
            assert_eq!(header(&response, "grpc-encoding"), encoding, "{path}, {accepted:?}");
            let (flag, message) = answer(response).await;
            assert_eq!(flag, u8::from(!encoding.is_empty()), "{path}, {accepted:?}");
            let plain = decoded(encoding, &message);
            assert!(flag == 0 || message.len() < plain.len(), "{} bytes of {}", message.len(), plain.len());
            match path {
                GET_BLOCK => {
                    let found = GetBlockResponse::decode(plain.as_slice()).unwrap().block.unwrap();
                    assert_same(&found.data, text.as_bytes(), encoding);
                }
                _ => assert_eq!(ListDirectoryResponse::decode(plain.as_slice()).unwrap().entries.len(), 100),
            }
        }
    }
}

#[tokio::test]
async fn compressed_grpc_calls_work_with_large_messages() {
    let gateway = TestGateway::start().await;
    let text = "the same again and again; ".repeat(70_000);
    let expected = stored(&gateway, text.clone()).await;
    for (coding, name) in [(CompressionEncoding::Gzip, "gzip"), (CompressionEncoding::Zstd, "zstd")] {
        let mut blocks = BlockServiceClient::new(gateway.channel())
            .send_compressed(coding)
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd);
        assert_eq!(blocks.put_block(raw(text.clone())).await.unwrap().into_inner().cid, expected);
        let response = blocks.get_block(GetBlockRequest { cid: expected.clone() }).await.unwrap();
        assert_eq!(response.metadata().get("grpc-encoding").unwrap(), name);
        assert_eq!(response.into_inner().block.unwrap().data, text.as_bytes());
        // A client that compresses its own messages need not support compressed responses.
        let mut writes = BlockServiceClient::new(gateway.channel()).send_compressed(coding);
        let response = writes.get_block(GetBlockRequest { cid: expected.clone() }).await.unwrap();
        assert!(response.metadata().get("grpc-encoding").is_none());
        // A channel with compression uses it for all of its services.
        let mut health = HealthClient::new(gateway.channel()).send_compressed(coding);
        health.check(HealthCheckRequest::default()).await.unwrap();
        let bomb = blocks.put_block(raw(vec![0; 6 << 20])).await.unwrap_err();
        assert_eq!(bomb.code(), Code::ResourceExhausted, "{bomb}");
    }
}

#[tokio::test]
async fn compressed_grpc_file_round_trips() {
    let gateway = TestGateway::start().await;
    for file in [content::bytes(5_000_000), Bytes::from("text; ".repeat(800_000))] {
        let path = gateway.add("", file.clone()).await;
        for coding in [CompressionEncoding::Gzip, CompressionEncoding::Zstd] {
            let mut files = FileServiceClient::new(gateway.channel()).accept_compressed(coding);
            let request = GetFileRequest { path: path.clone(), ..GetFileRequest::default() };
            let mut messages = files.get_file(request).await.unwrap().into_inner();
            let mut read = Vec::new();
            while let Some(message) = messages.message().await.unwrap() {
                read.extend_from_slice(&message.data);
            }
            assert_same(&read, &file, "the file");
        }
    }
}

#[tokio::test]
async fn disabled_compression_disables_grpc_coding() {
    let gateway = TestGateway::start_with(|config| config.compression.enabled = false).await;
    let text = "the same again and again; ".repeat(1_000);
    let mut blocks = BlockServiceClient::new(gateway.channel())
        .send_compressed(CompressionEncoding::Zstd)
        .accept_compressed(CompressionEncoding::Zstd);
    let cid = blocks.put_block(raw(text.clone())).await.unwrap().into_inner().cid;
    let response = blocks.get_block(GetBlockRequest { cid }).await.unwrap();
    assert!(response.metadata().get("grpc-encoding").is_none());
    assert_eq!(response.into_inner().block.unwrap().data, text.as_bytes());
}

#[tokio::test]
async fn unsupported_grpc_coding_is_refused() {
    let gateway = TestGateway::start().await;
    let status = |response: &Response| header(response, "grpc-status").to_owned();
    let unknown = call(&gateway, GET_BLOCK, &[("grpc-encoding", "br")], true, b"what").await;
    assert_eq!(status(&unknown), (Code::Unimplemented as i32).to_string());
    assert_eq!(header(&unknown, "grpc-accept-encoding"), "zstd,gzip,identity");
    let malformed = call(&gateway, GET_BLOCK, &[("grpc-encoding", "gzip")], true, b"what").await;
    assert_eq!(status(&malformed), (Code::Internal as i32).to_string());
    let unsaid = call(&gateway, GET_BLOCK, &[], true, b"what").await;
    assert_eq!(status(&unsaid), (Code::Internal as i32).to_string());
    let bomb = zstd::encode_all(&vec![0; 64 << 20][..], 3).unwrap();
    let bomb = call(&gateway, GET_BLOCK, &[("grpc-encoding", "zstd")], true, &bomb).await;
    assert_eq!(status(&bomb), (Code::ResourceExhausted as i32).to_string());
}
