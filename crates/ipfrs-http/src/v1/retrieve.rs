//! `POST /v1/retrieve/{cid}[/path]`: retrieves content into the store, and reports how.

use axum::Json;
use axum::extract::{Extension, OriginalUri, State};
use ipfrs_core::{Error, Result};
use ipfrs_node::{Expected, Retrieved};
use ipfrs_rpc::types::RetrievalReport;

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
        state.node.retrieve(path, scope(uri.query().unwrap_or_default())?).await
    };
    let retrieved = retrieved.await.map_err(|error| Problem::new(error, &id))?;
    Ok(Json(report(&retrieved, checked.is_some())))
}

fn scope(query: &str) -> Result<Expected> {
    let mut scope = Expected::All;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        scope = match (name.as_ref(), value.as_ref()) {
            ("scope", "all") => Expected::All,
            ("scope", "entity") => Expected::Entity,
            ("scope", "block") => Expected::Block,
            ("scope", other) => {
                return Err(Error::invalid(format!("scope {other:?} is unknown: use all, entity or block")));
            }
            (other, _) => return Err(Error::invalid(format!("parameter {other:?} is unknown: use scope"))),
        };
    }
    Ok(scope)
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
