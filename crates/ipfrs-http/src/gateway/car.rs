//! `?format=car`: all blocks needed to verify the content at a path
//! (<https://specs.ipfs.tech/http-gateways/trustless-gateway/#car-responses-application-vnd-ipld-car>).

use std::cmp::Reverse;

use axum::response::Response;
use http::header::{ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::hash::sha2_256;
use ipfrs_core::{Cid, Error, Result};
use ipfrs_middleware::accept::{Range, ranges};
use ipfrs_node::{CarScope, EntityBytes, PathCar};

use super::content_response::ContentResponse;
use super::disposition;
use super::format::CAR_MEDIA_TYPE;
use super::request::GatewayRequest;
use crate::body::{Chunked, begun_within_limits, header_text, unknown_length};
use crate::state::AppState;

/// Number of hash bytes in an entity tag.
const TAG_HASH_BYTES: usize = 8;

/// Options of the requested CAR.
#[derive(Debug, PartialEq, Eq)]
struct CarRequest {
    scope: CarScope,
    /// `dups=y`.
    repeats: bool,
    /// Whether `Accept` specified parameters of the CAR.
    is_negotiated: bool,
}

/// Parameters of the media type; `None` if unspecified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Parameters {
    version: Option<String>,
    order: Option<String>,
    dups: Option<String>,
}

/// Returns the content at the path, with the blocks along the path, as a CAR of version 1 in `dfs` order. A path that
/// does not exist also gets 200, with the blocks that prove it: clients verify these blocks, but cannot verify a 404.
pub(super) async fn respond(state: &AppState, request: &GatewayRequest<'_>, headers: &HeaderMap) -> Result<Response> {
    let car_request = CarRequest::parse(request.query, headers)?;
    let PathCar { cid, roots, car } =
        state.node.export_path(request.path.clone(), car_request.scope, car_request.repeats).await?;
    let dups = if car_request.repeats { 'y' } else { 'n' };
    let mut response =
        ContentResponse::with_roots(state, request, &roots, etag(request, &cid, car_request.scope, dups));
    response.set(CONTENT_TYPE, header_text(&format!("{CAR_MEDIA_TYPE}; version=1; order=dfs; dups={dups}")));
    response.set(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let name = request.filename.clone().unwrap_or_else(|| format!("{cid}.car"));
    response.set(CONTENT_DISPOSITION, disposition::header("attachment", &name));
    if request.is_negotiated || car_request.is_negotiated {
        response.locate_at(&location(request, dups));
    }
    if let Some(settled) = response.settled(headers, None) {
        return Ok(settled);
    }
    response.set(ACCEPT_RANGES, HeaderValue::from_static("none"));
    // HEAD reads as far as GET, so that both have the same status.
    let car = begun_within_limits(car).await?;
    let body = if request.is_head { unknown_length() } else { Chunked::body(car, false) };
    Ok(response.into_response(StatusCode::OK, body))
}

/// Returns the entity tag, which depends on everything that determines the set of blocks. It is weak, since the
/// specification does not promise that two CARs are identical byte for byte.
fn etag(request: &GatewayRequest<'_>, cid: &Cid, scope: CarScope, dups: char) -> String {
    let hash = sha2_256(format!("{} {scope} dfs {dups}", request.path).as_bytes());
    let hash: String = hash.digest().iter().take(TAG_HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("W/\"{cid}.car.{hash}\"")
}

/// Returns the URL that yields the same CAR without `Accept`.
fn location(request: &GatewayRequest<'_>, dups: char) -> String {
    let is_kept = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        !matches!(name, "" | "format" | "car-version" | "car-order" | "car-dups")
    };
    let kept: String =
        request.query.unwrap_or_default().split('&').filter(is_kept).map(|pair| format!("{pair}&")).collect();
    format!("{}?{kept}format=car&car-version=1&car-order=dfs&car-dups={dups}", request.raw_path)
}

impl CarRequest {
    /// Parses the query, and `Accept` for parameters that the query omits. If the client accepts several CARs, its
    /// most preferred one among those available is chosen.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the parameter and its allowed values.
    fn parse(query: Option<&str>, headers: &HeaderMap) -> Result<Self> {
        let (mut scope, mut bytes, mut by_query) = (None, None, Parameters::default());
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "dag-scope" if scope.is_none() => scope = Some(parse_scope(&value)?),
                "entity-bytes" if bytes.is_none() => bytes = Some(parse_bytes(&value)?),
                other => other.strip_prefix("car-").into_iter().for_each(|name| by_query.set(name, &value)),
            }
        }
        let scope = bytes.map_or(scope.unwrap_or(CarScope::All), CarScope::EntityBytes);
        let accepted = accepted(headers);
        let mut refused = None;
        for accepted in &accepted {
            match by_query.clone().or(accepted).repeats() {
                Ok(repeats) => return Ok(Self { scope, repeats, is_negotiated: *accepted != Parameters::default() }),
                Err(e) => refused = refused.or(Some(e)),
            }
        }
        match refused {
            Some(refused) => Err(refused),
            None => Ok(Self { scope, repeats: by_query.repeats()?, is_negotiated: false }),
        }
    }
}

impl Parameters {
    /// Sets a parameter, unless it has a value already: of a repeated one, the first counts. Unknown parameters, and
    /// those without a value, are ignored.
    fn set(&mut self, name: &str, value: &str) {
        let parameter = match name {
            "version" => &mut self.version,
            "order" => &mut self.order,
            "dups" => &mut self.dups,
            _ => return,
        };
        if parameter.is_none() && !value.is_empty() {
            *parameter = Some(value.to_owned());
        }
    }

    fn or(self, other: &Self) -> Self {
        Self {
            version: self.version.or_else(|| other.version.clone()),
            order: self.order.or_else(|| other.order.clone()),
            dups: self.dups.or_else(|| other.dups.clone()),
        }
    }

    /// Whether blocks are repeated; an error if no such CAR is available. A request for the order `unk` accepts any
    /// order.
    fn repeats(&self) -> Result<bool> {
        let refuse = |what: &str, value: &str, known: &str| {
            Err(Error::invalid(format!("CARs with {what}={value} are not supported: use {known}, or leave it out")))
        };
        match self.version.as_deref() {
            None | Some("1") => {}
            Some(other) => return refuse("version", other, "1"),
        }
        match self.order.as_deref() {
            None | Some("dfs" | "unk") => {}
            Some(other) => return refuse("order", other, "dfs or unk"),
        }
        match self.dups.as_deref() {
            None | Some("n") => Ok(false),
            Some("y") => Ok(true),
            Some(other) => refuse("dups", other, "y or n"),
        }
    }
}

/// Returns the CARs that `Accept` names, most preferred first (RFC 9110, 12.4.2 and 12.5.1).
fn accepted(headers: &HeaderMap) -> Vec<Parameters> {
    let is_car = |range: &Range<'_>| range.media.eq_ignore_ascii_case(CAR_MEDIA_TYPE) && range.weight > 0;
    let mut accepted: Vec<_> = ranges(headers).filter(is_car).collect();
    // The sort is stable: among equal weights, the first stays first.
    accepted.sort_by_key(|range| Reverse(range.weight));
    let parameters = |range: Range<'_>| {
        let mut parameters = Parameters::default();
        for (name, value) in range.parameters.split(';').filter_map(|part| part.split_once('=')) {
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"'));
            if name != "q" {
                parameters.set(&name, value);
            }
        }
        parameters
    };
    accepted.into_iter().map(parameters).collect()
}

fn parse_scope(name: &str) -> Result<CarScope> {
    match name {
        "block" => Ok(CarScope::Block),
        "entity" => Ok(CarScope::Entity),
        "all" => Ok(CarScope::All),
        _ => Err(Error::invalid(format!("unknown dag-scope={name}: use block, entity or all"))),
    }
}

fn parse_bytes(range: &str) -> Result<EntityBytes> {
    let parsed = range.split_once(':').and_then(|(from, to)| {
        let to = if to == "*" { None } else { Some(to.parse().ok()?) };
        Some((from.parse().ok()?, to))
    });
    let (from, to) = parsed.ok_or_else(|| {
        let how = "use from:to, where both are offsets, a negative offset counts from the end, and to may be *";
        Error::invalid(format!("malformed entity-bytes={range}: {how}"))
    })?;
    EntityBytes::new(from, to).map_err(|e| Error::invalid(format!("entity-bytes={range}: {e}")))
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    fn parse(query: &str, accept: &str) -> Result<CarRequest> {
        CarRequest::parse(Some(query), &HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]))
    }

    #[test]
    fn car_query_overrides_accept_and_best_offer_wins() {
        for (query, accept, repeats) in [
            ("", "", false),
            ("", "application/vnd.ipld.car", false),
            ("", "application/vnd.ipld.car; version=1; order=dfs; dups=y", true),
            ("", "Application/Vnd.ipld.car;DUPS=\"y\";order=unk", true),
            ("car-dups=n", "application/vnd.ipld.car;dups=y", false),
            ("car-order=dfs&car-dups=y", "application/vnd.ipld.car;order=nonsense;dups=n", true),
            ("", "application/vnd.ipld.car;order=foo, application/vnd.ipld.car;order=dfs;dups=y;q=0.5", true),
            ("", "application/vnd.ipld.car;q=0.5;dups=y, application/vnd.ipld.car;q=0.7;dups=n", false),
            ("", "application/vnd.ipld.raw;dups=y, application/vnd.ipld.car", false),
            ("car-version=&car-order=&car-dups=", "", false),
            ("car-dups=y&car-dups=n&car-dups=", "", true),
            ("car-dups=&car-dups=y&car-dups=x", "application/vnd.ipld.car;dups=n", true),
            ("car-version=1&car-version=2", "application/vnd.ipld.car;dups=n;dups=y", false),
        ] {
            assert_eq!(parse(query, accept).unwrap().repeats, repeats, "{query} {accept}");
        }
        for (query, accept, named) in [
            ("car-version=2", "", "version=2"),
            ("car-order=bfs", "application/vnd.ipld.car;order=dfs", "order=bfs"),
            ("car-dups=maybe", "", "dups=maybe"),
            ("", "application/vnd.ipld.car;version=2", "version=2"),
            ("", "application/vnd.ipld.car;order=foo, application/vnd.ipld.car;dups=x", "order=foo"),
            ("dag-scope=most", "", "dag-scope=most"),
            ("dag-scope=", "", "dag-scope="),
        ] {
            let message = parse(query, accept).unwrap_err().to_string();
            assert!(message.contains(named), "{query} {accept}: {message}");
        }
    }

    #[test]
    fn entity_bytes_imply_their_scope() {
        let bytes = |from, to| CarScope::EntityBytes(EntityBytes::new(from, to).unwrap());
        for (query, scope) in [
            ("dag-scope=block", CarScope::Block),
            ("entity-bytes=0:*", bytes(0, None)),
            ("entity-bytes=5:9&dag-scope=all", bytes(5, Some(9))),
            ("entity-bytes=-1024:-3", bytes(-1024, Some(-3))),
            ("entity-bytes=499:-1000&dag-scope=entity", bytes(499, Some(-1000))),
        ] {
            assert_eq!(parse(query, "").unwrap().scope, scope, "{query}");
        }
        for query in ["", "5", "5:", ":5", "*:5", "a:b", "9:5", "-3:-5", "1.5:2", "0:99999999999999999999", "1:2:3"] {
            assert!(parse(&format!("entity-bytes={query}"), "").is_err(), "{query}");
        }
    }
}
