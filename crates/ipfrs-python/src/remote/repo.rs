//! Pins, CARs, garbage collection, and properties of the daemon.

use std::collections::HashSet;

use futures::{StreamExt, stream};
use ipfrs_core::{Error, Result};
use ipfrs_node::LinkName;
use ipfrs_node::car::{CarLimits, CarReader};
use ipfrs_rpc::client::{Client, Request};
use ipfrs_rpc::types::{GcLine, ImportedCar, PinLine, Pins, RepoStat, Version};

use super::arg;
use crate::backing::{Pieces, PinEntry, StoreStats};

/// Maximum number of bytes that are buffered to read the header of a CAR.
const MAX_HEADER_BYTES: usize = 4 * 1024 * 1024;

pub(super) async fn pin(client: &Client, path: &LinkName, recursive: bool, name: Option<String>) -> Result<String> {
    let request = Request::command("pin/add").with_arg(arg(path)).with("recursive", recursive);
    let pins = client.send(request.with_some("name", name)).await?.json::<Pins>().await?.pins;
    pins.into_iter().next().ok_or_else(|| Error::corrupt(format!("{} did not report what it pinned", client.url())))
}

pub(super) async fn unpin(client: &Client, path: &LinkName, recursive: bool) -> Result<()> {
    let request = Request::command("pin/rm").with_arg(arg(path)).with("recursive", recursive);
    client.send(request).await?.json::<Pins>().await.map(drop)
}

/// Returns recursive pins, then direct pins. One request for both would return indirect pins as well.
pub(super) async fn pins(client: &Client) -> Result<Vec<PinEntry>> {
    let mut pins = Vec::new();
    for kind in ["recursive", "direct"] {
        let request = Request::query("pin/ls").with("type", kind).with("names", true).with("stream", true);
        let mut response = client.send(request.with_trailers()).await?;
        while let Some(PinLine { cid, name, .. }) = response.entry().await? {
            pins.push(PinEntry { cid, kind, name });
        }
    }
    Ok(pins)
}

pub(super) async fn export_car(client: &Client, path: &LinkName) -> Result<Pieces> {
    Ok(client.send(Request::query("dag/export").with_arg(arg(path)).with_trailers()).await?.into_pieces())
}

pub(super) async fn import_car(client: &Client, car: Pieces, pin_roots: bool) -> Result<Vec<String>> {
    if pin_roots {
        return send_car(client, car, true).await;
    }
    // The daemon reports only the roots that it pins.
    let (roots, car) = roots_of(car).await?;
    send_car(client, car, false).await?;
    Ok(roots)
}

/// Sends a CAR and returns the roots that the daemon pinned.
async fn send_car(client: &Client, car: Pieces, pin_roots: bool) -> Result<Vec<String>> {
    let request = Request::command("dag/import").with("pin-roots", pin_roots).with_trailers();
    let request = request.with_upload("application/vnd.ipld.car", car)?;
    let (mut response, mut roots) = (client.send(request).await?, Vec::new());
    while let Some(line) = response.line().await? {
        let ImportedCar::Root { cid, pin_error_msg } = line else { continue };
        let cid = cid.cid;
        if !pin_error_msg.is_empty() {
            let what = format!("the CAR is stored, but {cid} could not be pinned: {pin_error_msg}");
            return Err(Error::not_found(what));
        }
        roots.push(cid);
    }
    Ok(roots)
}

/// Returns the distinct roots named in the header of a CAR, and the same CAR from its beginning.
async fn roots_of(mut car: Pieces) -> Result<(Vec<String>, Pieces)> {
    let mut read = Vec::new();
    let mut bytes = 0;
    let noted = car.by_ref().map(|piece| {
        let piece = piece?;
        bytes += piece.len();
        if bytes > MAX_HEADER_BYTES {
            return Err(Error::too_large(format!("the CAR has no header within its first {MAX_HEADER_BYTES} bytes")));
        }
        read.push(Ok(piece.clone()));
        Ok(piece)
    });
    let mut seen = HashSet::new();
    let mut reader = CarReader::new(noted, CarLimits::default());
    let roots = reader.header().await?.iter().filter(|root| seen.insert(**root)).map(ToString::to_string).collect();
    drop(reader);
    Ok((roots, stream::iter(read).chain(car).boxed()))
}

/// Runs garbage collection. Returns the number of removed blocks, and their size in bytes.
pub(super) async fn collect(client: &Client, force: bool) -> Result<(u64, u64)> {
    let request = Request::command("repo/gc").with("silent", true).with("progress", true).with("force", force);
    let mut response = client.send(request.with_trailers()).await?;
    let mut last = None;
    while let Some(line) = response.line::<GcLine>().await? {
        last = Some(line);
    }
    match last {
        Some(GcLine::Summary(summary)) => Ok((summary.removed_blocks, summary.removed_bytes)),
        _ => Err(Error::corrupt(format!("{} did not report what it collected", client.url()))),
    }
}

pub(super) async fn version(client: &Client) -> Result<String> {
    let version: Version = client.send(Request::query("version")).await?.json().await?;
    Ok(version.ipfrs.unwrap_or(version.version))
}

pub(super) async fn stats(client: &Client) -> Result<StoreStats> {
    let stat: RepoStat = client.send(Request::query("repo/stat")).await?.json().await?;
    match (stat.num_objects, stat.repo_path) {
        (Some(blocks), Some(repo)) => Ok(StoreStats { blocks, bytes: stat.repo_size, repo }),
        _ => Err(Error::corrupt(format!("{} did not report its blocks", client.url()))),
    }
}
