//! Pins, CARs, garbage collection, and properties of the daemon.

use std::collections::HashSet;

use futures::{StreamExt, stream};
use ipfrs_core::{Error, Result};
use ipfrs_node::LinkName;
use ipfrs_node::car::{CarLimits, CarReader};
use serde::Deserialize;

use super::files::CidLink;
use super::http::{Call, Http};
use super::patience::Sending;
use super::upload::Outgoing;
use crate::backing::{Pieces, PinEntry, StoreStats};

/// Maximum number of bytes that are buffered to read the header of a CAR.
const MAX_HEADER_BYTES: usize = 4 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pins {
    pins: Vec<String>,
}

pub(super) async fn pin(http: &Http, path: &LinkName, recursive: bool, name: Option<String>) -> Result<String> {
    let call = Call::command("pin/add").with_path(path).with("recursive", recursive).with_some("name", name);
    let pins = http.send(call).await?.document::<Pins>().await?.pins;
    pins.into_iter().next().ok_or_else(|| Error::corrupt(format!("{} did not report what it pinned", http.shown())))
}

pub(super) async fn unpin(http: &Http, path: &LinkName, recursive: bool) -> Result<()> {
    let call = Call::command("pin/rm").with_path(path).with("recursive", recursive);
    http.send(call).await?.document::<Pins>().await.map(drop)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PinLine {
    cid: String,
    #[serde(default)]
    name: String,
}

/// Returns recursive pins, then direct pins. One request for both would return indirect pins as well.
pub(super) async fn pins(http: &Http) -> Result<Vec<PinEntry>> {
    let mut pins = Vec::new();
    for kind in ["recursive", "direct"] {
        let call = Call::question("pin/ls").with("type", kind).with("names", true).with("stream", true);
        let mut response = http.send(call.with_trailers()).await?;
        while let Some(PinLine { cid, name }) = response.entry().await? {
            pins.push(PinEntry { cid, kind, name });
        }
    }
    Ok(pins)
}

pub(super) async fn export_car(http: &Http, path: &LinkName) -> Result<Pieces> {
    Ok(http.send(Call::question("dag/export").with_path(path).with_trailers()).await?.pieces())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Imported {
    root: Root,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Root {
    cid: CidLink,
    pin_error_msg: String,
}

pub(super) async fn import_car(http: &Http, car: Pieces, pin_roots: bool) -> Result<Vec<String>> {
    if pin_roots {
        return send_car(http, car, true).await;
    }
    // The daemon reports only the roots that it pins.
    let (roots, car) = roots_of(car).await?;
    send_car(http, car, false).await?;
    Ok(roots)
}

/// Sends a CAR and returns the roots that the daemon pinned.
async fn send_car(http: &Http, car: Pieces, pin_roots: bool) -> Result<Vec<String>> {
    let (outgoing, sending) = (Outgoing::new(car), Sending::default());
    let call = Call::command("dag/import").with("pin-roots", pin_roots).with_trailers();
    let call = call.streams("application/vnd.ipld.car", outgoing.body(sending.clone()), sending.clone())?;
    let imported = async {
        let (mut response, mut roots) = (http.send(call).await?, Vec::new());
        while let Some(Imported { root }) = response.line().await? {
            if !root.pin_error_msg.is_empty() {
                let (cid, why) = (root.cid.cid, root.pin_error_msg);
                return Err(Error::not_found(format!("the CAR is stored, but {cid} could not be pinned: {why}")));
            }
            roots.push(root.cid.cid);
        }
        Ok(roots)
    };
    imported.await.map_err(|e| sending.explain(e))
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

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GcReport {
    removed_blocks: Option<u64>,
    removed_bytes: Option<u64>,
}

/// Runs garbage collection. Returns the number of removed blocks, and their size in bytes.
pub(super) async fn collect(http: &Http, force: bool) -> Result<(u64, u64)> {
    let call = Call::command("repo/gc").with("silent", true).with("progress", true).with("force", force);
    let summary = http.send(call.with_trailers()).await?.last_line::<GcReport>().await?;
    match summary {
        Some(GcReport { removed_blocks: Some(blocks), removed_bytes: Some(bytes) }) => Ok((blocks, bytes)),
        _ => Err(Error::corrupt(format!("{} did not report what it collected", http.shown()))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Version {
    version: String,
    /// Version of ipfrs, which may differ from `version`. Absent if another implementation serves the API.
    ipfrs: Option<String>,
}

pub(super) async fn version(http: &Http) -> Result<String> {
    let version: Version = http.send(Call::question("version")).await?.document().await?;
    Ok(version.ipfrs.unwrap_or(version.version))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RepoStat {
    repo_size: u64,
    num_objects: u64,
    repo_path: String,
}

pub(super) async fn stats(http: &Http) -> Result<StoreStats> {
    let stat: RepoStat = http.send(Call::question("repo/stat")).await?.document().await?;
    Ok(StoreStats { blocks: stat.num_objects, bytes: stat.repo_size, repo: stat.repo_path })
}
