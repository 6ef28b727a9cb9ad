//! The multipart bodies of `add` and `block/put`, as Kubo's clients write them.

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::HeaderMap;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use ipfrs_core::{Error, Result};
use ipfrs_node::AddSession;
use percent_encoding::percent_decode_str;

use super::add::Reporter;
use crate::body::broken_body;

/// Longest target of a symlink.
const MAX_TARGET_BYTES: usize = 4_096;

/// The boundary of a multipart body; `None` for every other body.
///
/// # Errors
/// A multipart type without a boundary.
pub(super) fn boundary(headers: &HeaderMap) -> Result<Option<String>> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.trim_start().to_ascii_lowercase().starts_with("multipart/") {
        return Ok(None);
    }
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let boundary = parameters.map(|(name, value)| (name.trim(), value.trim().trim_matches('"')));
    match boundary.filter(|(name, _)| name.eq_ignore_ascii_case("boundary")).map(|(_, value)| value).next() {
        Some(value) if !value.is_empty() => Ok(Some(value.to_owned())),
        _ => Err(Error::invalid(format!("Content-Type {content_type:?} has no boundary"))),
    }
}

/// The failure of a multipart body in words for the client.
pub(super) fn broken(error: multer::Error) -> Error {
    match error {
        multer::Error::IncompleteStream
        | multer::Error::IncompleteFieldData { .. }
        | multer::Error::IncompleteHeaders => {
            Error::invalid("the multipart body was cut off before its end: nothing of the last file was added")
        }
        multer::Error::StreamReadFailed(cause) => broken_body(cause),
        other => Error::invalid(format!("the multipart body is malformed: {other}")).with_source(other),
    }
}

/// Imports every part of a multipart body: files, `application/x-directory`, `application/symlink`. Directories that
/// are left out are made from the paths of their files.
pub(super) async fn import<S, E>(
    session: &mut AddSession,
    reporter: &mut Reporter,
    body: S,
    boundary: String,
) -> Result<()>
where
    S: Stream<Item = std::result::Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let mut multipart = multer::Multipart::new(body, boundary);
    while let Some(field) = multipart.next_field().await.map_err(broken)? {
        let name = file_name(field.headers());
        let content_type = field.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_owned();
        let content = field.map(|piece| piece.map_err(broken));
        match kind.as_str() {
            "application/x-directory" => session.directory(&name)?,
            "application/symlink" => session.symlink(&name, &text(content).await?).await?,
            _ => {
                session.file(&name, content, |bytes| reporter.progress(&name, bytes)).await?;
                reporter.tell_progress(&name);
            }
        }
        reporter.acknowledged(session)?;
    }
    Ok(())
}

async fn text(mut pieces: impl Stream<Item = Result<Bytes>> + Unpin) -> Result<String> {
    let mut target = Vec::new();
    while let Some(piece) = pieces.next().await.transpose()? {
        target.extend_from_slice(&piece);
        if target.len() > MAX_TARGET_BYTES {
            return Err(Error::too_large(format!("a symlink's target is over {MAX_TARGET_BYTES} bytes")));
        }
    }
    String::from_utf8(target).map_err(|e| Error::invalid("a symlink's target is not UTF-8").with_source(e))
}

/// The `filename` of a part, whatever its disposition is called. Clients escape it as a query component; one that does
/// not (curl) is taken as it is where it cannot be an escaped name.
fn file_name(headers: &HeaderMap) -> String {
    let disposition = headers.get(CONTENT_DISPOSITION).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let raw = disposition.as_deref().and_then(filename_parameter).unwrap_or_default();
    let spaced = raw.replace('+', " ");
    match percent_decode_str(&spaced).decode_utf8() {
        Ok(name) if is_escaped(&raw) => name.into_owned(),
        _ => raw,
    }
}

/// Every `%` begins an escape.
fn is_escaped(name: &str) -> bool {
    name.split('%').skip(1).all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

/// `filename="..."` with backslash escapes, or `filename=token`.
fn filename_parameter(disposition: &str) -> Option<String> {
    let at = disposition
        .to_ascii_lowercase()
        .match_indices("filename=")
        .map(|(at, _)| at)
        .find(|at| matches!(disposition[..*at].chars().next_back(), Some(';' | ' ' | '\t')))?;
    let value = &disposition[at + "filename=".len()..];
    let Some(quoted) = value.strip_prefix('"') else {
        return Some(value.split(';').next().unwrap_or_default().trim().to_owned());
    };
    let (mut name, mut characters) = (String::new(), quoted.chars());
    while let Some(c) = characters.next() {
        match c {
            '"' => break,
            '\\' => name.extend(characters.next()),
            other => name.push(other),
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn name_of(disposition: &str) -> String {
        let value = HeaderValue::from_bytes(disposition.as_bytes()).unwrap();
        file_name(&HeaderMap::from_iter([(CONTENT_DISPOSITION, value)]))
    }

    #[test]
    fn file_names_are_read_as_clients_write_them() {
        assert_eq!(name_of(r#"form-data; name="file"; filename="a.txt""#), "a.txt");
        assert_eq!(name_of(r#"form-data; name="file"; filename="dir%2Fa+b%C3%BC.txt""#), "dir/a bü.txt");
        assert_eq!(name_of(r#"attachment; filename="x%20y""#), "x y");
        assert_eq!(name_of(r#"form-data; name="filename="; filename="a\"b""#), "a\"b");
        assert_eq!(name_of("form-data; name=file; filename=plain"), "plain");
        assert_eq!(name_of(r#"form-data; filename="100%.txt""#), "100%.txt");
        assert_eq!(name_of("form-data; filename=\"tést\""), "tést");
        assert_eq!(name_of(r#"form-data; name="file""#), "");
    }
}
