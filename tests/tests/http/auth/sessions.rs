//! Sessions of the console, and WebSockets.

use reqwest::{Method, Response};

use super::credentials::Credentials;
use super::{Guarded, client};
use crate::harness::header;
use crate::websocket::Client as WebSocket;

async fn start() -> (Guarded, String) {
    let guarded = Guarded::start_with(|config| (config.api.enabled, config.api.port) = (true, Some(0))).await;
    let api = format!("http://{}", guarded.gateway.gateway.api_addresses()[0]);
    (guarded, api)
}

async fn send(method: Method, url: &str, headers: &[(&str, &str)]) -> Response {
    let request = client().build().unwrap().request(method, url);
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
}

#[tokio::test]
async fn session_begins_with_a_key_and_ends_with_it() {
    let (guarded, api) = start().await;
    let key = guarded.key(&["read"]).await;
    let bearer = format!("Bearer {key}");
    let session = format!("{api}/v1/auth/session");
    // Content of anyone shares the origin of the main port.
    assert_eq!(guarded.post("/v1/auth/session", &key).await.status(), 403);
    assert_eq!(send(Method::POST, &session, &[]).await.status(), 401);
    let begun = send(Method::POST, &session, &[("authorization", &bearer)]).await;
    assert_eq!(begun.status(), 200);
    let cookie = header(&begun, "set-cookie").to_owned();
    for attribute in ["__Host-ipfrs=", "Secure", "HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let metrics = format!("{api}/metrics");
    assert_eq!(send(Method::GET, &metrics, &[("cookie", &cookie)]).await.status(), 200);
    assert_eq!(send(Method::POST, &format!("{api}/api/v0/repo/gc"), &[("cookie", &cookie)]).await.status(), 403);
    // The cookie is worth nothing on the main port, nor to a page of another origin.
    assert_eq!(send(Method::GET, &guarded.gateway.url("/metrics"), &[("cookie", &cookie)]).await.status(), 401);
    let foreign = [("cookie", cookie.as_str()), ("origin", "http://evil.example")];
    assert_eq!(send(Method::GET, &metrics, &foreign).await.status(), 403);
    // It opens no session of its own.
    assert_eq!(send(Method::POST, &session, &[("cookie", &cookie)]).await.status(), 403);
    assert_eq!(send(Method::DELETE, &session, &[("cookie", &cookie)]).await.status(), 204);
    assert_eq!(send(Method::GET, &metrics, &[("cookie", &cookie)]).await.status(), 401);

    let begun = send(Method::POST, &session, &[("authorization", &bearer)]).await;
    let cookie = header(&begun, "set-cookie").split(';').next().unwrap().to_owned();
    assert_eq!(send(Method::GET, &metrics, &[("cookie", &cookie)]).await.status(), 200);
    guarded.revoke(&key).await;
    assert_eq!(send(Method::GET, &metrics, &[("cookie", &cookie)]).await.status(), 401);
    let rooted = guarded.key_of(serde_json::json!({ "scopes": ["read"], "roots": ["bafkqaaa"] })).await;
    let refused = send(Method::POST, &session, &[("authorization", &format!("Bearer {rooted}"))]).await;
    assert_eq!(refused.status(), 403);
}

#[tokio::test]
async fn websocket_needs_credentials_and_ends_with_them() {
    let guarded = Guarded::start().await;
    let address = guarded.gateway.address();
    assert_eq!(WebSocket::open(address, "/ws", &[]).await.err(), Some(401));
    let key = guarded.key(&["read"]).await;
    let bearer = format!("Bearer {key}");
    assert_eq!(WebSocket::open(address, "/ws/ingest?name=x", &[("authorization", &bearer)]).await.err(), Some(403));
    let mut socket = WebSocket::open(address, "/ws", &[("authorization", &bearer)]).await.unwrap();
    guarded.revoke(&key).await;
    assert_eq!(socket.close_code().await, 1008);
    let writer = guarded.key(&["write"]).await;
    let basic = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("any:{writer}"));
    let basic = format!("Basic {basic}");
    assert!(WebSocket::open(address, "/ws/ingest?name=x", &[("authorization", &basic)]).await.is_ok());
}

#[tokio::test]
async fn websockets_need_their_scope() {
    let credentials = Credentials::start(|_| {}).await;
    let address = credentials.guarded.gateway.address();
    let refusal = async |path: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        WebSocket::open(address, path, &[("authorization", &bearer)]).await.err()
    };
    for (path, wanted) in [("/ws", "read"), ("/ws/ingest?name=", "write")] {
        for (what, token) in &credentials.invalid {
            assert_eq!(refusal(path, token).await, Some(401), "{path}: with {what}");
        }
        assert_eq!(refusal(path, &credentials.rooted).await, Some(403), "{path}");
        for (scope, token, is_enough) in credentials.keys_for(wanted) {
            let path = if path.ends_with('=') { format!("{path}{scope}") } else { path.to_owned() };
            let expected = (!is_enough).then_some(403);
            assert_eq!(refusal(&path, token).await, expected, "{path}: {scope} instead of {wanted}");
        }
    }
    let protocol = [("sec-websocket-protocol", "graphql-transport-ws")];
    for (what, token) in &credentials.invalid {
        let mut client = WebSocket::open(address, "/graphql/ws", &protocol).await.unwrap();
        let payload = serde_json::json!({ "Authorization": format!("Bearer {token}") });
        client.send(serde_json::json!({ "type": "connection_init", "payload": payload }).to_string()).await;
        assert_eq!(client.close_code().await, 4403, "{what}");
    }
}
