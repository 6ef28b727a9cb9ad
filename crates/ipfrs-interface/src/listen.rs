//! Sockets to listen on.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use ipfrs_core::{Error, ErrorKind, Result};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use crate::ServerConfig;

/// Connections that the system keeps for us until they are accepted. The system may lower it
/// (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// Binds every address that the host resolves to and listens on it. With port 0 the port of the first address is used
/// for all of them.
///
/// # Errors
/// [`ErrorKind::Forbidden`] for an address beyond loopback without `server.allow_unauthenticated`,
/// [`ErrorKind::Conflict`] when the port is in use; each says what to do.
pub(crate) async fn listen(config: &ServerConfig) -> Result<Vec<TcpListener>> {
    let addresses = resolve(config).await?;
    check_exposure(config, &addresses)?;
    let mut listeners: Vec<TcpListener> = Vec::with_capacity(addresses.len());
    let mut port = config.port;
    for address in addresses {
        let address = SocketAddr::new(address.ip(), port);
        match listen_on(address) {
            Ok(listener) => {
                port = listener.local_addr().map_err(|e| Error::io("cannot read the bound address", e))?.port();
                listeners.push(listener);
            }
            // A name such as localhost may have an IPv6 address on a machine without IPv6.
            Err(e) if is_absent(&e) && !listeners.is_empty() => {}
            Err(e) => return Err(cannot_listen(address, e)),
        }
    }
    Ok(listeners)
}

async fn resolve(config: &ServerConfig) -> Result<Vec<SocketAddr>> {
    let host = config.host.trim().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = config.port;
    let found = tokio::task::spawn_blocking(move || (host.as_str(), port).to_socket_addrs().map(Vec::from_iter)).await;
    let unknown = |why: String| {
        Error::invalid(format!("server.host = {:?}: {why}; give an address such as \"127.0.0.1\"", config.host))
    };
    let mut addresses = match found {
        Ok(Ok(addresses)) if addresses.is_empty() => return Err(unknown("the name has no address".to_owned())),
        Ok(Ok(addresses)) => addresses,
        Ok(Err(e)) => return Err(unknown(e.to_string())),
        Err(e) => return Err(Error::internal("the resolver stopped").with_source(e)),
    };
    // IPv4 first, so that the first URL is the one that every client can use.
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

fn check_exposure(config: &ServerConfig, addresses: &[SocketAddr]) -> Result<()> {
    match addresses.iter().find(|address| !address.ip().to_canonical().is_loopback()) {
        Some(open) if !config.allow_unauthenticated => Err(Error::new(
            ErrorKind::Forbidden,
            format!(
                "refusing to listen on {}: it can be reached from other machines, and this version asks nobody for a \
                 key, so anyone could add content and stop the daemon. Listen on 127.0.0.1 behind a proxy, or set \
                 allow_unauthenticated = true in [server] (or IPFRS_SERVER_ALLOW_UNAUTHENTICATED=true) if the network \
                 is trusted",
                open.ip()
            ),
        )),
        _ => Ok(()),
    }
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Otherwise [::] takes the IPv4 port too, and binding 0.0.0.0 beside it fails.
        socket.set_only_v6(true)?;
    }
    // A restart need not wait until the last connections' TIME_WAIT is over.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable || error.kind() == io::ErrorKind::Unsupported
}

fn cannot_listen(address: SocketAddr, error: io::Error) -> Error {
    let port = address.port();
    let (kind, what) = match error.kind() {
        io::ErrorKind::AddrInUse => (
            ErrorKind::Conflict,
            format!(
                "port {port} on {} is in use by another program, perhaps another ipfrs daemon: stop it, or choose another \
                 port with --port or [server] port (0 lets the system choose)",
                address.ip()
            ),
        ),
        io::ErrorKind::PermissionDenied => (
            ErrorKind::Forbidden,
            format!("not allowed to listen on port {port}: choose a port of 1024 or more with --port or [server] port"),
        ),
        io::ErrorKind::AddrNotAvailable => (
            ErrorKind::InvalidInput,
            format!("no interface of this machine has the address {}: change --host or [server] host", address.ip()),
        ),
        _ => (ErrorKind::Internal, format!("cannot listen on {address}: {error}")),
    };
    Error::new(kind, what).with_source(error)
}
