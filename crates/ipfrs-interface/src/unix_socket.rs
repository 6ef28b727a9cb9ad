//! The Unix socket of the API: a file that programs of this user connect to instead of a port.
//!
//! The daemon passes the bytes of each connection on to its own listener over loopback, so that all rules and limits
//! of connections are the same.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncWriteExt, copy};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1_024;

/// Pause after a failure to accept connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time that a client has to end its connection after the daemon has.
const LINGER: Duration = Duration::from_secs(5);

/// A bound socket. Its file is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    _file: SocketFile,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another daemon may have replaced it since.
        let is_own = fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode);
        if is_own && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the Unix socket");
        }
    }
}

impl UnixSocket {
    /// Binds a socket that only the user of the daemon may connect to. Replaces the socket of a daemon that has ended,
    /// and nothing else.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another process listens there, or if the file is no socket; otherwise if the path is
    /// too long or the socket cannot be created.
    pub(crate) fn bind(path: &Path) -> Result<Self> {
        let rules = "its directory must exist and be writable, and a path has at most 107 bytes";
        let shown = path.display();
        let cannot =
            |e: io::Error| Error::io(format_args!("api.unix_socket = {shown}: cannot listen there ({rules})"), e);
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(cannot)?;
        // The file gets the mode of the socket, so that no other user can connect before it is changed.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|e| cannot(e.into()))?;
        socket.set_nonblocking(true).map_err(cannot)?;
        socket.bind(&SockAddr::unix(path).map_err(cannot)?).map_err(cannot)?;
        let inode = fs::symlink_metadata(path).map_err(cannot)?.ino();
        let file = SocketFile { path: path.to_owned(), inode };
        socket.listen(BACKLOG).map_err(cannot)?;
        let listener = UnixListener::from_std(socket.into()).map_err(cannot)?;
        Ok(Self { listener, _file: file })
    }

    /// Accepts connections for as long as this future is polled, and passes their bytes to and from `target`. At most
    /// `most` are open: `server.max_connections` at the start, also after that was changed. This only bounds the files
    /// of the relays. The listener at `target` applies the changed number to the connections of the relays.
    pub(crate) async fn accept(self, target: SocketAddr, most: usize) {
        let permits = Arc::new(Semaphore::new(most));
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(async move {
                        if let Err(error) = relay(stream, target, LINGER).await {
                            tracing::trace!(%error, "a connection of the Unix socket ended");
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection of the Unix socket");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Passes bytes in both directions until the server has ended its side, and then those of the client until it ends
/// too, for at most `linger`: a silent client must not keep files open. The listener at `target` ends idle connections.
async fn relay(client: UnixStream, target: SocketAddr, linger: Duration) -> io::Result<()> {
    let server = TcpStream::connect(target).await?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut sending = pin!(async {
        copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    });
    let mut receiving = pin!(async {
        copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    });
    tokio::select! {
        received = &mut receiving => {
            let _ = timeout(linger, sending).await;
            received
        }
        // A server that reads no further may still respond.
        sent = &mut sending => receiving.await.and(sent),
    }
}

/// Removes the socket of a daemon that was killed.
fn remove_stale(path: &Path) -> Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(format_args!("cannot read {}", path.display()), e)),
    };
    let shown = path.display();
    if !metadata.file_type().is_socket() {
        let why =
            format!("api.unix_socket = {shown}: there is a file that is no socket, remove it or choose another path");
        return Err(Error::new(ErrorKind::Conflict, why));
    }
    match StdUnixStream::connect(path) {
        Ok(_) => Err(Error::new(
            ErrorKind::Conflict,
            format!("api.unix_socket = {shown}: another process listens there, stop it or choose another path"),
        )),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|e| Error::io(format_args!("cannot remove the old socket {shown}"), e))
        }
        Err(e) => Err(Error::io(format_args!("cannot connect to the existing socket {shown}"), e)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connection_ends_with_that_to_the_daemon() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = listener.local_addr().unwrap();
        let (mut client, passed) = UnixStream::pair().unwrap();
        let ending = async { drop(listener.accept().await.unwrap()) };
        // The client stays silent and open.
        let (relayed, ()) = tokio::join!(relay(passed, target, Duration::from_millis(1)), ending);
        relayed.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn socket_is_private_and_replaces_only_dead_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let first = UnixSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(UnixSocket::bind(&path).unwrap_err().message().contains("another process listens"));
        drop(first);
        assert!(!path.exists());
        // A socket whose daemon was killed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(UnixSocket::bind(&path).unwrap());
        let error = UnixSocket::bind(&dir.path().join("missing/api.sock")).unwrap_err();
        let named = error.message().starts_with("api.unix_socket = ");
        assert!(named && error.message().contains("its directory must exist"), "{error}");
        fs::write(&path, "data").unwrap();
        assert!(UnixSocket::bind(&path).unwrap_err().message().contains("no socket"));
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }
}
