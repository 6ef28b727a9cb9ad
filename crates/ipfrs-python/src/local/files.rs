//! Content at paths: files, directories and tensors.

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use ipfrs_core::{Error, Result};
use ipfrs_node::{
    Expected, LinkName, ListedKind, Node, Object, ObjectKind, Span, TensorFile, TensorInfo, TensorOperation, expecting,
};

use crate::backing::{Content, Entry, Pieces, Stat, TensorBytes, TensorEntry, TensorList, TensorStats};
use crate::local::OpenNode;
use crate::run::all_of;

/// Permissions of a symlink, which has none of its own.
const SYMLINK_MODE: u32 = 0o777;

/// Resolves `path` through the path cache.
pub(super) async fn object(node: &OpenNode, path: &LinkName) -> Result<Object> {
    let path = node.content_path(path).await?;
    if let Some(resolved) = node.paths.as_ref().and_then(|paths| paths.get(&path)) {
        return node.load(resolved).await?.whole();
    }
    let object = node.resolve(path.clone()).await?;
    if let Some(paths) = &node.paths {
        paths.insert(path, object.resolved.clone(), object.resolved.provenance);
    }
    object.whole()
}

/// Wraps a stream so that it ends with an error if the storage of a file is lost. The last piece may then be wrong.
pub(super) fn watched(node: &Node, pieces: impl Stream<Item = Result<Bytes>> + Send + 'static) -> Pieces {
    let (node, faults) = (node.clone(), node.faults());
    let check = move |piece: Result<Bytes>| match node.faults() == faults {
        true => piece,
        false => Err(lost()),
    };
    let is_filled = |piece: &Result<Bytes>| std::future::ready(!piece.as_ref().is_ok_and(Bytes::is_empty));
    pieces.map(check).filter(is_filled).boxed()
}

fn lost() -> Error {
    Error::corrupt(
        "a pack was truncated while it was read: its data may be wrong; restore the file from a copy, or try again to \
         continue without the lost data",
    )
}

pub(super) async fn read(node: &OpenNode, path: &LinkName, offset: u64, length: Option<u64>) -> Result<Content> {
    let object = expecting(Expected::of_file(offset, length), object(node, path)).await?;
    let file = match &object.kind {
        ObjectKind::File(file) => file,
        ObjectKind::Directory(_) => {
            return Err(Error::invalid(format!("{path} is a directory: name a file in it, or list it")));
        }
        // As from a daemon, the content of a symlink is its target.
        ObjectKind::Symlink(target) => {
            let span = Span::within(target.len() as u64, offset, length);
            let content = target.slice(span.start as usize..span.end() as usize);
            return Ok(Content { size: span.len, pieces: watched(node, stream::iter([Ok(content)])) });
        }
        ObjectKind::Other => return Err(object.not_unixfs("get its block").await),
    };
    let span = Span::within(file.size(), offset, length);
    if let (Some(inline), Ok(start), Ok(end)) =
        (file.inline(), usize::try_from(span.start), usize::try_from(span.end()))
    {
        node.count_download(end - start);
        let content = inline.slice(start..end);
        return Ok(Content { size: span.len, pieces: watched(node, stream::iter([Ok(content)])) });
    }
    Ok(Content { size: span.len, pieces: watched(node, node.read(file, span)) })
}

fn kind_name(kind: ListedKind) -> &'static str {
    match kind {
        ListedKind::File => "file",
        ListedKind::Directory => "directory",
        ListedKind::Symlink => "symlink",
        ListedKind::Unknown => "node",
    }
}

pub(super) async fn list(node: &OpenNode, path: &LinkName) -> Result<Vec<Entry>> {
    let object = object(node, path).await?;
    if matches!(object.kind, ObjectKind::File(_) | ObjectKind::Symlink(_)) {
        return Err(Error::invalid(format!("{path} is not a directory: read it, or get its stat")));
    }
    let entry = |entry: ipfrs_node::Listed| Entry {
        cid: entry.cid.to_string(),
        name: entry.name,
        kind: kind_name(entry.kind),
        size: entry.size,
    };
    all_of(node.list(&object, usize::MAX).map_ok(entry)).await
}

pub(super) async fn stat(node: &OpenNode, path: &LinkName) -> Result<Stat> {
    let object = object(node, path).await?;
    let cid = object.cid.to_string();
    if matches!(object.kind, ObjectKind::Other) {
        let size = object.block.len() as u64;
        return Ok(Stat { cid, kind: "node", size, links: None, mode: None, mtime: None });
    }
    let info = node.object_info(&object).await?;
    #[expect(clippy::cast_precision_loss, reason = "current Unix times are far below 2^52")]
    let mtime = info.attributes.mtime.map(|time| time.seconds as f64 + f64::from(time.nanos) / 1e9);
    let (size, mode) = match &object.kind {
        ObjectKind::Symlink(target) => (target.len() as u64, info.attributes.mode.or(Some(SYMLINK_MODE))),
        _ => (info.size, info.attributes.mode),
    };
    Ok(Stat { cid, kind: kind_name(info.kind), size, links: Some(info.links as u64), mode, mtime })
}

pub(super) async fn tensors(node: &OpenNode, path: &LinkName) -> Result<TensorList> {
    let file = node.tensors_of(expecting(Expected::Block, object(node, path)).await?).await?;
    let catalogue = &file.catalogue;
    node.count_tensor(TensorOperation::List, catalogue.tensors().iter().map(|tensor| tensor.bytes).sum());
    let tensors = catalogue.tensors().iter().map(|tensor| TensorEntry {
        name: tensor.name.clone(),
        dtype: tensor.dtype.name().to_owned(),
        shape: tensor.shape.clone(),
        bytes: tensor.bytes,
        offset: tensor.offset,
    });
    Ok(TensorList {
        cid: file.cid.to_string(),
        format: catalogue.format().name().to_owned(),
        metadata: catalogue.metadata().iter().map(|(key, text)| (key.clone(), text.clone())).collect(),
        tensors: tensors.collect(),
    })
}

pub(super) async fn tensor(node: &OpenNode, path: &LinkName, name: &str, slice: &str) -> Result<TensorBytes> {
    let file = node.tensors_of(expecting(Expected::Block, object(node, path)).await?).await?;
    let part = file.part(named(&file, name)?, &slice.parse()?)?;
    let content = Content { size: part.bytes, pieces: watched(node, node.read_tensor(&part)) };
    Ok(TensorBytes { dtype: part.dtype.name().to_owned(), shape: part.shape, content })
}

/// Returns the tensor with this name, or the only tensor if `name` is empty.
fn named<'a>(file: &'a TensorFile, name: &str) -> Result<&'a TensorInfo> {
    match (name, file.catalogue.tensors()) {
        ("", [only]) => Ok(only),
        ("", tensors) if !tensors.iter().any(|tensor| tensor.name.is_empty()) => {
            Err(Error::invalid(format!("{} has {} tensors: select one by name", file.cid, tensors.len())))
        }
        _ => file.catalogue.get(name),
    }
}

pub(super) async fn tensor_stats(node: &OpenNode, path: &LinkName, name: &str) -> Result<TensorStats> {
    let file = node.tensors_of(expecting(Expected::Block, object(node, path)).await?).await?;
    let tensor = named(&file, name)?;
    let summary = node.tensor_stats(&file, tensor).await?;
    Ok(TensorStats {
        count: summary.count,
        nan: summary.nan,
        inf: summary.infinite,
        zero: summary.zero,
        min: summary.min,
        max: summary.max,
        mean: summary.mean,
        std: summary.std,
    })
}
