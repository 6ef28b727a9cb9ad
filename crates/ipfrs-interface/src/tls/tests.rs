use std::net::Ipv4Addr;

use rcgen::{CertificateParams, KeyPair};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::*;

const ALPN: Alpn = &[b"http/1.1"];

fn write_certificate(files: &CertificateFiles) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    fs::write(&files.certificate, certificate.pem()).unwrap();
}

async fn opened(directory: &Path) -> (Tls, CertificateFiles) {
    let files = CertificateFiles { certificate: directory.join("a.pem"), key: directory.join("a.key") };
    write_certificate(&files);
    let config = TlsConfig { enabled: true, certificates: vec![files.clone()], ..TlsConfig::default() };
    let tls = Tls::open(&config, &[ALPN], directory, &Registry::new()).await.unwrap().unwrap();
    (tls, files)
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_read_and_damaged_ones_are_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, files) = opened(directory.path()).await;
    let watching = tokio::spawn(tls.clone().watch());
    let state = || Arc::clone(&tls.0.state.read());
    let first = state();
    fs::write(&files.certificate, "no certificate").unwrap();
    while tls.0.metrics.is_current.get() == 1 {
        sleep(LOOK).await;
    }
    assert!(Arc::ptr_eq(&first, &state()), "the old one stays in use");
    write_certificate(&files);
    while Arc::ptr_eq(&first, &state()) {
        sleep(LOOK).await;
    }
    assert_eq!(tls.0.metrics.is_current.get(), 1);
    assert!(Arc::ptr_eq(&first.ticketer, &state().ticketer));
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn files_that_are_as_before_are_current_again() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, files) = opened(directory.path()).await;
    let watching = tokio::spawn(tls.clone().watch());
    let first = Arc::clone(&tls.0.state.read());
    let aside = directory.path().join("aside");
    fs::rename(&files.certificate, &aside).unwrap();
    while tls.0.metrics.is_current.get() == 1 {
        sleep(LOOK).await;
    }
    fs::rename(&aside, &files.certificate).unwrap();
    while tls.0.metrics.is_current.get() == 0 {
        sleep(LOOK).await;
    }
    assert!(Arc::ptr_eq(&first, &tls.0.state.read()));
    watching.abort();
}

#[tokio::test]
async fn first_byte_decides_and_silence_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, _) = opened(directory.path()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let accepted = async |bytes: &[u8], wait: Duration| {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(bytes).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        tls.accept(stream, ALPN, Instant::now() + wait).await
    };
    let long = Duration::from_secs(60);
    assert!(matches!(accepted(b"GET / HTTP/1.1\r\n", long).await, Some(Accepted::Plain(_))));
    assert!(accepted(b"", Duration::ZERO).await.is_none());
    assert!(accepted(&[HANDSHAKE, 3, 1], Duration::from_millis(1)).await.is_none());
    assert!(accepted(&[HANDSHAKE, 9, 9, 255, 255, 1], long).await.is_none());
}

#[tokio::test]
async fn only_this_machine_and_trusted_proxies_need_no_tls() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, _) = opened(directory.path()).await;
    let own = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 443));
    let of = |peer: &str, is_trusted| match tls.without(peer.parse().unwrap(), own, is_trusted) {
        Protection::Missing { https_port } => Some(https_port),
        _ => None,
    };
    assert_eq!(of("127.0.0.1", false), None);
    assert_eq!(of("::ffff:127.0.0.1", false), None);
    assert_eq!(of("10.0.0.1", false), None);
    assert_eq!(of("10.0.0.2", true), None);
    assert_eq!(of("10.0.0.2", false), Some(443));
}
