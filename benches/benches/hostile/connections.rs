//! Attacks with many connections that are slow or silent.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ipfrs_benches::get;
use ipfrs_benches::process::POLL;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::site::Target;

/// How often a slow client does something.
const INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that a slow reader reads in each interval.
const READ_BYTES: usize = 64;
/// Receive buffer of a slow reader, in bytes.
const RECEIVE_BUFFER: u32 = 16 * 1_024;
/// Silent connections for each slow client.
const SILENT: usize = 10;
/// Time for which nothing can be sent after which the gateway no longer reads.
const STALL: Duration = Duration::from_millis(500);
/// Connections with pipelined requests for each slow client.
const PIPELINES: usize = 10;

/// Beginning of an upload.
const UPLOAD: &[u8] =
    b"POST /api/v0/add HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=x\r\n\
    Content-Length: 1000000\r\n\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";

pub(crate) fn slow_readers(target: &Target) -> Result<String> {
    let request = get(&target.large);
    run(crowd(target, target.clients, &request, true))?;
    Ok(format!("{} clients, none was ended", target.clients))
}

pub(crate) fn slow_senders(target: &Target) -> Result<String> {
    run(crowd(target, target.clients, UPLOAD, false))?;
    Ok(format!("{} clients, none was ended", target.clients))
}

pub(crate) fn slow_readers_and_senders(target: &Target) -> Result<String> {
    let (count, request) = (target.clients, get(&target.large));
    let (readers, senders) = (crowd(target, count, &request, true), crowd(target, count, UPLOAD, false));
    run(async { futures::future::try_join(readers, senders).await.map(drop) })?;
    Ok(format!("{count} readers and {count} senders, none was ended"))
}

pub(crate) fn silent(target: &Target) -> Result<String> {
    let count = SILENT * target.clients;
    run(crowd(target, count, &[], true))?;
    Ok(format!("{count} connections, none was ended"))
}

pub(crate) fn slow_heads(target: &Target) -> Result<String> {
    let count = 2 * target.clients;
    run(crowd(target, count, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nx-", false))?;
    Ok(format!("{count} connections, none was ended"))
}

pub(crate) fn unread_pipelines(target: &Target) -> Result<String> {
    let requests = get(&target.small).repeat(1_000);
    let connections = (target.clients / PIPELINES).max(1);
    let (mut open, mut most, end) = (Vec::new(), 0, target.end());
    for _ in 0..connections {
        let mut stream = TcpStream::connect(target.gateway.address())?;
        stream.set_nonblocking(true)?;
        let (mut sent, mut last) = (0, Instant::now());
        while last.elapsed() < STALL {
            match stream.write(&requests[sent % requests.len()..]) {
                Ok(bytes) => (sent, last) = (sent + bytes, Instant::now()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(POLL),
                Err(error) => return Err(error).context("the gateway ended a connection"),
            }
        }
        most = most.max(sent);
        open.push(stream);
    }
    thread::sleep(end.saturating_duration_since(Instant::now()));
    let megabytes = most as f64 / 1e6;
    Ok(format!("{connections} connections; the daemon stops reading after {megabytes:.1} MB at most"))
}

/// Runs an attack on this thread.
fn run(attack: impl Future<Output = Result<()>>) -> Result<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(attack)
}

/// Opens connections that send `first`, and then read [`READ_BYTES`] or send a byte in each interval.
///
/// # Errors
/// Returns an error if the gateway ends one of them before the attack is over.
async fn crowd(target: &Target, count: usize, first: &[u8], reads: bool) -> Result<()> {
    let (server, first): (_, Arc<[u8]>) = (target.gateway.address(), first.into());
    // Readers whose request was complete get bytes; others must get none.
    let is_silent = first.is_empty();
    let awaits = reads && !is_silent;
    let mut clients = JoinSet::new();
    for _ in 0..count {
        let mut stream = connect(server).await?;
        stream.write_all(&first).await?;
        let end = tokio::time::Instant::now() + target.time;
        clients.spawn(async move {
            let mut next = tokio::time::Instant::now() + INTERVAL;
            while next <= end {
                sleep_until(next).await;
                if awaits {
                    ensure!(stream.read(&mut [0; READ_BYTES]).await? > 0, "the gateway ended a connection");
                } else if !reads {
                    stream.write_all(b"x").await?;
                }
                next += INTERVAL;
            }
            sleep_until(end).await;
            ensure!(!is_silent || would_block(&stream), "the gateway ended a silent connection");
            Ok(())
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended?.context("the gateway ended a connection")?;
    }
    Ok(())
}

/// Whether a connection is open and has nothing to read.
fn would_block(stream: &tokio::net::TcpStream) -> bool {
    stream.try_read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

async fn connect(server: SocketAddr) -> Result<tokio::net::TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.connect(server).await.with_context(|| format!("cannot connect to {server}"))
}
