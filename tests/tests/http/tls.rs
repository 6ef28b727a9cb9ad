//! `[tls]`: HTTPS on all listeners.

mod listeners;
mod lost_bytes;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipfrs_interface::{CertificateFiles, Config, Scope};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use reqwest::{Certificate, Client, ClientBuilder, Identity, Version};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{TestGateway, header};

/// An issuer of certificates, and the directory with their files.
pub(crate) struct Issuer {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Issuer {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "issuer");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a certificate for `names` and its key.
    fn issue(&self, file: &str, names: &[&str]) -> CertificateFiles {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        let files =
            CertificateFiles { certificate: self.path(&format!("{file}.pem")), key: self.path(&format!("{file}.key")) };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// Starts a gateway with two certificates: one for `localhost` and subdomains, one for `b.test`.
    pub(crate) async fn gateway(&self, change: impl FnOnce(&mut Config)) -> TestGateway {
        TestGateway::start_with(|config| {
            self.configure(config);
            change(config);
        })
        .await
    }

    /// Sets the two certificates.
    pub(crate) fn configure(&self, config: &mut Config) {
        let first = self.issue("a", &["localhost", "gw.test", "*.ipfs.gw.test"]);
        config.tls.enabled = true;
        config.tls.certificates = vec![first, self.issue("b", &["b.test"])];
    }

    /// Returns a client that trusts this issuer and finds all names of the certificates at the gateway.
    fn client(&self, gateway: &TestGateway) -> ClientBuilder {
        self.client_at(gateway.address())
    }

    fn client_at(&self, address: SocketAddr) -> ClientBuilder {
        let ca = Certificate::from_pem(self.issuer.pem().as_bytes()).unwrap();
        let builder = Client::builder().no_proxy().tls_certs_only([ca]).redirect(reqwest::redirect::Policy::none());
        ["localhost", "gw.test", "b.test"].iter().fold(builder, |builder, name| builder.resolve(name, address))
    }

    /// Connects with this library, which shows the details of the handshake.
    async fn connect(&self, gateway: &TestGateway, config: &Arc<ClientConfig>, name: &str) -> TlsStream<TcpStream> {
        handshake(gateway.address(), config, name).await.unwrap()
    }

    fn client_config(&self) -> Arc<ClientConfig> {
        self.client_config_of(rustls::ALL_VERSIONS, &["http/1.1"])
    }

    /// Returns the configuration of a client with these versions of TLS that offers these protocols.
    fn client_config_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        protocols: &[&str],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// Returns the certificate and the key of a client, as PEM.
    fn identity(&self, file: &str) -> [String; 2] {
        ["pem", "key"].map(|end| fs::read_to_string(self.path(&format!("{file}.{end}"))).unwrap())
    }
}

/// Completes a handshake with the server at `address`, which the client calls `name`.
async fn handshake(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    name: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await
}

fn leaf(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

/// Sends a request and reads the response, after which the server closes the connection with an alert.
async fn exchange(stream: &mut TlsStream<TcpStream>, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn content_is_the_same_over_every_version_of_tls_and_http() {
    let issuer = Issuer::new();
    let gateway = issuer
        .gateway(|config| {
            config.tls.hsts_seconds = 1_000;
            let host = ipfrs_http::HostConfig { subdomains: true, ..ipfrs_http::HostConfig::default() };
            config.gateway.hosts.insert("gw.test".to_owned(), host);
        })
        .await;
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).take(3_000_000).collect();
    let large = gateway.add("", content.clone()).await;
    let small = gateway.add("", "hello").await;
    let base = format!("https://localhost:{}", gateway.port());
    let of_version = |tls, is_http2| {
        let builder = issuer.client(&gateway).tls_version_min(tls).tls_version_max(tls);
        let builder = if is_http2 { builder } else { builder.http1_only() };
        builder.build().unwrap()
    };
    for (client, version) in [
        (of_version(reqwest::tls::Version::TLS_1_2, false), Version::HTTP_11),
        (of_version(reqwest::tls::Version::TLS_1_3, false), Version::HTTP_11),
        (of_version(reqwest::tls::Version::TLS_1_3, true), Version::HTTP_2),
    ] {
        let response = client.get(format!("{base}/ipfs/{large}")).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, version));
        assert_eq!(header(&response, "strict-transport-security"), "max-age=1000");
        assert_eq!(response.bytes().await.unwrap(), content);
        let range = client.get(format!("{base}/ipfs/{large}")).header("range", "bytes=262100-1000000");
        assert_eq!(range.send().await.unwrap().bytes().await.unwrap(), content[262_100..=1_000_000]);
        // The third response is cached, and the head is written without hyper.
        for _ in 0..3 {
            let response = client.get(format!("{base}/ipfs/{small}")).send().await.unwrap();
            assert_eq!(header(&response, "strict-transport-security"), "max-age=1000");
            assert_eq!(response.text().await.unwrap(), "hello");
        }
        let absent = client.get(format!("{base}/absent")).send().await.unwrap();
        assert_eq!(header(&absent, "strict-transport-security"), "max-age=1000");
    }
    let redirected = of_version(reqwest::tls::Version::TLS_1_3, false);
    let redirected = redirected.get(format!("https://gw.test:{}/ipfs/{large}", gateway.port())).send().await.unwrap();
    assert!(header(&redirected, "location").starts_with("https://"), "{:?}", redirected.headers());
    // Programs on this machine need no TLS, and browsers ignore the header without it.
    let plain = gateway.get(&format!("/ipfs/{small}")).await;
    assert!(!plain.headers().contains_key("strict-transport-security"));
    assert_eq!(plain.text().await.unwrap(), "hello");
}

#[tokio::test]
async fn certificates_follow_the_host_and_their_files_and_sessions_survive() {
    let issuer = Issuer::new();
    let mut gateway = issuer.gateway(|_| {}).await;
    let client = issuer.client_config();
    let shown = async |gateway: &TestGateway, name: &str| {
        let mut stream = issuer.connect(gateway, &client, name).await;
        let response = exchange(&mut stream, "/health").await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        let connection = stream.get_ref().1;
        (connection.peer_certificates().unwrap()[0].clone().into_owned(), connection.handshake_kind().unwrap())
    };
    let old = leaf(&issuer.path("a.pem"));
    assert_eq!(shown(&gateway, "localhost").await.0, old);
    assert_eq!(shown(&gateway, "b.test").await.0, leaf(&issuer.path("b.pem")));
    let hidden = "x.ipfs.gw.test";
    assert_eq!(shown(&gateway, hidden).await.0, old, "a wildcard");
    let mut config = Config::default();
    config.tls.enabled = true;
    let files = |name: &str| CertificateFiles {
        certificate: issuer.path(&format!("{name}.pem")),
        key: issuer.path(&format!("{name}.key")),
    };
    config.tls.certificates = vec![files("a"), files("b")];
    // A key that belongs to another certificate changes nothing.
    fs::copy(issuer.path("b.key"), issuer.path("a.key")).unwrap();
    let error = gateway.gateway.reload(&config).await.unwrap_err();
    assert!(error.message().contains("cannot be used with the certificate"), "{error}");
    assert_eq!(shown(&gateway, "localhost").await.0, old);
    issuer.issue("a", &["localhost"]);
    // A key that needs a restart does not keep the others from being applied.
    config.tls.hsts_seconds = 5;
    gateway.gateway.reload(&config).await.unwrap();
    assert_eq!(shown(&gateway, "localhost").await.1, HandshakeKind::Resumed, "tickets survive a reload");
    let fresh = issuer.client_config();
    let mut stream = issuer.connect(&gateway, &fresh, "localhost").await;
    exchange(&mut stream, "/health").await;
    assert_eq!(stream.get_ref().1.peer_certificates().unwrap()[0], leaf(&issuer.path("a.pem")));
    let metrics = gateway.content("/metrics").await;
    let metrics = std::str::from_utf8(&metrics).unwrap();
    assert!(metrics.contains("ipfrs_tls_handshakes_total{result=\"resumed\"}"), "{metrics}");
    assert!(metrics.contains("ipfrs_tls_certificate_expires_timestamp_seconds{certificate=\"1\"}"));
}

#[tokio::test]
async fn client_certificates_are_callers_with_scopes() {
    let issuer = Issuer::new();
    issuer.issue("ci", &["ci.example.org"]);
    issuer.issue("other", &["other.example.org"]);
    let mut config = None;
    let mut gateway = issuer
        .gateway(|given| {
            given.auth.enabled = true;
            given.auth.max_failures_per_minute = 3;
            given.tls.client_ca = issuer.path("ca.pem");
            given.tls.client_scopes.insert("ci.example.org".to_owned(), vec![Scope::Write]);
            config = Some(given.clone());
        })
        .await;
    let address = gateway.address();
    let url = |command: &str| format!("https://localhost:{}/api/v0/{command}", address.port());
    let status = async |client: &Client, command: &str, from: Option<&str>| {
        let form = reqwest::multipart::Form::new().text("file", "hello");
        let request = client.post(url(command)).multipart(form);
        let request = from.iter().fold(request, |request, site| request.header("sec-fetch-site", *site));
        request.send().await.unwrap().status().as_u16()
    };
    let with = |name: &str| {
        let pem = issuer.identity(name).concat();
        issuer.client_at(address).identity(Identity::from_pem(pem.as_bytes()).unwrap()).build().unwrap()
    };
    let (ci, other, none) = (with("ci"), with("other"), issuer.client_at(address).build().unwrap());
    assert_eq!(status(&ci, "add", None).await, 200);
    assert_eq!(status(&ci, "repo/gc", None).await, 403);
    assert_eq!(status(&ci, "add", Some("cross-site")).await, 401, "a page uses the user's certificate");
    assert_eq!(status(&other, "add", None).await, 403);
    assert_eq!(status(&none, "add", None).await, 401);
    // The client keeps its connection, which gets the new scopes with a new handshake only.
    let mut config = config.unwrap();
    config.tls.client_scopes.insert("new.example.org".to_owned(), vec![Scope::Read]);
    gateway.gateway.reload(&config).await.unwrap();
    assert_eq!(status(&ci, "add", None).await, 200, "nothing has changed for this client");
    config.tls.client_scopes.clear();
    gateway.gateway.reload(&config).await.unwrap();
    for attempt in 1..=3 {
        assert_eq!(status(&ci, "add", None).await, 401, "{attempt}");
    }
    assert_eq!(status(&ci, "add", None).await, 429, "a revoked certificate is a failed attempt, as a revoked key is");
    assert_eq!(status(&with("ci"), "add", None).await, 403);
}

#[tokio::test]
async fn revoked_certificate_of_a_proxy_spends_no_attempts_of_its_clients() {
    let issuer = Issuer::new();
    issuer.issue("proxy", &["proxy.example.org"]);
    let mut config = None;
    let mut gateway = issuer
        .gateway(|given| {
            given.auth.enabled = true;
            given.auth.max_failures_per_minute = 3;
            given.gateway.trusted_proxies = vec!["127.0.0.1".to_owned().try_into().unwrap()];
            given.tls.client_ca = issuer.path("ca.pem");
            given.tls.client_scopes.insert("proxy.example.org".to_owned(), vec![Scope::Read]);
            config = Some(given.clone());
        })
        .await;
    let address = gateway.address();
    let pem = issuer.identity("proxy").concat();
    let proxy = issuer.client_at(address).identity(Identity::from_pem(pem.as_bytes()).unwrap()).build().unwrap();
    let url = format!("https://localhost:{}/v1/progress", address.port());
    let status = async |token: Option<&str>| {
        let request = proxy.get(&url).header("x-forwarded-for", "192.0.2.1");
        let request = token.iter().fold(request, |request, token| request.bearer_auth(*token));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status(None).await, 200);
    let mut config = config.unwrap();
    config.tls.client_scopes.clear();
    gateway.gateway.reload(&config).await.unwrap();
    for attempt in 1..=3 {
        assert_eq!(status(None).await, 401, "{attempt}");
    }
    assert_eq!(status(None).await, 429, "the proxy has failed too often");
    assert_eq!(status(Some("a.b.c")).await, 401, "its client has not");
}

#[tokio::test]
async fn redirects_lead_to_https_and_nonsense_ends_the_connection() {
    let issuer = Issuer::new();
    let gateway = issuer.gateway(|config| config.tls.redirect_port = Some(0)).await;
    let redirect = gateway.gateway.redirect_addresses()[0];
    let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let response = client.get(format!("http://{redirect}/ipfs/x?format=raw")).send().await.unwrap();
    assert_eq!(response.status(), 308);
    assert_eq!(header(&response, "location"), format!("https://127.0.0.1:{}/ipfs/x?format=raw", gateway.port()));
    let response = client.post(format!("http://{redirect}/api/v0/id")).send().await.unwrap();
    assert_eq!(response.status(), 403);
    // The first byte of TLS, and then something else.
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    stream.write_all(&[22, 3, 1, 0, 5, 0, 0, 0, 0, 0, b'x', b'y']).await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty() || rest[0] == 21, "an alert at most: {rest:?}");
    gateway.until_metric("ipfrs_tls_handshakes_total{result=\"failed\"}", |count| count >= 1).await;
    assert_eq!(gateway.get("/health").await.status(), 200);
}
