//! A load generator on one thread that needs less CPU time than the server.
//!
//! wrk parses every byte of every response and polls each socket before it reads. On its own core, wrk therefore is
//! the bottleneck if the server does little work per request. This client receives most responses with one `recv`, and
//! recognizes them by their length and status line, which are equal to those of an earlier response to the same
//! request. It parses the heads of all others. Bodies are not compared, except for those of [`load`]'s first responses.

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
const BUFFER_BYTES: usize = 256 * 1_024;
/// Maximum size of a response head, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1_024;
/// Maximum number of ready connections that one poll returns.
const EVENTS: usize = 1_024;
/// Read timeout. A server that is silent on all connections for this long has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Significant digits of the recorded latencies.
const DIGITS: u8 = 3;

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
    /// Returns the latency in milliseconds that `share` of the responses (0 to 1) did not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        self.latencies.value_at_quantile(share) as f64 / 1e6
    }
}

/// A request and the length of the body of its response. The status must be 200.
#[derive(Debug)]
pub struct Fetch {
    /// Bytes of the request.
    pub request: Vec<u8>,
    /// Length of the body, in bytes.
    pub body_bytes: u64,
}

/// A connection with one request in progress.
struct Connection {
    stream: TcpStream,
    /// Start of the current request.
    sent: Instant,
    /// Index of the current request.
    fetch: usize,
    /// Received part of the head, if it did not arrive with the whole response.
    head: Vec<u8>,
    /// Number of bytes of the body that are missing; `None` until the head is complete.
    left: Option<u64>,
}

/// Sends `request`, whose response has `body`, on `connections` connections for `time`. Each connection sends the
/// next request as soon as it has received the response. The first response on each connection is compared byte for
/// byte, the others by status and length.
///
/// # Errors
/// Returns an error if a connection closes, receives another response, or if no connection receives a response within
/// ten seconds.
pub fn load(server: SocketAddr, request: &[u8], body: &[u8], connections: usize, time: Duration) -> Result<Loaded> {
    let opened = (0..connections).map(|_| {
        let connection = Connection::open(server)?;
        connection.compare_first(request, body)?;
        Ok(connection)
    });
    let opened = opened.collect::<Result<Vec<_>>>()?;
    let fetches = [Fetch { request: request.to_vec(), body_bytes: body.len() as u64 }];
    run(opened, &fetches, || 0, time)
}

/// Sends requests on `connections` connections for `time`, as [`load`] does. `choose` returns the index of the next
/// request in `fetches`. All responses are compared by status and length.
///
/// # Errors
/// See [`load`].
pub fn load_varied(
    server: SocketAddr,
    fetches: &[Fetch],
    choose: impl FnMut() -> usize,
    connections: usize,
    time: Duration,
) -> Result<Loaded> {
    let opened = (0..connections).map(|_| Connection::open(server)).collect::<Result<Vec<_>>>()?;
    run(opened, fetches, choose, time)
}

fn run(
    mut all: Vec<Connection>,
    fetches: &[Fetch],
    mut choose: impl FnMut() -> usize,
    time: Duration,
) -> Result<Loaded> {
    let mut next = || {
        let index = choose();
        fetches.get(index).map(|fetch| (index, fetch)).context("there is no such request")
    };
    // Length of the last response to each request, with its head.
    let mut response_bytes = vec![0; fetches.len()];
    // A single connection blocks in `recv` without polling.
    let ready = if all.len() > 1 { Some(watch(&all)?) } else { None };
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut latencies = Histogram::new(DIGITS).context("cannot create a histogram of latencies")?;
    let (start, cpu_before) = (Instant::now(), cpu_time());
    for connection in &mut all {
        connection.send_request(next()?, Instant::now())?;
    }
    let (mut responses, mut waiting) = (0_u64, all.len());
    while waiting > 0 {
        events.clear();
        match &ready {
            Some(epoll) => wait(epoll, &mut events)?,
            None => events.push(epoll::Event { flags: epoll::EventFlags::IN, data: epoll::EventData::new_u64(0) }),
        }
        for event in &events {
            let place = usize::try_from(event.data.u64())?;
            let Some(connection) = all.get_mut(place) else { bail!("there is no connection {place}") };
            if !connection.receive(&mut buffer, fetches, &mut response_bytes)? {
                ensure!(connection.sent.elapsed() < PATIENCE, "no response for {} s", PATIENCE.as_secs());
                continue;
            }
            let now = Instant::now();
            let latency = now.duration_since(connection.sent);
            latencies.record(u64::try_from(latency.as_nanos())?).context("a response took too long to be recorded")?;
            if now.duration_since(start) < time {
                responses += 1;
                connection.send_request(next()?, now)?;
            } else {
                waiting -= 1;
            }
        }
    }
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_time() - cpu_before);
    Ok(Loaded { per_second: responses as f64 / time.as_secs_f64(), busy: cpu / elapsed, latencies })
}

impl Connection {
    fn open(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, sent: Instant::now(), fetch: 0, head: Vec::new(), left: None })
    }

    /// Sends a request and compares the response with the expected one.
    fn compare_first(&self, request: &[u8], body: &[u8]) -> Result<()> {
        self.send_bytes(request)?;
        let (mut response, mut response_bytes) = (Vec::new(), usize::MAX);
        while response.len() < response_bytes {
            response.reserve(BUFFER_BYTES);
            let received = recv(&self.stream, spare_capacity(&mut response), RecvFlags::empty());
            let (_, received) = received.context("no response")?;
            ensure!(received > 0, "the server closed the connection in the middle of a response");
            if response_bytes == usize::MAX
                && let Some(head_bytes) = head_of(&response, 0, body.len() as u64)?
            {
                response_bytes = head_bytes + body.len();
            }
        }
        ensure!(response.len() == response_bytes, "the response is longer than its Content-Length");
        ensure!(response.ends_with(body), "the response differs from the expected one");
        Ok(())
    }

    fn send_request(&mut self, (index, fetch): (usize, &Fetch), now: Instant) -> Result<()> {
        (self.sent, self.fetch, self.left) = (now, index, None);
        self.head.clear();
        self.send_bytes(&fetch.request)
    }

    fn send_bytes(&self, request: &[u8]) -> Result<()> {
        let sent = send(&self.stream, request, SendFlags::NOSIGNAL).context("the request could not be sent")?;
        ensure!(sent == request.len(), "the request could not be sent at once");
        Ok(())
    }

    /// Receives the available bytes. Returns whether the response is complete.
    fn receive(&mut self, buffer: &mut [u8], fetches: &[Fetch], response_bytes: &mut [usize]) -> Result<bool> {
        loop {
            let received = match recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
                Ok((_, 0)) => bail!("the server closed the connection"),
                Ok((_, received)) => received,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(e) => return Err(e).context("no response"),
            };
            let is_at_start = self.left.is_none() && self.head.is_empty();
            let came = &buffer[..received];
            if is_at_start && received == response_bytes[self.fetch] && came.starts_with(STATUS_LINE) {
                return Ok(true);
            }
            let body_bytes = fetches[self.fetch].body_bytes;
            if self.take(came, body_bytes)? {
                response_bytes[self.fetch] = self.head.len() + usize::try_from(body_bytes)?;
                return Ok(true);
            }
            // The socket is empty. More bytes are reported as another event.
            if received < buffer.len() {
                return Ok(false);
            }
        }
    }

    /// Reads received bytes. Returns whether the response is complete.
    fn take(&mut self, received: &[u8], body_bytes: u64) -> Result<bool> {
        let (left, body) = match self.left {
            Some(left) => (left, received.len()),
            None => {
                let before = self.head.len();
                self.head.extend_from_slice(&received[..received.len().min(MAX_HEAD_BYTES)]);
                let Some(head_bytes) = head_of(&self.head, before.saturating_sub(3), body_bytes)? else {
                    return Ok(false);
                };
                self.head.truncate(head_bytes);
                (body_bytes, received.len() - (head_bytes - before))
            }
        };
        let left = left.checked_sub(body as u64).context("the response is longer than its Content-Length")?;
        self.left = Some(left);
        Ok(left == 0)
    }
}

/// Returns the length of the head at the start of `response`, which must announce `body_bytes`, or `None` if it is not
/// complete yet. Its end is not before `from`.
fn head_of(response: &[u8], from: usize, body_bytes: u64) -> Result<Option<usize>> {
    let Some(end) = response[from..].windows(4).position(|window| window == b"\r\n\r\n") else {
        ensure!(response.len() < MAX_HEAD_BYTES, "a head is over {MAX_HEAD_BYTES} bytes");
        return Ok(None);
    };
    let end = from + end;
    let head = std::str::from_utf8(&response[..end]).context("the head is not text")?;
    let (status, length) = parse_head(head)?;
    ensure!(status == 200 && length == Some(body_bytes), "unexpected response: {head}");
    Ok(Some(end + 4))
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

fn wait(ready: &OwnedFd, events: &mut Vec<epoll::Event>) -> Result<()> {
    let timeout = Timespec::try_from(PATIENCE)?;
    match epoll::wait(ready, spare_capacity(events), Some(&timeout)) {
        Ok(0) => bail!("no connection got a response for {} s", PATIENCE.as_secs()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e).context("cannot poll for readiness"),
    }
}

/// Returns the CPU time of this thread, in seconds.
fn cpu_time() -> f64 {
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

    /// Starts a server that responds to requests of one byte, `a` to `z`, with as many bytes as the letter's position,
    /// one write per byte of the response if the letter is `s`.
    fn varied_server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    stream.set_nodelay(true).unwrap();
                    let mut request = [0];
                    while stream.read_exact(&mut request).is_ok() {
                        let length = usize::from(request[0] - b'a');
                        let response =
                            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length));
                        let piece = if request[0] == b's' { 1 } else { response.len() };
                        for piece in response.as_bytes().chunks(piece) {
                            if stream.write_all(piece).is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        });
        address
    }

    fn fetch(letter: u8, body_bytes: u64) -> Fetch {
        Fetch { request: vec![letter], body_bytes }
    }

    #[test]
    fn responses_of_different_lengths_are_counted() {
        let fetches = [fetch(b'a', 0), fetch(b'f', 5), fetch(b's', 18)];
        let mut turn = 0;
        let choose = || {
            turn += 1;
            turn % 3
        };
        let loaded = load_varied(varied_server(), &fetches, choose, 5, Duration::from_millis(100)).unwrap();
        assert!(loaded.per_second > 0.0 && loaded.quantile(1.0) >= loaded.quantile(0.5));
    }

    #[test]
    fn unexpected_lengths_are_errors() {
        for wrong in [fetch(b'f', 4), fetch(b'f', 6), fetch(b's', 17)] {
            assert!(load_varied(varied_server(), &[wrong], || 0, 2, Duration::from_millis(50)).is_err());
        }
        assert!(load_varied(varied_server(), &[], || 0, 1, Duration::from_millis(50)).is_err());
    }
}
