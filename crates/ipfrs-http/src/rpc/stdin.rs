//! Arguments in the body. Kubo's clients send arguments that they read from standard input as one part of a multipart
//! body, one argument per line.

use axum::body::Body;
use axum::extract::Request;
use futures::StreamExt;
use ipfrs_core::{Error, Result};
use ipfrs_middleware::{MemoryPool, RequestMemory};
use ipfrs_node::LinkName;
use ipfrs_rpc::commands::Argument;

use super::multipart::{self, Parts};
use crate::access::BodyAudit;
use crate::error::RpcError;
use crate::state::AppState;

/// Maximum number of bytes of all arguments in a body.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Maximum size of arguments, in bytes, whose memory reservation ends before the command runs. A command may take
/// long.
const UNCOUNTED_BYTES: usize = 64 * 1024;

/// Maximum length of an argument, in bytes: enough for a path of 4,096 bytes with its content ID, partly
/// percent-encoded.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// Returns the arguments in the body of `request`, and the memory reserved for them. A body that is not multipart has
/// none. Lines are bytes: paths need not be UTF-8.
///
/// # Errors
/// If the body exceeds a limit or is malformed, if it has several arguments but `argument` is one, or if the memory for
/// request bodies is exhausted.
pub(super) async fn read(
    state: &AppState,
    argument: Option<&Argument>,
    request: &mut Request,
) -> Result<(Vec<LinkName>, Option<RequestMemory>), RpcError> {
    let Some(argument) = argument else { return Ok((Vec::new(), None)) };
    let Some(boundary) = multipart::boundary(request.headers())? else { return Ok((Vec::new(), None)) };
    let body = std::mem::take(request.body_mut());
    let mut lines = Lines { most: state.api.max_arguments, ..Lines::default() };
    let memory = lines.read(&state.memory, body, boundary).await?;
    let bytes = lines.bytes;
    let mut read = lines.into_arguments()?;
    if !argument.is_repeated {
        // Kubo reads only the first line. Blank lines are dropped here, but further arguments must not be ignored
        // silently.
        while read.pop_if(|line| is_blank(line)).is_some() {}
    }
    if let Some(blank) = read.iter().position(is_blank) {
        let line = blank + 1;
        return Err(RpcError::Request(format!("line {line} of the arguments in the body is blank: leave it out")));
    }
    if let Some(audited) = request.extensions().get::<BodyAudit>() {
        audited.note(read.iter().map(LinkName::to_string_lossy));
    }
    Ok((read, Some(memory).filter(|_| bytes > UNCOUNTED_BYTES)))
}

fn is_blank(line: &LinkName) -> bool {
    line.to_str().is_some_and(|text| text.trim().is_empty())
}

/// Lines of a body, while they are read.
#[derive(Debug, Default)]
struct Lines {
    /// Maximum number of lines.
    most: usize,
    complete: Vec<LinkName>,
    /// The incomplete last line.
    line: Vec<u8>,
    bytes: usize,
}

impl Lines {
    /// Reads the only part of a body. Returns the memory for its lines, which is reserved as they arrive.
    async fn read(&mut self, pool: &MemoryPool, body: Body, boundary: String) -> Result<RequestMemory, RpcError> {
        let (mut parts, mut memory) = (Parts::new(pool, body, boundary), pool.reservation());
        let Some(mut part) = parts.next_file().await? else { return Ok(memory) };
        while let Some(piece) = part.next().await.transpose()? {
            self.bytes += piece.len();
            if self.bytes > MAX_BYTES {
                return Err(
                    Error::too_large(format!("the arguments exceed {MAX_BYTES} bytes: send several requests")).into()
                );
            }
            // Each line is kept as bytes and as text.
            memory.grow_to(2 * (self.bytes + self.complete.len() * size_of::<String>()))?;
            self.push(&piece)?;
        }
        // The parser returns no next part while this one exists.
        drop(part);
        if parts.next().await?.is_some() {
            let why = "the arguments are in more than one part of the body: send one part with one argument per line";
            return Err(RpcError::Request(why.into()));
        }
        Ok(memory)
    }

    fn push(&mut self, mut piece: &[u8]) -> Result<(), RpcError> {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.extend_line(&piece[..end])?;
            self.end_line()?;
            piece = &piece[end + 1..];
        }
        self.extend_line(piece)
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), RpcError> {
        self.line.extend_from_slice(bytes);
        if self.line.len() > MAX_LINE_BYTES {
            let line = self.complete.len() + 1;
            return Err(Error::too_large(format!("line {line} of the arguments exceeds {MAX_LINE_BYTES} bytes")).into());
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), RpcError> {
        if self.complete.len() == self.most {
            let most = self.most;
            return Err(Error::too_large(format!(
                "more than {most} arguments (api.max_arguments): send several requests"
            ))
            .into());
        }
        let mut line = std::mem::take(&mut self.line);
        line.pop_if(|byte| *byte == b'\r');
        self.complete.push(line.into());
        Ok(())
    }

    /// Returns the lines. The last one may lack a line end.
    fn into_arguments(mut self) -> Result<Vec<LinkName>, RpcError> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        Ok(self.complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_lines_do_not_depend_on_piece_boundaries() {
        let text = b"a\r\n\nb c\n\xc3\xa9\n\xff";
        for cut in 0..=text.len() {
            let mut lines = Lines { most: 5, ..Lines::default() };
            lines.push(&text[..cut]).unwrap();
            lines.push(&text[cut..]).unwrap();
            let expected = [&b"a"[..], b"", b"b c", b"\xc3\xa9", b"\xff"].map(LinkName::from);
            assert_eq!(lines.into_arguments().unwrap(), expected, "cut at {cut}");
        }
    }

    #[test]
    fn lines_are_bounded_in_length_and_number() {
        let mut lines = Lines { most: 2, ..Lines::default() };
        lines.push(&[b'x'; MAX_LINE_BYTES]).unwrap();
        lines.push(b"\ny\n").unwrap();
        assert!(lines.push(b"\n").is_err(), "a third line");
        assert!(lines.push(&[b'x'; MAX_LINE_BYTES + 1]).is_err());
    }
}
