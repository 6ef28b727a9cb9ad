//! Lines of a command that does not wait for a client that reads slowly.

use std::collections::VecDeque;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::RequestMemory;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use super::long_command::Lines;
use super::output;

/// Maximum number of bytes that wait for the client: the lines of about 180,000 removed blocks.
const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;

/// Number of waiting bytes of each command that take no memory of the pool.
const FREE_WAITING_BYTES: usize = 1024 * 1024;

/// Number of bytes of lines that are sent together.
const PIECE_BYTES: usize = 1024;

/// Memory of a piece that waits, besides its bytes.
const PIECE_OVERHEAD: usize = 96;

/// Number of bytes that the memory may exceed the lines, so that it does not change with each line.
const EXCESS_BYTES: usize = 1024 * 1024;

/// Time that the command may wait at first, if it cannot keep a line.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Time by which each piece that the client reads prolongs the wait, so that the command waits for a client that reads
/// 1 MiB per second.
const PIECE_WAIT: Duration = Duration::from_millis(1);

/// Lines that wait for the client while the command continues. If it cannot keep a line, it waits for a client that
/// reads fast enough. Otherwise it omits and counts the line.
pub(super) struct LineBacklog {
    lines: Lines,
    /// Complete lines, of [`PIECE_BYTES`] or, if there is only one, more.
    waiting: VecDeque<Vec<u8>>,
    /// Memory of the pieces that wait.
    bytes: usize,
    reserved: RequestMemory,
    /// Remaining time that the command may wait for the client.
    wait_left: Duration,
    omitted: u64,
}

impl LineBacklog {
    pub(super) fn new(lines: Lines, reserved: RequestMemory) -> Self {
        Self { lines, waiting: VecDeque::new(), bytes: 0, reserved, wait_left: FIRST_WAIT, omitted: 0 }
    }

    /// Adds a line that the client needs.
    ///
    /// # Errors
    /// If the line cannot be serialized.
    pub(super) async fn push(&mut self, line: &impl Serialize) -> Result<()> {
        let line = output::line(line)?;
        while !self.keep(&line) {
            if !self.make_space().await {
                self.omitted += 1;
                break;
            }
        }
        Ok(())
    }

    /// Waits until the client reads a piece, for as long as the command may still wait. Returns whether it did.
    async fn make_space(&mut self) -> bool {
        // Even a timer of no time takes a millisecond.
        if self.waiting.is_empty() || self.wait_left.is_zero() {
            return false;
        }
        let (began, limit) = (Instant::now(), self.wait_left);
        let is_sent = timeout(limit, self.send_first()).await.is_ok();
        self.wait_left = self.wait_left.saturating_sub(began.elapsed());
        is_sent
    }

    /// Adds a line about the progress, which the client does not miss.
    ///
    /// # Errors
    /// If the line cannot be serialized.
    pub(super) fn offer(&mut self, line: &impl Serialize) -> Result<()> {
        self.keep(&output::line(line)?);
        Ok(())
    }

    /// Adds a line if there is memory for it. Returns whether there is.
    fn keep(&mut self, line: &[u8]) -> bool {
        if let Some(last) = self.waiting.back_mut()
            && last.len() + line.len() <= PIECE_BYTES
        {
            last.extend_from_slice(line);
            return true;
        }
        let bytes = self.bytes + memory_of(line.len());
        let fits = bytes <= FREE_WAITING_BYTES || (bytes <= MAX_WAITING_BYTES && self.reserved.try_grow_to(bytes));
        if fits {
            self.bytes = bytes;
            let mut piece = Vec::with_capacity(PIECE_BYTES.max(line.len()));
            piece.extend_from_slice(line);
            self.waiting.push_back(piece);
        }
        fits
    }

    /// Sends the first piece as soon as the client reads. Waits forever if there is none. Dropping the future loses
    /// nothing.
    pub(super) async fn send_first(&mut self) {
        if self.waiting.is_empty() {
            return std::future::pending().await;
        }
        // If the client has disconnected, the command is being aborted.
        let Some(space) = self.lines.space().await else { return std::future::pending().await };
        let Some(piece) = self.waiting.pop_front() else { return };
        self.bytes -= memory_of(piece.len());
        space.send(Ok(piece.into()));
        if self.wait_left < FIRST_WAIT {
            self.wait_left += PIECE_WAIT;
        }
        self.release();
    }

    /// Sends all lines.
    ///
    /// # Errors
    /// As [`Lines::send`].
    pub(super) async fn send_all(&mut self) -> Result<()> {
        while let Some(piece) = self.waiting.pop_front() {
            self.bytes -= memory_of(piece.len());
            self.lines.send_serialized(piece.into()).await?;
            self.release();
        }
        Ok(())
    }

    /// Checks that no line was omitted.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] with the number of lines that were omitted, and the remedy.
    pub(super) fn check_complete(&self, remedy: &str) -> Result<()> {
        if self.omitted == 0 {
            return Ok(());
        }
        let what = format!("the command has ended, but {} lines were omitted", self.omitted);
        let why = format!("{what}, because the client did not read them in time");
        Err(Error::new(ErrorKind::Timeout, format!("{why}: {remedy}")))
    }

    /// Releases memory that the lines no longer need.
    fn release(&mut self) {
        let (needed, excess) = if self.bytes <= FREE_WAITING_BYTES { (0, 0) } else { (self.bytes, EXCESS_BYTES) };
        if self.reserved.bytes() > needed + excess {
            self.reserved.shrink_to(needed);
        }
    }
}

/// Returns the memory of a piece, whose length may still grow to [`PIECE_BYTES`].
fn memory_of(length: usize) -> usize {
    PIECE_BYTES.max(length) + PIECE_OVERHEAD
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::mpsc::channel;

    use super::*;
    use crate::rpc::multipart::tests::pool;

    /// A line of 64 KiB, with its line feed.
    fn long_line() -> String {
        "a".repeat(64 * 1024 - 3)
    }

    #[tokio::test]
    async fn short_lines_are_sent_together() {
        let (_repo, pool) = pool().await;
        let (sender, mut sent) = channel(1);
        let mut backlog = LineBacklog::new(Lines::new(sender, Duration::from_secs(60)), pool.reservation());
        assert!(backlog.send_first().now_or_never().is_none(), "there is no line");
        for number in 0..3 {
            backlog.push(&number).await.unwrap();
        }
        assert!(backlog.send_first().now_or_never().is_some());
        assert_eq!(sent.recv().await.unwrap().unwrap(), "0\n1\n2\n");
        assert_eq!(backlog.bytes, 0);
    }

    #[tokio::test]
    async fn lines_beyond_the_limit_are_omitted_and_counted() {
        let (_repo, pool) = pool().await;
        let (sender, mut sent) = channel(1);
        let mut backlog = LineBacklog::new(Lines::new(sender, Duration::from_secs(60)), pool.reservation());
        let most = MAX_WAITING_BYTES / (64 * 1024 + PIECE_OVERHEAD);
        for _ in 0..most {
            backlog.push(&long_line()).await.unwrap();
        }
        backlog.check_complete("").unwrap();
        assert!(backlog.reserved.bytes() >= backlog.bytes);
        backlog.wait_left = Duration::ZERO;
        for _ in 0..3 {
            backlog.push(&long_line()).await.unwrap();
        }
        backlog.offer(&long_line()).unwrap();
        let error = backlog.check_complete("read it").unwrap_err();
        assert!(error.message().contains("3 lines were omitted") && error.message().ends_with(": read it"), "{error}");
        // The channel has space for one piece, and the client reads as many as were kept.
        assert!(backlog.send_first().now_or_never().is_some());
        assert!(backlog.send_first().now_or_never().is_none());
        let reading = async {
            let mut read = 0;
            while read < most {
                assert_eq!(sent.recv().await.unwrap().unwrap().len(), 64 * 1024);
                read += 1;
            }
        };
        let (all, ()) = futures::join!(backlog.send_all(), reading);
        all.unwrap();
        assert_eq!((backlog.bytes, backlog.reserved.bytes()), (0, 0));
    }

    #[tokio::test]
    async fn full_backlog_waits_for_a_client_that_reads() {
        /// Twice as many as fit.
        const LINES: usize = 2 * MAX_WAITING_BYTES / (64 * 1024);
        let (_repo, pool) = pool().await;
        let (sender, mut sent) = channel(1);
        let mut backlog = LineBacklog::new(Lines::new(sender, Duration::from_secs(60)), pool.reservation());
        backlog.wait_left = Duration::from_secs(60);
        let pushing = async {
            for _ in 0..LINES {
                backlog.push(&long_line()).await.unwrap();
            }
            backlog.check_complete("").unwrap();
            backlog.send_all().await.unwrap();
        };
        let reading = async {
            for _ in 0..LINES {
                assert_eq!(sent.recv().await.unwrap().unwrap().len(), 64 * 1024);
            }
        };
        futures::join!(pushing, reading);
    }
}
