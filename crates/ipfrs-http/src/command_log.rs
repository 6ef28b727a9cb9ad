//! The RPC commands that run, and those that ended lately, for `diag/cmds`.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::timestamp;
use ipfrs_rpc::types::LoggedCommand;

/// Maximum number of commands that are kept.
const MAX_COMMANDS: usize = 512;

/// Maximum number of arguments and of options that are kept for a command.
const MAX_PARTS: usize = 16;

/// Maximum length of a kept argument or option, in characters.
const MAX_CHARS: usize = 128;

/// Time for which a command that has ended is kept, as in Kubo.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

/// How Go writes a time that is not set.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// Log of commands. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandLog(Arc<Mutex<Log>>);

#[derive(Debug)]
struct Log {
    commands: VecDeque<Entry>,
    next_id: u64,
    kept_for: Duration,
}

impl Default for Log {
    fn default() -> Self {
        Self { commands: VecDeque::new(), next_id: 1, kept_for: KEPT_FOR }
    }
}

#[derive(Debug)]
struct Entry {
    id: u64,
    path: String,
    arguments: Vec<String>,
    options: BTreeMap<String, String>,
    started: SystemTime,
    ended: Option<(SystemTime, Instant)>,
}

impl CommandLog {
    /// Adds a command, which runs until the returned value is dropped. If the log is full, the oldest command that has
    /// ended is removed.
    pub(crate) fn begin(&self, path: &str, arguments: &[String], options: &[(String, String)]) -> RunningCommand {
        let short = |text: &String| text.chars().take(MAX_CHARS).collect::<String>();
        let options: BTreeMap<_, _> =
            options.iter().take(MAX_PARTS).map(|(name, value)| (short(name), short(value))).collect();
        let arguments = arguments.iter().take(MAX_PARTS).map(short).collect();
        let (path, started) = (path.to_owned(), SystemTime::now());
        let mut log = self.log();
        let id = log.next_id;
        log.next_id += 1;
        if log.commands.len() == MAX_COMMANDS {
            // Commands that run stay as long as there are others. Usually the oldest one has just ended.
            let oldest = log.commands.iter().position(|entry| entry.ended.is_some()).unwrap_or(0);
            log.commands.remove(oldest);
        }
        log.commands.push_back(Entry { id, path, arguments, options, started, ended: None });
        RunningCommand { log: self.clone(), id }
    }

    /// Returns the commands, the oldest first.
    pub(crate) fn entries(&self) -> Vec<LoggedCommand> {
        let mut log = self.log();
        log.drop_old();
        log.commands.iter().map(Entry::shown).collect()
    }

    /// Removes the commands that have ended.
    pub(crate) fn clear(&self) {
        self.log().commands.retain(|entry| entry.ended.is_none());
    }

    /// Sets the time for which commands that have ended are kept.
    pub(crate) fn keep_for(&self, time: Duration) {
        self.log().kept_for = time;
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn drop_old(&mut self) {
        let kept_for = self.kept_for;
        self.commands.retain(|entry| entry.ended.is_none_or(|(_, ended)| ended.elapsed() < kept_for));
    }
}

impl Entry {
    fn shown(&self) -> LoggedCommand {
        LoggedCommand {
            start_time: timestamp::format_milliseconds(self.started),
            end_time: self.ended.map_or(NO_TIME.to_owned(), |(ended, _)| timestamp::format_milliseconds(ended)),
            active: self.ended.is_none(),
            command: self.path.clone(),
            options: self.options.clone(),
            args: self.arguments.clone(),
            id: self.id,
        }
    }
}

/// Marks a command as running. When it is dropped, the command has ended.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    log: CommandLog,
    id: u64,
}

impl RunningCommand {
    /// Attaches the command to its response, at whose end it ends.
    pub(crate) fn until_end_of(self, body: Body) -> Body {
        if body.is_end_stream() { body } else { Body::new(LoggedBody { inner: body, _running: self }) }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let mut log = self.log.log();
        if let Some(entry) = log.commands.iter_mut().rev().find(|entry| entry.id == self.id) {
            entry.ended = Some((SystemTime::now(), Instant::now()));
        }
    }
}

/// Body of a command's response.
struct LoggedBody {
    inner: Body,
    _running: RunningCommand,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_end_are_bounded_and_cleared() {
        let log = CommandLog::default();
        let running = log.begin("repo/gc", &["x".repeat(1_000)], &[]);
        assert!(log.entries()[0].active);
        assert_eq!(log.entries()[0].args[0].len(), MAX_CHARS);
        for _ in 0..2 * MAX_COMMANDS {
            drop(log.begin("id", &[], &[]));
        }
        assert_eq!(log.entries().len(), MAX_COMMANDS);
        log.clear();
        assert_eq!(log.entries().len(), 1);
        drop(running);
        assert!(!log.entries()[0].active);
        log.keep_for(Duration::ZERO);
        assert!(log.entries().is_empty());
    }
}
