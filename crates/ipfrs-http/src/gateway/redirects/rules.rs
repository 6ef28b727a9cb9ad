//! The file format (<https://specs.ipfs.tech/http-gateways/web-redirects-file/#file-format>) and its rules.
//!
//! Rules borrow the text of the file and keep nothing else. Parsing is one pass over at most [`MAX_FILE_BYTES`], and
//! applying the rules is at most another. The cost of a request is thus bounded, whatever the file contains, without
//! a cache that could keep files of strangers in memory. Patterns do not backtrack: a segment of `from` matches one
//! segment of the path, and an asterisk matches the rest.

use std::collections::BTreeSet;
use std::str::from_utf8;

use http::StatusCode;
use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Error, Result};
use ipfrs_node::LinkName;
use percent_encoding::percent_decode_str;

use super::target::{self, Target, Values};
use crate::gateway::path::parts;

/// Maximum size of the file, in bytes.
pub(super) const MAX_FILE_BYTES: usize = 64 * 1024;

/// Result of a site's rules for a path that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A redirect.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: StatusCode,
        /// Value of `Location`.
        location: String,
    },
    /// Other content of the same site.
    Content {
        /// 200, or 404, 410 or 451 with an error page.
        status: StatusCode,
        /// Path of the content below the root of the site, percent-decoded.
        segments: Vec<LinkName>,
    },
}

/// The rules of a file, in their order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rules<'a>(Vec<Rule<'a>>);

#[derive(Debug, PartialEq, Eq)]
struct Rule<'a> {
    from: &'a str,
    to: Target<'a>,
    status: StatusCode,
}

impl<'a> Rules<'a> {
    /// Parses a file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the line and the fault, or the size limit if the file
    /// is too large.
    pub(super) fn parse(file: &'a [u8]) -> Result<Self> {
        if file.len() > MAX_FILE_BYTES {
            return Err(too_large());
        }
        let file = file.strip_prefix("\u{feff}".as_bytes()).unwrap_or(file);
        let lines = file.split(|byte| *byte == b'\n').enumerate();
        let rules = lines.filter_map(|(index, line)| {
            let located = |reason: String| Error::invalid(format!("line {}: {reason}", index + 1));
            Rule::parse(line).map_err(located).transpose()
        });
        rules.collect::<Result<_>>().map(Self)
    }

    /// Applies the first rule that matches. `path` is the requested path below the root, percent-decoded and without
    /// empty segments; `query` is the query of the request.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names a rule that matches but has an invalid target.
    pub(super) fn apply(&self, path: &[LinkName], query: Option<&str>) -> Result<Option<Outcome>> {
        let matching = self.0.iter().find_map(|rule| Some((rule, rule.values(path)?)));
        let Some((rule, values)) = matching else { return Ok(None) };
        let status = rule.status;
        let outcome = if status.is_redirection() {
            rule.to.location(&values, query).map(|location| Outcome::Redirect { status, location })
        } else {
            rule.to.segments(&values).map(|segments| Outcome::Content { status, segments })
        };
        outcome.map(Some).map_err(|reason| Error::invalid(format!("the rule for {}: {reason}", rule.from)))
    }
}

/// Returns the error for a file larger than [`MAX_FILE_BYTES`].
pub(super) fn too_large() -> Error {
    Error::invalid(format!("redirects file size cannot exceed {MAX_FILE_BYTES} bytes"))
}

impl<'a> Rule<'a> {
    /// Parses the rule in a line, or returns `None` if the line has none.
    fn parse(line: &'a [u8]) -> Result<Option<Self>, String> {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        let line = from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
        let mut fields = line.split_whitespace();
        let Some(from) = fields.next() else { return Ok(None) };
        let to = fields.next().ok_or("missing 'to' path")?;
        let status = fields.next();
        if fields.next().is_some() {
            return Err("must match format 'from to [status]'".to_owned());
        }
        check_from(from).map_err(|reason| format!("parsing 'from' {from:?}: {reason}"))?;
        let to = Target::parse(to).map_err(|reason| format!("parsing 'to' {to:?}: {reason}"))?;
        let status = status.map_or(Ok(StatusCode::MOVED_PERMANENTLY), parse_status)?;
        Ok(Some(Self { from, to, status }))
    }

    /// Returns the values of the placeholders of `from` in `path`, or `None` if the rule does not match.
    fn values<'p>(&self, path: &'p [LinkName]) -> Option<Values<'a, 'p>> {
        let mut values = Values::default();
        let mut rest = path;
        for pattern in segments(self.from) {
            let (segment, after) = rest.split_first()?;
            if let Some(start) = pattern.strip_suffix('*') {
                values.splat = rest;
                values.splat_skip = starts_with(segment, start)?;
                return Some(values);
            }
            match placeholder(pattern) {
                Some(name) => values.named.push((name, segment.as_bytes())),
                None if percent_decode_str(pattern).eq(segment.as_bytes().iter().copied()) => {}
                None => return None,
            }
            rest = after;
        }
        rest.is_empty().then_some(values)
    }
}

/// Returns the segments of `from`. A trailing slash makes no difference, as in a requested path.
fn segments(from: &str) -> impl Iterator<Item = &str> {
    parts(from)
}

/// Returns the name of the placeholder in a segment of `from`, if the segment is one.
fn placeholder(segment: &str) -> Option<&str> {
    segment.strip_prefix(':').filter(|name| !name.is_empty())
}

/// Returns the number of bytes at the start of `segment` that match `start`, or `None` if they differ.
fn starts_with(segment: &LinkName, start: &str) -> Option<usize> {
    let mut bytes = segment.as_bytes().iter();
    percent_decode_str(start).all(|expected| bytes.next() == Some(&expected)).then_some(())?;
    let used = segment.len() - bytes.len();
    // Prevents cutting a character in two.
    segment.to_str().is_none_or(|text| text.is_char_boundary(used)).then_some(used)
}

fn check_from(from: &str) -> Result<(), String> {
    if !from.starts_with('/') {
        return Err("path must begin with '/'".to_owned());
    }
    match from.find('*') {
        Some(first) if first + 1 < from.len() => {
            return Err("the one asterisk must be at the end of the path".to_owned());
        }
        _ => {}
    }
    target::check_escapes(from)?;
    if segments(from).nth(MAX_PATH_SEGMENTS).is_some() {
        return Err(format!("more than {MAX_PATH_SEGMENTS} segments, which is the maximum for a path"));
    }
    let mut seen = BTreeSet::new();
    for name in segments(from).filter_map(placeholder) {
        if name.ends_with('*') {
            return Err(format!("a placeholder and an asterisk in one segment, :{name}"));
        }
        if !seen.insert(name) {
            return Err(format!("placeholder :{name} is used more than once"));
        }
    }
    if from.ends_with('*') && seen.contains(target::SPLAT) {
        return Err("placeholder :splat is reserved for the asterisk".to_owned());
    }
    Ok(())
}

fn parse_status(status: &str) -> Result<StatusCode, String> {
    if status.ends_with('!') {
        return Err(format!("parsing status {status:?}: forced redirects (or \"shadowing\") are not supported"));
    }
    match status {
        "200" => Ok(StatusCode::OK),
        "301" => Ok(StatusCode::MOVED_PERMANENTLY),
        "302" => Ok(StatusCode::FOUND),
        "303" => Ok(StatusCode::SEE_OTHER),
        "307" => Ok(StatusCode::TEMPORARY_REDIRECT),
        "308" => Ok(StatusCode::PERMANENT_REDIRECT),
        "404" => Ok(StatusCode::NOT_FOUND),
        "410" => Ok(StatusCode::GONE),
        "451" => Ok(StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS),
        _ => Err(format!("status code {status} is not supported: use 200, 301, 302, 303, 307, 308, 404, 410 or 451")),
    }
}

#[cfg(test)]
mod tests;
