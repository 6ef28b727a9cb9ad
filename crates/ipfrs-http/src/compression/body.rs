//! A body that is compressed while it is read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use ipfrs_core::{Error, Result};
use ipfrs_middleware::{Client, Share};
use tokio::task::JoinHandle;
use tokio_util::sync::PollSemaphore;

use super::cache::Gathering;
use super::coding::Encoder;
use super::meter::Meter;

/// Maximum number of bytes per batch, small enough that other tasks are not delayed for long.
const BATCH_BYTES: usize = 256 * 1024;
/// Maximum number of pieces per batch.
const BATCH_PIECES: usize = 1_024;

/// A body that is compressed in batches, one at a time, as fast as the client reads: no work is done unless the body
/// is polled. Pending output is flushed whenever the source is not ready. If the source fails, the body fails after
/// the output for all earlier data.
pub(super) struct Coded {
    source: Body,
    source_ended: bool,
    /// Error of the source, kept until the output for earlier data is sent.
    source_failed: Option<axum::Error>,
    /// Rest of the last piece of the source.
    rest: Bytes,
    /// Pieces of the next batch.
    batch: Vec<Bytes>,
    batch_bytes: usize,
    /// Upper bound of the bytes that the encoder has buffered.
    held_bytes: usize,
    /// Maximum number of bytes that are compressed on the current thread.
    inline_bytes: usize,
    work: Work,
    trailers: Option<HeaderMap>,
    permits: PollSemaphore,
    meter: Meter,
    /// Copy of the output for the cache, if it is to be cached.
    gathering: Option<Gathering>,
    /// Permit among the bodies that may be compressed at the same time.
    _place: Share<Client>,
}

enum Work {
    /// The encoder waits for input.
    Idle(Encoder),
    /// A batch waits for its permit.
    Queued(Encoder, Then),
    /// A blocking thread compresses a batch.
    Running(JoinHandle<io::Result<BatchOutput>>),
    /// The output is complete, or an error ended it.
    Over,
}

/// Action after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Continue with another batch.
    Continue,
    /// Flush the encoder, because the source is not ready.
    Flush,
    /// Finish the body.
    Finish,
}

/// Result of a batch. The encoder is `None` after the last one.
struct BatchOutput {
    encoder: Option<Encoder>,
    output: Vec<u8>,
}

/// Compresses a batch.
fn encode_batch(mut encoder: Encoder, batch: &[Bytes], then: Then) -> io::Result<BatchOutput> {
    for piece in batch {
        encoder.write(piece)?;
    }
    if then == Then::Flush {
        encoder.flush()?;
    }
    let (encoder, mut output) = match then {
        Then::Finish => (None, encoder.finish()?),
        Then::Continue | Then::Flush => {
            let output = encoder.take();
            (Some(encoder), output)
        }
    };
    // The output waits for the client, and may be cached.
    output.shrink_to_fit();
    Ok(BatchOutput { encoder, output })
}

/// Compresses a short body on the current thread.
///
/// # Errors
/// If the encoder fails, for lack of memory.
pub(super) fn whole(encoder: Encoder, bytes: Bytes, meter: &Meter) -> Result<Bytes> {
    let length = bytes.len();
    let made = encode_batch(encoder, &[bytes], Then::Finish).map_err(failed)?;
    meter.made(length, made.output.len());
    Ok(made.output.into())
}

fn failed(error: io::Error) -> Error {
    Error::internal("the response could not be compressed").with_source(error)
}

impl Coded {
    pub(super) fn new(
        source: Body,
        encoder: Encoder,
        inline_bytes: usize,
        permits: PollSemaphore,
        place: Share<Client>,
        meter: Meter,
        gathering: Option<Gathering>,
    ) -> Self {
        Self {
            source,
            source_ended: false,
            source_failed: None,
            rest: Bytes::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            held_bytes: 0,
            inline_bytes,
            work: Work::Idle(encoder),
            trailers: None,
            permits,
            meter,
            gathering,
            _place: place,
        }
    }

    /// Collects the next batch. Pending only if the source is not ready and nothing is buffered.
    fn gather(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<Then, axum::Error>> {
        while self.batch_bytes < BATCH_BYTES && self.batch.len() < BATCH_PIECES {
            if !self.rest.is_empty() {
                let free_bytes = BATCH_BYTES - self.batch_bytes;
                let piece = self.rest.split_to(free_bytes.min(self.rest.len()));
                self.batch_bytes += piece.len();
                self.batch.push(piece);
                continue;
            }
            if self.source_ended {
                return Poll::Ready(Ok(Then::Finish));
            }
            if self.source_failed.is_some() {
                let is_flushed = self.batch_bytes + self.held_bytes == 0;
                let failure = if is_flushed { self.source_failed.take() } else { None };
                return Poll::Ready(failure.map_or(Ok(Then::Flush), Err));
            }
            match Pin::new(&mut self.source).poll_frame(cx) {
                Poll::Pending if self.batch_bytes + self.held_bytes == 0 => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Ok(Then::Flush)),
                Poll::Ready(None) => self.source_ended = true,
                Poll::Ready(Some(Err(e))) => self.source_failed = Some(e),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
            }
        }
        Poll::Ready(Ok(Then::Continue))
    }

    fn take_batch(&mut self, then: Then) -> Vec<Bytes> {
        self.meter.took(self.batch_bytes);
        let held = self.held_bytes.saturating_add(self.batch_bytes);
        self.held_bytes = if then == Then::Flush { 0 } else { held };
        self.batch_bytes = 0;
        std::mem::take(&mut self.batch)
    }

    /// Takes the encoder back and returns the output, if there is any.
    fn made(&mut self, made: BatchOutput) -> Option<Bytes> {
        let is_last = made.encoder.is_none();
        self.work = made.encoder.map_or(Work::Over, Work::Idle);
        self.meter.gave(made.output.len());
        let output = Bytes::from(made.output);
        self.gathering = self.gathering.take().and_then(|gathering| gathering.with(&output));
        if let Some(gathering) = self.gathering.take_if(|_| is_last) {
            gathering.end();
        }
        (!output.is_empty()).then_some(output)
    }

    /// Returns the next output, or `None` at the end.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Option<std::result::Result<Bytes, axum::Error>>> {
        loop {
            // Each early return below either restores the work, or returns an error that ends it.
            let made = match std::mem::replace(&mut self.work, Work::Over) {
                Work::Idle(encoder) => match self.gather(cx) {
                    Poll::Pending => {
                        self.work = Work::Idle(encoder);
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(e)) => return Poll::Ready(Some(Err(e))),
                    Poll::Ready(Ok(then)) if self.batch_bytes + self.held_bytes > self.inline_bytes => {
                        self.work = Work::Queued(encoder, then);
                        continue;
                    }
                    Poll::Ready(Ok(then)) => encode_batch(encoder, &self.take_batch(then), then),
                },
                Work::Queued(encoder, then) => {
                    let Poll::Ready(permit) = self.permits.poll_acquire(cx) else {
                        self.work = Work::Queued(encoder, then);
                        return Poll::Pending;
                    };
                    let batch = self.take_batch(then);
                    self.work = Work::Running(tokio::task::spawn_blocking(move || {
                        let _permit = permit;
                        encode_batch(encoder, &batch, then)
                    }));
                    continue;
                }
                Work::Running(mut job) => match job.poll_unpin(cx) {
                    Poll::Pending => {
                        self.work = Work::Running(job);
                        return Poll::Pending;
                    }
                    Poll::Ready(joined) => joined.unwrap_or_else(|e| Err(io::Error::other(e))),
                },
                Work::Over => return Poll::Ready(None),
            };
            match made {
                Ok(made) => match self.made(made) {
                    Some(output) => return Poll::Ready(Some(Ok(output))),
                    None => continue,
                },
                Err(e) => return Poll::Ready(Some(Err(axum::Error::new(failed(e))))),
            }
        }
    }
}

impl HttpBody for Coded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(match ready!(self.poll_output(cx)) {
            Some(output) => Some(output.map(Frame::data)),
            None => self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
        })
    }
}
