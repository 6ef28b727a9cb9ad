//! `[tls]` on the gRPC, API and public listeners, as on the main one.

use std::net::SocketAddr;
use std::sync::Arc;

use ipfrs_interface::{Config, Scope};
use ipfrs_proto::block::v1::GetBlockRequest;
use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use reqwest::{Identity, Version};
use rustls::version::{TLS12, TLS13};
use rustls::{ALL_VERSIONS, ClientConfig, ProtocolVersion, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;
use tonic::transport::{Channel, ClientTlsConfig};

use super::{Issuer, handshake};
use crate::grpc::{ABSENT, raw};
use crate::harness::{TestGateway, header};

/// Starts a gateway with TLS on all its listeners.
async fn start(issuer: &Issuer, change: impl FnOnce(&mut Config)) -> TestGateway {
    issuer
        .gateway(|config| {
            (config.api.enabled, config.api.port) = (true, Some(0));
            config.public.enabled = true;
            (config.public.host, config.public.port) = ("127.0.0.1".to_owned(), 0);
            change(config);
        })
        .await
}

/// Returns the listeners that serve HTTP, and what each responds to a GET of content.
fn http_listeners(gateway: &TestGateway) -> [(&'static str, SocketAddr, u16); 3] {
    [
        ("main", gateway.address(), 200),
        ("API", gateway.gateway.api_addresses()[0], 307),
        ("public", gateway.gateway.public_addresses()[0], 200),
    ]
}

/// Returns a channel to the gRPC listener over TLS, with the certificate in a file if there is one.
fn channel(issuer: &Issuer, gateway: &TestGateway, certificate: Option<&str>) -> Channel {
    let ca = tonic::transport::Certificate::from_pem(issuer.issuer.pem());
    let mut tls = ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
    if let Some(file) = certificate {
        let [certificate, key] = issuer.identity(file);
        tls = tls.identity(tonic::transport::Identity::from_pem(certificate, key));
    }
    let endpoint = Channel::from_shared(format!("https://{}", gateway.grpc_address())).unwrap();
    endpoint.tls_config(tls).unwrap().connect_lazy()
}

fn get(cid: &str) -> GetBlockRequest {
    GetBlockRequest { cid: cid.to_owned() }
}

/// Completes a handshake. Returns the version of TLS and the protocol above it.
async fn negotiated(address: SocketAddr, config: &Arc<ClientConfig>) -> Option<(ProtocolVersion, Option<String>)> {
    let stream = handshake(address, config, "localhost").await.ok()?;
    let connection = stream.get_ref().1;
    let protocol = connection.alpn_protocol().map(|protocol| String::from_utf8(protocol.to_vec()).unwrap());
    Some((connection.protocol_version().unwrap(), protocol))
}

#[tokio::test]
async fn every_listener_serves_its_protocols_over_tls() {
    let issuer = Issuer::new();
    let gateway = start(&issuer, |_| {}).await;
    let cases: [(&[&str], Option<&str>, bool); 4] = [
        (&["http/1.1", "h2"], Some("h2"), true),
        (&["h2"], Some("h2"), true),
        (&["http/1.1"], Some("http/1.1"), false),
        (&[], None, true),
    ];
    for (versions, version) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        for (offered, chosen, is_grpc) in cases {
            let config = issuer.client_config_of(&[versions], offered);
            let expected = Some((version, chosen.map(str::to_owned)));
            for (name, address, _) in http_listeners(&gateway) {
                assert_eq!(negotiated(address, &config).await, expected, "{name}: {offered:?}");
            }
            // Calls need HTTP/2.
            let expected = expected.filter(|_| is_grpc);
            assert_eq!(negotiated(gateway.grpc_address(), &config).await, expected, "gRPC: {offered:?}");
        }
    }
    let mut client = BlockServiceClient::new(channel(&issuer, &gateway, None));
    let cid = client.put_block(raw("over TLS")).await.unwrap().into_inner().cid;
    assert_eq!(client.get_block(get(&cid)).await.unwrap().into_inner().block.unwrap().data, "over TLS");
    let content = format!("/ipfs/{cid}?format=raw");
    for (name, address, status) in http_listeners(&gateway) {
        let url = format!("https://localhost:{}{content}", address.port());
        let response = issuer.client_at(address).build().unwrap().get(url).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (status, Version::HTTP_2), "{name}");
        if status == 307 {
            // The content is on the main port, with the same scheme.
            let expected = format!("https://localhost:{}{content}", gateway.port());
            assert_eq!(header(&response, "location"), expected);
        } else {
            assert_eq!(response.text().await.unwrap(), "over TLS", "{name}");
        }
    }
    let api = gateway.gateway.api_addresses()[0];
    let url = format!("https://localhost:{}/api/v0/version", api.port());
    let response = issuer.client_at(api).http1_only().build().unwrap().post(url).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_11));
}

#[tokio::test]
async fn wrong_preface_after_alpn_h2_gets_no_http_1_1_text() {
    let issuer = Issuer::new();
    let gateway = start(&issuer, |_| {}).await;
    let config = issuer.client_config_of(ALL_VERSIONS, &["h2"]);
    let listeners = http_listeners(&gateway).map(|(name, address, _)| (name, address));
    for (name, address) in listeners.into_iter().chain([("gRPC", gateway.grpc_address())]) {
        for sent in ["GET /ipfs/bafkqaaa HTTP/1.1\r\nHost: localhost\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"] {
            let mut stream = handshake(address, &config, "localhost").await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            let mut received = Vec::new();
            // The connection ends with a GOAWAY, or at once.
            stream.read_to_end(&mut received).await.ok();
            let text = String::from_utf8_lossy(&received);
            assert!(!text.contains("HTTP/1.1"), "{name}: {sent:?}: {text}");
        }
    }
}

#[tokio::test]
async fn silent_connection_with_alpn_h2_ends_cleanly_when_the_gateway_stops() {
    let issuer = Issuer::new();
    let gateway = start(&issuer, |_| {}).await;
    // Its handshake ends with a message of the server.
    let config = issuer.client_config_of(&[&TLS12], &["h2"]);
    let mut stream = handshake(gateway.address(), &config, "localhost").await.unwrap();
    gateway.stop().await;
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"", "as for a connection with HTTP/1.1");
}

#[tokio::test]
async fn minimum_version_holds_on_every_listener() {
    let issuer = Issuer::new();
    let gateway = start(&issuer, |config| config.tls.min_version = "1.3".to_owned()).await;
    let grpc = ("gRPC", gateway.grpc_address(), 0);
    let new = Some((ProtocolVersion::TLSv1_3, Some("h2".to_owned())));
    let old: [&'static SupportedProtocolVersion; 1] = [&TLS12];
    for (name, address, _) in http_listeners(&gateway).into_iter().chain([grpc]) {
        assert_eq!(negotiated(address, &issuer.client_config_of(&old, &["h2"])).await, None, "{name}");
        assert_eq!(negotiated(address, &issuer.client_config_of(ALL_VERSIONS, &["h2"])).await, new, "{name}");
    }
    gateway.until_metric("ipfrs_tls_handshakes_total{result=\"failed\"}", |count| count >= 4).await;
}

#[tokio::test]
async fn every_listener_can_require_client_certificates() {
    let issuer = Issuer::new();
    issuer.issue("ci", &["ci.example.org"]);
    issuer.issue("other", &["other.example.org"]);
    let gateway = start(&issuer, |config| {
        config.auth.enabled = true;
        config.tls.client_ca = issuer.path("ca.pem");
        config.tls.require_client_certificate = true;
        config.tls.client_scopes.insert("ci.example.org".to_owned(), vec![Scope::Write]);
    })
    .await;
    for (name, address, status) in http_listeners(&gateway) {
        let url = format!("https://localhost:{}/ipfs/bafkqaaa", address.port());
        let refused = issuer.client_at(address).build().unwrap().get(&url).send().await;
        assert!(refused.is_err(), "{name}: {refused:?}");
        // Which rights the client has does not matter for content.
        let identity = Identity::from_pem(issuer.identity("other").concat().as_bytes()).unwrap();
        let client = issuer.client_at(address).identity(identity).build().unwrap();
        assert_eq!(client.get(&url).send().await.unwrap().status(), status, "{name}");
    }
    let mut without = BlockServiceClient::new(channel(&issuer, &gateway, None));
    let refused = without.get_block(get(ABSENT)).await.unwrap_err();
    assert!(!refused.metadata().contains_key("x-request-id"), "the call must not arrive: {refused:?}");
    // With a certificate, the scopes of its name decide.
    for (file, read, write) in
        [("ci", Code::PermissionDenied, Code::Ok), ("other", Code::PermissionDenied, Code::PermissionDenied)]
    {
        let mut client = BlockServiceClient::new(channel(&issuer, &gateway, Some(file)));
        assert_eq!(client.get_block(get(ABSENT)).await.unwrap_err().code(), read, "{file}");
        let put = client.put_block(raw("from a client")).await;
        assert_eq!(put.map_or_else(|status| status.code(), |_| Code::Ok), write, "{file}");
    }
}
