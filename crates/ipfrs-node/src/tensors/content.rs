//! Tensors in a response format: the bytes around them, and reading any span of the result.

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

/// Maximum size of the metadata that are sent with a part of a file, in bytes. They stay in memory for as long as the
/// client takes to read them.
const MAX_METADATA_BYTES: usize = 64 * 1024;

/// A request for tensors of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TensorRequest {
    /// Names of the tensors, in the order in which they are sent. Empty means the only tensor of the file, or in the
    /// safetensors format the file itself.
    pub names: Vec<String>,
    /// Slice of the tensor, if there is only one.
    pub slice: Slice,
    /// Format of the content.
    pub format: TensorFormat,
}

/// Tensors in a response format. The size is known before the bytes are read. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TensorContent {
    /// Type and shape of the tensor or slice, if there is only one.
    pub one: Option<(Dtype, Vec<u64>)>,
    size: u64,
    pieces: Arc<[Piece]>,
}

/// A contiguous piece of the content.
#[derive(Clone)]
enum Piece {
    Framing(Bytes),
    Part(TensorPart),
    /// The whole file.
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
    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the content starts with a head, which needs no read from the store.
    #[must_use]
    pub fn has_head(&self) -> bool {
        matches!(self.pieces.first(), Some(Piece::Framing(_)))
    }

    /// Combines parts with the bytes around them.
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
    /// Returns the content for a request, without reading it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) for a tensor that the file does not have;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if no tensor is named and the file does not have exactly
    /// one, if several are named with a slice or in a format other than safetensors, and as [`Self::part`]; others as
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

/// Whether the metadata of a file are small enough to be sent with a part of it.
fn has_little_metadata(catalogue: &Catalogue) -> bool {
    let mut sizes = catalogue.metadata().iter().map(|(key, text)| key.len() + text.len());
    sizes.try_fold(MAX_METADATA_BYTES, |left, size| left.checked_sub(size + 1)).is_some()
}

impl Node {
    /// Returns a stream of a span of the content, and counts each tensor that the span touches as read. Only the
    /// blocks that contain the span are read, and the read-ahead is bounded.
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
            // An empty tensor that was requested counts as touched.
            let is_touched = if piece_start == start { from <= to } else { from < to };
            is_touched.then(|| (index, Span { start: from - piece_start, len: to - from }))
        });
        stream::iter(wanted)
            .flat_map(move |(index, span)| -> BoxStream<'static, Result<Bytes>> {
                match &content.pieces[index] {
                    Piece::Framing(bytes) => {
                        // The span is within the piece, whose length fits in memory.
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
    /// Returns the tensor of a request for a single one.
    fn one(&self, names: &[String]) -> Result<&TensorInfo> {
        match (names, self.catalogue.tensors()) {
            ([name], _) => self.catalogue.get(name),
            ([], [only]) => Ok(only),
            ([], tensors) => Err(Error::invalid(format!(
                "{} has {} tensors: select one by name; /info and `tensor ls` list their names",
                self.path,
                tensors.len()
            ))),
            (_, _) => Err(Error::invalid(
                "several tensors can be requested only whole and in the format safetensors: request slices and other \
                 formats one by one",
            )),
        }
    }
}
