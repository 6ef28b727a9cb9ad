//! Thousands of connections from one thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::client::parse_head;
use crate::latency::Latencies;

/// Number of connections that are opened concurrently.
const LANES: usize = 32;
/// Timeout of the first response on a new connection.
const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// Timeout of a response while all connections are held. A slower response is an error, as in wrk.
const HELD_PATIENCE: Duration = Duration::from_secs(2);
/// Buffer size that is large enough for a head. Bodies are read through the buffer and dropped.
const FIRST_BUFFER_BYTES: usize = 64 * 1_024;
const HELD_BUFFER_BYTES: usize = 4 * 1_024;

/// Persistent connections to one server.
#[derive(Debug)]
pub struct Crowd {
    runtime: Runtime,
    server: SocketAddr,
    streams: Vec<TcpStream>,
}

/// Results of requests on all connections while all of them are in use.
#[derive(Debug, Default)]
pub struct Served {
    /// Latencies of all responses, measured from the time when the request was due.
    pub latencies: Latencies,
    /// Number of responses that took more than a second.
    pub late: u64,
    /// Number of connections that closed, received another response, or received none within two seconds. They are
    /// not used again.
    pub errors: u64,
}

impl Crowd {
    /// Creates an empty crowd.
    ///
    /// # Errors
    /// Returns an error if the runtime cannot be created.
    pub fn new(server: SocketAddr) -> Result<Self> {
        Ok(Self { runtime: Builder::new_current_thread().enable_all().build()?, server, streams: Vec::new() })
    }

    /// Opens connections until there are `count`. Each new connection sends `request`, whose response has `length`
    /// bytes.
    ///
    /// # Errors
    /// Returns the first error of a connection.
    pub fn grow(&mut self, count: usize, request: &[u8], length: u64) -> Result<()> {
        let more = count.saturating_sub(self.streams.len());
        let server = self.server;
        let grown: Result<Vec<TcpStream>> = self.runtime.block_on(async {
            let mut lanes = JoinSet::new();
            for lane in 0..LANES {
                let (request, share) = (request.to_vec(), more / LANES + usize::from(lane < more % LANES));
                lanes.spawn(async move {
                    let mut buffer = vec![0; FIRST_BUFFER_BYTES];
                    let mut streams = Vec::with_capacity(share);
                    for _ in 0..share {
                        let opened = timeout(PATIENCE, open(server, &request, length, &mut buffer)).await;
                        streams.push(opened.context("no response")??);
                    }
                    Ok::<_, anyhow::Error>(streams)
                });
            }
            let mut grown = Vec::with_capacity(more);
            while let Some(streams) = lanes.join_next().await {
                grown.extend(streams??);
            }
            Ok(grown)
        });
        self.streams.extend(grown?);
        Ok(())
    }

    /// Sends `request`, whose response has `length` bytes, on each connection once a second, spread over the second.
    /// Closes the connections at the end.
    pub fn hold(self, request: &[u8], length: u64, seconds: u32) -> Served {
        let Self { runtime, streams, .. } = self;
        let count = u32::try_from(streams.len()).unwrap_or(u32::MAX).max(1);
        let request: Arc<[u8]> = request.into();
        runtime.block_on(async {
            let start = Instant::now() + SECOND;
            let mut held = JoinSet::new();
            for (place, stream) in (0..count).zip(streams) {
                held.spawn(hold_one(stream, request.clone(), length, start + SECOND * place / count, seconds));
            }
            let mut all = Served::default();
            while let Some(one) = held.join_next().await {
                match one {
                    Ok(one) => {
                        all.latencies.extend(&one.latencies);
                        all.late += one.late;
                        all.errors += one.errors;
                    }
                    Err(_) => all.errors += 1,
                }
            }
            all
        })
    }
}

async fn open(server: SocketAddr, request: &[u8], length: u64, buffer: &mut [u8]) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(server).await.with_context(|| format!("cannot connect to {server}"))?;
    stream.set_nodelay(true)?;
    exchange(&mut stream, request, length, buffer).await?;
    Ok(stream)
}

async fn hold_one(mut stream: TcpStream, request: Arc<[u8]>, length: u64, first: Instant, seconds: u32) -> Served {
    let mut served = Served::default();
    let mut buffer = vec![0; HELD_BUFFER_BYTES];
    for second in 0..seconds {
        // Latency counts from the due time, so a request that waits for the previous one includes that wait.
        let due = first + SECOND * second;
        sleep_until(due).await;
        let outcome = timeout(HELD_PATIENCE, exchange(&mut stream, &request, length, &mut buffer)).await;
        if !matches!(outcome, Ok(Ok(()))) {
            served.errors += 1;
            break;
        }
        let delay = due.elapsed();
        served.late += u64::from(delay > SECOND);
        served.latencies.push(delay.as_secs_f64() * 1e3);
    }
    served
}

/// Sends one request, whose response has status 200 and `length` bytes.
async fn exchange(stream: &mut TcpStream, request: &[u8], length: u64, buffer: &mut [u8]) -> Result<()> {
    let Answered { head, status, length: received } = send_and_receive(stream, request, buffer, Duration::ZERO).await?;
    ensure!(status == 200 && received == length, "unexpected response: {head}");
    Ok(())
}

/// A response whose body was dropped.
#[derive(Debug)]
pub struct Answered {
    /// Head without its last line break.
    pub head: String,
    /// Status code.
    pub status: u16,
    /// Length of the body, in bytes.
    pub length: u64,
}

/// Sends one request and reads its response, which must have a Content-Length, through `buffer`. Waits for `pause`
/// after each read of the body.
///
/// # Errors
/// Returns an error if the connection ends, or if the response is not one of HTTP/1.1 with a length.
pub async fn send_and_receive(
    stream: &mut TcpStream,
    request: &[u8],
    buffer: &mut [u8],
    pause: Duration,
) -> Result<Answered> {
    stream.write_all(request).await.context("the request could not be sent")?;
    let mut held = 0;
    let end = loop {
        ensure!(held < buffer.len(), "a head is over {held} bytes");
        let received = stream.read(&mut buffer[held..]).await.context("no response")?;
        ensure!(received > 0, "the server closed the connection in the middle of a response");
        held += received;
        if let Some(at) = buffer[..held].windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
    };
    let head = std::str::from_utf8(&buffer[..end]).context("the head is not text")?.to_owned();
    let (status, length) = parse_head(&head)?;
    let length = length.with_context(|| format!("the response has no length: {head}"))?;
    let mut left =
        length.checked_sub((held - end - 4) as u64).context("the response is longer than its Content-Length")?;
    while left > 0 {
        match stream.read(buffer).await.context("no response")? as u64 {
            0 => bail!("the server closed the connection in the middle of a response"),
            received => left = left.checked_sub(received).context("the response is longer than its Content-Length")?,
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
    Ok(Answered { head, status, length })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn crowd_requires_the_expected_response_per_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut request = [0; 4];
                    while stream.read_exact(&mut request).is_ok() {
                        let body = if &request == b"good" { "hello" } else { "bad" };
                        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                        stream.write_all(response.as_bytes()).unwrap();
                    }
                });
            }
        });
        let mut crowd = Crowd::new(server).unwrap();
        crowd.grow(40, b"good", 5).unwrap();
        crowd.grow(70, b"good", 5).unwrap();
        assert_eq!(crowd.streams.len(), 70);
        assert!(crowd.grow(71, b"evil", 5).unwrap_err().to_string().contains("unexpected"));
        let served = crowd.hold(b"good", 5, 1);
        assert_eq!((served.latencies.count(), served.errors), (70, 0));
    }
}
