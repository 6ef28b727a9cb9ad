//! `get`: files and trees as TAR, gzip or both.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use ipfrs_core::{Error, Result};
use ipfrs_middleware::{Client, Share};
use ipfrs_node::{LinkName, Mtime, ObjectKind, Span, gathered};
use tokio::sync::Semaphore;

use super::args::Args;
use super::command_result::CommandResult;
use super::output;
use super::paths::checked_path;
use crate::body::begun;
use crate::content_limits::{self, Remedy};
use crate::error::RpcError;
use crate::state::AppState;

/// Bytes per compression step; a step may exceed this by one piece.
const COMPRESSED_BYTES: usize = 256 * 1024;

/// `get?arg=path[&archive=][&compress=][&compression-level=]`: returns a TAR archive of the file, directory or
/// symlink, named after the last segment of the path. With `compress`, the archive is compressed; without `archive`,
/// the file is compressed directly, or the target of the symlink.
pub(super) async fn get(State(state): State<AppState>, args: Args) -> CommandResult {
    let path = args.path(&state.node, "ipfs-path").await?;
    let is_archive = args.is_set("archive");
    let level = compression(&args)?;
    let name = name(args.one_path("ipfs-path")?)?;
    let object = state.node.resolve(path).await?.whole()?;
    if let ObjectKind::File(file) = &object.kind {
        content_limits::check_size(&state, file.size(), Remedy::Rpc)?;
    }
    let takes_trailers = args.takes_trailers;
    if let (Some(level), false) = (level, is_archive) {
        let place = state.compression.place()?;
        let content = match &object.kind {
            ObjectKind::File(file) => begun(state.node.read(file, Span::whole(file.size()))).await?.boxed(),
            ObjectKind::Symlink(target) => stream::iter([Ok(target.clone())]).boxed(),
            ObjectKind::Directory(_) => return Err(Error::invalid("file is not regular").into()),
            ObjectKind::Other => return Err(object.not_unixfs("use block/get for its block").await.into()),
        };
        let compressed = gzipped(content, level, place, state.compression.turns());
        return Ok(output::stream_of("application/gzip", compressed, None, takes_trailers));
    }
    let place = level.map(|_| state.compression.place()).transpose()?;
    // As in Kubo, entries without a time have that of the request.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Mtime { seconds: i64::try_from(now.as_secs()).unwrap_or(0), nanos: 0 };
    let archive = state.node.archive(&object, &name, Some(now)).await?;
    let pieces = match archive.length {
        Some(_) => archive.pieces,
        None => content_limits::bounded(&state, archive.pieces, Remedy::Rpc).boxed(),
    };
    let pieces = begun(gathered(pieces)).await?;
    Ok(match level.zip(place) {
        Some((level, place)) => {
            let compressed = gzipped(pieces.boxed(), level, place, state.compression.turns());
            output::stream_of("application/gzip", compressed, None, takes_trailers)
        }
        None => output::stream_of("application/x-tar", pieces, archive.length, takes_trailers),
    })
}

/// Returns the name of the archived target of `argument`: as in Kubo, the last part of the path as it is given, which
/// may be an IPNS name.
fn name(argument: &LinkName) -> Result<LinkName> {
    let path = checked_path(argument)?;
    let last = path.as_bytes().rsplit(|byte| *byte == b'/').find(|part| !part.is_empty());
    Ok(last.map(LinkName::from).unwrap_or_default())
}

/// Returns the requested compression level, or `None` without compression.
fn compression(args: &Args) -> Result<Option<Compression>, RpcError> {
    let level = args.number::<i32>("compression-level")?;
    // Clients may send a level, such as -1, even without compression.
    if !args.is_set("compress") {
        return Ok(None);
    }
    match level {
        None => Ok(Some(Compression::default())),
        Some(level @ 1..=9) => Ok(Some(Compression::new(level.unsigned_abs()))),
        Some(other) => {
            let why = format!("compression level must be between 1 and 9: compression-level={other}");
            Err(Error::invalid(why).into())
        }
    }
}

/// A gzip stream in progress.
struct Gzip {
    pieces: BoxStream<'static, Result<Bytes>>,
    encoder: GzEncoder<Vec<u8>>,
    /// Permit among the bodies that may be compressed at the same time.
    place: Share<Client>,
}

/// Compresses `pieces` with gzip, on blocking threads. Each step compresses a bounded amount of data, runs only when
/// the client reads, and takes a permit that it shares with all other compression.
fn gzipped(
    pieces: BoxStream<'static, Result<Bytes>>,
    level: Compression,
    place: Share<Client>,
    turns: Arc<Semaphore>,
) -> impl Stream<Item = Result<Bytes>> + Send + Unpin {
    let gzip = Gzip { pieces, encoder: GzEncoder::new(Vec::new(), level), place };
    let pieces = stream::try_unfold((Some(gzip), turns), |(state, turns)| async move {
        let Some(mut gzip) = state else { return Ok(None) };
        loop {
            let (batch, is_last) = gzip.batch().await?;
            let Gzip { pieces, mut encoder, place } = gzip;
            let cpu_permit = Arc::clone(&turns).acquire_owned().await;
            let cpu_permit =
                cpu_permit.map_err(|e| Error::internal("compression is no longer available").with_source(e))?;
            let work = tokio::task::spawn_blocking(move || {
                let _cpu_permit = cpu_permit;
                batch.iter().try_for_each(|piece| encoder.write_all(piece))?;
                if is_last {
                    encoder.try_finish()?;
                }
                let out = Bytes::from(std::mem::take(encoder.get_mut()));
                io::Result::Ok((encoder, out))
            });
            let done = work.await.map_err(|e| Error::internal("the compression task failed").with_source(e))?;
            let (encoder, out) = done.map_err(|e| Error::internal("compression failed").with_source(e))?;
            gzip = Gzip { pieces, encoder, place };
            if is_last {
                return Ok(Some((out, (None, turns))));
            }
            // A step may produce no output.
            if !out.is_empty() {
                return Ok(Some((out, (Some(gzip), turns))));
            }
        }
    });
    pieces.boxed()
}

impl Gzip {
    /// Returns the next data to compress, and whether it is the last.
    async fn batch(&mut self) -> Result<(Vec<Bytes>, bool)> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < COMPRESSED_BYTES {
            let Some(piece) = self.pieces.next().await else { return Ok((batch, true)) };
            let piece = piece?;
            bytes += piece.len();
            batch.push(piece);
        }
        Ok((batch, false))
    }
}
