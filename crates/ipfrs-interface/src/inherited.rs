//! Listening sockets that the service manager has opened and passes on (socket activation of systemd).
//!
//! `LISTEN_PID` is this process, `LISTEN_FDS` the number of sockets from descriptor 3 on, and `LISTEN_FDNAMES` has
//! their names, separated by colons (`sd_listen_fds(3)`). A name is a section of the configuration. Sockets without a
//! name, or with that of a unit, are for `[server]`.

use std::env;
use std::net::{SocketAddr, TcpListener as Listener};

use ipfrs_core::{Error, Result};
use listenfd::ListenFd;
use parking_lot::Mutex;
use rustix::net::sockopt::socket_acceptconn;
use tokio::net::TcpListener;

/// Sections with addresses.
const SECTIONS: [&str; 4] = ["server", "grpc", "api", "public"];

/// Maximum number of sockets.
const MAX_SOCKETS: usize = 64;

/// The sockets that no listener uses yet, with their sections.
static SOCKETS: Mutex<Vec<(&'static str, Listener)>> = Mutex::new(Vec::new());

/// Takes over the sockets that the service manager has passed to this process, which then listens on them in place of
/// the configured addresses. For programs that are a daemon and nothing else. It changes the environment, so no other
/// thread may run yet.
///
/// # Errors
/// [`InvalidInput`](ipfrs_core::ErrorKind) for a name that is no section, and for what is not a listening TCP socket.
pub fn inherit_sockets() -> Result<()> {
    let is_mine = env::var("LISTEN_PID").is_ok_and(|pid| pid.parse() == Ok(std::process::id()));
    let Some(count) = env::var("LISTEN_FDS").ok().filter(|_| is_mine) else { return Ok(()) };
    let wrong = |what: String| Error::invalid(format!("LISTEN_FDS: {what}: correct the socket unit"));
    let count = count.parse().ok().filter(|count| *count <= MAX_SOCKETS);
    let count = count.ok_or_else(|| wrong(format!("it is not a number of at most {MAX_SOCKETS} sockets")))?;
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').map(Some).chain(std::iter::repeat(None));
    let mut given = ListenFd::from_env();
    let mut sockets = Vec::with_capacity(count);
    for number in 0..count {
        let section = section_of(names.next().flatten().unwrap_or_default()).map_err(&wrong)?;
        let socket = given.take_tcp_listener(number).map_err(|e| wrong(format!("socket {number}: {e}")))?;
        let socket = socket.ok_or_else(|| wrong(format!("socket {number} is missing")))?;
        if !socket_acceptconn(&socket).unwrap_or(false) {
            return Err(wrong(format!("socket {number} does not listen (Accept=no in the unit)")));
        }
        sockets.push((section, socket));
    }
    SOCKETS.lock().extend(sockets);
    Ok(())
}

fn section_of(name: &str) -> std::result::Result<&'static str, String> {
    match SECTIONS.into_iter().find(|section| *section == name) {
        Some(section) => Ok(section),
        // The default of systemd is the name of the unit; "unknown" if there is none.
        None if matches!(name, "" | "unknown") || name.ends_with(".socket") => Ok("server"),
        None => Err(format!("FileDescriptorName={name} is none of {}", SECTIONS.join(", "))),
    }
}

/// Whether there are sockets that no listener uses yet.
pub(crate) fn are_left() -> bool {
    !SOCKETS.lock().is_empty()
}

/// Returns the sockets for a section, with their addresses.
pub(crate) fn take(section: &str) -> Result<(Vec<TcpListener>, Vec<SocketAddr>)> {
    let taken: Vec<_> = SOCKETS.lock().extract_if(.., |(of, _)| *of == section).map(|(_, socket)| socket).collect();
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for socket in taken {
        let ready = socket.set_nonblocking(true).and_then(|()| socket.local_addr());
        addresses.push(ready.map_err(|e| Error::io(format_args!("cannot use the socket for [{section}]"), e))?);
        let listener = TcpListener::from_std(socket);
        listeners.push(listener.map_err(|e| Error::io(format_args!("cannot use the socket for [{section}]"), e))?);
    }
    Ok((listeners, addresses))
}

/// Checks that there is no socket for a section that is not enabled. Its connections would wait forever.
pub(crate) fn refuse(section: &str) -> Result<()> {
    match SOCKETS.lock().iter().any(|(of, _)| *of == section) {
        true => Err(Error::invalid(format!(
            "the service manager passes a socket for [{section}], which is not enabled: set enabled = true, or remove it \
             from the socket unit"
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sections_or_those_of_units() {
        for (name, section) in [("api", "api"), ("", "server"), ("ipfrs.socket", "server"), ("unknown", "server")] {
            assert_eq!(section_of(name), Ok(section));
        }
        assert!(section_of("http").unwrap_err().contains("server, grpc, api, public"));
    }
}
