//! Blocks that were looked up together, as they lie in memory.

use std::ops::Range;

use bytes::Bytes;
use ipfrs_core::{Error, Result};

/// Answers to CIDs that were asked for together, in their order: for each its block, `None` when it is not here, or why it
/// cannot be had.
///
/// Blocks that lie side by side in one file are parts of one *span*, so that a batch of a thousand small blocks costs a few
/// reference counts and not a thousand, and neighbours can be sent as one slice.
#[derive(Debug, Default)]
pub struct BlockBatch {
    spans: Vec<Bytes>,
    answers: Vec<Result<Option<Place>>>,
}

/// Where in a batch's spans a block lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Number of the span.
    pub(crate) span: usize,
    /// Where its section begins, in bytes.
    pub(crate) start: usize,
    /// Length of what stands before its data in the section, in bytes; 0 when the data stands alone.
    pub(crate) prefix: usize,
    /// Length of its data, in bytes.
    pub(crate) len: usize,
}

impl Place {
    fn data(self) -> Range<usize> {
        self.start + self.prefix..self.start + self.prefix + self.len
    }
}

/// A block as its store keeps it: what stands before its data, and the data.
///
/// `prefix` is a CAR's section up to the data (`varint(length of CID and data) | CID`), under the CID by which the block was
/// put; it is empty when the store keeps none.
#[derive(Debug, Clone)]
pub struct Section<'a> {
    /// What stands before the data.
    pub prefix: &'a [u8],
    /// The block's bytes.
    pub data: &'a [u8],
    /// The number of the span that both lie in: sections of one span whose ranges touch are one piece of memory.
    pub span: usize,
    /// Where in the span prefix and data lie.
    pub range: Range<usize>,
}

impl BlockBatch {
    /// How many CIDs are answered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Answers the next CID.
    pub fn push(&mut self, answer: Result<Option<Bytes>>) {
        let place = |data: Bytes| {
            let len = data.len();
            self.spans.push(data);
            Place { span: self.spans.len() - 1, start: 0, prefix: 0, len }
        };
        let answer = answer.map(|found| found.map(place));
        self.answers.push(answer);
    }

    /// Puts `error` in the place of an answer; nothing happens behind the last.
    pub fn refuse(&mut self, index: usize, error: Error) {
        if let Some(answer) = self.answers.get_mut(index) {
            *answer = Err(error);
        }
    }

    /// Takes the error at `index` out, where there is one; then it counts as `Ok(None)`.
    pub fn take_error(&mut self, index: usize) -> Option<Error> {
        let answer = self.answers.get_mut(index).filter(|answer| answer.is_err())?;
        std::mem::replace(answer, Ok(None)).err()
    }

    /// The answer at `index`; `Ok(None)` also behind the last.
    ///
    /// # Errors
    /// Why the block cannot be had.
    pub fn section(&self, index: usize) -> Result<Option<Section<'_>>, &Error> {
        let place = match self.answers.get(index) {
            Some(Ok(Some(place))) => *place,
            Some(Err(error)) => return Err(error),
            Some(Ok(None)) | None => return Ok(None),
        };
        let (data, range) = (place.data(), place.start..place.data().end);
        let section = self.spans.get(place.span).and_then(|span| {
            Some(Section { prefix: span.get(range.start..data.start)?, data: span.get(data)?, span: place.span, range })
        });
        Ok(section)
    }

    /// A part of a span, by [`Section::span`] and what of it is wanted; nothing is copied. Empty where there is no such part.
    #[must_use]
    pub fn slice(&self, span: usize, range: Range<usize>) -> Bytes {
        let span = self.spans.get(span).filter(|span| range.start <= range.end && range.end <= span.len());
        span.map_or_else(Bytes::new, |span| span.slice(range))
    }

    /// The answers, in order.
    pub fn into_answers(self) -> impl Iterator<Item = Result<Option<Bytes>>> + Send {
        let Self { spans, answers } = self;
        answers.into_iter().map(move |answer| {
            let slice = |place: Place| spans.get(place.span).map(|span| span.slice(place.data()));
            answer.map(|found| found.and_then(slice))
        })
    }

    /// The number that the next span gets.
    pub(crate) fn next_span(&self) -> usize {
        self.spans.len()
    }

    /// Takes a span, in which [`Self::push_place`] puts blocks.
    pub(crate) fn push_span(&mut self, span: Bytes) {
        self.spans.push(span);
    }

    /// Answers the next CID with a block in a span, which must hold it whole.
    pub(crate) fn push_place(&mut self, place: Place) {
        self.answers.push(Ok(Some(place)));
    }
}
