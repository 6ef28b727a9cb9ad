//! `GetFile` of a large file, compared with the same bytes over HTTP/2. The clients discard both responses without
//! decoding them, because this compares servers.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Version;
use ipfrs_benches::{Client, Cores, GatewayProcess, Profile, Series, Table, add_file, write_random_file};
use ipfrs_proto::file::v1::GetFileRequest;
use prost::Message;
use reqwest::{RequestBuilder, Response};

use crate::options::Options;
use crate::{client_runtime, row};

/// Minimum ratio to the rate of HTTP/2.
const GOAL: f64 = 0.8;
/// Receive window of the client in both cases, in bytes.
const WINDOW_BYTES: u32 = 8 * 1024 * 1024;

pub(crate) fn measure(options: &Options, cores: &Cores, directory: &Path) -> Result<Table> {
    let path = directory.join("file");
    write_random_file(&path, options.file_mib, options.file_mib)?;
    let mut file = File::open(&path)?;
    let bytes = file.metadata()?.len();
    cores.for_servers()?;
    let gateway = GatewayProcess::start(&directory.join("file-repo"), None)?;
    cores.for_clients()?;
    let cid = add_file(&mut Client::connect(gateway.address())?, Profile::DagPb, &mut file)?;
    fs::remove_file(path)?;
    let runtime = client_runtime()?;
    let client = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .tcp_nodelay(true)
        .http2_initial_stream_window_size(WINDOW_BYTES)
        .http2_initial_connection_window_size(WINDOW_BYTES)
        .timeout(Duration::from_secs(3_600))
        .build()?;
    let http = client.get(format!("http://{}/ipfs/{cid}", gateway.address()));
    let call = format!("http://{}/ipfrs.file.v1.FileService/GetFile", gateway.grpc_address());
    let call = client.post(call).header("content-type", "application/grpc").header("te", "trailers");
    let call = call.body(framed(&GetFileRequest { path: cid, ..GetFileRequest::default() })?);
    let (mut ours, mut other, mut ratios) = (Series::default(), Series::default(), Series::default());
    for _ in 0..options.rounds {
        let rate = |request: &RequestBuilder| -> Result<f64> {
            let request = request.try_clone().context("a request cannot be sent twice")?;
            runtime.block_on(megabytes_per_second(request, bytes))
        };
        let (ours_now, other_now) = (rate(&call)?, rate(&http)?);
        ours.push(ours_now);
        other.push(other_now);
        ratios.push(ours_now / other_now);
    }
    let figures = [ours.show(0), other.show(0)];
    Ok(Table::new(
        format!("A file of {} MiB, one connection", options.file_mib),
        ["", "gRPC, MB/s", "HTTP/2, MB/s", "ratio", "goal", ""],
        [row("GetFile", figures, ratios.median(), GOAL)],
    ))
}

/// Frames a message as the body of a call: uncompressed, with its length.
fn framed(message: &impl Message) -> Result<Vec<u8>> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len())?.to_be_bytes();
    Ok([&[0], &length[..], &message].concat())
}

async fn megabytes_per_second(request: RequestBuilder, bytes: u64) -> Result<f64> {
    let start = Instant::now();
    let mut response: Response = request.send().await?.error_for_status()?;
    ensure!(response.version() == Version::HTTP_2, "the response used {:?}", response.version());
    let mut taken = 0;
    while let Some(piece) = response.chunk().await? {
        taken += piece.len() as u64;
    }
    // Message framing adds some bytes. An error response would have a much shorter body.
    ensure!((bytes..bytes + bytes / 1_000 + 100).contains(&taken), "received {taken} bytes instead of {bytes}");
    Ok(taken as f64 / 1e6 / start.elapsed().as_secs_f64())
}
