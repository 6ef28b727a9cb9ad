//! Requests to configured hosts and to domains that may be websites: gateways with and without subdomains, and
//! DNSLink websites (<https://specs.ipfs.tech/http-gateways/dnslink-gateway/>).
//!
//! Such hosts are public and serve only content. A configured gateway also serves health and delegated routing.

use std::borrow::Cow;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderValue, Method, StatusCode, Uri};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::rate_limit::Ticket;
use ipfrs_middleware::{Client, NoPermit, RequestPermit};
use ipfrs_node::NameRoot;
use tower::Service as _;

use super::escape::{normalised, url_header};
use super::handler::serve_site;
use super::hosts::{HostedRequest, Place};
use super::path::{decoded, split_root};
use super::site::Site;
use super::{address, cors, manifest, subdomain, welcome};
use crate::access::failure;
use crate::access_rule::Access;
use crate::config::{HostConfig, Namespace};
use crate::error::GatewayError;
use crate::leading_slashes;
use crate::rate::{Paid, PaidLookup, paid_response};
use crate::request_id;
use crate::request_lifecycle::{Arrived, set_client, too_many, with_request_lifecycle};
use crate::routes::{IPFS_ROUTE, IPNS_ROUTE, PROBES, UNMATCHED};
use crate::state::AppState;

/// Read-only routes that a configured gateway serves in addition to content.
const SERVED_ROUTES: [&str; 2] = ["/health", "/routing/v1"];
/// Routes of the daemon that remain available if the DNS lookup of a possible website fails.
const SAFE_ROUTES: [&str; 3] = ["/ipfs", "/ipns", "/health"];

/// Extension that marks a request to a public host. Routes other than content omit details about the daemon.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublicHost;

/// Responds to a request to such a host. `router` is the daemon's router.
pub(crate) async fn answer(
    state: AppState,
    mut router: Router,
    hosted_request: HostedRequest,
    mut request: Request,
) -> Response {
    let arrived = Arrived(Instant::now());
    let client = request.extensions().get::<Client>().copied().unwrap_or_default();
    let is_paid = request.extensions().get::<Paid>().is_some();
    let decide_future = decide(&state, &hosted_request, request.uri(), request.method());
    let (decision, ticket) = match with_permit(&state, client, is_paid, decide_future).await {
        Ok(decided) => decided,
        // Probes are free, lookups are not.
        Err(Refused::OverLimit(_)) if PROBES.contains(&request.uri().path()) => {
            (Ok(Decision::Daemon { is_public: true }), None)
        }
        Err(refused) => {
            let family = state.metrics.family(UNMATCHED, request.method());
            let id = request_id::of(request.headers(), &state.request_ids);
            if matches!(refused, Refused::OverLimit(_)) {
                // It is counted once.
                request.extensions_mut().insert(Paid(None));
            }
            let answer = async |_| match refused {
                Refused::NoPermit(refused) => too_many(&state, refused, UNMATCHED, &id),
                Refused::OverLimit(error) => over_limit(&state, error, &id),
            };
            return with_request_lifecycle(&state, family, Access::OPEN, request, answer).await;
        }
    };
    if let Some(ticket) = ticket {
        request.extensions_mut().insert(PaidLookup(ticket));
    }
    request.extensions_mut().insert(arrived);
    match decision {
        Ok(Decision::Daemon { is_public }) => {
            if is_public {
                request.extensions_mut().insert(PublicHost);
            }
            match state.response_cache.get(&state, &request, request.uri().path(), client) {
                Ok(response) => paid_response(request.extensions(), response),
                Err(request_permit) => {
                    set_client(&mut request, client, request_permit);
                    router.call(request).await.unwrap_or_else(|never| match never {})
                }
            }
        }
        Ok(Decision::Site(site)) => match ready(&state, &site, &request, client) {
            Ok(response) => paid_response(request.extensions(), response),
            Err(request_permit) => {
                set_client(&mut request, client, request_permit);
                serve_site(state, site, request).await
            }
        },
        Ok(Decision::Welcome(paths)) => {
            let family = state.metrics.family("/", request.method());
            let answer = async |request| welcome::at_host(&state, &request, &paths);
            with_request_lifecycle(&state, family, Access::OPEN, request, answer).await
        }
        Ok(Decision::Moved { content_path, location }) => {
            let is_name = matches!(Namespace::of_path(&content_path), Some(Namespace::Ipns));
            let mut moved = (StatusCode::MOVED_PERMANENTLY, [(LOCATION, url_header(&location))]).into_response();
            address::tell_of(&content_path, &mut moved);
            observed(state, if is_name { IPNS_ROUTE } else { IPFS_ROUTE }, request, moved).await
        }
        Err(error) => {
            let mut failed = GatewayError(error).into_response();
            address::tell_of(&content_path(&hosted_request, request.uri().path()), &mut failed);
            observed(state, UNMATCHED, request, failed).await
        }
    }
}

/// Why a request is not decided about.
enum Refused {
    NoPermit(NoPermit),
    OverLimit(Error),
}

/// Returns the response to a client that has sent too many requests.
fn over_limit(state: &AppState, error: Error, id: &HeaderValue) -> Response {
    let mut response = failure(error, UNMATCHED, id);
    // A page of another origin learns the status, and when to come back.
    cors::add(response.headers_mut());
    state.rate_limits.describe_refusal(None, response.headers_mut());
    response
}

/// Waits for the decision about a request. A request that has to wait, for DNS, takes a request permit and, unless it
/// is paid, a token of the rate limits, charged to the client, because the caller is not known yet.
///
/// # Errors
/// [`Refused`] if too many requests are in progress, or the client has sent too many.
async fn with_permit<T>(
    state: &AppState,
    client: Client,
    is_paid: bool,
    decide_future: impl Future<Output = T>,
) -> std::result::Result<(T, Option<Ticket>), Refused> {
    let mut decide_future = pin!(decide_future);
    if let Poll::Ready(decision) = futures::poll!(decide_future.as_mut()) {
        return Ok((decision, None));
    }
    let _permit = state.permits.take(client).map_err(Refused::NoPermit)?;
    let ticket = if is_paid { None } else { state.rate_limits.take(client, None).map_err(Refused::OverLimit)? };
    Ok((decide_future.await, ticket))
}

async fn observed(state: AppState, route: &str, request: Request, mut response: Response) -> Response {
    let family = state.metrics.family(route, request.method());
    // A page that may read content may also follow redirects to it.
    cors::add(response.headers_mut());
    with_request_lifecycle(&state, family, Access::CONTENT, request, async |_| response).await
}

/// Returns the content path for a path on a host, as far as it is known without DNS.
fn content_path<'a>(hosted_request: &HostedRequest, path: &'a str) -> Cow<'a, str> {
    match &hosted_request.place {
        Place::Root { namespace, id, .. } => Cow::Owned(format!("/{}/{id}{path}", namespace.as_str())),
        Place::Gateway(_) | Place::Local => Cow::Borrowed(path),
        Place::Unknown | Place::Below(_) => Cow::Borrowed(""),
    }
}

/// Returns the response of a site if it is cached.
fn ready(
    state: &AppState,
    site: &Site,
    request: &Request,
    client: Client,
) -> std::result::Result<Response, Option<RequestPermit>> {
    let path = site.content_path(request.uri().path());
    let is_cacheable = !site.is_trustless && path.starts_with("/ipfs/");
    if is_cacheable { state.response_cache.get(state, request, &path, client) } else { Err(None) }
}

enum Decision {
    /// The routes of the daemon.
    Daemon {
        /// Whether the host is public, in which case the routes omit details about the daemon.
        is_public: bool,
    },
    /// Content.
    Site(Site),
    /// The welcome page for the namespaces that the host serves.
    Welcome(Vec<Namespace>),
    /// A redirect of the content path to another place.
    Moved { content_path: String, location: String },
}

/// Decides how to handle a request.
///
/// # Errors
/// Any kind if the request is not served; [`ErrorKind::Forbidden`] if a proxied request for the daemon's own routes
/// also names a website.
async fn decide(state: &AppState, hosted_request: &HostedRequest, uri: &Uri, method: &Method) -> Result<Decision> {
    let decision = decide_by_place(state, hosted_request, uri, method).await?;
    if matches!(decision, Decision::Daemon { is_public: false }) {
        for name in &hosted_request.beside {
            if website(state, name).await? {
                let why = format!(
                    "{name} is a website, which is not served through a proxy: send the request to it directly"
                );
                return Err(Error::new(ErrorKind::Forbidden, why));
            }
        }
    }
    Ok(decision)
}

async fn decide_by_place(
    state: &AppState,
    hosted_request: &HostedRequest,
    uri: &Uri,
    method: &Method,
) -> Result<Decision> {
    let path = uri.path();
    match &hosted_request.place {
        Place::Local => Ok(Decision::Daemon { is_public: false }),
        Place::Unknown => {
            match (site(state, hosted_request, &HostConfig::default()).await, &hosted_request.otherwise) {
                (Ok(Some(site)), _) => Ok(Decision::Site(site)),
                (Ok(None), None) => Ok(Decision::Daemon { is_public: false }),
                (_, Some(own)) => Box::pin(decide_by_place(state, own, uri, method)).await,
                (Err(_), None) if SAFE_ROUTES.iter().any(|route| is_below(path, route)) => {
                    Ok(Decision::Daemon { is_public: true })
                }
                // The client sees that the daemon cannot respond, whatever error the resolver returned.
                (Err(e), None) => Err(Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "cannot determine whether {} is a website: {}; use the daemon's address instead",
                        hosted_request.name,
                        e.message()
                    ),
                )),
            }
        }
        Place::Gateway(config) => gateway(state, hosted_request, config, uri, method).await,
        Place::Root { config, namespace, id, gateway } => {
            if !config.subdomains || !config.paths.contains(namespace) {
                return Err(not_served(hosted_request, path));
            }
            match subdomain::root_of(&state.node, *namespace, id).await? {
                subdomain::Root::Moved(label) if is_read(method) => {
                    let content_path = format!("/{}/{label}{path}", namespace.as_str());
                    let location = location(hosted_request, &label, *namespace, gateway, path, uri.query());
                    Ok(Decision::Moved { content_path, location })
                }
                subdomain::Root::Here(id) | subdomain::Root::Moved(id) => {
                    let site = Site::subdomain(
                        *namespace,
                        &id,
                        gateway.clone(),
                        config.serves_deserialized(state.config.deserialized),
                    );
                    Ok(Decision::Site(site.retrieving(config.retrieve)))
                }
            }
        }
        Place::Below(config) => {
            let site = site(state, hosted_request, config).await?;
            site.map(Decision::Site).ok_or_else(|| not_served(hosted_request, path))
        }
    }
}

/// Decides how a configured gateway handles a path.
async fn gateway(
    state: &AppState,
    hosted_request: &HostedRequest,
    config: &HostConfig,
    uri: &Uri,
    method: &Method,
) -> Result<Decision> {
    let path = uri.path();
    if let Some(namespace) = Namespace::of_path(path).filter(|namespace| config.paths.contains(namespace)) {
        if config.subdomains
            && is_read(method)
            && let Some(location) = isolated(state, hosted_request, config, namespace, uri).await?
        {
            return Ok(Decision::Moved { content_path: path.to_owned(), location });
        }
        return Ok(Decision::Site(
            Site::paths(config.serves_deserialized(state.config.deserialized)).retrieving(config.retrieve),
        ));
    }
    if !config.paths.is_empty() && SERVED_ROUTES.iter().any(|route| is_below(path, route)) {
        if *method == Method::PUT {
            let why = "public host names do not accept content: use the daemon's address";
            return Err(Error::new(ErrorKind::Forbidden, why));
        }
        return Ok(Decision::Daemon { is_public: true });
    }
    match site(state, hosted_request, config).await? {
        Some(site) => Ok(Decision::Site(site)),
        None if path == manifest::ROUTE && config.paths.contains(&Namespace::Ipfs) => {
            Ok(Decision::Daemon { is_public: true })
        }
        None if path == "/" && !config.paths.is_empty() && is_read(method) => {
            Ok(Decision::Welcome(config.paths.clone()))
        }
        None => match leading_slashes::without_repeated(path) {
            Some(content_path) if is_read(method) && has_content(config, &content_path) => {
                let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
                let location = format!("{content_path}{query}");
                Ok(Decision::Moved { content_path, location })
            }
            _ => Err(not_served(hosted_request, path)),
        },
    }
}

/// Returns the URL of a path's content on its own origin.
async fn isolated(
    state: &AppState,
    hosted_request: &HostedRequest,
    config: &HostConfig,
    namespace: Namespace,
    uri: &Uri,
) -> Result<Option<String>> {
    let path = uri.path();
    let below = &path[1 + namespace.as_str().len()..];
    let (root, rest) = split_root(below);
    let root = decoded(path, root)?;
    // After a host, the path must begin with a literal slash.
    let encoded = rest.strip_prefix("%2F").or_else(|| rest.strip_prefix("%2f"));
    let rest = encoded.map_or(Cow::Borrowed(rest), |rest| Cow::Owned(format!("/{rest}")));
    // As in Kubo, blocked names are not redirected.
    if let (Namespace::Ipns, Ok(name)) = (namespace, NameRoot::parse(&root)) {
        state.node.check_name(&name, &[])?;
    }
    let inline = config.inline_dnslink || hosted_request.is_https;
    let label = subdomain::label(&state.node, namespace, &root, inline).await?;
    Ok(label.map(|label| location(hosted_request, &label, namespace, &hosted_request.host, &rest, uri.query())))
}

/// Returns the URL of a path on the origin of its root.
fn location(
    hosted_request: &HostedRequest,
    label: &str,
    namespace: Namespace,
    gateway: &str,
    path: &str,
    query: Option<&str>,
) -> String {
    let scheme = if hosted_request.is_https { "https" } else { "http" };
    let path = if path.is_empty() { "/".into() } else { normalised(path) };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{label}.{}.{gateway}{path}{query}", namespace.as_str())
}

/// Returns the website of the host if it has a DNSLink.
async fn site(state: &AppState, hosted_request: &HostedRequest, config: &HostConfig) -> Result<Option<Site>> {
    let is_website = website(state, &hosted_request.name).await?;
    let (name, host) = (&hosted_request.name, &hosted_request.host);
    let website = || {
        Site::website(name, host.clone(), config.serves_deserialized(state.config.deserialized))
            .retrieving(config.retrieve)
    };
    Ok(is_website.then(website))
}

/// Whether a name has a DNSLink.
async fn website(state: &AppState, name: &str) -> Result<bool> {
    match state.node.dnslink(name).await {
        Ok(link) => Ok(link.is_some()),
        // The name is not a valid DNS name, for example `my_server.lan`.
        Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether a host serves a path as content.
fn has_content(config: &HostConfig, path: &str) -> bool {
    Namespace::of_path(path).is_some_and(|namespace| config.paths.contains(&namespace))
}

fn not_served(hosted_request: &HostedRequest, path: &str) -> Error {
    Error::not_found(format!("{path} is not served at {}", hosted_request.name))
}

/// Whether a request may be redirected. Browsers do not follow redirects of CORS preflight requests (OPTIONS).
fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn is_below(path: &str, route: &str) -> bool {
    path.strip_prefix(route).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
