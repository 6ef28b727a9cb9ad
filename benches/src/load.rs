//! A load generator on one thread that needs less CPU time than the server.
//!
//! wrk parses every byte of every response and polls each socket before it reads. On its own core, wrk therefore is
//! the bottleneck if the server does little work per request. This client receives a response with one `recv` and
//! recognizes it by its length and status line, which are equal to those of a first response that was read and
//! compared completely.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::{ClockId, clock_gettime};

use crate::client::parse_head;

const STATUS_LINE: &[u8] = b"HTTP/1.1 200 ";
/// Size of the receive buffer: more than one response, so that one read returns everything that is available.
pub(crate) const BUFFER_BYTES: usize = 256 * 1_024;
/// Maximum number of ready connections that one poll returns.
pub(crate) const EVENTS: usize = 1_024;
/// Read timeout. A server that is silent on all connections for this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Significant digits of the recorded latencies.
pub(crate) const DIGITS: u8 = 3;

/// Results of a load.
#[derive(Debug)]
pub struct Loaded {
    /// Responses per second.
    pub per_second: f64,
    /// Fraction of its core, 0 to 1, that this client was busy. Near 1, the client is the bottleneck.
    pub busy: f64,
    /// Nanoseconds from the start of sending a request until its response was complete.
    latencies: Histogram<u64>,
}

impl Loaded {
    pub(crate) fn new(per_second: f64, busy: f64, latencies: Histogram<u64>) -> Self {
        Self { per_second, busy, latencies }
    }

    /// Returns the latency in milliseconds that `share` of the responses (0 to 1) did not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        self.latencies.value_at_quantile(share) as f64 / 1e6
    }
}

/// A connection with one request in progress.
struct Connection {
    stream: TcpStream,
    /// Start of the current request.
    sent: Instant,
    /// Length of a response including its head, in bytes.
    answer_bytes: usize,
    /// Received part of a response that did not arrive in one piece.
    partial: Vec<u8>,
}

/// Sends `request`, whose response has `body`, on `connections` connections for `time`. Each connection sends the
/// next request as soon as it has received the response. The first response on each connection is compared byte for
/// byte, the others by status and length.
///
/// # Errors
/// Returns an error if a connection closes, receives another response, or if no connection receives a response within
/// ten seconds.
pub fn load(server: SocketAddr, request: &[u8], body: &[u8], connections: usize, time: Duration) -> Result<Loaded> {
    let opened = (0..connections).map(|_| Connection::open(server, request, body));
    let mut all = opened.collect::<Result<Vec<_>>>()?;
    // A single connection blocks in `recv` without polling.
    let ready = if connections > 1 { Some(watch(&all)?) } else { None };
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut latencies = Histogram::new(DIGITS).context("cannot create a histogram of latencies")?;
    let (start, cpu_before) = (Instant::now(), cpu_time());
    for connection in &mut all {
        connection.send_request(request, Instant::now())?;
    }
    let (mut answers, mut waiting) = (0_u64, connections);
    while waiting > 0 {
        events.clear();
        match &ready {
            Some(epoll) => wait(epoll, &mut events)?,
            None => events.push(epoll::Event { flags: epoll::EventFlags::IN, data: epoll::EventData::new_u64(0) }),
        }
        for event in &events {
            let place = usize::try_from(event.data.u64())?;
            let Some(connection) = all.get_mut(place) else { bail!("there is no connection {place}") };
            if !connection.receive(&mut buffer, body.len())? {
                ensure!(connection.sent.elapsed() < PATIENCE, "no response for {} s", PATIENCE.as_secs());
                continue;
            }
            let now = Instant::now();
            let latency = now.duration_since(connection.sent);
            latencies.record(u64::try_from(latency.as_nanos())?).context("a response took too long to be recorded")?;
            if now.duration_since(start) < time {
                answers += 1;
                connection.send_request(request, now)?;
            } else {
                waiting -= 1;
            }
        }
    }
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_time() - cpu_before);
    Ok(Loaded::new(answers as f64 / time.as_secs_f64(), cpu / elapsed, latencies))
}

impl Connection {
    /// Opens a connection and compares its first response.
    fn open(server: SocketAddr, request: &[u8], body: &[u8]) -> Result<Self> {
        let stream = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let sent = Instant::now();
        let mut connection = Self { stream, sent, answer_bytes: 0, partial: Vec::new() };
        connection.send_request(request, sent)?;
        let mut response = Vec::new();
        while connection.answer_bytes == 0 || response.len() < connection.answer_bytes {
            response.reserve(BUFFER_BYTES);
            let received = recv(&connection.stream, spare_capacity(&mut response), RecvFlags::empty());
            let (_, received) = received.context("no response")?;
            ensure!(received > 0, "the server closed the connection in the middle of a response");
            if connection.answer_bytes == 0 {
                connection.answer_bytes = whole(&response, body.len())?.unwrap_or_default();
            }
        }
        ensure!(response.len() == connection.answer_bytes, "the response is longer than its Content-Length");
        ensure!(response.ends_with(body), "the response differs from the expected one");
        Ok(connection)
    }

    fn send_request(&mut self, request: &[u8], now: Instant) -> Result<()> {
        self.sent = now;
        let sent = send(&self.stream, request, SendFlags::NOSIGNAL).context("the request could not be sent")?;
        ensure!(sent == request.len(), "the request could not be sent at once");
        Ok(())
    }

    /// Receives the available bytes. Returns whether the response is complete.
    fn receive(&mut self, buffer: &mut [u8], body_bytes: usize) -> Result<bool> {
        let received = match recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
            Ok((_, 0)) => bail!("the server closed the connection"),
            Ok((_, received)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(e) => return Err(e).context("no response"),
        };
        let came = &buffer[..received];
        if self.partial.is_empty() && received == self.answer_bytes && came.starts_with(STATUS_LINE) {
            return Ok(true);
        }
        // The response arrived in pieces, or its head has another length.
        self.partial.extend_from_slice(came);
        let Some(bytes) = whole(&self.partial, body_bytes)? else { return Ok(false) };
        ensure!(self.partial.len() <= bytes, "the response is longer than its Content-Length");
        let is_complete = self.partial.len() == bytes;
        if is_complete {
            self.partial.clear();
            self.answer_bytes = bytes;
        }
        Ok(is_complete)
    }
}

/// Returns the length of the response at the start of `response`, including its head, or `None` if the head is not
/// complete yet.
fn whole(response: &[u8], body_bytes: usize) -> Result<Option<usize>> {
    let Some(end) = response.windows(4).position(|window| window == b"\r\n\r\n") else {
        ensure!(response.len() < BUFFER_BYTES, "a head is over {BUFFER_BYTES} bytes");
        return Ok(None);
    };
    let head = std::str::from_utf8(&response[..end]).context("the head is not text")?;
    let (status, length) = parse_head(head)?;
    ensure!(status == 200 && length == Some(body_bytes as u64), "unexpected response: {head}");
    Ok(Some(end + 4 + body_bytes))
}

/// Creates an epoll instance that reports each arrival of data once (edge-triggered).
fn watch(all: &[Connection]) -> Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot register for readiness")?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    for (place, connection) in all.iter().enumerate() {
        connection.stream.set_nonblocking(true)?;
        epoll::add(&epoll, &connection.stream, epoll::EventData::new_u64(place as u64), flags)
            .context("cannot register for readiness")?;
    }
    Ok(epoll)
}

pub(crate) fn wait(ready: &OwnedFd, events: &mut Vec<epoll::Event>) -> Result<()> {
    let timeout = Timespec::try_from(PATIENCE)?;
    match epoll::wait(ready, spare_capacity(events), Some(&timeout)) {
        Ok(0) => bail!("no connection got a response for {} s", PATIENCE.as_secs()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e).context("cannot poll for readiness"),
    }
}

/// Returns the CPU time of this thread, in seconds.
pub(crate) fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    /// Starts a server that sends the next of `answers` for each request on each connection, one write per piece, and
    /// repeats the last of them.
    fn server(answers: &'static [&'static [&'static [u8]]]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    stream.set_nodelay(true).unwrap();
                    let mut request = [0; REQUEST.len()];
                    let mut answers = answers.iter().peekable();
                    while stream.read_exact(&mut request).is_ok() {
                        let pieces = *answers.peek().unwrap();
                        for piece in *pieces {
                            if stream.write_all(piece).is_err() {
                                return;
                            }
                        }
                        if answers.len() > 1 {
                            answers.next();
                        }
                    }
                });
            }
        });
        address
    }

    fn loaded(answers: &'static [&'static [&'static [u8]]], connections: usize) -> Result<Loaded> {
        load(server(answers), REQUEST, b"hello", connections, Duration::from_millis(100))
    }

    #[test]
    fn load_counts_split_and_varying_responses() {
        const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let answers: &[&[&[u8]]] = &[
            &[HELLO],
            &[b"HTTP/1.1 200 OK\r\nContent-", b"Length: 5\r\n\r\nhe", b"llo"],
            &[b"HTTP/1.1 200 OK\r\nAge: 7\r\nContent-Length: 5\r\n\r\nhello"],
            &[HELLO],
        ];
        for connections in [1, 5] {
            let loaded = loaded(answers, connections).unwrap();
            assert!(loaded.per_second > 0.0 && loaded.busy > 0.0);
            assert!(loaded.latencies.len() > 4 * connections as u64, "{}", loaded.latencies.len());
            assert!(loaded.quantile(1.0) >= loaded.quantile(0.5));
        }
    }

    #[test]
    fn load_rejects_unexpected_responses() {
        const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let invalid: [&[&[&[u8]]]; 5] = [
            &[&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellO"]],
            &[&[b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell"]],
            &[&[HELLO], &[b"HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nhello"]],
            &[&[HELLO], &[b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!"]],
            &[&[HELLO], &[HELLO, b"more"]],
        ];
        for answers in invalid {
            for connections in [1, 3] {
                assert!(loaded(answers, connections).is_err(), "{answers:?}");
            }
        }
    }
}
