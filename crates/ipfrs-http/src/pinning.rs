//! `/pinning/v1/pins`: the pinning service API (<https://ipfs.github.io/pinning-services-api-spec/>, version 1.0.0).
//! Callers with different credentials have separate pins.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Extension, FromRequestParts, RawQuery, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use http::request::Parts;
use ipfrs_core::{Error, ErrorKind, Result, parse_cid, timestamp};
use ipfrs_middleware::auth::{Caller, Scope, TOKEN_PREFIX};
use ipfrs_middleware::json_object;
use ipfrs_node::PinRequestFilter;
use ipfrs_rpc::types::{PinResults, PinState, PinStatus, RequestedPin};

use crate::access::StoredObject;
use crate::access_rule::Access;
use crate::body;
use crate::error::{PinningProblem, pinning_method_not_allowed};
use crate::head_deadline::in_time;
use crate::listed_routes::ListedRoutes;
use crate::origin;
use crate::path_parameter;
use crate::state::AppState;

/// Longest body, in bytes.
const MAX_BODY_BYTES: usize = 256 * 1024;
/// Largest number of content IDs in one request, and of results, as in the specification.
const MAX_CIDS: usize = 10;
const MAX_RESULTS: usize = 1_000;

/// Returns the routes under `/pinning/v1`.
pub(crate) fn routes() -> ListedRoutes {
    let access = Access::scope(Scope::Pin);
    ListedRoutes::new()
        .route("/pins", access, get(list).post(add).fallback(async || pinning_method_not_allowed("GET, HEAD, POST")))
        .route(
            "/pins/{requestid}",
            access,
            get(show)
                .post(replace)
                .delete(remove)
                .fallback(async || pinning_method_not_allowed("GET, HEAD, POST, DELETE")),
        )
}

/// Returns the routes under `/pinning/v1`, with a response to all others.
pub(crate) fn with_fallback(routes: Router<AppState>) -> Router<AppState> {
    routes.fallback(no_such_resource)
}

pub(crate) async fn no_such_resource() -> PinningProblem {
    PinningProblem(Error::not_found("the only resource here is /pins"))
}

/// Refuses requests from pages of other origins, and enforces the request deadline.
pub(crate) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if let Err(e) = origin::check(&request, state.port) {
        return PinningProblem(e).into_response();
    }
    let deadline = request.extensions().get().cloned();
    let mut response = in_time(deadline, next.run(request), |error| PinningProblem(error).into_response()).await;
    origin::isolate(response.headers_mut());
    response
}

/// Returns whose pins a request is about; `None` without authentication.
///
/// # Errors
/// [`ErrorKind::Forbidden`] for a token without a subject: it could be anyone's.
fn owner(caller: Option<&Caller>) -> Result<Option<&str>> {
    match caller.and_then(Caller::principal).map(|principal| principal.name()) {
        Some(TOKEN_PREFIX) => Err(Error::new(ErrorKind::Forbidden, "the token has no sub, whose pins these would be")),
        name => Ok(name),
    }
}

/// The ID of a pin request in the path of a route.
struct InPath(String);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = PinningProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        Ok(Self(path_parameter::only(parts, state).await?))
    }
}

type Answer<T> = std::result::Result<T, PinningProblem>;
type MaybeExtension<T> = Option<Extension<T>>;
/// Response to a request for a pin.
type Accepted = (StatusCode, Extension<StoredObject>, Json<PinStatus>);

fn accepted(status: PinStatus) -> Accepted {
    (StatusCode::ACCEPTED, Extension(StoredObject(status.pin.cid.clone())), Json(status))
}

/// `GET /pins`: lists pins, newest first.
async fn list(
    State(state): State<AppState>,
    caller: MaybeExtension<Caller>,
    RawQuery(query): RawQuery,
) -> Answer<Json<PinResults>> {
    let filter = filter(&query.unwrap_or_default())?;
    Ok(Json(state.node.list_pin_requests(owner(caller.as_deref())?, &filter)?))
}

/// `POST /pins`: requests a pin.
async fn add(State(state): State<AppState>, caller: MaybeExtension<Caller>, body: Body) -> Answer<Accepted> {
    let pin = requested(&state, body).await?;
    Ok(accepted(state.node.request_pin(owner(caller.as_deref())?, pin, None).await?))
}

/// `GET /pins/{requestid}`: returns a pin.
async fn show(
    State(state): State<AppState>,
    caller: MaybeExtension<Caller>,
    InPath(id): InPath,
) -> Answer<Json<PinStatus>> {
    Ok(Json(state.node.pin_request(owner(caller.as_deref())?, &id)?))
}

/// `POST /pins/{requestid}`: replaces a pin.
async fn replace(
    State(state): State<AppState>,
    caller: MaybeExtension<Caller>,
    InPath(id): InPath,
    body: Body,
) -> Answer<Accepted> {
    let pin = requested(&state, body).await?;
    Ok(accepted(state.node.request_pin(owner(caller.as_deref())?, pin, Some(&id)).await?))
}

/// `DELETE /pins/{requestid}`: removes a pin.
async fn remove(
    State(state): State<AppState>,
    caller: MaybeExtension<Caller>,
    InPath(id): InPath,
) -> Answer<StatusCode> {
    state.node.remove_pin_request(owner(caller.as_deref())?, &id).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn requested(state: &AppState, body: Body) -> Result<RequestedPin> {
    let body = body::whole(&state.memory, body, MAX_BODY_BYTES, "body of a pin", "shorten meta").await?;
    json_object::parse(&body.bytes).map_err(|e| {
        Error::invalid(format!(r#"the body is no pin, such as {{"cid": "bafkqaaa", "name": "empty"}}: {e}"#))
    })
}

fn filter(query: &str) -> Result<PinRequestFilter> {
    let mut filter = PinRequestFilter::default();
    let mut states: Vec<PinState> = Vec::new();
    let mut single = Vec::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "cid" => {
                let cids =
                    value.split(',').map(|cid| parse_cid(cid).map_err(|e| Error::invalid(format!("cid={cid:?}: {e}"))));
                filter.cids.extend(cids.collect::<Result<Vec<_>>>()?);
            }
            "status" => {
                let parsed = value.split(',').map(|state| {
                    let why = || Error::invalid(format!("status={state:?}: use queued, pinning, pinned and failed"));
                    state.parse::<PinState>().map_err(|()| why())
                });
                states.extend(parsed.collect::<Result<Vec<_>>>()?);
            }
            "name" | "match" | "before" | "after" | "limit" | "meta" => single.push((name, value)),
            _ => {}
        }
    }
    let mut given: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in &single {
        if given.insert(name, value.clone().into_owned()).is_some() {
            return Err(Error::invalid(format!("{name} is given twice")));
        }
    }
    if filter.cids.len() > MAX_CIDS {
        return Err(Error::invalid(format!("cid: {} content IDs, use at most {MAX_CIDS}", filter.cids.len())));
    }
    if !states.is_empty() {
        filter.states = states;
    }
    let time = |name: &str| {
        let parse = |text: &String| {
            let why = || Error::invalid(format!("{name}={text:?}: use a time such as 2026-01-02T03:04:05Z (RFC 3339)"));
            timestamp::parse(text).ok_or_else(why)
        };
        given.get(name).map(parse).transpose()
    };
    (filter.before, filter.after) = (time("before")?, time("after")?);
    let how = given.get("match").map(|how| how.parse()).transpose()?.unwrap_or_default();
    filter.name = given.get("name").map(|name| (name.clone(), how));
    if let Some(limit) = given.get("limit") {
        let number = limit.parse().ok().filter(|limit| (1..=MAX_RESULTS).contains(limit));
        filter.limit = number.ok_or_else(|| Error::invalid(format!("limit={limit:?}: use 1 to {MAX_RESULTS}")))?;
    }
    if let Some(meta) = given.get("meta") {
        let why = |e| Error::invalid(format!(r#"meta={meta:?}: use an object of texts, such as {{"app": "x"}}: {e}"#));
        filter.meta = serde_json::from_str(meta).map_err(why)?;
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_are_read_as_specified() {
        let read =
            filter("cid=bafkqaaa,bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy&status=queued,failed&limit=1000&match=ipartial&name=a%20b").unwrap();
        assert_eq!((read.cids.len(), read.limit), (2, 1000));
        assert_eq!(read.states, [PinState::Queued, PinState::Failed]);
        assert_eq!(read.name, Some(("a b".to_owned(), ipfrs_node::NameMatch::PartInAnyCase)));
        let read = filter("meta=%7B%22app%22%3A%22x%22%7D&before=2026-01-02T03%3A04%3A05.678Z&unknown=1").unwrap();
        assert_eq!(read.meta["app"], "x");
        assert!(read.before.is_some() && read.after.is_none());
        assert_eq!(filter("").unwrap(), PinRequestFilter::default());
        for wrong in [
            "cid=Qm",
            "cid=",
            "status=",
            "status=Pinned",
            "limit=0",
            "limit=1001",
            "limit=-1",
            "match=regex",
            "before=yesterday",
            "meta=1",
            "meta=%7B%22app%22%3A1%7D",
            "name=a&name=b",
            &format!("cid={}", ["bafkqaaa"; 11].join(",")),
        ] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }
}
