//! A body in a content coding, made while it is read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use ipfrs_core::{Error, Result};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio_util::sync::PollSemaphore;

use super::cache::Gathering;
use super::coding::Encoder;
use super::meter::Meter;

/// Bytes that are compressed at once: few enough for others to have their turn soon.
const BATCH_BYTES: usize = 256 * 1024;
/// Pieces that are compressed at once, however small they are.
const BATCH_PIECES: usize = 1_024;

/// Compresses a body in batches, one at a time, as fast as the client reads: nothing happens while nobody polls. What
/// there is goes out as soon as the source makes its reader wait. An error of the source breaks the body off, behind what
/// came before it.
pub(super) struct Coded {
    source: Body,
    source_ended: bool,
    /// How the source failed, while what it gave before goes out.
    source_failed: Option<axum::Error>,
    /// What is left of the last piece of the source.
    rest: Bytes,
    /// The next batch.
    batch: Vec<Bytes>,
    batch_bytes: usize,
    /// Bytes that the encoder may hold back.
    held_bytes: usize,
    /// Most bytes that are compressed where they are.
    inline_bytes: usize,
    work: Work,
    trailers: Option<HeaderMap>,
    permits: PollSemaphore,
    meter: Meter,
    /// What was given out, where it will be kept.
    gathering: Option<Gathering>,
    /// A place among the bodies that may be compressed at the same time.
    _place: OwnedSemaphorePermit,
}

enum Work {
    /// The encoder waits for input.
    Idle(Encoder),
    /// A batch waits for its turn.
    Queued(Encoder, Then),
    /// A blocking thread compresses a batch.
    Running(JoinHandle<io::Result<Made>>),
    /// Everything was made, or nothing more can be.
    Over,
}

/// What follows a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Another one.
    Continue,
    /// The source is waiting: nothing may be held back.
    Flush,
    /// The end.
    Finish,
}

/// What came of a batch; no encoder after the last.
struct Made {
    encoder: Option<Encoder>,
    output: Vec<u8>,
}

/// Compresses a batch.
fn make(mut encoder: Encoder, batch: &[Bytes], then: Then) -> io::Result<Made> {
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
    // It waits for its client, and may be kept.
    output.shrink_to_fit();
    Ok(Made { encoder, output })
}

/// Compresses a short body at once.
///
/// # Errors
/// When the encoder fails, for lack of memory.
pub(super) fn whole(encoder: Encoder, bytes: Bytes, meter: &Meter) -> Result<Bytes> {
    let length = bytes.len();
    let made = make(encoder, &[bytes], Then::Finish).map_err(failed)?;
    meter.made(length, made.output.len());
    Ok(made.output.into())
}

fn failed(error: io::Error) -> Error {
    Error::internal("an answer could not be compressed").with_source(error)
}

impl Coded {
    pub(super) fn new(
        source: Body,
        encoder: Encoder,
        inline_bytes: usize,
        permits: PollSemaphore,
        place: OwnedSemaphorePermit,
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

    /// Gathers the next batch. Pending only when the source is waiting and nothing is held back.
    fn gather(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<Then, axum::Error>> {
        while self.batch_bytes < BATCH_BYTES && self.batch.len() < BATCH_PIECES {
            if !self.rest.is_empty() {
                let room = BATCH_BYTES - self.batch_bytes;
                let piece = self.rest.split_to(room.min(self.rest.len()));
                self.batch_bytes += piece.len();
                self.batch.push(piece);
                continue;
            }
            if self.source_ended {
                return Poll::Ready(Ok(Then::Finish));
            }
            if self.source_failed.is_some() {
                let is_out = self.batch_bytes + self.held_bytes == 0;
                let failure = if is_out { self.source_failed.take() } else { None };
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

    /// Takes back the encoder, and gives the output where there is any.
    fn made(&mut self, made: Made) -> Option<Bytes> {
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

    /// The next output, or `None` at the end.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Option<std::result::Result<Bytes, axum::Error>>> {
        loop {
            // Whoever returns early from here has put the work back, or has met an error that ends it.
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
                    Poll::Ready(Ok(then)) => make(encoder, &self.take_batch(then), then),
                },
                Work::Queued(encoder, then) => {
                    let Poll::Ready(permit) = self.permits.poll_acquire(cx) else {
                        self.work = Work::Queued(encoder, then);
                        return Poll::Pending;
                    };
                    let batch = self.take_batch(then);
                    self.work = Work::Running(tokio::task::spawn_blocking(move || {
                        let _permit = permit;
                        make(encoder, &batch, then)
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
