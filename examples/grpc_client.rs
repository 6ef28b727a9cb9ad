//! Adds a file over gRPC while reading it, and prints a span of it. Requires a running gateway: `ipfrs-cli gateway
//! start`.
//! `cargo run --package ipfrs-examples --example grpc_client FILE [URL]`.
#![allow(clippy::print_stdout)]

use anyhow::Context;
use bytes::Bytes;
use futures::stream;
use ipfrs_proto::file::v1::add_file_request::Part;
use ipfrs_proto::file::v1::file_service_client::FileServiceClient;
use ipfrs_proto::file::v1::{AddFileRequest, FileMetadata, GetFileRequest};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tonic::transport::Endpoint;

/// Size of a message, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().context("usage: grpc_client FILE [URL]")?;
    let url = arguments.next().unwrap_or_else(|| "http://127.0.0.1:50051".to_owned());
    let connection = Endpoint::from_shared(url.clone())?.connect().await;
    let connection = connection.with_context(|| format!("no gateway responds at {url}"))?;
    let mut client = FileServiceClient::new(connection);

    let file = File::open(&path).await.with_context(|| format!("cannot open {path}"))?;
    // Metadata first, then chunks, which are read as the gateway receives them.
    let metadata = Part::Metadata(FileMetadata { cid_version: Some(1), ..FileMetadata::default() });
    let chunks = stream::unfold((Some(metadata), file), |(metadata, mut file)| async move {
        if let Some(metadata) = metadata {
            return Some((AddFileRequest { part: Some(metadata) }, (None, file)));
        }
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        // A read error ends the stream here. The size check below detects the truncation.
        (&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut chunk).await.ok().filter(|read| *read > 0)?;
        Some((AddFileRequest { part: Some(Part::Chunk(Bytes::from(chunk))) }, (None, file)))
    });
    let added = client.add_file(chunks).await?.into_inner();
    println!("{path} is {}: {} bytes in {} blocks", added.cid, added.size, added.blocks);

    let request = GetFileRequest { path: added.cid, offset: 0, length: Some(64) };
    let mut pieces = client.get_file(request).await?.into_inner();
    while let Some(piece) = pieces.message().await? {
        println!("it starts with {:?}", String::from_utf8_lossy(&piece.data));
    }
    Ok(())
}
