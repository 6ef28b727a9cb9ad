//! A load of requests for different files, on one thread.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::client::parse_head;
use crate::load::{BUFFER_BYTES, DIGITS, EVENTS, Loaded, PATIENCE, cpu_time, wait};

/// Maximum size of a response head, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

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
    sent: Instant,
    /// Length of the expected body.
    body_bytes: u64,
    /// Received part of the head.
    head: Vec<u8>,
    /// Number of bytes of the body that are missing; `None` until the head is complete.
    left: Option<u64>,
}

/// Sends requests on `connections` connections for `time`. Each connection sends the next request as soon as it has
/// received the response. `choose` returns the index of the next request in `fetches`.
///
/// # Errors
/// Returns an error if a connection closes, receives another status or length, or if no connection receives anything
/// within ten seconds.
pub fn load_varied(
    server: SocketAddr,
    fetches: &[Fetch],
    mut choose: impl FnMut() -> usize,
    connections: usize,
    time: Duration,
) -> Result<Loaded> {
    let mut next = || fetches.get(choose()).context("there is no such request");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot register for readiness")?;
    let mut all = Vec::with_capacity(connections);
    for place in 0..connections {
        let connection = Connection::open(server)?;
        epoll::add(
            &epoll,
            &connection.stream,
            epoll::EventData::new_u64(place as u64),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )
        .context("cannot register for readiness")?;
        all.push(connection);
    }
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut latencies = Histogram::new(DIGITS).context("cannot create a histogram of latencies")?;
    let (start, cpu_before) = (Instant::now(), cpu_time());
    for connection in &mut all {
        connection.send_request(next()?, Instant::now())?;
    }
    let (mut answers, mut waiting) = (0_u64, connections);
    while waiting > 0 {
        events.clear();
        wait(&epoll, &mut events)?;
        for event in &events {
            let place = usize::try_from(event.data.u64())?;
            let Some(connection) = all.get_mut(place) else { bail!("there is no connection {place}") };
            if !connection.receive(&mut buffer)? {
                ensure!(connection.sent.elapsed() < PATIENCE, "no response for {} s", PATIENCE.as_secs());
                continue;
            }
            let now = Instant::now();
            let latency = now.duration_since(connection.sent);
            latencies.record(u64::try_from(latency.as_nanos())?).context("a response took too long to be recorded")?;
            if now.duration_since(start) < time {
                answers += 1;
                connection.send_request(next()?, now)?;
            } else {
                waiting -= 1;
            }
        }
    }
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_time() - cpu_before);
    Ok(Loaded::new(answers as f64 / time.as_secs_f64(), cpu / elapsed, latencies))
}

impl Connection {
    fn open(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, sent: Instant::now(), body_bytes: 0, head: Vec::new(), left: None })
    }

    fn send_request(&mut self, fetch: &Fetch, now: Instant) -> Result<()> {
        (self.sent, self.body_bytes, self.left) = (now, fetch.body_bytes, None);
        self.head.clear();
        let sent = send(&self.stream, &fetch.request, SendFlags::NOSIGNAL).context("the request could not be sent")?;
        ensure!(sent == fetch.request.len(), "the request could not be sent at once");
        Ok(())
    }

    /// Receives the available bytes. Returns whether the response is complete.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<bool> {
        loop {
            let received = match recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
                Ok((_, 0)) => bail!("the server closed the connection"),
                Ok((_, received)) => received,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(e) => return Err(e).context("no response"),
            };
            if self.take(&buffer[..received])? {
                return Ok(true);
            }
            // The socket is empty. More bytes are reported as another event.
            if received < buffer.len() {
                return Ok(false);
            }
        }
    }

    /// Reads received bytes. Returns whether the response is complete.
    fn take(&mut self, received: &[u8]) -> Result<bool> {
        let body = match self.left {
            Some(_) => received.len(),
            None => {
                let seen = self.head.len().saturating_sub(3);
                self.head.extend_from_slice(&received[..received.len().min(MAX_HEAD_BYTES)]);
                let Some(end) = self.head[seen..].windows(4).position(|window| window == b"\r\n\r\n") else {
                    ensure!(self.head.len() < MAX_HEAD_BYTES, "a head is over {MAX_HEAD_BYTES} bytes");
                    return Ok(false);
                };
                let end = seen + end;
                let head = std::str::from_utf8(&self.head[..end]).context("the head is not text")?;
                let (status, length) = parse_head(head)?;
                ensure!(status == 200 && length == Some(self.body_bytes), "unexpected response: {head}");
                self.left = Some(self.body_bytes);
                let before = self.head.len() - received.len().min(MAX_HEAD_BYTES);
                received.len() - (end + 4 - before)
            }
        };
        let left = self.left.insert(self.left.unwrap_or_default());
        let rest = left.checked_sub(body as u64).context("the response is longer than its Content-Length")?;
        *left = rest;
        Ok(rest == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Starts a server that responds to requests of one byte, `a` to `z`, with as many bytes as the letter's position,
    /// one write per byte of the response if the letter is `s`.
    fn server() -> SocketAddr {
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
        let loaded = load_varied(server(), &fetches, choose, 5, Duration::from_millis(100)).unwrap();
        assert!(loaded.per_second > 0.0 && loaded.quantile(1.0) >= loaded.quantile(0.5));
    }

    #[test]
    fn unexpected_lengths_are_errors() {
        for wrong in [fetch(b'f', 4), fetch(b'f', 6), fetch(b's', 17)] {
            assert!(load_varied(server(), &[wrong], || 0, 2, Duration::from_millis(50)).is_err());
        }
        assert!(load_varied(server(), &[], || 0, 1, Duration::from_millis(50)).is_err());
    }
}
