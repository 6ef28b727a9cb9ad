//! Listening sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_http::ApiConfig;
#[cfg(target_os = "linux")]
use socket2::SockRef;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use crate::{Config, GrpcConfig, inherited};

/// Maximum number of connections that wait to be accepted. The system may lower it (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// Inverse of the part of the machine's memory for the unsent bytes of as many connections as there are request
/// permits. From a sixteenth on, Linux reduces the buffers of all connections (`tcp_mem`, tcp(7)).
#[cfg(target_os = "linux")]
const UNSENT_PART: u64 = 32;

/// Smallest limit of unsent bytes. A socket becomes writable once less than half of the limit is unsent. With 192 KiB,
/// a client on the same machine read large files at 0.85 of the rate; with 512 KiB, as fast as without a limit.
#[cfg(target_os = "linux")]
const MIN_UNSENT_BYTES: u32 = 512 * 1_024;

/// Largest limit of unsent bytes.
#[cfg(target_os = "linux")]
const MAX_UNSENT_BYTES: u32 = 1_024 * 1_024;

/// Address to listen on, and the settings that apply to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint<'a> {
    host: &'a str,
    port: u16,
    /// Whether addresses other than loopback are permitted.
    may_be_anywhere: bool,
    /// Congestion control if the address is on loopback; empty for the system's default.
    loopback_congestion_control: &'a str,
    /// Number of requests that may be in progress.
    max_requests: usize,
    /// Section of the configuration.
    section: &'static str,
    /// Settings for another host, for error messages.
    other_host: &'static str,
    /// Settings for another port, for error messages.
    other_port: &'static str,
    /// Alternative remedy if the port is in use, for error messages.
    instead: &'static str,
}

impl<'a> Endpoint<'a> {
    /// Returns the address for HTTP.
    pub(crate) fn of_server(config: &'a Config) -> Self {
        let may_be_anywhere = config.may_listen_anywhere();
        let max_requests = config.gateway.max_concurrent_requests;
        let config = &config.server;
        Self {
            host: &config.host,
            port: config.port,
            may_be_anywhere,
            loopback_congestion_control: &config.loopback_congestion_control,
            max_requests,
            section: "server",
            other_host: "--host or [server] host",
            other_port: "--port or [server] port",
            instead: "",
        }
    }

    /// Returns the address for gRPC.
    pub(crate) fn of_grpc(all: &'a Config) -> Self {
        let config = &all.grpc;
        Self {
            host: &config.host,
            port: config.port.unwrap_or(GrpcConfig::DEFAULT_PORT),
            may_be_anywhere: all.may_listen_anywhere(),
            loopback_congestion_control: &all.server.loopback_congestion_control,
            max_requests: all.grpc.max_concurrent_calls,
            section: "grpc",
            other_host: "[grpc] host",
            other_port: "--grpc-port or [grpc] port",
            instead: "; this port serves gRPC, which enabled = false in [grpc] turns off",
        }
    }

    /// Returns the address for the API listener.
    pub(crate) fn of_api(all: &'a Config) -> Self {
        let config = &all.api;
        Self {
            host: &config.host,
            port: config.port.unwrap_or(ApiConfig::DEFAULT_PORT),
            may_be_anywhere: all.may_listen_anywhere(),
            loopback_congestion_control: &all.server.loopback_congestion_control,
            max_requests: all.gateway.max_concurrent_requests,
            section: "api",
            other_host: "[api] host",
            other_port: "--api-port or [api] port",
            instead: "; this port serves the API, which enabled = false in [api] turns off",
        }
    }
}

impl<'a> Endpoint<'a> {
    fn bare_host(&self) -> &'a str {
        self.host.trim().trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the address for the read-only gateway alone, which may be anywhere.
    fn of_public(all: &'a Config) -> Self {
        Self {
            host: &all.public.host,
            port: all.public.port,
            may_be_anywhere: true,
            loopback_congestion_control: &all.server.loopback_congestion_control,
            max_requests: all.gateway.max_concurrent_requests,
            section: "public",
            other_host: "[public] host",
            other_port: "[public] port",
            instead: "; this port serves the read-only gateway, which enabled = false in [public] turns off",
        }
    }
}

/// Binds each address that the host resolves to, and listens on it, unless the service manager passes sockets. With
/// port 0, all addresses use the port of the first one. The unsent bytes of each connection are limited.
///
/// # Errors
/// [`ErrorKind::Forbidden`] for an address other than loopback without [`Config::may_listen_anywhere`];
/// [`ErrorKind::Conflict`] if the port is in use. Each message contains a remedy.
pub(crate) async fn listen(endpoint: Endpoint<'_>) -> Result<Vec<TcpListener>> {
    let listeners = open(endpoint).await?;
    listeners.iter().for_each(|listener| limit_unsent(listener, endpoint.max_requests));
    Ok(listeners)
}

async fn open(endpoint: Endpoint<'_>) -> Result<Vec<TcpListener>> {
    let (inherited, addresses) = inherited::take(endpoint.section)?;
    if !inherited.is_empty() {
        check_exposure(endpoint, &addresses)?;
        return Ok(inherited);
    }
    let addresses = resolve(endpoint).await?;
    check_exposure(endpoint, &addresses)?;
    let mut listeners: Vec<TcpListener> = Vec::with_capacity(addresses.len());
    let mut port = endpoint.port;
    for address in addresses {
        let address = SocketAddr::new(address.ip(), port);
        match listen_on(address, endpoint.loopback_congestion_control) {
            Ok(listener) => {
                port = listener.local_addr().map_err(|e| Error::io("cannot read the bound address", e))?.port();
                listeners.push(listener);
            }
            // A name such as localhost may have an IPv6 address on a machine without IPv6.
            Err(e) if is_absent(&e) && !listeners.is_empty() => {}
            Err(e) => return Err(cannot_listen(endpoint, address, e)),
        }
    }
    Ok(listeners)
}

/// Listens for gRPC if it is enabled. If the default port is in use, for example by another daemon, there is no gRPC
/// listener, and only gRPC-Web on the main listener is available.
///
/// # Errors
/// As [`listen`].
pub(crate) async fn listen_for_grpc(config: &Config) -> Result<Vec<TcpListener>> {
    if !config.grpc.enabled {
        inherited::refuse("grpc")?;
        return Ok(Vec::new());
    }
    match listen(Endpoint::of_grpc(config)).await {
        Err(error) if error.kind() == ErrorKind::Conflict && config.grpc.port.is_none() => {
            tracing::warn!(%error, "gRPC has no separate listener");
            Ok(Vec::new())
        }
        listeners => listeners,
    }
}

/// Listens for the read-only gateway if `[public]` is enabled.
///
/// # Errors
/// As [`listen`].
pub(crate) async fn listen_for_public(config: &Config) -> Result<Vec<TcpListener>> {
    if config.public.enabled {
        return listen(Endpoint::of_public(config)).await;
    }
    inherited::refuse("public")?;
    Ok(Vec::new())
}

/// Listens on `tls.redirect_port`, at the address of the public listener or else of the main one, if it is set.
///
/// # Errors
/// As [`listen`].
pub(crate) async fn listen_for_redirects(config: &Config) -> Result<Vec<TcpListener>> {
    let Some(port) = config.tls.redirect_port else { return Ok(Vec::new()) };
    let host = if config.public.enabled { &config.public.host } else { &config.server.host };
    let endpoint = Endpoint {
        host,
        port,
        section: "tls",
        other_port: "[tls] redirect_port",
        instead: "",
        ..Endpoint::of_public(config)
    };
    listen(endpoint).await
}

/// Listens for the API if it is enabled. If the default port is in use, for example by Kubo, there is no API listener,
/// and the API is available on the main listener.
///
/// # Errors
/// As [`listen`].
pub(crate) async fn listen_for_api(config: &Config) -> Result<Vec<TcpListener>> {
    if !config.api.enabled {
        inherited::refuse("api")?;
        return Ok(Vec::new());
    }
    match listen(Endpoint::of_api(config)).await {
        Err(error) if error.kind() == ErrorKind::Conflict && config.api.port.is_none() => {
            tracing::warn!(%error, "the API has no separate listener");
            Ok(Vec::new())
        }
        listeners => listeners,
    }
}

/// Checks the hosts of all listeners without binding or resolving them: addresses, and the form of names.
///
/// # Errors
/// [`ErrorKind::Forbidden`] as [`listen`]; [`ErrorKind::InvalidInput`] for a text that is neither an address nor a
/// name.
pub(crate) fn check_hosts(config: &Config) -> Result<()> {
    let optional = |is_on: bool, endpoint| is_on.then_some(endpoint);
    let endpoints = [
        Some(Endpoint::of_server(config)),
        optional(config.grpc.enabled, Endpoint::of_grpc(config)),
        optional(config.api.enabled, Endpoint::of_api(config)),
        optional(config.public.enabled, Endpoint::of_public(config)),
    ];
    for endpoint in endpoints.into_iter().flatten() {
        let host = endpoint.bare_host();
        match host.parse() {
            Ok(ip) => check_exposure(endpoint, &[SocketAddr::new(ip, endpoint.port)])?,
            Err(_) if host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) => {}
            Err(_) => {
                let key = format!("{}.host = {:?}", endpoint.section, endpoint.host);
                let why = "not an address or a host name; give an address such as \"127.0.0.1\"";
                return Err(Error::invalid(format!("{key}: {why}")));
            }
        }
    }
    Ok(())
}

async fn resolve(endpoint: Endpoint<'_>) -> Result<Vec<SocketAddr>> {
    let host = endpoint.bare_host().to_owned();
    let port = endpoint.port;
    let found = tokio::task::spawn_blocking(move || (host.as_str(), port).to_socket_addrs().map(Vec::from_iter)).await;
    let unknown = |why: String| {
        let key = format!("{}.host = {:?}", endpoint.section, endpoint.host);
        Error::invalid(format!("{key}: {why}; give an address such as \"127.0.0.1\""))
    };
    let mut addresses = match found {
        Ok(Ok(addresses)) if addresses.is_empty() => return Err(unknown("the name has no address".to_owned())),
        Ok(Ok(addresses)) => addresses,
        Ok(Err(e)) => return Err(unknown(e.to_string())),
        Err(e) => return Err(Error::internal("the resolver stopped").with_source(e)),
    };
    // RFC 6761, 6.3: it stands for both addresses, also if the machine resolves it to one.
    if endpoint.bare_host().eq_ignore_ascii_case("localhost") {
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        addresses.extend(loopback.map(|ip| SocketAddr::new(ip, port)));
    }
    // IPv4 addresses are first, because every client can use the first URL then.
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

fn check_exposure(endpoint: Endpoint<'_>, addresses: &[SocketAddr]) -> Result<()> {
    match addresses.iter().find(|address| !address.ip().to_canonical().is_loopback()) {
        Some(open) if !endpoint.may_be_anywhere => Err(Error::new(
            ErrorKind::Forbidden,
            format!(
                "refusing to listen on {} for [{}]: it can be reached from other machines, and without authentication \
                 anyone could add content and stop the daemon. Set enabled = true in [auth] and create API keys, \
                 publish only the read-only gateway with enabled = true in [public], or set allow_unauthenticated = \
                 true in [server] (or IPFRS_SERVER_ALLOW_UNAUTHENTICATED=true) if the network is trusted",
                open.ip(),
                endpoint.section
            ),
        )),
        _ => Ok(()),
    }
}

fn listen_on(address: SocketAddr, loopback_congestion_control: &str) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Otherwise [::] includes the IPv4 port, and binding 0.0.0.0 as well fails.
        socket.set_only_v6(true)?;
    }
    // A restart does not have to wait for TIME_WAIT of earlier connections.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    #[cfg(target_os = "linux")]
    if address.ip().to_canonical().is_loopback() && !loopback_congestion_control.is_empty() {
        select_congestion_control(&socket, address, loopback_congestion_control);
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Selects the congestion control of `socket`. BBR, the default of some systems, delays each segment by
/// a timer, and by then the client has gone to sleep and must be woken. On loopback this is two thirds of the cost of
/// a large response. Connections inherit the setting from the listener. It must be set before a connection is open,
/// because pacing is never disabled again.
#[cfg(target_os = "linux")]
fn select_congestion_control(socket: &Socket, address: SocketAddr, name: &str) {
    if let Err(error) = rustix::net::sockopt::set_tcp_congestion(socket, name) {
        let key = "server.loopback_congestion_control";
        tracing::warn!(%address, %error, key, name, "the listener keeps the congestion control of the system");
    }
}

/// Limits how many bytes the kernel holds before it sends them, for each connection that `listener` will accept.
/// Without this, a client that reads slowly can make it hold as much as the largest send buffer, 4 MiB.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux has it"))]
fn limit_unsent(listener: &TcpListener, max_requests: usize) {
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(listener).set_tcp_notsent_lowat(unsent_bytes(memory(), max_requests)) {
        tracing::debug!(%error, "cannot limit the unsent bytes of connections");
    }
}

/// Returns the limit of unsent bytes of a connection on a machine with `memory` bytes.
#[cfg(target_os = "linux")]
fn unsent_bytes(memory: u64, max_requests: usize) -> u32 {
    let share = memory / UNSENT_PART / (max_requests as u64).max(1);
    u32::try_from(share).unwrap_or(u32::MAX).clamp(MIN_UNSENT_BYTES, MAX_UNSENT_BYTES)
}

/// Returns the memory of the machine, in bytes. The limits of the kernel do not depend on those of a container.
#[cfg(target_os = "linux")]
fn memory() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram.saturating_mul(system.mem_unit.into())
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable || error.kind() == io::ErrorKind::Unsupported
}

fn cannot_listen(endpoint: Endpoint<'_>, address: SocketAddr, error: io::Error) -> Error {
    let port = address.port();
    let Endpoint { other_host, other_port, instead, .. } = endpoint;
    let (kind, what) = match error.kind() {
        io::ErrorKind::AddrInUse => (
            ErrorKind::Conflict,
            format!(
                "port {port} on {} is in use by another program, perhaps another ipfrs daemon: stop it, or choose another \
                 port with {other_port} (0 lets the system choose){instead}",
                address.ip()
            ),
        ),
        io::ErrorKind::PermissionDenied => (
            ErrorKind::Forbidden,
            format!("not allowed to listen on port {port}: choose a port of 1024 or more with {other_port}"),
        ),
        io::ErrorKind::AddrNotAvailable => (
            ErrorKind::InvalidInput,
            format!("no interface of this machine has the address {}: change {other_host}", address.ip()),
        ),
        _ => (ErrorKind::Internal, format!("cannot listen on {address}: {error}")),
    };
    Error::new(kind, what).with_source(error)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::net::sockopt::tcp_congestion;
    use tokio::net::{TcpSocket, TcpStream};

    use super::*;

    #[test]
    fn unsent_bytes_are_a_share_of_the_memory() {
        const GIB: u64 = 1 << 30;
        for (memory, max_requests, bytes) in [
            (96 * GIB, 4_096, 768 * 1_024),
            (24 * GIB, 1_024, 768 * 1_024),
            (24 * GIB, 4_096, MIN_UNSENT_BYTES),
            (24 * GIB, 64, MAX_UNSENT_BYTES),
            (u64::MAX, 0, MAX_UNSENT_BYTES),
        ] {
            assert_eq!(unsent_bytes(memory, max_requests), bytes, "{memory} {max_requests}");
        }
    }

    #[tokio::test]
    async fn client_that_reads_nothing_fills_no_large_buffer() {
        const RECEIVE_BUFFER: u32 = 16 * 1_024;
        let mut config = Config::default();
        config.server.port = 0;
        config.gateway.max_concurrent_requests = usize::MAX;
        let listeners = listen(Endpoint::of_server(&config)).await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
        let client = socket.connect(listeners[0].local_addr().unwrap());
        let (accepted, client) = tokio::join!(listeners[0].accept(), client);
        let ((accepted, _), _client) = (accepted.unwrap(), client.unwrap());
        let (piece, mut sent) = (vec![0_u8; 64 * 1_024], 0);
        accepted.writable().await.unwrap();
        while let Ok(bytes) = accepted.try_write(&piece) {
            sent += bytes;
        }
        // The limit applies to whole buffers of the kernel.
        assert!((1..3 * MIN_UNSENT_BYTES as usize).contains(&sent), "{sent}");
    }

    #[tokio::test]
    async fn loopback_listener_is_not_paced() {
        let of_listener = async |address: &str, name: &str| {
            let listener = listen_on(address.parse().unwrap(), name).unwrap();
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect(("127.0.0.1", port));
            let (accepted, client) = tokio::join!(listener.accept(), client);
            let (accepted, _) = accepted.unwrap();
            [tcp_congestion(&accepted).unwrap(), tcp_congestion(client.unwrap()).unwrap()]
        };
        let [accepted, system] = of_listener("127.0.0.1:0", "reno").await;
        assert_eq!(accepted, "reno");
        for (address, name) in [("0.0.0.0:0", "reno"), ("127.0.0.1:0", ""), ("127.0.0.1:0", "no-such-control")] {
            assert_eq!(of_listener(address, name).await, [system.clone(), system.clone()], "{address} {name}");
        }
    }
}
