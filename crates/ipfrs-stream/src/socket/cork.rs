//! Corking (`TCP_CORK`, tcp(7)): while a socket is corked, the kernel sends only full segments. Exists only on Linux.

use std::io;

use tokio::net::TcpStream;

/// Whether a socket is corked.
#[derive(Debug, Default)]
pub(super) struct Cork {
    is_set: bool,
}

impl Cork {
    /// Corks the socket. If corking fails, the response is the same but costs more.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux has corks"))]
    pub(super) fn set(&mut self, stream: &TcpStream) {
        #[cfg(target_os = "linux")]
        if !self.is_set {
            self.is_set = rustix::net::sockopt::set_tcp_cork(stream, true).is_ok();
        }
    }

    /// Makes the kernel send all buffered data.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux has corks"))]
    pub(super) fn remove(&mut self, stream: &TcpStream) -> io::Result<()> {
        if std::mem::take(&mut self.is_set) {
            #[cfg(target_os = "linux")]
            rustix::net::sockopt::set_tcp_cork(stream, false)?;
        }
        Ok(())
    }
}
