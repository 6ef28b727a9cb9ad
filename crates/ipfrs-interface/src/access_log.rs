//! The access log: a line for each request on standard error, as text or JSON.
//!
//! Formatting a line and appending it to a buffer takes a twentieth of the time of a cached response. (The same line as
//! an event of `tracing` takes a fifth.) A thread writes the buffer, at most a hundred times a second. If no program
//! reads standard error, the buffer fills up, and further lines are dropped.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipfrs_core::timestamp::format_milliseconds;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::TraceContext;
use parking_lot::{Condvar, Mutex};

use crate::LogFormat;

/// Maximum number of bytes that wait to be written.
const MAX_WAITING_BYTES: usize = 4 * 1024 * 1024;
/// How long lines are collected before they are written together.
const COLLECT: Duration = Duration::from_millis(10);
/// How long the last lines may take to be written.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The running log of the process.
static LOG: OnceLock<Arc<Shared>> = OnceLock::new();

/// Whether requests are logged.
pub(crate) fn is_enabled() -> bool {
    LOG.get().is_some()
}

/// A finished request.
pub(crate) struct Line<'a> {
    pub(crate) client: IpAddr,
    /// As the client sent it.
    pub(crate) host: &'a str,
    pub(crate) method: &'a str,
    /// Without the query.
    pub(crate) path: &'a str,
    pub(crate) route: &'a str,
    pub(crate) status: u16,
    pub(crate) sent_bytes: u64,
    pub(crate) complete: bool,
    pub(crate) first_byte: Duration,
    pub(crate) duration: Duration,
    pub(crate) request_id: &'a str,
    pub(crate) trace: Option<TraceContext>,
}

struct Shared {
    format: LogFormat,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    dropped: u64,
    is_ending: bool,
    /// The second since 1970 of the last line, and its text.
    second: u64,
    second_text: String,
}

/// Logs a request, if requests are logged.
pub(crate) fn write(line: &Line<'_>) {
    let Some(log) = LOG.get() else { return };
    let mut waiting = log.waiting.lock();
    if waiting.lines.len() >= MAX_WAITING_BYTES {
        waiting.dropped += 1;
        return;
    }
    let was_empty = waiting.lines.is_empty();
    waiting.append(line, log.format, SystemTime::now());
    drop(waiting);
    if was_empty {
        log.arrived.notify_one();
    }
}

impl Waiting {
    fn append(&mut self, line: &Line<'_>, format: LogFormat, now: SystemTime) {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != now.as_secs() || self.second_text.is_empty() {
            self.second = now.as_secs();
            let text = format_milliseconds(UNIX_EPOCH + Duration::from_secs(self.second));
            text.get(..SECOND_BYTES).unwrap_or_default().clone_into(&mut self.second_text);
        }
        let mut fields = Fields { out: &mut self.lines, is_json: format == LogFormat::Json };
        fields.begin(&self.second_text, now.subsec_micros());
        fields.client(line.client);
        fields.text("host", line.host);
        fields.text("method", line.method);
        fields.text("path", line.path);
        fields.text("route", line.route);
        fields.number("status", line.status.into());
        fields.number("sent_bytes", line.sent_bytes);
        fields.plain("complete", if line.complete { "true" } else { "false" });
        fields.seconds("first_byte_seconds", line.first_byte);
        fields.seconds("duration_seconds", line.duration);
        fields.text("request_id", line.request_id);
        if let Some(trace) = line.trace {
            fields.text("trace_id", &trace.trace_id().to_string());
        }
        self.lines.extend_from_slice(if format == LogFormat::Json { b"}\n" } else { b"\n" });
    }
}

/// Length of a timestamp up to its seconds: `2026-11-25T05:00:00`.
const SECOND_BYTES: usize = 19;

/// Writer of the fields of a line.
struct Fields<'a> {
    out: &'a mut Vec<u8>,
    is_json: bool,
}

impl Fields<'_> {
    fn begin(&mut self, second: &str, microseconds: u32) {
        let (before, after): (&str, &str) = match self.is_json {
            true => (r#"{"timestamp":""#, r#"Z","level":"INFO","target":"access""#),
            false => ("", "Z  INFO access: request"),
        };
        self.out.extend_from_slice(before.as_bytes());
        self.out.extend_from_slice(second.as_bytes());
        self.out.push(b'.');
        self.digits(microseconds.into(), 6);
        self.out.extend_from_slice(after.as_bytes());
    }

    fn name(&mut self, name: &str) {
        let (before, after): (&[u8], &[u8]) = if self.is_json { (b",\"", b"\":") } else { (b" ", b"=") };
        self.out.extend_from_slice(before);
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(after);
    }

    /// Adds a value that needs no quotes.
    fn plain(&mut self, name: &str, value: &str) {
        self.name(name);
        self.out.extend_from_slice(value.as_bytes());
    }

    fn client(&mut self, client: IpAddr) {
        self.name("client");
        let quote = if self.is_json { "\"" } else { "" };
        // Writing to a Vec cannot fail.
        let _ = write!(self.out, "{quote}{client}{quote}");
    }

    /// Adds a value from a client. Quotes and escapes keep it from looking like other fields or lines.
    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        let is_word = value.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'='));
        match (is_word, self.is_json) {
            (true, false) if !value.is_empty() => self.out.extend_from_slice(value.as_bytes()),
            (true, _) => {
                self.out.push(b'"');
                self.out.extend_from_slice(value.as_bytes());
                self.out.push(b'"');
            }
            // Writing to a Vec cannot fail, and a string always has a JSON form.
            (false, _) => drop(serde_json::to_writer(&mut *self.out, value)),
        }
    }

    fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.digits(value, 1);
    }

    fn seconds(&mut self, name: &str, value: Duration) {
        self.name(name);
        self.digits(value.as_secs(), 1);
        self.out.push(b'.');
        self.digits(value.subsec_micros().into(), 6);
    }

    /// Appends a decimal number of at least `least` digits. `write!` takes several times as long.
    fn digits(&mut self, mut value: u64, least: usize) {
        let mut digits = [b'0'; 20];
        let mut start = digits.len();
        while value > 0 || digits.len() - start < least {
            start -= 1;
            digits[start] = b'0' + (value % 10) as u8;
            value /= 10;
        }
        self.out.extend_from_slice(&digits[start..]);
    }
}

/// The running access log. Dropping it writes the waiting lines.
pub(crate) struct AccessLog {
    shared: Arc<Shared>,
    ended: Receiver<()>,
}

impl AccessLog {
    /// Starts the access log of the process.
    ///
    /// # Errors
    /// The process has one already, or the thread could not be started.
    pub(crate) fn start(format: LogFormat) -> Result<Self> {
        let shared = Arc::new(Shared { format, waiting: Mutex::default(), arrived: Condvar::new() });
        let (ending, ended) = channel();
        let writing = Arc::clone(&shared);
        let writer = thread::Builder::new().name("ipfrs-access-log".to_owned());
        writer
            .spawn(move || write_lines(&writing, &ending))
            .map_err(|e| Error::io("the thread of the access log could not be started", e))?;
        let log = Self { shared: Arc::clone(&shared), ended };
        match LOG.set(shared) {
            Ok(()) => Ok(log),
            Err(_) => Err(Error::new(ErrorKind::Conflict, "the process has an access log already")),
        }
    }

    /// Returns the number of lines that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.waiting.lock().dropped
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.shared.waiting.lock().is_ending = true;
        self.shared.arrived.notify_one();
        // If no program reads the lines, the thread is left behind.
        let _ = self.ended.recv_timeout(LAST_WRITE);
    }
}

/// Writes lines until the log ends.
fn write_lines(log: &Shared, ending: &Sender<()>) {
    let mut lines = Vec::new();
    loop {
        let mut waiting = log.waiting.lock();
        while waiting.lines.is_empty() && !waiting.is_ending {
            log.arrived.wait(&mut waiting);
        }
        let is_ending = waiting.is_ending;
        if !is_ending {
            // The thread that logs the next lines does not have to wake this one.
            drop(waiting);
            thread::sleep(COLLECT);
            waiting = log.waiting.lock();
        }
        std::mem::swap(&mut lines, &mut waiting.lines);
        drop(waiting);
        // Nothing can be done if standard error is closed.
        let _ = io::stderr().lock().write_all(&lines);
        lines.clear();
        if is_ending {
            let _ = ending.send(());
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn lines_cannot_be_forged() {
        let line = Line {
            client: Ipv6Addr::LOCALHOST.into(),
            host: "a b",
            method: "GET",
            path: "/x\"\n2026 status=200 \u{1b}[31m",
            route: "",
            status: 404,
            sent_bytes: 12,
            complete: false,
            first_byte: Duration::from_micros(41),
            duration: Duration::from_millis(12_345),
            request_id: "1\\",
            trace: None,
        };
        let written = |format| {
            let mut waiting = Waiting::default();
            waiting.append(&line, format, UNIX_EPOCH + Duration::from_micros(1_000_007));
            String::from_utf8(waiting.lines).unwrap()
        };
        insta::assert_snapshot!(written(LogFormat::Text) + &written(LogFormat::Json));
        let json: serde_json::Value = serde_json::from_str(&written(LogFormat::Json)).unwrap();
        assert_eq!((json["path"].as_str(), json["host"].as_str()), (Some(line.path), Some("a b")));
    }
}
