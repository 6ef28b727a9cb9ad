//! What a gateway request asks for.

use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, Method};
use ipfrs_core::{Error, Result, parse_cid};
use ipfrs_node::ContentPath;
use percent_encoding::percent_decode_str;

/// The form in which content is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Files and directories.
    Deserialised,
    /// The block itself.
    Raw,
}

/// A request under `/ipfs/`, read but not yet resolved.
#[derive(Debug)]
pub(super) struct GatewayRequest<'a> {
    /// The content path, percent-decoded.
    pub(super) path: ContentPath,
    /// The path as the client sent it.
    pub(super) raw_path: &'a str,
    /// The query as the client sent it.
    pub(super) query: Option<&'a str>,
    /// Whether the path ends with a slash.
    pub(super) ends_with_slash: bool,
    /// `?format=`, else what `Accept` names.
    pub(super) format: Format,
    /// `?filename=`.
    pub(super) filename: Option<String>,
    /// `?download=true`.
    pub(super) download: bool,
    /// Whether only the headers are wanted.
    pub(super) is_head: bool,
}

impl<'a> GatewayRequest<'a> {
    /// Reads path, query and `Accept`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the path, parameter or format.
    pub(super) fn parse(parts: &'a Parts) -> Result<Self> {
        let raw_path = parts.uri.path();
        let query = parts.uri.query();
        let (mut by_query, mut filename, mut download) = (None, None, false);
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "format" => by_query = Some(format_by_name(&value)?),
                "filename" if !value.is_empty() => filename = Some(value.into_owned()),
                "download" => download = value == "true",
                _ => {}
            }
        }
        Ok(Self {
            path: parse_path(raw_path)?,
            raw_path,
            query,
            ends_with_slash: raw_path.ends_with('/'),
            format: by_query.unwrap_or_else(|| format_by_accept(&parts.headers)),
            filename,
            download,
            is_head: parts.method == Method::HEAD,
        })
    }

    /// The name that tells the content type: `?filename=`, else the last segment of the path.
    pub(super) fn file_name(&self) -> Option<&str> {
        self.filename.as_deref().or_else(|| self.path.segments().last().map(String::as_str))
    }
}

/// Percent-decodes each segment by itself, so that an encoded slash never becomes a separator.
fn parse_path(raw: &str) -> Result<ContentPath> {
    let shown = || raw.chars().take(256).collect::<String>();
    let rest = raw.strip_prefix("/ipfs/").unwrap_or(raw);
    let mut segments = rest.split('/').filter(|segment| !segment.is_empty()).map(|segment| {
        let decoded = percent_decode_str(segment).decode_utf8();
        decoded.map_err(|_| Error::invalid(format!("invalid path {:?}: a segment is not UTF-8", shown())))
    });
    let root = segments.next().unwrap_or(Ok("".into()))?;
    let root = parse_cid(&root).map_err(|e| Error::invalid(format!("invalid path {:?}: {e}", shown())))?;
    ContentPath::new(root, segments.map(|segment| segment.map(Into::into)).collect::<Result<_>>()?)
}

fn format_by_name(name: &str) -> Result<Format> {
    match name {
        "raw" => Ok(Format::Raw),
        "car" | "tar" | "json" | "cbor" | "dag-json" | "dag-cbor" | "ipns-record" => {
            Err(Error::unsupported(format!("format={name} is not offered by this version: use format=raw")))
        }
        other => Err(Error::invalid(format!("unknown format {other:?}: use format=raw, or leave it out"))),
    }
}

/// A gateway answers HTML and files unless a client names a format that it offers.
fn format_by_accept(headers: &HeaderMap) -> Format {
    let names_raw = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|media| media.split(';').next().is_some_and(|m| m.trim() == "application/vnd.ipld.raw"))
    });
    if names_raw { Format::Raw } else { Format::Deserialised }
}
