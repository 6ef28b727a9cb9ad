//! Tensors in the format that they are asked for: what stands around their bytes, and any span of all that.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use ipfrs_core::{Error, Result};
use ipfrs_stream::Span;
use ipfrs_tensor::{Catalogue, Dtype, FileFormat, Framing, Slice, TensorFormat, TensorInfo, safetensors_head};

use super::{TensorFile, TensorOperation, TensorPart};
use crate::{FileContent, Node};

/// Most bytes of metadata that go along with a part of a file: they are in memory for as long as a client likes.
const MAX_METADATA_BYTES: usize = 64 * 1024;

/// What is asked of a file with tensors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TensorRequest {
    /// The tensors, in the order in which they are sent. None: the only one of the file; in the format safetensors the file
    /// itself.
    pub names: Vec<String>,
    /// What is taken of the tensor, where it is one.
    pub slice: Slice,
    /// How it is sent.
    pub format: TensorFormat,
}

/// Tensors in a format: bytes whose number is known before they are read. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TensorContent {
    /// Type and shape of the tensor or slice, where it is one.
    pub one: Option<(Dtype, Vec<u64>)>,
    size: u64,
    pieces: Arc<[Piece]>,
}

/// Bytes that lie one after the other in the content.
#[derive(Clone)]
enum Piece {
    Framing(Bytes),
    Part(TensorPart),
    /// All of the file.
    File(FileContent),
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(bytes) => write!(f, "{} bytes of framing", bytes.len()),
            Self::Part(part) => write!(f, "{} {:?}", part.dtype, part.shape),
            Self::File(file) => write!(f, "a file of {} bytes", file.size()),
        }
    }
}

impl Piece {
    fn size(&self) -> u64 {
        match self {
            Self::Framing(bytes) => bytes.len() as u64,
            Self::Part(part) => part.bytes,
            Self::File(file) => file.size(),
        }
    }
}

impl TensorContent {
    /// How many bytes it has.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the first piece of it is a head, for which nothing has to be read.
    #[must_use]
    pub fn has_head(&self) -> bool {
        matches!(self.pieces.first(), Some(Piece::Framing(_)))
    }

    /// Parts within what stands around them.
    fn framed(framing: Framing, parts: Vec<TensorPart>) -> Result<Self> {
        let one = match parts.as_slice() {
            [one] => Some((one.dtype, one.shape.clone())),
            _ => None,
        };
        let framed = |bytes: Vec<u8>| (!bytes.is_empty()).then(|| Piece::Framing(bytes.into()));
        let parts = parts.into_iter().map(Piece::Part);
        let pieces: Arc<[Piece]> = framed(framing.head).into_iter().chain(parts).chain(framed(framing.tail)).collect();
        let size = pieces.iter().try_fold(0_u64, |sum, piece| sum.checked_add(piece.size()));
        let size = size.ok_or_else(|| Error::too_large("these tensors have more than 2^64 bytes together"))?;
        Ok(Self { one, size, pieces })
    }
}

impl TensorFile {
    /// What a request asks of this file, before it is read.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names a tensor that the file does not have;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when no tensor is named and there are several, when several are
    /// named and the format is not safetensors or there is a slice, and as [`Self::part`]; others as
    /// [`TensorFormat::frame`].
    pub fn content(&self, request: &TensorRequest) -> Result<TensorContent> {
        let TensorRequest { names, slice, format } = request;
        let none = BTreeMap::new();
        let metadata = if has_little_metadata(&self.catalogue) { self.catalogue.metadata() } else { &none };
        match (names.as_slice(), format) {
            ([], TensorFormat::Safetensors)
                if slice.is_whole() && self.catalogue.format() == FileFormat::Safetensors =>
            {
                Ok(TensorContent { one: None, size: self.file.size(), pieces: [Piece::File(self.file.clone())].into() })
            }
            ([_, _, ..], TensorFormat::Safetensors) if slice.is_whole() => {
                let tensors: Vec<_> = names.iter().map(|name| self.catalogue.get(name)).collect::<Result<_>>()?;
                let described =
                    tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.dtype, tensor.shape.as_slice()));
                let head = safetensors_head(described, metadata)?;
                let parts = tensors.iter().map(|tensor| self.part(tensor, slice)).collect::<Result<_>>()?;
                TensorContent::framed(Framing { head, tail: Vec::new() }, parts)
            }
            _ => {
                let tensor = self.one(names)?;
                let part = self.part(tensor, slice)?;
                let framing = format.frame(&tensor.name, part.dtype, &part.shape, part.order, metadata)?;
                TensorContent::framed(framing, vec![part])
            }
        }
    }
}

/// Whether the metadata of a file are few enough to go along with a part of it.
fn has_little_metadata(catalogue: &Catalogue) -> bool {
    let mut sizes = catalogue.metadata().iter().map(|(key, text)| key.len() + text.len());
    sizes.try_fold(MAX_METADATA_BYTES, |left, size| left.checked_sub(size + 1)).is_some()
}

impl Node {
    /// A span of the bytes of some tensors, and counts the reading of those that it touches. Only the blocks of these bytes
    /// are read, a bounded way ahead of the consumer.
    pub fn read_tensors(
        &self,
        content: &TensorContent,
        span: Span,
    ) -> impl Stream<Item = Result<Bytes>> + Send + Unpin + use<> {
        let (node, content, mut start) = (self.clone(), content.clone(), 0_u64);
        let pieces = content.pieces.clone();
        let wanted = (0..pieces.len()).filter_map(move |index| {
            let piece_start = start;
            start += pieces[index].size();
            let (from, to) = (piece_start.max(span.start), start.min(span.end()));
            // A tensor without elements is one that was asked for, too.
            let is_touched = if piece_start == start { from <= to } else { from < to };
            is_touched.then(|| (index, Span { start: from - piece_start, len: to - from }))
        });
        stream::iter(wanted)
            .flat_map(move |(index, span)| -> BoxStream<'static, Result<Bytes>> {
                match &content.pieces[index] {
                    Piece::Framing(bytes) => {
                        // Spans lie within the piece, whose length fits memory.
                        let start = usize::try_from(span.start).unwrap_or(usize::MAX).min(bytes.len());
                        let end = usize::try_from(span.end()).unwrap_or(usize::MAX).min(bytes.len());
                        stream::once(std::future::ready(Ok(bytes.slice(start..end)))).boxed()
                    }
                    Piece::Part(part) => {
                        node.count_tensor(part.operation, part.bytes);
                        node.metered(node.read_part(part, span)).boxed()
                    }
                    Piece::File(file) => {
                        node.count_tensor(TensorOperation::Get, file.size());
                        node.read(file, span).boxed()
                    }
                }
            })
            .boxed()
    }
}

impl TensorFile {
    /// The tensor of a request for one.
    fn one(&self, names: &[String]) -> Result<&TensorInfo> {
        match (names, self.catalogue.tensors()) {
            ([name], _) => self.catalogue.get(name),
            ([], [only]) => Ok(only),
            ([], tensors) => Err(Error::invalid(format!(
                "{} has {} tensors: say which, by name; the list (/info, tensor ls) has their names",
                self.path,
                tensors.len()
            ))),
            (_, _) => Err(Error::invalid(
                "several tensors are named: they are sent whole, in the format safetensors; ask for slices and other \
                 formats one by one",
            )),
        }
    }
}
