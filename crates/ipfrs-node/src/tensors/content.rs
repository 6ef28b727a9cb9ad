//! Tensors in the format that they are asked for: what stands around their bytes, and any span of all that.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use ipfrs_core::{Error, Result};
use ipfrs_stream::Span;
use ipfrs_tensor::{Dtype, FileFormat, Framing, Slice, TensorFormat, TensorInfo, safetensors_head};
use tokio::task::spawn_blocking;

use super::{TensorFile, TensorPart};
use crate::{Node, Room};

/// Heads of more than this are made on a blocking thread, and have a place among what is whole in memory.
const SMALL_HEAD_BYTES: usize = 64 * 1024;

/// Most that an entry of a head takes besides its name: its type, 64 dimensions of 20 digits would be far more than any has.
const ENTRY_BYTES: usize = 256;

/// What is asked of a file with tensors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TensorRequest {
    /// The tensors, in the order in which they are sent. None: the only one of the file; in the format safetensors all of them.
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
    /// For a large head.
    _room: Option<Arc<Room>>,
}

/// Bytes that lie one after the other in the content.
#[derive(Clone)]
enum Piece {
    Framing(Bytes),
    Part(TensorPart),
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(bytes) => write!(f, "{} bytes of framing", bytes.len()),
            Self::Part(part) => write!(f, "{} {:?}", part.dtype, part.shape),
        }
    }
}

impl Piece {
    fn size(&self) -> u64 {
        match self {
            Self::Framing(bytes) => bytes.len() as u64,
            Self::Part(part) => part.bytes,
        }
    }
}

impl TensorContent {
    /// How many bytes it has.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    fn new(framing: Framing, parts: Vec<TensorPart>, room: Option<Room>) -> Result<Self> {
        let one = match parts.as_slice() {
            [one] => Some((one.dtype, one.shape.clone())),
            _ => None,
        };
        let framed = |bytes: Vec<u8>| (!bytes.is_empty()).then(|| Piece::Framing(bytes.into()));
        let parts = parts.into_iter().map(Piece::Part);
        let pieces: Arc<[Piece]> = framed(framing.head).into_iter().chain(parts).chain(framed(framing.tail)).collect();
        let size = pieces.iter().try_fold(0_u64, |sum, piece| sum.checked_add(piece.size()));
        let size = size.ok_or_else(|| Error::too_large("these tensors have more than 2^64 bytes together"))?;
        Ok(Self { one, size, pieces, _room: room.map(Arc::new) })
    }
}

impl Node {
    /// What a request asks of a file, before it is read.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names a tensor that the file does not have;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when no tensor is named and there are several, when several are
    /// named and the format is not safetensors or there is a slice, and as [`TensorFile::part`]; others as
    /// [`TensorFormat::frame`].
    pub async fn tensor_content(&self, file: &TensorFile, request: &TensorRequest) -> Result<TensorContent> {
        let TensorRequest { names, slice, format } = request;
        let is_file = *format == TensorFormat::Safetensors && slice.is_whole() && names.len() != 1;
        if is_file && !(names.is_empty() && file.catalogue.format() == FileFormat::Npy) {
            return self.subset(file, names).await;
        }
        let tensor = file.one(names)?;
        let part = file.part(tensor, slice)?;
        let catalogue = file.catalogue.clone();
        let (name, dtype, shape, format) = (tensor.name.clone(), part.dtype, part.shape.clone(), *format);
        let frame = move || format.frame(&name, dtype, &shape, catalogue.metadata());
        let metadata = file.catalogue.metadata().iter().map(|(key, text)| key.len() + text.len() + ENTRY_BYTES).sum();
        let bytes = if format == TensorFormat::Safetensors { metadata } else { 0 };
        let (framing, room) = self.framed(bytes, frame).await?;
        TensorContent::new(framing, vec![part], room)
    }

    /// Several tensors, or all of them, as a file of their own.
    async fn subset(&self, file: &TensorFile, names: &[String]) -> Result<TensorContent> {
        let catalogue = file.catalogue.clone();
        let chosen: Vec<TensorInfo> = match names {
            [] => catalogue.tensors().to_vec(),
            names => names.iter().map(|name| catalogue.get(name).cloned()).collect::<Result<_>>()?,
        };
        let parts = chosen.iter().map(|tensor| file.part(tensor, &Slice::default())).collect::<Result<Vec<_>>>()?;
        let metadata: usize = catalogue.metadata().iter().map(|(key, text)| key.len() + text.len() + ENTRY_BYTES).sum();
        let entries: usize = chosen.iter().map(|tensor| tensor.name.len() + ENTRY_BYTES).sum();
        let head = move || {
            let described = chosen.iter().map(|tensor| (tensor.name.as_str(), tensor.dtype, tensor.shape.as_slice()));
            let head = safetensors_head(described, catalogue.metadata())?;
            Ok(Framing { head, tail: Vec::new() })
        };
        let (framing, room) = self.framed(metadata + entries, head).await?;
        TensorContent::new(framing, parts, room)
    }

    /// What `frame` makes: about `bytes` bytes.
    async fn framed(
        &self,
        bytes: usize,
        frame: impl FnOnce() -> Result<Framing> + Send + 'static,
    ) -> Result<(Framing, Option<Room>)> {
        if bytes <= SMALL_HEAD_BYTES {
            return Ok((frame()?, None));
        }
        let room = self.room(bytes).await?;
        let framed = spawn_blocking(frame).await;
        let framed = framed.map_err(|e| Error::internal("framing a tensor failed").with_source(e))?;
        Ok((framed?, Some(room)))
    }

    /// A span of the bytes of some tensors, and counts the reading of those that it touches. Only the blocks of these bytes
    /// are read, a bounded way ahead of the consumer.
    pub fn read_tensors(
        &self,
        content: &TensorContent,
        span: Span,
    ) -> impl Stream<Item = Result<Bytes>> + Send + Unpin + use<> {
        let (node, content, mut start) = (self.clone(), content.clone(), 0);
        let pieces = content.pieces.clone();
        let wanted = (0..pieces.len()).filter_map(move |index| {
            let piece_start = start;
            start += pieces[index].size();
            let (from, to) = (piece_start.max(span.start), start.min(span.end()));
            (from < to).then(|| (index, Span { start: from - piece_start, len: to - from }))
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
                        node.read_part(part, span)
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
                "{} has {} tensors: say which, by name; /info lists them",
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
