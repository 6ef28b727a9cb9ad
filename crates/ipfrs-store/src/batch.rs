//! Results of looking up several blocks together, as slices of shared memory.

use std::ops::Range;

use bytes::Bytes;
use ipfrs_core::{Error, Result};

/// Results of looking up several CIDs, in the order of the CIDs. Each is the block, `None` if the store does not have
/// it, or the error of reading it.
///
/// Blocks that are adjacent in one file are parts of one *span*. A batch of a thousand small blocks therefore costs a
/// few reference counts instead of a thousand, and adjacent blocks can be sent as one slice.
#[derive(Debug, Default)]
pub struct BlockBatch {
    spans: Vec<Bytes>,
    results: Vec<Result<Option<Place>>>,
}

/// Location of a block in the spans of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Index of the span.
    pub(crate) span: usize,
    /// Offset of the block's section in the span, in bytes.
    pub(crate) start: usize,
    /// Length of the part of the section before the data, in bytes; 0 if the span holds the data alone.
    pub(crate) prefix: usize,
    /// Length of the data, in bytes.
    pub(crate) len: usize,
}

impl Place {
    fn data(self) -> Range<usize> {
        self.start + self.prefix..self.start + self.prefix + self.len
    }
}

/// A block as its store keeps it: the prefix of its section, and its data.
///
/// `prefix` is the part of a CAR section before the data (`varint(length of CID and data) | CID`), with the CID under
/// which the block was put. It is empty if the store keeps no prefixes.
#[derive(Debug, Clone)]
pub struct Section<'a> {
    /// Bytes of the section before the data.
    pub prefix: &'a [u8],
    /// Bytes of the block.
    pub data: &'a [u8],
    /// Index of the span that holds both. Sections of one span whose ranges touch are contiguous in memory.
    pub span: usize,
    /// Range of prefix and data within the span.
    pub range: Range<usize>,
}

/// A block as its store keeps it, like [`Section`], with shared ownership of its memory.
#[derive(Debug, Clone)]
pub struct StoredSection {
    span: Bytes,
    place: Place,
}

impl StoredSection {
    /// Returns the bytes of the block. They share the memory of the section.
    #[must_use]
    pub fn data(&self) -> Bytes {
        self.span.slice(self.place.data())
    }

    /// Returns the bytes of the block.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.span[self.place.data()]
    }

    /// Returns the length of the block, in bytes.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.place.len
    }

    /// Returns the bytes before the data, as in [`Section::prefix`].
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        &self.span[self.place.start..self.place.start + self.place.prefix]
    }

    /// Returns the memory of the section and its neighbours, and the range of prefix and data in it. Two sections
    /// whose memory begins at the same address are parts of one file.
    #[must_use]
    pub fn range(&self) -> (&Bytes, Range<usize>) {
        (&self.span, self.place.start..self.place.data().end)
    }
}

impl From<Bytes> for StoredSection {
    /// Makes a section without a prefix.
    fn from(data: Bytes) -> Self {
        let place = Place { span: 0, start: 0, prefix: 0, len: data.len() };
        Self { span: data, place }
    }
}

impl BlockBatch {
    /// Returns the number of results.
    #[must_use]
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Whether the batch has no results.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Appends the result for the next CID.
    pub fn push(&mut self, result: Result<Option<Bytes>>) {
        let place = |data: Bytes| {
            let len = data.len();
            self.spans.push(data);
            Place { span: self.spans.len() - 1, start: 0, prefix: 0, len }
        };
        let result = result.map(|found| found.map(place));
        self.results.push(result);
    }

    /// Replaces the result at `index` with `error`. Does nothing if `index` is past the end.
    pub fn refuse(&mut self, index: usize, error: Error) {
        if let Some(result) = self.results.get_mut(index) {
            *result = Err(error);
        }
    }

    /// Removes and returns the error at `index`, if there is one. The result at `index` is `Ok(None)` from then on.
    pub fn take_error(&mut self, index: usize) -> Option<Error> {
        let result = self.results.get_mut(index).filter(|result| result.is_err())?;
        std::mem::replace(result, Ok(None)).err()
    }

    /// Returns the section of the block at `index`, or `Ok(None)` if the store does not have it or `index` is past
    /// the end.
    ///
    /// # Errors
    /// The error of reading the block.
    pub fn section(&self, index: usize) -> Result<Option<Section<'_>>, &Error> {
        let place = match self.results.get(index) {
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

    /// Returns the section of the block at `index` with its memory, or `Ok(None)` if the store does not have it or
    /// `index` is past the end. Returns an error only once.
    ///
    /// # Errors
    /// The error of reading the block.
    pub fn take_section(&mut self, index: usize) -> Result<Option<StoredSection>> {
        match self.results.get(index) {
            Some(Ok(Some(place))) => {
                let span = self.spans.get(place.span).filter(|span| place.data().end <= span.len());
                Ok(span.map(|span| StoredSection { span: span.clone(), place: *place }))
            }
            Some(Err(_)) => self.take_error(index).map_or(Ok(None), Err),
            Some(Ok(None)) | None => Ok(None),
        }
    }

    /// Returns a range of the span with the index [`Section::span`], without copying. Returns an empty slice if the
    /// span or the range does not exist.
    #[must_use]
    pub fn slice(&self, span: usize, range: Range<usize>) -> Bytes {
        let span = self.spans.get(span).filter(|span| range.start <= range.end && range.end <= span.len());
        span.map_or_else(Bytes::new, |span| span.slice(range))
    }

    /// Returns the results, in order.
    pub fn into_answers(self) -> impl Iterator<Item = Result<Option<Bytes>>> + Send {
        let Self { spans, results } = self;
        results.into_iter().map(move |result| {
            let slice = |place: Place| spans.get(place.span).map(|span| span.slice(place.data()));
            result.map(|found| found.and_then(slice))
        })
    }

    /// Returns the index that the next span gets.
    pub(crate) fn next_span(&self) -> usize {
        self.spans.len()
    }

    /// Appends a span, in which [`Self::push_place`] locates blocks.
    pub(crate) fn push_span(&mut self, span: Bytes) {
        self.spans.push(span);
    }

    /// Appends the result for the next CID: a block within a span, which must contain it completely.
    pub(crate) fn push_place(&mut self, place: Place) {
        self.results.push(Ok(Some(place)));
    }
}
