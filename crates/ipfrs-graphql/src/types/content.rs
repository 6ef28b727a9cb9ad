//! Files, directories and DAG nodes.

#![allow(clippy::unused_async, reason = "the macro makes fields of asynchronous functions")]

use async_graphql::{Context, Enum, Object, SimpleObject};
use bytes::BytesMut;
use futures::StreamExt;
use ipfrs_core::{Cid as CoreCid, Error, Result, codec, parse_cid, timestamp};
use ipfrs_node::{ContentPath, FileContent, Listed, ListedKind, Node, Object, ObjectKind, Place, Span};

use super::block::{Block, codec_name};
use crate::context::{ObjectMemory, node, request};
use crate::error::{FieldResult, failed};
use crate::json::text_len;
use crate::limits::{MAX_PATH_BYTES, MAX_READ_BYTES, READ_BYTES, READ_COST};
use crate::scalars::{Base64, Cid, Long, RawJson, base64_len};

/// Kind of a file system object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub(crate) enum FileKind {
    /// A file, or a raw block.
    File,
    /// A directory.
    Directory,
    /// A symlink.
    Symlink,
    /// The block is not in this store, or is not UnixFS.
    Unknown,
}

impl From<ListedKind> for FileKind {
    fn from(kind: ListedKind) -> Self {
        match kind {
            ListedKind::File => Self::File,
            ListedKind::Directory => Self::Directory,
            ListedKind::Symlink => Self::Symlink,
            ListedKind::Unknown => Self::Unknown,
        }
    }
}

/// Resolves a path, and the name that it may begin with, to a whole block. The memory counts for the request.
pub(crate) async fn object_at(context: &Context<'_>, path: &str) -> FieldResult<(Object, ObjectMemory)> {
    let (node, request) = (node(context)?, request(context)?);
    let path = content_path(node, path).await.map_err(failed)?;
    let object = node.resolve(path).await.and_then(Object::whole).map_err(failed)?;
    let memory = request.budget.hold(node.object_bytes(&object)).map_err(failed)?;
    Ok((object, memory))
}

/// Parses a path, and resolves the name that it may begin with. Errors repeat the path, so it must not be long.
pub(crate) async fn content_path(node: &Node, path: &str) -> Result<ContentPath> {
    if path.len() > MAX_PATH_BYTES {
        return Err(Error::too_large(format!("the path has more than {MAX_PATH_BYTES} bytes")));
    }
    node.content_path(path).await
}

/// A file, a directory or a symlink.
pub(crate) struct File {
    pub(crate) object: Object,
    /// Held as long as the object.
    pub(crate) _memory: ObjectMemory,
}

impl File {
    fn content(&self) -> Result<&FileContent> {
        match &self.object.kind {
            ObjectKind::File(file) => Ok(file),
            ObjectKind::Directory(_) | ObjectKind::Symlink(_) | ObjectKind::Other => {
                Err(Error::invalid(format!("{} is not a file: query its kind first", self.object.resolved.path)))
            }
        }
    }

    /// Reads a range of the file. `json_len` returns the length in JSON of a number of bytes.
    async fn read(
        &self,
        context: &Context<'_>,
        (offset, length): (Option<Long>, Option<Long>),
        json_len: fn(usize) -> usize,
    ) -> Result<bytes::Bytes> {
        let file = self.content()?;
        let start = offset.map_or(0, |offset| offset.0);
        let left = file.size().checked_sub(start).ok_or_else(|| {
            Error::invalid(format!("offset {start} is beyond the end of the file, which has {} bytes", file.size()))
        })?;
        let len = length.map_or(READ_BYTES, |length| length.0).min(left);
        if len > MAX_READ_BYTES {
            return Err(Error::too_large(format!(
                "a field returns at most {MAX_READ_BYTES} bytes of a file: query several ranges, or read /ipfs"
            )));
        }
        let (node, request) = match (node(context), request(context)) {
            (Ok(node), Ok(request)) => (node, request),
            _ => return Err(Error::internal("the request has no context")),
        };
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        request.budget.take(json_len(bytes))?;
        let (mut pieces, mut read) = (node.read(file, Span { start, len }), BytesMut::with_capacity(bytes));
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            node.count_download(piece.len());
            read.extend_from_slice(&piece);
        }
        Ok(read.freeze())
    }
}

/// A file, a directory or a symlink.
#[Object]
impl File {
    /// Content ID.
    async fn cid(&self) -> Cid {
        Cid(self.object.cid)
    }

    /// Kind of the object.
    async fn kind(&self) -> FileKind {
        match &self.object.kind {
            ObjectKind::File(_) => FileKind::File,
            ObjectKind::Directory(_) => FileKind::Directory,
            ObjectKind::Symlink(_) => FileKind::Symlink,
            ObjectKind::Other => FileKind::Unknown,
        }
    }

    /// Size of a file in bytes; 0 for other kinds.
    async fn size(&self) -> Long {
        Long(match &self.object.kind {
            ObjectKind::File(file) => file.size(),
            ObjectKind::Directory(_) | ObjectKind::Symlink(_) | ObjectKind::Other => 0,
        })
    }

    /// Size of all blocks of the object, as its root block claims.
    #[graphql(complexity = "READ_COST")]
    async fn dag_size(&self, context: &Context<'_>) -> FieldResult<Option<Long>> {
        let info = node(context)?.object_info(&self.object).await.map_err(failed)?;
        Ok(Some(Long(info.dag_size)))
    }

    /// Mode bits, if they are stored.
    #[graphql(complexity = "READ_COST")]
    async fn mode(&self, context: &Context<'_>) -> FieldResult<Option<u32>> {
        let info = node(context)?.object_info(&self.object).await.map_err(failed)?;
        Ok(info.attributes.mode)
    }

    /// Time of the last modification (RFC 3339), if it is stored.
    #[graphql(complexity = "READ_COST")]
    async fn mtime(&self, context: &Context<'_>) -> FieldResult<Option<String>> {
        let info = node(context)?.object_info(&self.object).await.map_err(failed)?;
        Ok(info.attributes.mtime.and_then(|mtime| timestamp::format(mtime.seconds, mtime.nanos)))
    }

    /// Target of a symlink.
    async fn target(&self, context: &Context<'_>) -> FieldResult<Option<String>> {
        match &self.object.kind {
            ObjectKind::Symlink(target) => {
                request(context)?.budget.take(text_len(target)).map_err(failed)?;
                Ok(Some(String::from_utf8_lossy(target).into_owned()))
            }
            ObjectKind::File(_) | ObjectKind::Directory(_) | ObjectKind::Other => Ok(None),
        }
    }

    /// A range of a file.
    #[graphql(complexity = "READ_COST")]
    async fn bytes(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "First byte; 0 if missing.")] offset: Option<Long>,
        #[graphql(desc = "Maximum number of bytes, up to 1 MiB; 64 KiB if missing.")] length: Option<Long>,
    ) -> FieldResult<Option<Base64>> {
        let read = self.read(context, (offset, length), base64_len).await;
        read.map(|bytes| Some(Base64(bytes))).map_err(failed)
    }

    /// A range of a file as text. Bytes that are not UTF-8 become U+FFFD.
    #[graphql(complexity = "READ_COST")]
    async fn text(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "First byte; 0 if missing.")] offset: Option<Long>,
        #[graphql(desc = "Maximum number of bytes, up to 1 MiB; 64 KiB if missing.")] length: Option<Long>,
    ) -> FieldResult<Option<String>> {
        let bytes = self.read(context, (offset, length), |bytes| bytes).await.map_err(failed)?;
        // How long the text is in JSON depends on its bytes.
        request(context)?.budget.take(text_len(&bytes).saturating_sub(bytes.len())).map_err(failed)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The root block.
    async fn block(&self) -> Block {
        Block::read(self.object.cid, self.object.block.clone())
    }
}

/// An entry of a directory.
#[derive(SimpleObject)]
pub(crate) struct DirectoryEntry {
    /// Name of the entry. Bytes that are not UTF-8 become U+FFFD.
    name: String,
    /// Content ID of the target.
    cid: Cid,
    /// Kind of the target.
    kind: FileKind,
    /// Size of a file in bytes; for an unknown target, the size of everything below it, as the directory claims.
    size: Long,
    /// Size of all blocks below the entry, as the directory claims.
    dag_size: Long,
    /// Target of a symlink.
    target: Option<String>,
}

impl DirectoryEntry {
    /// Returns the length of the texts in JSON, in bytes.
    pub(crate) fn json_len(&self) -> usize {
        text_len(self.name.as_bytes()) + self.target.as_ref().map_or(0, |target| text_len(target.as_bytes()))
    }
}

impl From<Listed> for DirectoryEntry {
    fn from(listed: Listed) -> Self {
        let is_symlink = listed.kind == ListedKind::Symlink;
        Self {
            name: listed.name.to_string_lossy().into_owned(),
            cid: Cid(listed.cid),
            kind: listed.kind.into(),
            size: Long(listed.size),
            dag_size: Long(listed.dag_size),
            target: is_symlink.then(|| listed.target.to_string()),
        }
    }
}

/// Fields of a page of a directory.
#[derive(SimpleObject)]
pub(crate) struct DirectoryFields {
    /// Content ID of the directory.
    pub(crate) cid: Cid,
    /// Number of entries; null for a sharded directory, whose root block does not contain it.
    pub(crate) total_count: Option<Long>,
}

/// Maximum number of entries between the place in a cursor and its entry.
const MAX_BEHIND: usize = 10_000;

/// A position in a directory: a number of entries behind a place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Position {
    pub(crate) place: Place,
    pub(crate) behind: usize,
}

impl Position {
    /// Returns the cursor of this position in a directory.
    pub(crate) fn cursor(&self, directory: &CoreCid) -> String {
        match self.behind {
            0 => format!("{directory}:{}", self.place),
            behind => format!("{directory}:{}+{behind}", self.place),
        }
    }

    /// Parses a cursor of a directory.
    pub(crate) fn parse(after: Option<&str>, directory: &CoreCid) -> Result<Self> {
        let Some(after) = after else { return Ok(Self::default()) };
        let (of, rest) = after.split_once(':').unwrap_or_default();
        let (place, behind) = rest.split_once('+').unwrap_or((rest, "0"));
        let place = if place.is_empty() { Ok(Place::default()) } else { place.parse() };
        let behind = behind.parse().ok().filter(|behind| *behind <= MAX_BEHIND);
        let (Ok(of), Ok(place), Some(behind)) = (parse_cid(of), place, behind) else {
            return Err(Error::invalid("after is not a cursor of a directory: omit it to start over"));
        };
        if of != *directory {
            let why = format!("the cursor is for {of}, but the path leads to {directory}: omit it to start over");
            return Err(Error::invalid(why));
        }
        Ok(Self { place, behind })
    }
}

/// Returns up to `most` entries of a directory behind a position, each with its cursor, and whether there are more.
pub(crate) async fn entries(
    node: &Node,
    directory: &Object,
    mut from: Position,
    most: usize,
) -> Result<(Vec<(String, DirectoryEntry)>, bool)> {
    loop {
        // With no entries, the page only checks that this is a directory.
        let listed = node.list_page(directory, &from.place, (from.behind + most).max(1)).await?;
        let count = listed.entries.len();
        if let Some(next) = listed.next.clone().filter(|_| count <= from.behind && count > 0 && most > 0) {
            // Long names end a page early.
            from = Position { place: next, behind: from.behind - count };
            continue;
        }
        let has_more = listed.next.is_some() || count > from.behind + most;
        let cursor = |index: usize| match &listed.next {
            // The next page begins with the next block, not with the entries before it.
            Some(next) if index + 1 == count => Position { place: next.clone(), behind: 0 },
            _ => Position { place: from.place.clone(), behind: index + 1 },
        };
        let cursors: Vec<_> = (0..count).map(|index| cursor(index).cursor(&directory.cid)).collect();
        let entries = cursors.into_iter().zip(listed.entries).skip(from.behind).take(most);
        return Ok((entries.map(|(cursor, entry)| (cursor, entry.into())).collect(), has_more));
    }
}

/// A value of the IPLD data model: a block, or a value within a block.
pub(crate) struct DagNode {
    pub(crate) cid: CoreCid,
    pub(crate) remainder: Vec<String>,
    pub(crate) json: bytes::Bytes,
}

/// A value of the IPLD data model: a block, or a value within a block.
#[Object]
impl DagNode {
    /// Content ID of the block.
    async fn cid(&self) -> Cid {
        Cid(self.cid)
    }

    /// Path of the value within the block; empty for the whole block.
    async fn remainder(&self, context: &Context<'_>) -> FieldResult<&[String]> {
        let names = self.remainder.iter().map(|name| text_len(name.as_bytes())).sum();
        request(context)?.budget.take(names).map_err(failed)?;
        Ok(&self.remainder)
    }

    /// Name of the block's codec.
    async fn codec(&self) -> String {
        codec_name(self.cid.codec())
    }

    /// The value as dag-json (https://ipld.io/specs/codecs/dag-json/spec/).
    #[graphql(complexity = "READ_COST")]
    async fn value(&self, context: &Context<'_>) -> FieldResult<Option<RawJson>> {
        request(context)?.budget.take(self.json.len()).map_err(failed)?;
        let json = self.json.clone();
        let check = move || RawJson::new(json);
        let checked = if self.json.len() > CHECKED_INLINE_BYTES {
            tokio::task::spawn_blocking(check).await.map_err(|e| failed(Error::internal(e.to_string())))?
        } else {
            check()
        };
        checked.map(Some).map_err(failed)
    }
}

/// Size of a value up to which it is checked on the runtime worker, in bytes.
const CHECKED_INLINE_BYTES: usize = 16 * 1024;

/// Codec in which values are read.
pub(crate) const DAG_JSON: u64 = codec::DAG_JSON;
