//! Writes of slices to a connection. Without encryption, slices of mapped files are sent with `sendfile`.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use ipfrs_store::Mappings;

use super::transport::{Transport, poll_encrypt};

/// Writer of one connection.
#[derive(Debug)]
pub(super) struct MappedWriter {
    #[cfg(target_os = "linux")]
    mappings: Option<Mappings>,
    /// The value of [`Mappings::faults`] when the connection began.
    #[cfg(target_os = "linux")]
    faults: u64,
}

impl MappedWriter {
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux sends from mapped files"))]
    pub(super) fn new(mappings: Option<Mappings>) -> Self {
        Self {
            #[cfg(target_os = "linux")]
            faults: mappings.as_ref().map_or(0, Mappings::faults),
            #[cfg(target_os = "linux")]
            mappings,
        }
    }

    /// Writes a part of `slices` and returns its length in bytes.
    #[cfg(target_os = "linux")]
    pub(super) fn poll_write(
        &self,
        stream: &mut Transport,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        use std::os::fd::AsFd;
        use std::task::ready;

        let mappings = self.mappings.as_ref();
        // The guard keeps the bytes of the slices from becoming zeros until the kernel has taken them.
        let guard = || match mappings {
            Some(mappings) => mappings.sending(self.faults).map(Some).ok_or_else(lost_bytes),
            None => Ok(None),
        };
        let stream = match stream {
            Transport::Tcp(stream) => stream,
            Transport::Encrypted(stream) => {
                // Encryption reads the slices, so no guard may be held. What it read is checked before it is sent.
                let is_right = || mappings.is_none_or(|mappings| mappings.faults() == self.faults);
                return poll_encrypt(&mut **stream, cx, slices, || is_right().then_some(()).ok_or_else(lost_bytes));
            }
        };
        loop {
            ready!(stream.poll_write_ready(cx))?;
            let mut sent = 0;
            let outcome = stream.try_io(tokio::io::Interest::WRITABLE, || {
                let _sending = guard()?;
                let locate = |slice| mappings.and_then(|mappings| mappings.locate(slice));
                super::sendfile::send(stream.as_fd(), slices, locate, &mut sent)
            });
            match outcome {
                // After partial progress, the next call meets the error again. A `WouldBlock` after progress has
                // already registered interest with the runtime, which saves that call.
                _ if sent > 0 => return Poll::Ready(Ok(sent)),
                Ok(()) => return Poll::Ready(Ok(0)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Writes a part of `slices` and returns its length in bytes.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn poll_write(
        &self,
        stream: &mut Transport,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match stream {
            Transport::Tcp(stream) => {
                tokio::io::AsyncWrite::poll_write_vectored(std::pin::Pin::new(stream), cx, slices)
            }
            Transport::Encrypted(stream) => poll_encrypt(&mut **stream, cx, slices, || Ok(())),
        }
    }
}

#[cfg(target_os = "linux")]
fn lost_bytes() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a pack was truncated while a response was being sent: the response may be wrong",
    )
}
