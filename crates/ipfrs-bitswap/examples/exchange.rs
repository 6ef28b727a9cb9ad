//! Serves a directory of blocks to peers, or fetches a DAG from peers.
//!
//! ```sh
//! exchange serve DIRECTORY [LISTEN...]
//! exchange fetch CID DIRECTORY|- PEER...
//! ```
//!
//! Each block is a file named by its content ID. With `-`, fetched blocks are not stored. `PEER` is an address with a peer
//! ID, such as `/ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...`.
#![expect(clippy::print_stdout, reason = "a command-line program")]

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use ipfrs_bitswap::{Bitswap, BitswapConfig, BlockProvider, Multiaddr, Session};
use ipfrs_core::{Block, Cid, parse_cid};
use prometheus::Registry;

/// Maximum number of blocks that are requested at the same time.
const CONCURRENT_BLOCKS: usize = 512;

struct Directory(PathBuf);

#[async_trait]
impl BlockProvider for Directory {
    async fn get(&self, cid: &Cid) -> ipfrs_core::Result<Option<Bytes>> {
        let path = self.0.join(cid.to_string());
        let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
        Ok(read.ok().and_then(Result::ok).map(Bytes::from))
    }

    async fn size(&self, cid: &Cid) -> ipfrs_core::Result<Option<u64>> {
        Ok(std::fs::metadata(self.0.join(cid.to_string())).ok().map(|metadata| metadata.len()))
    }
}

async fn start(directory: &str, listen: Vec<Multiaddr>) -> Result<Bitswap> {
    let config = BitswapConfig { enabled: true, listen, ..BitswapConfig::default() };
    let blocks = Arc::new(Directory(directory.into()));
    let key: [u8; 32] = rand::random();
    Ok(Bitswap::start(config, &key, blocks, Arc::new(|_| true), &Registry::new()).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["serve", directory, listen @ ..] => serve(directory, listen).await,
        ["fetch", cid, directory, peers @ ..] => fetch(cid, directory, peers).await,
        _ => bail!("usage: exchange serve DIRECTORY [LISTEN...] | exchange fetch CID DIRECTORY|- PEER..."),
    }
}

async fn serve(directory: &str, listen: &[&str]) -> Result<()> {
    let listen = listen.iter().map(|address| address.parse()).collect::<Result<_, _>>()?;
    let bitswap = start(directory, listen).await?;
    for address in bitswap.listen_addrs() {
        println!("{address}/p2p/{}", bitswap.peer_id());
    }
    tokio::signal::ctrl_c().await?;
    let stat = bitswap.stat();
    println!("sent {} blocks, {} bytes", stat.blocks_sent, stat.data_sent);
    bitswap.shutdown().await;
    Ok(())
}

async fn fetch(cid: &str, directory: &str, peers: &[&str]) -> Result<()> {
    let bitswap = start(directory, Vec::new()).await?;
    let session = bitswap.session(None);
    for peer in peers {
        let peer: Multiaddr = peer.parse()?;
        bitswap.connect(&peer).await?;
    }
    session.add_providers(bitswap.peers().into_iter().map(|peer| (peer.id, Vec::new())).collect());
    let start = Instant::now();
    let (blocks, bytes) = walk(&session, parse_cid(cid)?, directory).await?;
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for display")]
    let rate = bytes as f64 / seconds / 1e6;
    println!("{blocks} blocks, {bytes} bytes, {seconds:.3} s, {rate:.1} MB/s");
    for peer in bitswap.peers() {
        println!("{}: {} bytes", peer.id, bitswap.ledger(peer.id).recv);
    }
    let stat = bitswap.stat();
    println!("not needed: {} blocks, {} bytes", stat.dup_blks_received, stat.dup_data_received);
    bitswap.shutdown().await;
    Ok(())
}

/// Fetches all blocks below a root. Returns their number and bytes.
async fn walk(session: &Session, root: Cid, directory: &str) -> Result<(usize, usize)> {
    let mut seen = HashSet::from([root]);
    let mut pending = vec![root];
    let mut running = FuturesUnordered::new();
    let mut bytes = 0;
    loop {
        while running.len() < CONCURRENT_BLOCKS
            && let Some(cid) = pending.pop()
        {
            running.push(async move { session.get(&cid).await });
        }
        let Some(block) = running.next().await else { break };
        let block: Block = block?;
        bytes += block.data().len();
        let links = ipfrs_unixfs::links(block.cid(), block.data())?;
        let mut links: Vec<Cid> = links.iter().filter(|link| seen.insert(*link)).collect();
        links.reverse();
        pending.append(&mut links);
        if directory != "-" {
            let path = PathBuf::from(directory).join(block.cid().to_string());
            std::fs::write(&path, block.data()).with_context(|| path.display().to_string())?;
        }
    }
    Ok((seen.len(), bytes))
}
