//! List of the protocols of this server (<https://specs.ipfs.tech/http-gateways/libp2p-gateway/>). Clients of libp2p
//! over HTTP find the gateway there.

use axum::response::{IntoResponse, Response};
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE};

/// Route of the list, as the libp2p+HTTP specification says.
pub(crate) const ROUTE: &str = "/.well-known/libp2p/protocols";

/// The gateway is at the root of the host.
const PROTOCOLS: &str = r#"{"protocols":{"/ipfs/gateway":{"path":"/"}}}"#;

/// Responds with the list, to pages of every origin.
pub(crate) async fn protocols() -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "public, max-age=3600"),
        (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    (headers, PROTOCOLS).into_response()
}
