//! Pages about DAG nodes for browsers: dag-json with links.

use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use ipfrs_core::{Error, Result, codec, parse_cid};
use ipfrs_node::Object;

use super::codec::Codec;
use super::content_response::{ContentResponse, redirect_to_slash};
use super::format::{Format, accepts_html};
use super::page::{Crumb, Places, not_rendered, readable};
use super::request::GatewayRequest;
use crate::body::unknown_length;
use crate::state::AppState;

/// Maximum size in bytes of a block that is shown. Larger blocks are only offered for download, because their pages
/// would be megabytes long.
const MAX_PREVIEW_BYTES: usize = 64 * 1024;
/// Maximum depth of indentation: deeper levels would consist mostly of spaces.
const MAX_INDENTED: usize = 16;

#[derive(Template)]
#[template(path = "node.html")]
struct Page {
    title: String,
    namespace: &'static str,
    crumbs: Vec<Crumb>,
    cid: String,
    codec: &'static str,
    size: String,
    /// Names of the formats in which the block is available.
    formats: Vec<&'static str>,
    /// The node as HTML, or the reason why it cannot be shown.
    node: std::result::Result<String, String>,
}

/// Whether the response should be a page: the request comes from a browser, is not a download, and its block is a DAG
/// node.
pub(super) fn is_wanted(request: &GatewayRequest<'_>, headers: &HeaderMap, object: &Object) -> bool {
    let is_node = matches!(object.cid.codec(), codec::DAG_JSON | codec::DAG_CBOR | codec::DAG_PB);
    is_node && !request.download && accepts_html(headers)
}

/// Renders the page about a node.
///
/// # Errors
/// If the page cannot be rendered. A malformed block is not an error: the page says so.
pub(super) async fn page(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    object: Object,
) -> Result<Response> {
    if !request.ends_with_slash {
        return Ok(redirect_to_slash(state, request));
    }
    let mut response = ContentResponse::page(state, request, &object, "DagIndex");
    if let Some(settled) = response.settled(headers, None) {
        return Ok(settled);
    }
    if request.is_head {
        return Ok(response.into_response(StatusCode::OK, unknown_length()));
    }
    let places = Places::of(request);
    let json = if object.block.len() > MAX_PREVIEW_BYTES {
        Err(format!("nodes larger than {} are not shown", readable(MAX_PREVIEW_BYTES as u64)))
    } else {
        let found = state.node.get_node((*request.path).clone(), codec::DAG_JSON).await;
        found.map(|(_, json)| json).map_err(|e| e.to_string())
    };
    let own = Codec::of(&object.cid).map(|codec| Format::Codec(codec).name());
    let rendering = tokio::task::spawn_blocking(move || {
        let text = json.and_then(|json| match std::str::from_utf8(&json) {
            Ok(text) => Ok(markup(text, |cid| places.content(cid))),
            Err(_) => Err("it is not dag-json: it is not UTF-8".to_owned()),
        });
        let page = Page {
            title: places.title(),
            namespace: places.namespace,
            crumbs: places.crumbs,
            cid: object.cid.to_string(),
            codec: codec::name(object.cid.codec()).unwrap_or_default(),
            size: readable(object.block.len() as u64),
            formats: own.into_iter().chain([Format::Raw.name()]).collect(),
            node: text,
        };
        page.render().map_err(not_rendered)
    });
    let page = rendering.await.map_err(|e| Error::internal("rendering a page failed").with_source(e))??;
    Ok(response.into_response(StatusCode::OK, Body::from(page)))
}

/// Converts JSON to HTML: one line per entry, with each dag-json link leading to the URL that `content` returns for
/// its CID. Only links are interpreted, so that numbers keep their spelling.
fn markup(json: &str, content: impl Fn(&str) -> String) -> String {
    let tokens: Vec<&str> = Tokens(json).collect();
    let (mut out, mut depth, mut at) = (String::with_capacity(2 * json.len()), 0_usize, 0);
    while let Some(token) = tokens.get(at) {
        if let Some((label, target)) = link(&tokens[at..]) {
            out.push_str("{&quot;/&quot;: <a href=\"");
            escape(&content(&target), &mut out);
            out.push_str("\">");
            escape(label, &mut out);
            out.push_str("</a>}");
            at += 5;
            continue;
        }
        match *token {
            "{" | "[" => {
                depth += 1;
                out.push_str(token);
                if !matches!(tokens.get(at + 1), Some(&("}" | "]"))) {
                    new_line(depth, &mut out);
                }
            }
            "}" | "]" => {
                depth = depth.saturating_sub(1);
                if !matches!(at.checked_sub(1).map(|before| tokens[before]), Some("{" | "[")) {
                    new_line(depth, &mut out);
                }
                out.push_str(token);
            }
            "," => {
                out.push(',');
                new_line(depth, &mut out);
            }
            ":" => out.push_str(": "),
            text => escape(text, &mut out),
        }
        at += 1;
    }
    out
}

/// Returns the text and the CID of the dag-json link at the start of `tokens`, if there is one.
fn link<'a>(tokens: &[&'a str]) -> Option<(&'a str, String)> {
    let ["{", "\"/\"", ":", text, "}", ..] = tokens else { return None };
    let cid = parse_cid(text.strip_prefix('"')?.strip_suffix('"')?).ok()?;
    Some((text, cid.to_string()))
}

fn new_line(depth: usize, out: &mut String) {
    out.push('\n');
    (0..depth.min(MAX_INDENTED)).for_each(|_| out.push_str("  "));
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

/// Tokens of JSON: brackets, commas, colons, strings with their quotation marks, and everything between them.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_ascii_start();
        let is_mark = |c: char| matches!(c, '{' | '}' | '[' | ']' | ',' | ':' | '"');
        let end = match rest.chars().next()? {
            '"' => text_end(rest),
            mark if is_mark(mark) => 1,
            _ => rest.find(|c: char| is_mark(c) || c.is_ascii_whitespace()).unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at(end);
        self.0 = rest;
        Some(token)
    }
}

/// Returns the end of the string at the start of `json`, after its closing quotation mark.
fn text_end(json: &str) -> usize {
    let mut is_escaped = false;
    let end = json.bytes().enumerate().skip(1).find(|(_, byte)| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(json.len(), |(end, _)| end + 1)
}

#[cfg(test)]
mod tests {
    use super::markup;

    #[test]
    fn node_preview_links_cids_and_escapes_html() {
        let cid = "bafyreigaknpexyvxt76zgkitavbwx6ejgfheup5oybpm77f3pxzrvwpfdi";
        let json = format!(
            r#"{{"<b>":"a\"}}'", "e":[],"l":{{"/":"{cid}"}},"n":[18446744073709551616,{{}}],"x":{{"/":"<"}}}}"#
        );
        let expected = format!(
            "{{\n  &quot;&lt;b&gt;&quot;: &quot;a\\&quot;}}&#39;&quot;,\n  &quot;e&quot;: [],\n  &quot;l&quot;: \
             {{&quot;/&quot;: <a href=\"/ipfs/{cid}\">&quot;{cid}&quot;</a>}},\n  &quot;n&quot;: [\n    \
             18446744073709551616,\n    {{}}\n  ],\n  &quot;x&quot;: {{\n    &quot;/&quot;: &quot;&lt;&quot;\n  }}\n}}"
        );
        let content = |cid: &str| format!("/ipfs/{cid}");
        assert_eq!(markup(&json, content), expected);
        for broken in ["", "\"", "{\"a", "}}]", "\u{e9}\"\\", "[[[["] {
            markup(broken, content);
        }
    }
}
