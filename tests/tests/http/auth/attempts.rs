//! The limit on failed attempts, which all front-ends share.

use ipfrs_proto::block::v1::GetBlockRequest;
use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tonic::{Code, Request};

use super::{Guarded, client};
use crate::grpc::ABSENT;
use crate::websocket::Client as WebSocket;

/// Ways to send credentials.
#[derive(Debug, Clone, Copy)]
enum FrontEnd {
    Rpc,
    Native,
    Password,
    GraphQl,
    GraphQlMessage,
    Events,
    Ingest,
    ConsoleLogin,
    ConsoleSession,
    Grpc,
    GrpcWeb,
}

const FRONT_ENDS: [FrontEnd; 11] = [
    FrontEnd::Rpc,
    FrontEnd::Native,
    FrontEnd::Password,
    FrontEnd::GraphQl,
    FrontEnd::GraphQlMessage,
    FrontEnd::Events,
    FrontEnd::Ingest,
    FrontEnd::ConsoleLogin,
    FrontEnd::ConsoleSession,
    FrontEnd::Grpc,
    FrontEnd::GrpcWeb,
];

/// A token that is neither an API key nor known.
const GUESS: &str = "a.b.c";

fn is_limited_status(status: u16) -> bool {
    assert!([401, 429].contains(&status), "{status}");
    status == 429
}

fn is_limited_code(code: Code) -> bool {
    assert!([Code::Unauthenticated, Code::ResourceExhausted].contains(&code), "{code}");
    code == Code::ResourceExhausted
}

async fn is_limited_request(request: RequestBuilder) -> bool {
    is_limited_status(request.send().await.unwrap().status().as_u16())
}

async fn is_limited_socket(guarded: &Guarded, path: &str) -> bool {
    let bearer = format!("Bearer {GUESS}");
    let opened = WebSocket::open(guarded.gateway.address(), path, &[("authorization", &bearer)]).await;
    is_limited_status(opened.err().unwrap())
}

/// Makes a wrong attempt, and returns whether it is refused unread.
async fn is_limited(guarded: &Guarded, front_end: FrontEnd) -> bool {
    let gateway = &guarded.gateway;
    let api = |method, path: &str| {
        let url = format!("http://{}{path}", gateway.gateway.api_addresses()[0]);
        client().build().unwrap().request(method, url)
    };
    match front_end {
        FrontEnd::Rpc => is_limited_request(gateway.rpc("id").bearer_auth(GUESS)).await,
        FrontEnd::Native => is_limited_request(gateway.request(Method::GET, "/v1/progress").bearer_auth(GUESS)).await,
        FrontEnd::Password => is_limited_request(gateway.rpc("id").basic_auth("user", Some("guess"))).await,
        FrontEnd::GraphQl => {
            let query = json!({ "query": "{ version { version } }" });
            is_limited_request(gateway.request(Method::POST, "/graphql").bearer_auth(GUESS).json(&query)).await
        }
        FrontEnd::GraphQlMessage => {
            let protocol = [("sec-websocket-protocol", "graphql-transport-ws")];
            let mut socket = WebSocket::open(gateway.address(), "/graphql/ws", &protocol).await.unwrap();
            let payload = json!({ "Authorization": format!("Bearer {GUESS}") });
            socket.send(json!({ "type": "connection_init", "payload": payload }).to_string()).await;
            let Some(Message::Close(Some(frame))) = socket.next().await else { panic!("the connection stays open") };
            assert_eq!(u16::from(frame.code), 4403);
            frame.reason.contains("too many attempts")
        }
        FrontEnd::Events => is_limited_socket(guarded, "/ws").await,
        FrontEnd::Ingest => is_limited_socket(guarded, "/ws/ingest").await,
        FrontEnd::ConsoleLogin => is_limited_request(api(Method::POST, "/v1/auth/session").bearer_auth(GUESS)).await,
        FrontEnd::ConsoleSession => {
            is_limited_request(api(Method::GET, "/metrics").header("cookie", "__Host-ipfrs=guess")).await
        }
        FrontEnd::Grpc => {
            let mut request = Request::new(GetBlockRequest { cid: ABSENT.to_owned() });
            request.metadata_mut().insert("authorization", format!("Bearer {GUESS}").parse().unwrap());
            let refused = BlockServiceClient::new(gateway.channel()).get_block(request).await;
            is_limited_code(refused.unwrap_err().code())
        }
        FrontEnd::GrpcWeb => {
            let request = gateway.request(Method::POST, "/ipfrs.block.v1.BlockService/GetBlock");
            let request = request.header("content-type", "application/grpc-web+proto").header("x-grpc-web", "1");
            let response = request.bearer_auth(GUESS).body(vec![0_u8; 5]).send().await.unwrap();
            match response.headers().get("grpc-status") {
                Some(code) => is_limited_code(code.to_str().unwrap().parse::<i32>().unwrap().into()),
                None => is_limited_status(response.status().as_u16()),
            }
        }
    }
}

#[tokio::test]
async fn attempts_on_one_front_end_count_on_all() {
    for first in FRONT_ENDS {
        let guarded = Guarded::start_with(|config| {
            config.auth.max_failures_per_minute = 3;
            (config.api.enabled, config.api.port) = (true, Some(0));
        })
        .await;
        let reader = guarded.key(&["read"]).await;
        for attempt in 1..=3 {
            assert!(!is_limited(&guarded, first).await, "{first:?}: attempt {attempt}");
        }
        for other in FRONT_ENDS {
            assert!(is_limited(&guarded, other).await, "{other:?} after {first:?}");
        }
        assert_eq!(guarded.get("/v1/progress", &reader).await.status(), 200, "a valid key still works");
    }
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_spend_only_their_own_attempts() {
    let guarded = Guarded::start_with(|config| {
        config.auth.max_failures_per_minute = 3;
        config.gateway.trusted_proxies = vec!["127.0.0.1".to_owned().try_into().unwrap()];
    })
    .await;
    let revoked = guarded.key(&["read"]).await;
    guarded.revoke(&revoked).await;
    // All requests use the connections of the proxy.
    let channel = guarded.gateway.channel();
    let over_grpc = async |client: &str, token: &str| {
        let mut request = Request::new(GetBlockRequest { cid: ABSENT.to_owned() });
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request.metadata_mut().insert("x-forwarded-for", client.parse().unwrap());
        let refused = BlockServiceClient::new(channel.clone()).get_block(request).await;
        is_limited_code(refused.unwrap_err().code())
    };
    let over_http = async |client: &str, token: &str| {
        let request = guarded.gateway.request(Method::GET, "/v1/progress").bearer_auth(token);
        is_limited_request(request.header("x-forwarded-for", client)).await
    };
    for attempt in 1..=3 {
        assert!(!over_http("192.0.2.1", &revoked).await, "attempt {attempt}");
    }
    assert!(over_http("192.0.2.1", &revoked).await && over_grpc("192.0.2.1", GUESS).await);
    assert!(!over_http("192.0.2.2", GUESS).await && !over_grpc("192.0.2.3", GUESS).await, "others may try");
    assert!(!over_http("127.0.0.1", GUESS).await, "nor has the proxy spent its own");
}
