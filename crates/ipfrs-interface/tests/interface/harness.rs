//! Test harness: a gateway on a temporary repo, and plain sockets for requests.

use std::net::SocketAddr;

use ipfrs_interface::{Config, Gateway};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A running gateway. The repo is removed when the test ends, after the gateway was told to stop.
pub(crate) struct Running {
    pub(crate) gateway: Gateway,
    pub(crate) repo: TempDir,
}

/// Returns the default configuration with ports that the system chooses.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.server.port = 0;
    config.grpc.port = Some(0);
    config.api.enabled = false;
    config
}

impl Running {
    pub(crate) async fn start(config: &Config) -> Self {
        let repo = tempfile::tempdir().unwrap();
        let gateway = Gateway::bind(config, repo.path()).await.unwrap();
        Self { repo, gateway }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// Opens a connection and sends `bytes` on it.
    pub(crate) async fn send(&self, bytes: &str) -> TcpStream {
        let mut connection = self.connect().await;
        connection.write_all(bytes.as_bytes()).await.unwrap();
        connection
    }

    /// Starts an upload, whose handler waits for a body of `length` bytes.
    pub(crate) async fn begin_upload(&self, length: usize) -> TcpStream {
        let mut connection = self
            .send(&format!(
                "POST /api/v0/add HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
            ))
            .await;
        let mut go_on = [0; 25];
        connection.read_exact(&mut go_on).await.unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        connection
    }
}

/// Returns all bytes until the peer closes the connection. A reset counts as a close.
pub(crate) async fn rest_of(mut connection: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = connection.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}
