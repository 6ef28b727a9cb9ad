//! `POST /v1/retrieve/{cid}[/path]`: retrieves content into the store, and reports how.

use axum::Json;
use axum::extract::{Extension, OriginalUri, State};
use http::Uri;
use ipfrs_core::{Error, Result};
use ipfrs_node::{Expected, Retrieved};
use ipfrs_rpc::types::RetrievalReport;

use super::parameters;
use crate::error::{Problem, text};
use crate::gateway::path;
use crate::origin::Checked;
use crate::request_id::RequestId;
use crate::retrieval_report;
use crate::state::AppState;

/// URL prefix of the CID.
const PREFIX: &str = "/v1/retrieve/";

/// Retrieves the part that `scope` names. A retrieval that fails is a report, too.
pub(super) async fn retrieve(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    OriginalUri(uri): OriginalUri,
    checked: Option<Extension<Checked>>,
) -> Result<Json<RetrievalReport>, Problem> {
    let retrieved = async {
        let path = path::parse(uri.path().strip_prefix(PREFIX).unwrap_or_default())?;
        state.node.retrieve(path, scope(&uri)?).await
    };
    let retrieved = retrieved.await.map_err(|error| Problem::new(error, &id))?;
    Ok(Json(report(&retrieved, checked.is_some())))
}

fn scope(uri: &Uri) -> Result<Expected> {
    match parameters::only(uri, "scope")?.as_deref() {
        None | Some("all") => Ok(Expected::All),
        Some("entity") => Ok(Expected::Entity),
        Some("block") => Ok(Expected::Block),
        Some(other) => Err(Error::invalid(format!("scope {other:?} is unknown: use all, entity or block"))),
    }
}

fn report(retrieved: &Retrieved, for_operator: bool) -> RetrievalReport {
    RetrievalReport {
        cid: retrieved.cid.map(|cid| cid.to_string()),
        complete: retrieved.error.is_none(),
        blocks: retrieved.blocks,
        bytes: retrieved.bytes,
        duration_ms: u64::try_from(retrieved.duration.as_millis()).unwrap_or(u64::MAX),
        code: retrieved.error.as_ref().map(|error| error.kind().code().to_owned()),
        error: retrieved.error.as_ref().map(text),
        attempts: retrieval_report::attempts(&retrieved.attempts, for_operator),
    }
}
