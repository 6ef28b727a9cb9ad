//! Certificates of a running daemon, which SIGHUP replaces.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustix::process::Signal;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, Stream, SupportedProtocolVersion};

use crate::harness::{Daemon, Place};

pub(crate) type Issuer = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn new_issuer() -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "issuer");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Year in which certificates expire that no test lets expire.
const NEVER: i32 = 4096;

/// Writes a new certificate and its key. Returns the certificate.
pub(crate) fn issue(place: &Place, issuer: &Issuer) -> CertificateDer<'static> {
    issue_until(place, issuer, NEVER)
}

/// Same as [`issue`], for a certificate that expires when a year begins.
pub(crate) fn issue_until(place: &Place, issuer: &Issuer, year: i32) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = date_time_ymd(year, 1, 1);
    let certificate = params.signed_by(&key, issuer).unwrap();
    place.write("server.key", key.serialize_pem().as_bytes());
    place.write("server.pem", certificate.pem().as_bytes());
    certificate.der().clone()
}

/// Returns the settings of a daemon with the certificate that [`issue`] has written.
pub(crate) fn settings(place: &Place) -> String {
    let files = ["pem", "key"].map(|end| place.path(&format!("server.{end}")).display().to_string());
    format!("[tls]\nenabled = true\ncertificates = [{{ certificate = {:?}, key = {:?} }}]\n", files[0], files[1])
}

/// Returns the configuration of a client that has no session yet.
pub(crate) fn client(issuer: &Issuer, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_protocol_versions(&[version]).unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Sends a request. Returns the certificate of the daemon, and how the handshake was done.
fn exchange(daemon: &Daemon, config: &Arc<ClientConfig>) -> (CertificateDer<'static>, HandshakeKind) {
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut socket = TcpStream::connect(daemon.url().strip_prefix("https://").unwrap()).unwrap();
    let mut stream = Stream::new(&mut connection, &mut socket);
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let certificate = connection.peer_certificates().unwrap()[0].clone().into_owned();
    (certificate, connection.handshake_kind().unwrap())
}

#[test]
fn hangup_replaces_certificates_and_sessions_survive() {
    let place = Place::new();
    let issuer = new_issuer();
    let old = issue(&place, &issuer);
    place.write("daemon.toml", settings(&place).as_bytes());
    let mut daemon = place.start(&["--config", "daemon.toml"]);
    let versions = [&TLS12, &TLS13];
    let shown = |daemon: &Daemon| versions.map(|version| exchange(daemon, &client(&issuer, version)).0);
    let clients = versions.map(|version| client(&issuer, version));
    for client in &clients {
        let (certificate, handshake) = exchange(&daemon, client);
        assert_eq!(certificate, old);
        assert_ne!(handshake, HandshakeKind::Resumed);
    }
    // The key of another certificate changes nothing.
    place.write("server.key", KeyPair::generate().unwrap().serialize_pem().as_bytes());
    daemon.signal(Signal::HUP);
    let line = daemon.wait_for_log("was not reloaded");
    assert!(line.contains("cannot be used with the certificate"), "{line}");
    assert_eq!(shown(&daemon), [old.clone(), old.clone()]);
    let new = issue(&place, &issuer);
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("reloaded the configuration");
    assert_eq!(shown(&daemon), [new.clone(), new]);
    // Tickets from before are valid: the client verifies no new certificate.
    for client in &clients {
        assert_eq!(exchange(&daemon, client), (old.clone(), HandshakeKind::Resumed));
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().0, Some(0));
}

/// Returns the configuration of a client that trusts `issuer` and has a new certificate of `own`, which expires when
/// `year` begins.
pub(crate) fn certified_client(issuer: &Issuer, own: &Issuer, year: i32) -> Arc<ClientConfig> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["ci.example".to_owned()]).unwrap();
    params.not_after = date_time_ymd(year, 1, 1);
    let certificate = params.signed_by(&key, own).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_protocol_versions(&[&TLS13]).unwrap().with_root_certificates(roots);
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Arc::new(builder.with_client_auth_cert(vec![certificate.der().clone()], key.into()).unwrap())
}

/// Returns the settings of [`settings`], and those by which clients with certificates of the issuers in the file
/// `issuers` may read.
pub(crate) fn settings_for_clients(place: &Place, issuers: &str) -> String {
    let (settings, issuers) = (settings(place), place.path(issuers));
    format!(
        "{settings}client_ca = {issuers:?}\nclient_scopes = {{ \"ci.example\" = [\"read\"] }}\n\
         [auth]\nenabled = true\n"
    )
}

/// Sends a request that needs the scope `read`. Returns the status of the response.
///
/// # Errors
/// The daemon refuses the certificate of the client.
pub(crate) fn status(daemon: &Daemon, config: &Arc<ClientConfig>) -> io::Result<String> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut socket = TcpStream::connect(daemon.url().strip_prefix("https://").unwrap()).unwrap();
    let mut stream = Stream::new(&mut connection, &mut socket);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response[9..12].to_owned())
}

#[test]
fn hangup_replaces_issuers_of_client_certificates() {
    let place = Place::new();
    let [issuer, old, new] = [new_issuer(), new_issuer(), new_issuer()];
    issue(&place, &issuer);
    place.write("old.pem", old.pem().as_bytes());
    place.write("new.pem", new.pem().as_bytes());
    place.write("broken.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let write = |issuers: &str| {
        place.write("daemon.toml", settings_for_clients(&place, issuers).as_bytes());
    };
    // Each keeps its sessions, which must not be resumed once their issuer is replaced.
    let clients = [&old, &new].map(|own| certified_client(&issuer, own, NEVER));
    let statuses = |daemon: &Daemon| clients.each_ref().map(|client| status(daemon, client).ok());
    let (first, second) = ([Some("200".to_owned()), None], [None, Some("200".to_owned())]);
    write("old.pem");
    let mut daemon = place.start(&["--config", "daemon.toml"]);
    assert_eq!(statuses(&daemon), first);
    assert_eq!(status(&daemon, &client(&issuer, &TLS13)).unwrap(), "401");
    for broken in ["broken.pem", "missing.pem"] {
        write(broken);
        daemon.signal(Signal::HUP);
        let line = daemon.wait_for_log("was not reloaded");
        assert!(line.contains(broken), "{line}");
        assert_eq!(statuses(&daemon), first, "{broken}");
    }
    write("new.pem");
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("reloaded the configuration");
    assert_eq!(statuses(&daemon), second);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().0, Some(0));
}
