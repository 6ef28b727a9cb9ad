//! `POST /v1/repo/snapshots`: a snapshot of the repo, for a backup on the same machine.

use std::path::Path;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use ipfrs_core::{Error, Result};
use ipfrs_node::Snapshot;
use ipfrs_rpc::types::{RepoSnapshot, SnapshotPack};

use super::keys::unstored;
use crate::error::Problem;
use crate::request_id::RequestId;
use crate::state::AppState;

/// `POST /v1/repo/snapshots`.
pub(super) async fn create(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
) -> std::result::Result<Response, Problem> {
    let shown = async { shown(&state.node.snapshot().await?, state.node.repo()) };
    let snapshot = shown.await.map_err(|e| Problem::new(e, &id))?;
    Ok((StatusCode::CREATED, unstored(Json(snapshot))).into_response())
}

fn shown(snapshot: &Snapshot, repo: &Path) -> Result<RepoSnapshot> {
    let pack = |pack: &ipfrs_node::LinkedPack| SnapshotPack { number: pack.number, bytes: pack.bytes };
    Ok(RepoSnapshot {
        directory: text(&snapshot.directory)?,
        lock: text(&snapshot.lock)?,
        repo: text(repo)?,
        store: text(&snapshot.store)?,
        packs: snapshot.packs.iter().map(pack).collect(),
    })
}

fn text(path: &Path) -> Result<String> {
    let path = path.to_str().map(str::to_owned);
    path.ok_or_else(|| Error::unsupported("the path of the repo is not UTF-8: move the repo to another directory"))
}
