//! Checks of what the daemon listens on: ports, the Unix socket, and who can reach them.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use ipfrs_interface::{ApiConfig, Config, GrpcConfig};
use rustix::fs::{Access, access as check_access};

use super::remedy::{Remedies, quoted_path};
use super::{Finding, access};

/// Checks that only this machine can connect if there is no authentication, and that keys are not sent without TLS.
pub(super) fn reachability(config: &Config, remedies: &Remedies) -> Finding {
    const CHECK: &str = "access";
    let mut hosts = vec![("server", config.server.host.as_str())];
    if config.grpc.enabled {
        hosts.push(("grpc", &config.grpc.host));
    }
    if config.api.enabled {
        hosts.push(("api", &config.api.host));
    }
    let open = hosts.into_iter().find(|(_, host)| {
        (*host, 0)
            .to_socket_addrs()
            .is_ok_and(|mut addresses| addresses.any(|address| !address.ip().to_canonical().is_loopback()))
    });
    let authenticate = || remedies.set("auth.enabled", "true");
    match open {
        None => Finding::ok(CHECK, "only programs on this machine can connect"),
        Some((_, host)) if config.auth.enabled && config.tls.enabled => {
            Finding::ok(CHECK, format!("{host} can be reached from other machines, with TLS and authentication"))
        }
        Some((section, host)) if config.auth.enabled => Finding::warning(
            CHECK,
            format!(
                "{host} can be reached from other machines without TLS, so API keys can be read on the way: listen on \
                 loopback behind a proxy with TLS (docs/PUBLIC.md), or configure [tls]"
            ),
            remedies.set(&format!("{section}.host"), "127.0.0.1"),
        ),
        Some((_, host)) if config.may_listen_anywhere() => Finding::warning(
            CHECK,
            format!("everyone who reaches {host} can change content and stop the daemon"),
            authenticate(),
        ),
        Some((_, host)) => Finding::error(
            CHECK,
            format!("{host} can be reached from other machines, and there is no authentication"),
            authenticate(),
        ),
    }
}

/// Checks that the addresses to listen on are free.
pub(super) fn check(config: &Config, remedies: &Remedies) -> Vec<Finding> {
    let of = |check, section, host: &str, number, is_required| {
        port(&Listener { check, section, host, port: number, is_required }, remedies)
    };
    let mut findings = vec![of("port", "server", &config.server.host, config.server.port, true)];
    // Without a configured port, the daemon does without this listener if its default port is used.
    if config.grpc.enabled {
        let number = config.grpc.port;
        let used = number.unwrap_or(GrpcConfig::DEFAULT_PORT);
        findings.push(of("gRPC port", "grpc", &config.grpc.host, used, number.is_some()));
    }
    if config.api.enabled {
        let number = config.api.port;
        let used = number.unwrap_or(ApiConfig::DEFAULT_PORT);
        findings.push(of("API port", "api", &config.api.host, used, number.is_some()));
    }
    if config.public.enabled {
        findings.push(of("public port", "public", &config.public.host, config.public.port, true));
    }
    if let Some(number) = config.tls.redirect_port {
        let (section, host) =
            if config.public.enabled { ("public", &config.public.host) } else { ("server", &config.server.host) };
        findings.push(of("redirect port", section, host, number, true));
    }
    if let Some(path) = &config.api.unix_socket {
        findings.push(unix_socket(path, remedies));
    }
    if config.retrieval.enabled && config.retrieval.bitswap.enabled {
        findings.extend(config.retrieval.bitswap.listen.iter().filter_map(|address| peer_port(&address.to_string())));
    }
    findings
}

/// A listener of the configuration.
struct Listener<'a> {
    check: &'static str,
    /// Section with its host.
    section: &'static str,
    host: &'a str,
    port: u16,
    /// Whether the daemon does not start without it.
    is_required: bool,
}

fn port(listener: &Listener<'_>, remedies: &Remedies) -> Finding {
    let Listener { check, section, host, port, is_required } = *listener;
    let host = host.trim().trim_start_matches('[').trim_end_matches(']');
    if port == 0 {
        return Finding::ok(check, format!("the system chooses one of {host}"));
    }
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    match TcpListener::bind((host, port)) {
        Ok(_) => Finding::ok(check, format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let message = format!("another process uses {address}");
            let fix = format!("ss -ltnp 'sport = :{port}'");
            if is_required { Finding::error(check, message, fix) } else { Finding::warning(check, message, fix) }
        }
        Err(error) => {
            let message = format!("cannot listen on {address}: {error}");
            let fix = match error.kind() {
                ErrorKind::PermissionDenied => format!("sudo sysctl -w net.ipv4.ip_unprivileged_port_start={port}"),
                _ => remedies.set(&format!("{section}.host"), "127.0.0.1"),
            };
            Finding::error(check, message, fix)
        }
    }
}

/// Checks an address for peers, such as `/ip4/0.0.0.0/udp/4001/quic-v1`. Returns `None` if there is nothing to say: the
/// machine may lack a version of IP, which the daemon then does without.
fn peer_port(address: &str) -> Option<Finding> {
    const CHECK: &str = "peer port";
    let ["", _, ip, transport, port, ..] = address.split('/').collect::<Vec<_>>()[..] else { return None };
    let place = (ip.parse::<IpAddr>().ok()?, port.parse::<u16>().ok().filter(|port| *port != 0)?);
    let bound = if transport == "udp" { UdpSocket::bind(place).map(drop) } else { TcpListener::bind(place).map(drop) };
    match bound {
        Ok(()) => Some(Finding::ok(CHECK, format!("{address} is free"))),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Some(Finding::error(
            CHECK,
            format!(
                "another process uses {address}: Kubo has the same port by default, and retrieval.bitswap.listen may \
                 name another one"
            ),
            format!("ss -lntup 'sport = :{port}'"),
        )),
        Err(_) => None,
    }
}

/// Checks that the daemon can create its Unix socket, or replace that of a daemon that was killed.
fn unix_socket(path: &Path, remedies: &Remedies) -> Finding {
    const CHECK: &str = "Unix socket";
    let shown = path.display();
    let directory = path.parent().unwrap_or(Path::new("/"));
    let in_directory = directory.display();
    if !directory.is_dir() {
        let fix = format!("mkdir -p -m 700 {}", quoted_path(directory));
        return Finding::error(CHECK, format!("{in_directory} is no directory, so there can be no {shown}"), fix);
    }
    if let Err(error) = check_access(directory, Access::WRITE_OK | Access::EXEC_OK) {
        let message = format!("{in_directory} cannot be written: {error}");
        // Other programs may own it, such as /run.
        let own = format!("{}/ipfrs-api.sock", std::env::temp_dir().display());
        let fix = match access::is_own(directory) {
            true => access::fix(directory, directory),
            false => remedies.set("api.unix_socket", &own),
        };
        return Finding::error(CHECK, message, fix);
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let file = quoted_path(path);
            return Finding::error(CHECK, format!("{shown} is no socket"), format!("mv {file} {file}.old"));
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => {
                let fix = format!("ss -lxp | grep -F {}", quoted_path(path));
                return Finding::error(CHECK, format!("another process listens on {shown}"), fix);
            }
            Err(error) if error.kind() != ErrorKind::ConnectionRefused => {
                let message = format!("cannot connect to the existing socket {shown}: {error}");
                return Finding::error(CHECK, message, access::fix(path, path));
            }
            // A daemon that was killed has left it.
            Err(_) => {}
        },
        Err(_) => {}
    }
    let mode = fs::metadata(directory).map_or(0, |metadata| metadata.permissions().mode());
    // Others could replace the socket and receive what clients send. The sticky bit prevents that.
    if mode & 0o002 != 0 && mode & 0o1000 == 0 {
        let fix = format!("chmod o-w {}", quoted_path(directory));
        return Finding::warning(CHECK, format!("all users can replace {shown}"), fix);
    }
    let stale = if path.exists() { ", and replaces that of a daemon that was killed" } else { "" };
    Finding::ok(CHECK, format!("the daemon creates {shown}{stale}"))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::commands::doctor::Status;

    #[test]
    fn unix_sockets_are_checked_as_the_daemon_would_bind_them() {
        let dir = tempfile::tempdir().unwrap();
        let remedies = Remedies::default();
        let expect = |path: &Path, status, message: &str, fix: &str| {
            let found = unix_socket(path, &remedies);
            assert_eq!(found.status, status, "{found:?}");
            assert!(found.message.contains(message), "{found:?}");
            assert!(found.fix.clone().unwrap_or_default().starts_with(fix), "{found:?}");
        };
        let path = dir.path().join("api.sock");
        expect(&path, Status::Ok, "the daemon creates", "");
        let listener = UnixListener::bind(&path).unwrap();
        expect(&path, Status::Error, "another process listens", "ss -lxp");
        drop(listener);
        expect(&path, Status::Ok, "replaces that of a daemon that was killed", "");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "data").unwrap();
        expect(&path, Status::Error, "is no socket", "mv ");
        expect(&dir.path().join("missing/api.sock"), Status::Error, "is no directory", "mkdir -p -m 700 ");
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        for (mode, status, fix) in
            [(0o777, Status::Warning, "chmod o-w "), (0o1777, Status::Ok, ""), (0o700, Status::Ok, "")]
        {
            fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
            expect(&open.join("api.sock"), status, "api.sock", fix);
        }
    }
}
