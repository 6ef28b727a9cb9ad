//! As many requests as a server answers, from one thread that costs less than the server.
//!
//! wrk parses every byte of every answer and asks for the readiness of each socket before it reads: on a core of its own it
//! is what limits, not a server that has little to do for a request. Here an answer is one `recv`, and is recognised by its
//! length and its status line, which are those of an answer that was read and compared whole.

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
/// Room for an answer and more, so that what there is is always read whole.
const BUFFER_BYTES: usize = 256 * 1_024;
/// Answers that are looked for at once.
const EVENTS: usize = 1_024;
/// A server that leaves all connections unanswered for this long has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Latencies are told to three digits.
const DIGITS: u8 = 3;

/// What a load came to.
#[derive(Debug)]
pub struct Loaded {
    /// Answers in a second.
    pub per_second: f64,
    /// The share of its core, 0 to 1, that this client was busy for: near 1 it is the client that limits.
    pub busy: f64,
    /// Nanoseconds from before a request was sent until its answer was there.
    latencies: Histogram<u64>,
}

impl Loaded {
    /// The milliseconds that `share` of the answers (0 to 1) did not take longer than.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        self.latencies.value_at_quantile(share) as f64 / 1e6
    }
}

/// A connection with one request under way.
struct Connection {
    stream: TcpStream,
    /// When the request was sent that is not answered yet.
    sent: Instant,
    /// The bytes of an answer, with its head.
    answer_bytes: usize,
    /// What has come of an answer that did not come at once.
    begun: Vec<u8>,
}

/// Sends `request`, whose answer has `body`, on `connections` connections for `time`: on each of them again as soon as it is
/// answered. The first answer on each is compared byte for byte, the others in status and length.
///
/// # Errors
/// When a connection ends, is answered with something else, or none is answered for ten seconds.
pub fn load(server: SocketAddr, request: &[u8], body: &[u8], connections: usize, time: Duration) -> Result<Loaded> {
    let opened = (0..connections).map(|_| Connection::open(server, request, body));
    let mut all = opened.collect::<Result<Vec<_>>>()?;
    // One alone is waited for in `recv`, without a look at its readiness.
    let ready = if connections > 1 { Some(watch(&all)?) } else { None };
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut latencies = Histogram::new(DIGITS).context("there is no room for latencies")?;
    let (start, cpu_before) = (Instant::now(), cpu_time());
    for connection in &mut all {
        connection.ask(request, Instant::now())?;
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
                ensure!(connection.sent.elapsed() < PATIENCE, "no answer for {} s", PATIENCE.as_secs());
                continue;
            }
            let now = Instant::now();
            let taken = now.duration_since(connection.sent);
            latencies.record(u64::try_from(taken.as_nanos())?).context("an answer took too long to be counted")?;
            if now.duration_since(start) < time {
                answers += 1;
                connection.ask(request, now)?;
            } else {
                waiting -= 1;
            }
        }
    }
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_time() - cpu_before);
    Ok(Loaded { per_second: answers as f64 / time.as_secs_f64(), busy: cpu / elapsed, latencies })
}

impl Connection {
    /// Opens one, and compares its first answer.
    fn open(server: SocketAddr, request: &[u8], body: &[u8]) -> Result<Self> {
        let stream = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let sent = Instant::now();
        let mut connection = Self { stream, sent, answer_bytes: 0, begun: Vec::new() };
        connection.ask(request, sent)?;
        let mut answer = Vec::new();
        while connection.answer_bytes == 0 || answer.len() < connection.answer_bytes {
            answer.reserve(BUFFER_BYTES);
            let received = recv(&connection.stream, spare_capacity(&mut answer), RecvFlags::empty());
            let (_, received) = received.context("no answer")?;
            ensure!(received > 0, "the server closed the connection in the middle of an answer");
            if connection.answer_bytes == 0 {
                connection.answer_bytes = whole(&answer, body.len())?.unwrap_or_default();
            }
        }
        ensure!(answer.len() == connection.answer_bytes, "the answer is longer than it says");
        ensure!(answer.ends_with(body), "the answer is another one than was expected");
        Ok(connection)
    }

    fn ask(&mut self, request: &[u8], now: Instant) -> Result<()> {
        self.sent = now;
        let sent = send(&self.stream, request, SendFlags::NOSIGNAL).context("the request could not be sent")?;
        ensure!(sent == request.len(), "the request could not be sent at once");
        Ok(())
    }

    /// Takes what there is; whether the answer is complete with it.
    fn receive(&mut self, buffer: &mut [u8], body_bytes: usize) -> Result<bool> {
        let received = match recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
            Ok((_, 0)) => bail!("the server closed the connection"),
            Ok((_, received)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(e) => return Err(e).context("no answer"),
        };
        let came = &buffer[..received];
        if self.begun.is_empty() && received == self.answer_bytes && came.starts_with(STATUS_LINE) {
            return Ok(true);
        }
        // In pieces, or with a head of another length.
        self.begun.extend_from_slice(came);
        let Some(bytes) = whole(&self.begun, body_bytes)? else { return Ok(false) };
        ensure!(self.begun.len() <= bytes, "the answer is longer than it says");
        let is_complete = self.begun.len() == bytes;
        if is_complete {
            self.begun.clear();
            self.answer_bytes = bytes;
        }
        Ok(is_complete)
    }
}

/// The bytes of the answer that begins here, with its head; `None` where its head is not complete yet.
fn whole(answer: &[u8], body_bytes: usize) -> Result<Option<usize>> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        ensure!(answer.len() < BUFFER_BYTES, "a head is over {BUFFER_BYTES} bytes");
        return Ok(None);
    };
    let head = std::str::from_utf8(&answer[..end]).context("the head is not text")?;
    let (status, length) = parse_head(head)?;
    ensure!(status == 200 && length == Some(body_bytes as u64), "the answer is another one: {head}");
    Ok(Some(end + 4 + body_bytes))
}

/// Tells of what comes, once for each time that something has come.
fn watch(all: &[Connection]) -> Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("readiness cannot be watched")?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    for (place, connection) in all.iter().enumerate() {
        connection.stream.set_nonblocking(true)?;
        epoll::add(&epoll, &connection.stream, epoll::EventData::new_u64(place as u64), flags)
            .context("readiness cannot be watched")?;
    }
    Ok(epoll)
}

fn wait(ready: &OwnedFd, events: &mut Vec<epoll::Event>) -> Result<()> {
    let patience = Timespec::try_from(PATIENCE)?;
    match epoll::wait(ready, spare_capacity(events), Some(&patience)) {
        Ok(0) => bail!("no connection was answered for {} s", PATIENCE.as_secs()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e).context("readiness cannot be told"),
    }
}

/// Seconds of CPU that this thread has used.
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

    /// Answers each request on each connection with the next of `answers`, in pieces where it has several; the last one for ever.
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
    fn answers_are_counted_however_they_come_in_pieces_and_with_heads_of_other_lengths() {
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
    fn another_status_length_or_first_body_and_a_closed_connection_are_errors() {
        const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let wrong: [&[&[&[u8]]]; 5] = [
            &[&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellO"]],
            &[&[b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell"]],
            &[&[HELLO], &[b"HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nhello"]],
            &[&[HELLO], &[b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!"]],
            &[&[HELLO], &[HELLO, b"more"]],
        ];
        for answers in wrong {
            for connections in [1, 3] {
                assert!(loaded(answers, connections).is_err(), "{answers:?}");
            }
        }
    }
}
