//! The Kubo RPC (<https://docs.ipfs.tech/reference/kubo/rpc/>): `POST /api/v0/{command}?arg=...&option=...`.

mod add;
pub(crate) mod args;
mod attributes;
mod block;
mod bootstrap;
mod cat;
mod cid;
pub(crate) mod command;
mod command_result;
mod command_tree;
pub(crate) mod commands;
mod config;
mod dag;
mod diag;
mod disposition;
mod encoding;
mod files;
mod filestore;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod get;
pub(crate) mod globals;
mod hash_option;
mod key;
mod line_backlog;
mod log;
mod long_command;
mod ls;
mod multibase;
mod multipart;
mod name;
mod node;
mod object;
mod offline;
pub(crate) mod options;
mod output;
mod paths;
mod pin;
mod ping;
mod refs;
mod remote_pin;
mod repo;
mod resolve;
mod routing;
mod stdin;
mod swarm;
mod text;
mod unavailable;
mod xml;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, OriginalUri, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::any;
use http::header::{ACCEPT_ENCODING, ALLOW};
use http::{Method, StatusCode, Uri};
use ipfrs_middleware::RequestDeadline;

use crate::compression::upload;
use crate::error::{RpcError, plain};
use crate::head_deadline::in_time;
use crate::origin;
use crate::state::AppState;

/// Subcommands that Kubo does not serve. Without these routes their names would be taken for arguments of `commands`
/// and `config`.
const NOT_SERVED: [&str; 2] = ["/commands/completion", "/config/edit"];

/// End of the route of a command whose argument is in the path.
const ARGUMENT: &str = "/{argument}";

/// Returns the router of the commands. As in Kubo, the first argument may follow the command in the path, and a path
/// that is only the beginning of commands has an empty response.
pub(crate) fn router(state: &AppState) -> Router<AppState> {
    let mut router = Router::new();
    for command in commands::all() {
        let read = from_fn_with_state(state.clone(), args::read);
        let convert = from_fn_with_state(state.clone(), encoding::convert);
        let methods = (command.route)().layer::<_, Infallible>(convert).layer::<_, Infallible>(read);
        let failures = from_fn(encoding::failures);
        let methods = methods.layer::<_, Infallible>(failures).layer::<_, Infallible>(Extension(command));
        let path = format!("/{}", command.definition.path);
        for path in [format!("{path}/"), format!("{path}{ARGUMENT}"), path] {
            router = router.route(&path, methods.clone());
        }
    }
    for group in commands::groups() {
        router = router.route(&format!("/{group}"), any(output::nothing));
    }
    for path in NOT_SERVED {
        router = router.route(path, any(no_such_command));
    }
    let tree = Arc::new(command_tree::tree(ipfrs_rpc::commands::all()));
    router.fallback(no_such_command).layer(Extension(tree))
}

async fn no_such_command(OriginalUri(uri): OriginalUri) -> Response {
    redirect_of(&uri).unwrap_or_else(not_found)
}

pub(crate) fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Returns the label of a route in metrics: that of its command, without an argument.
pub(crate) fn label(route: &str) -> &str {
    if !route.starts_with("/api/v0/") {
        return route;
    }
    route.strip_suffix(ARGUMENT).or_else(|| route.strip_suffix('/')).unwrap_or(route)
}

/// Redirects a path with empty or relative parts to the same without them, as Go's servers do.
fn redirect_of(uri: &Uri) -> Option<Response> {
    let path = uri.path();
    let is_clean = |path: &str| !path.contains("//") && path.split('/').all(|part| part != "." && part != "..");
    if path != "/api/v0" && (!path.starts_with("/api/v0/") || is_clean(path)) {
        return None;
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    // A path that leaves the RPC is not found: browsers take `/\` at its beginning for the beginning of a host.
    if !parts.starts_with(&["api", "v0"]) {
        return None;
    }
    let end = if path.ends_with('/') || path == "/api/v0" { "/" } else { "" };
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    Some(Redirect::temporary(&format!("/{}{end}{query}", parts.join("/"))).into_response())
}

/// Refuses methods other than POST.
pub(crate) async fn only_post(request: Request, next: Next) -> Response {
    match refusal_of_method(request.method()) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

/// Returns the response to a method other than POST.
pub(crate) fn refusal_of_method(method: &Method) -> Option<Response> {
    let allow = [(ALLOW, "OPTIONS, POST")];
    match *method {
        Method::POST => None,
        Method::OPTIONS => Some((StatusCode::NO_CONTENT, allow).into_response()),
        _ => {
            let refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "405 - Method Not Allowed: use POST\n");
            Some((allow, refusal).into_response())
        }
    }
}

/// Refuses requests from pages of other origins and bodies in content codings, and enforces the request deadline.
pub(crate) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if let Err(e) = origin::check(&request, state.port) {
        return plain(StatusCode::FORBIDDEN, format!("403 - Forbidden: {e}\n"));
    }
    if let Some(why) = upload::refusal(request.headers()) {
        let accepted = [(ACCEPT_ENCODING, "identity")];
        let text = format!("415 - Unsupported Media Type: {why}\n");
        return (accepted, plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text)).into_response();
    }
    let deadline: Option<RequestDeadline> = request.extensions().get().cloned();
    in_time(deadline, next.run(request), |error| RpcError::Command(error).into_response()).await
}

#[cfg(test)]
mod tests {
    use http::header::LOCATION;

    use super::*;

    #[test]
    fn redirects_stay_below_the_rpc() {
        for (target, expected) in [
            ("/api/v0//id?x=//y", Some("/api/v0/id?x=//y")),
            ("/api/v0/../v0/./id", Some("/api/v0/id")),
            ("/api/v0", Some("/api/v0/")),
            ("/api/v0/id", None),
            ("/api/v0/../../\\evil.example/x", None),
            ("/api/v0/../..//evil.example/x", None),
            ("/api/v0/../v00/x", None),
        ] {
            let redirect = redirect_of(&target.parse().unwrap());
            let location = redirect.as_ref().map(|redirect| redirect.headers()[LOCATION].to_str().unwrap());
            assert_eq!(location, expected, "{target}");
        }
    }
}
