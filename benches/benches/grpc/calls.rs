//! `GetBlock` of a small block, with many concurrent calls.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ipfrs_benches::{Cores, GatewayProcess, Series, Table, random};
use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use ipfrs_proto::block::v1::{GetBlockRequest, PutBlockRequest};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use crate::hello::{BLOCK_BYTES, HELLO};
use crate::options::Options;
use crate::{client_runtime, row};

/// Number of concurrent calls on one connection.
const STREAMS: usize = 64;
/// Minimum ratio to the call rate of the reference server.
const GOAL: f64 = 0.8;

pub(crate) fn measure(options: &Options, cores: &Cores, directory: &Path) -> Result<Table> {
    cores.for_servers()?;
    let gateway = GatewayProcess::start(&directory.join("calls"), None)?;
    let hello = GatewayProcess::start_as(HELLO, &directory.join("hello"))?;
    cores.for_clients()?;
    let runtime = client_runtime()?;
    let cid = runtime.block_on(put(gateway.grpc_address()))?;
    let time = Duration::from_secs(options.seconds);
    let (mut ours, mut other, mut ratios) = (Series::default(), Series::default(), Series::default());
    for _ in 0..options.rounds {
        let rates = [gateway.grpc_address(), hello.grpc_address()]
            .map(|address| runtime.block_on(calls_per_second(address, &cid, time)));
        let [ours_now, other_now] = rates;
        let (ours_now, other_now) = (ours_now?, other_now?);
        ours.push(ours_now);
        other.push(other_now);
        ratios.push(ours_now / other_now);
    }
    let figures = [ours.show(0), other.show(0)];
    Ok(Table::new(
        format!("GetBlock of 1 KiB, {STREAMS} calls at a time on one connection"),
        ["", "ipfrs, calls/s", "tonic alone, calls/s", "ratio", "goal", ""],
        [row("GetBlock", figures, ratios.median(), GOAL)],
    ))
}

async fn connect(address: SocketAddr) -> Result<BlockServiceClient<Channel>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
    Ok(BlockServiceClient::new(endpoint.connect().await.context("there is no connection")?))
}

async fn put(address: SocketAddr) -> Result<String> {
    let block = PutBlockRequest { data: random(1, BLOCK_BYTES).into(), ..PutBlockRequest::default() };
    Ok(connect(address).await?.put_block(block).await?.into_inner().cid)
}

/// Returns the number of calls per second that return the whole block.
async fn calls_per_second(address: SocketAddr, cid: &str, time: Duration) -> Result<f64> {
    let client = connect(address).await?;
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..STREAMS {
        let (mut client, cid) = (client.clone(), cid.to_owned());
        callers.spawn(async move {
            let mut calls = 0_u32;
            while start.elapsed() < time {
                let response = client.get_block(GetBlockRequest { cid: cid.clone() }).await?.into_inner();
                let bytes = response.block.map_or(0, |block| block.data.len());
                ensure!(bytes == BLOCK_BYTES, "received a block of {bytes} bytes instead of {BLOCK_BYTES}");
                calls += 1;
            }
            Ok(calls)
        });
    }
    let mut calls = 0.0;
    while let Some(counted) = callers.join_next().await {
        calls += f64::from(counted??);
    }
    Ok(calls / start.elapsed().as_secs_f64())
}
