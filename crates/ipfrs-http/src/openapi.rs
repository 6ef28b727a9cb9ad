//! `GET /openapi.json`: an OpenAPI 3.1 description of `/v1`, health, delegated routing and the RPC.
//!
//! The options of the RPC are read from the table that parses them. All other operations are described next to each
//! other in `openapi/native.rs`. A test compares the paths with those of the routers, and the methods with the
//! responses of a daemon.

mod kubo;
mod native;
pub(crate) mod operation;
pub(crate) mod serve;

use std::sync::LazyLock;

use utoipa::openapi::schema::ComponentsBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, PathsBuilder};

use crate::route_table;

/// Sections of the document, in order.
const TAGS: [(&str, &str); 10] = [
    (native::BATCHES, "Many blocks in one request"),
    (native::FILES, "Uploads, downloads, and the progress of operations"),
    (native::TENSORS, "Tensors of safetensors and .npy files"),
    (native::GRAPHQL, "Queries, mutations and subscriptions"),
    (native::EVENTS, "Events over WebSockets"),
    (native::ROUTING, "Delegated routing V1 (https://specs.ipfs.tech/routing/http-routing-v1/)"),
    (native::PINNING, "Pinning service API (https://ipfs.github.io/pinning-services-api-spec/)"),
    (native::OPERATION, "State of the daemon"),
    (native::AUTHENTICATION, "API keys, and sessions of the console"),
    (kubo::TAG, "The RPC of Kubo (https://docs.ipfs.tech/reference/kubo/rpc/)"),
];

const DESCRIPTION: &str = "\
Content-addressed storage over HTTP. Content itself is under `/ipfs/{cid}` and `/ipns/{name}`, as the gateway \
specifications describe it (https://specs.ipfs.tech/http-gateways/).

Errors of `/v1` are problem documents (RFC 9457), those of the RPC are objects with `Message`, `Code` and `Kind`, \
those of `/pinning/v1` are objects with `error`, and all others are text. Every response has `X-Request-Id`.";

/// Name and description of the scheme of authentication.
const TOKEN_SCHEME: &str = "token";
const TOKEN: &str = "An API key (`ipfrs-cli auth key create`) or a JSON Web Token, if `auth.enabled` is set. Each \
operation names the scope that it needs. HTTP Basic authentication with the token as password is accepted too.";

/// The document as JSON.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_pretty_json().unwrap_or_default());

/// Builds the document.
fn document() -> OpenApi {
    let license = LicenseBuilder::new().name(env!("CARGO_PKG_LICENSE")).identifier(Some(env!("CARGO_PKG_LICENSE")));
    let info = InfoBuilder::new()
        .title("ipfrs")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(license.build()));
    let mut components = ComponentsBuilder::new();
    let mut paths = PathsBuilder::new();
    for mut operation in native::operations().into_iter().chain(kubo::operations()) {
        components = components.schemas_from_iter(std::mem::take(&mut operation.schemas));
        let path = operation.path.clone();
        paths = paths.path(&path, operation.item(route_table::rule_of_described(&path)));
    }
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(TOKEN)).build();
    components = components.security_scheme(TOKEN_SCHEME, SecurityScheme::Http(token));
    let tags = TAGS.map(|(name, description)| TagBuilder::new().name(name).description(Some(description)).build());
    OpenApiBuilder::new().info(info.build()).paths(paths).components(Some(components.build())).tags(Some(tags)).build()
}

/// Returns the document as JSON.
pub(crate) fn text() -> &'static str {
    &DOCUMENT
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rpc::commands;
    use crate::{pinning, routing, v1};

    #[test]
    fn document_has_the_paths_of_the_routers() {
        let described: BTreeSet<_> = document().paths.paths.into_keys().collect();
        let routers = [("/v1", v1::routes()), ("/routing/v1", routing::routes()), ("/pinning/v1", pinning::routes())];
        let mut routed: BTreeSet<_> =
            commands::all().map(|command| format!("/api/v0/{}", command.definition.path)).collect();
        for (prefix, routes) in routers {
            routed.extend(routes.rules.iter().map(|(path, _)| format!("{prefix}{}", path.replace("{*", "{"))));
        }
        let others = described.iter().filter(|path| {
            !["/v1/", "/api/v0/", "/routing/v1/", "/pinning/v1/"].iter().any(|prefix| path.starts_with(prefix))
        });
        routed.extend(others.cloned());
        assert_eq!(described, routed);
    }

    #[test]
    fn document_is_as_published() {
        insta::assert_snapshot!(*DOCUMENT);
    }
}
