//! `routing/get` and `routing/put`: records of IPNS names.

use axum::extract::{Request, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipfrs_middleware::MemoryPool;
use ipfrs_node::{MAX_RECORD_BYTES, Name};
use serde::Serialize;

use super::args::Args;
use super::command_result::{CommandResult, has_body};
use super::multipart::{self, Parts};
use super::output;
use crate::body::{self, Whole};
use crate::error::RpcError;
use crate::state::AppState;

/// Type of the go-libp2p event for a value that was found or stored.
const VALUE: u8 = 5;

/// An event of libp2p's routing. There are no peers that could respond.
#[derive(Serialize)]
struct QueryEvent {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Type")]
    kind: u8,
    #[serde(rename = "Responses")]
    responses: Option<()>,
    #[serde(rename = "Extra")]
    extra: String,
}

/// `routing/get?arg=/ipns/{name}`: returns the record of a name, in base64.
pub(super) async fn get(State(state): State<AppState>, args: Args) -> CommandResult {
    let name = name(args.one("key")?)?;
    let record = super::name::record(&state.node, &name).await?;
    let extra = STANDARD.encode(record.bytes());
    Ok(output::object(QueryEvent { id: String::new(), kind: VALUE, responses: None, extra }))
}

/// `routing/put?arg=/ipns/{name}[&allow-offline=]`: stores the record in the body, if it is valid for the name and no
/// better one is stored. `allow-offline` has no effect, since there are no peers to send it to.
pub(super) async fn put(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let name = name(args.one("key")?)?;
    let record = record(&state.memory, request).await?;
    state.node.put_ipns_record(&name, record.bytes).await?;
    Ok(output::object(QueryEvent { id: name.peer_id(), kind: VALUE, responses: None, extra: String::new() }))
}

fn name(key: &str) -> Result<Name, RpcError> {
    Ok(Name::parse(key.strip_prefix("/ipns/").unwrap_or(key))?)
}

/// Reads the record: the first file of a multipart body, or the body itself.
async fn record(memory: &MemoryPool, request: Request) -> Result<Whole, RpcError> {
    let missing = || RpcError::Request("argument \"value-file\" is required".into());
    match multipart::boundary(request.headers())? {
        None if !has_body(&request) => Err(missing()),
        None => {
            let (body, remedy) = (request.into_body(), "sign a record with a shorter value");
            Ok(body::whole(memory, body, MAX_RECORD_BYTES, "maximum record size", remedy).await?)
        }
        Some(boundary) => {
            let mut parts = Parts::new(memory, request.into_body(), boundary);
            let part = parts.next_file().await?.ok_or_else(missing)?;
            Ok(part.whole(MAX_RECORD_BYTES, "the record", "sign a record with a shorter value").await?)
        }
    }
}
