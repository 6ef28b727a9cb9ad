//! All routes with their access rules. The router is built from them, and the OpenAPI document describes them.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::response::Redirect;
use axum::routing::get;
use ipfrs_middleware::auth::Need;

use crate::access_rule::Access;
use crate::listed_routes::ListedRoutes;
use crate::openapi::serve::serve;
use crate::routes::{IPFS_ROUTE, IPNS_ROUTE, METRICS, METRICS_OF_KUBO, UNMATCHED};
use crate::{events, gateway, health, ingest, pinning, routing, rpc, ui, v1};

/// A part of the routes, with a guard of its own.
pub(crate) enum Part {
    Native,
    Routing,
    Pinning,
    Health,
    Events,
    Pages,
}

/// Returns all routes except content and the commands of the RPC, with their access rules.
pub(crate) fn routes() -> [(Part, ListedRoutes); 6] {
    let health = ListedRoutes::new()
        .route("/health", Access::LATER, get(health::health))
        .route("/health/live", Access::OPEN, get(health::live))
        .route("/health/ready", Access::OPEN, get(health::ready))
        .route(METRICS, Access::READ, get(health::metrics))
        .route(METRICS_OF_KUBO, Access::READ, get(health::metrics))
        .route("/openapi.json", Access::OPEN, get(serve));
    let events = ListedRoutes::new().route("/ws", Access::READ, get(events::connect)).route(
        "/ws/ingest",
        Access::WRITE,
        get(ingest::connect),
    );
    let pages = ListedRoutes::new()
        .route("/ui", Access::OPEN, get(async || Redirect::permanent("/ui/")))
        .route("/ui/", Access::OPEN, get(ui::file))
        .route("/ui/{*path}", Access::OPEN, get(ui::file))
        // The address of Kubo's console.
        .route("/webui", Access::OPEN, get(async || Redirect::temporary("/ui/")))
        .route("/webui/", Access::OPEN, get(async || Redirect::temporary("/ui/")))
        .route("/docs", Access::OPEN, get(async || Redirect::permanent("/docs/")))
        .route("/docs/", Access::OPEN, get(ui::docs))
        .route("/docs/{*path}", Access::OPEN, get(ui::docs))
        .route(gateway::manifest::ROUTE, Access::OPEN, get(gateway::manifest::protocols))
        .route("/", Access::OPEN, get(gateway::welcome::welcome));
    [
        (Part::Native, v1::routes().below("/v1")),
        (Part::Routing, routing::routes().below("/routing/v1")),
        (Part::Pinning, pinning::routes().below("/pinning/v1")),
        (Part::Health, health),
        (Part::Events, events),
        (Part::Pages, pages),
    ]
}

/// The rules, by route: those with which the router is built, and those of routes that other front-ends mount.
static RULES: LazyLock<HashMap<String, Access>> = LazyLock::new(|| {
    let mut rules = HashMap::from_iter(routes().into_iter().flat_map(|(_, routes)| routes.rules));
    for command in rpc::commands::all() {
        rules.insert(format!("/api/v0/{}", command.definition.path), Access::both(Need::Command(command.scope)));
    }
    for route in [IPFS_ROUTE, IPNS_ROUTE, "/ipfs", "/ipfs/", "/ipns", "/ipns/"] {
        rules.insert(route.to_owned(), Access::CONTENT);
    }
    for route in ["/graphql", "/graphql/ws", "/graphql/schema.graphql"] {
        rules.insert(route.to_owned(), Access::LATER);
    }
    rules.insert(UNMATCHED.to_owned(), Access::OPEN);
    rules
});

/// Returns what requests to a route need. Without a rule, that is the scope `admin`.
pub(crate) fn rule(route: &str) -> Access {
    RULES.get(route).copied().unwrap_or(Access::ADMIN)
}

/// Returns the rule of a path in the OpenAPI document, in which parameters that span segments have no asterisk.
pub(crate) fn rule_of_described(path: &str) -> Access {
    let described = RULES.iter().find(|(route, _)| route.replace("{*", "{") == path);
    described.map_or(Access::ADMIN, |(_, access)| *access)
}
