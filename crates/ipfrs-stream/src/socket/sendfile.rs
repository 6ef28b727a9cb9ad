//! Writes slices to a socket. Slices of mapped files are sent from the page cache; all others are copied.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use ipfrs_store::MappedSlice;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendAncillaryBuffer, SendFlags};

/// Shortest slice that is sent with a `sendfile` of its own. Below this size, copying is cheaper than another system
/// call. It must exceed the 16,384 bytes of an HTTP/2 frame (RFC 9113, section 4.2). Otherwise frames would be sent
/// one by one instead of many in a single `sendmsg`.
pub(crate) const SENDFILE_MIN_BYTES: usize = 32 * 1024;

/// Maximum number of slices that one `sendmsg` accepts (`UIO_MAXIOV`).
const MAX_SLICES: usize = 1024;

/// Writes as much of `slices`, in order, as the non-blocking `socket` accepts, and adds the number of bytes to
/// `sent`. `locate` finds the file range of a slice that is a view of a mapped file.
///
/// # Errors
/// Returns `WouldBlock` if the socket buffer is full. Whatever the result, `sent` bytes have been passed to the
/// kernel.
pub(crate) fn send<'a>(
    socket: BorrowedFd<'_>,
    slices: &'a [IoSlice<'a>],
    locate: impl Fn(&'a [u8]) -> Option<MappedSlice<'a>>,
    sent: &mut usize,
) -> io::Result<()> {
    let mut copied_up_to = 0;
    for (i, slice) in slices.iter().enumerate() {
        if slice.len() < SENDFILE_MIN_BYTES {
            continue;
        }
        let Some(mapped) = locate(slice) else { continue };
        // With `MSG_MORE`, the head of a response shares its packet with the beginning of the file.
        if !send_copied(socket, &slices[copied_up_to..i], SendFlags::MORE, sent)? {
            return Ok(());
        }
        if !send_mapped(socket, &mapped, slice, sent)? {
            return Ok(());
        }
        copied_up_to = i + 1;
    }
    send_copied(socket, &slices[copied_up_to..], SendFlags::empty(), sent)?;
    Ok(())
}

/// Sends ordinary memory with `sendmsg`. Returns `Ok(false)` if the socket accepted only a part.
fn send_copied(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>], flags: SendFlags, sent: &mut usize) -> io::Result<bool> {
    let mut runs = slices.chunks(MAX_SLICES).peekable();
    while let Some(run) = runs.next() {
        let flags = if runs.peek().is_some() { flags | SendFlags::MORE } else { flags };
        let control = &mut SendAncillaryBuffer::default();
        let written = retry_on_intr(|| rustix::net::sendmsg(socket, run, control, flags | SendFlags::NOSIGNAL))?;
        *sent += written;
        if written < run.iter().map(|slice| slice.len()).sum() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sends a slice of a mapped file with `sendfile`, up to its end or until the socket is full. Returns `Ok(false)` if
/// the slice had to be copied and the socket accepted only a part.
fn send_mapped(socket: BorrowedFd<'_>, mapped: &MappedSlice<'_>, slice: &[u8], sent: &mut usize) -> io::Result<bool> {
    let mut offset = mapped.offset;
    let mut left = slice.len();
    while left > 0 {
        match retry_on_intr(|| rustix::fs::sendfile(socket, mapped.file, Some(&mut offset), left)) {
            // Another process truncated the file, so these bytes can never be sent.
            Ok(0) => {
                let why = format!("a mapped file ends {left} bytes before the slice that is being sent");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            Ok(written) => {
                *sent += written;
                left -= written;
            }
            // The file system supports mapping but not splicing.
            Err(Errno::INVAL) => {
                let rest = [IoSlice::new(&slice[slice.len() - left..])];
                return send_copied(socket, &rest, SendFlags::empty(), sent);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Sends `slices` and returns the bytes that arrive, with the result. `locate` claims that slices that are large
    /// enough start at offset 3 of `file`.
    fn sent(slices: &[&[u8]], file: &File) -> (Vec<u8>, io::Result<()>) {
        let (out, mut back) = UnixStream::pair().unwrap();
        out.set_nonblocking(true).unwrap();
        let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut counted = 0;
        let locate = |_: &[u8]| Some(MappedSlice { file: file.as_fd(), offset: 3 });
        let outcome = send(out.as_fd(), &slices, locate, &mut counted);
        drop(out);
        let mut received = Vec::new();
        back.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), counted);
        (received, outcome)
    }

    #[test]
    fn a_mapped_slice_is_sent_from_its_file_and_never_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'f'; SENDFILE_MIN_BYTES + 3]).unwrap();
        let (memory, short) = ([b'm'; SENDFILE_MIN_BYTES], [b's'; SENDFILE_MIN_BYTES - 1]);
        let (received, outcome) = sent(&[b"head", &memory, &short, b"tail"], &file);
        outcome.unwrap();
        let expected = [b"head", &[b'f'; SENDFILE_MIN_BYTES][..], &short, b"tail"].concat();
        assert!(received == expected);
    }

    #[test]
    fn sendfile_of_truncated_file_fails_after_its_bytes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'f'; 1003]).unwrap();
        let (received, outcome) = sent(&[b"head", &[b'm'; SENDFILE_MIN_BYTES], b"tail"], &file);
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(received, [b"head", &[b'f'; 1000][..]].concat());
    }

    #[test]
    fn sendfile_falls_back_to_copy_on_einval() {
        let directory = File::open("/").unwrap();
        let memory = [b'm'; SENDFILE_MIN_BYTES];
        let (received, outcome) = sent(&[&memory, b"tail"], &directory);
        outcome.unwrap();
        assert!(received == [&memory[..], b"tail"].concat());
    }
}
