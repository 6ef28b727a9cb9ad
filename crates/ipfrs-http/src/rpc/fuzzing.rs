//! Entry points for fuzzing the parsers of requests.

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use ipfrs_core::Error;
use ipfrs_middleware::MemoryPool;
use ipfrs_node::{Attributes, LinkName, MemoryStore, Node, NodeConfig};
use ipfrs_rpc::commands::{self, Kind};
use prometheus::Registry;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::args::uri_arguments;
use super::attributes;
use super::multipart::{PartKind, Parts, boundary};
use super::options::Options;
use super::paths::{checked_path, cleaned};

/// Parses the arguments and options of one of the commands. Both parsers of the query find the same arguments, except
/// how many replacements stand for bytes that are not UTF-8.
pub(crate) fn arguments(command: u8, path: &str, query: &str) {
    let all: Vec<_> = commands::all().collect();
    let command = all[usize::from(command) % all.len()];
    let path = format!("/{}/{path}", command.path);
    let found = uri_arguments(&path, query, command);
    assert_eq!(found.arguments.len(), found.paths.len());
    for (argument, path) in found.arguments.iter().zip(&found.paths) {
        assert_eq!(&*path.to_string_lossy(), argument);
        assert_eq!(cleaned(cleaned(path.as_bytes()).as_bytes()), cleaned(path.as_bytes()));
        let _ = checked_path(path);
    }
    let whole: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let in_query: Vec<&str> = whole.iter().filter(|pair| pair.0 == "arg").map(|(_, value)| &**value).collect();
    for (argument, expected) in found.arguments.iter().rev().zip(in_query.iter().rev()) {
        let characters = |text: &str| text.replace(char::REPLACEMENT_CHARACTER, "");
        assert_eq!(characters(argument), characters(expected));
    }
    assert_eq!(found.options.len() + in_query.len(), whole.len());
    let Ok(options) = Options::read(command.tables(), &found.options) else { return };
    for option in command.all_options().filter(|option| options.reads(option.name())) {
        let name = option.name();
        let is_given = found.options.iter().any(|(given, _)| option.names().contains(&given.as_str()));
        let is_read = match option.kind() {
            Kind::Bool => options.bool(name).is_some(),
            Kind::Int | Kind::Int64 => options.number::<i64>(name).is_ok_and(|number| number.is_some()),
            Kind::Uint | Kind::Uint64 => options.number::<u64>(name).is_ok_and(|number| number.is_some()),
            Kind::Text => options.text(name).is_some(),
            // An empty list is as none.
            Kind::List => is_given && options.texts(name).all(|text| !text.is_empty() && !text.contains(',')),
        };
        assert_eq!(is_read, is_given || option.default_value().is_some(), "{name}");
    }
}

/// A part of a body.
#[derive(Debug, PartialEq)]
struct Seen {
    name: LinkName,
    kind: PartKind,
    attributes: Attributes,
    has_source: bool,
    content: Vec<u8>,
}

/// Memory for bodies, which belongs to a node. The directory is that of its repo.
static POOL: LazyLock<(Runtime, TempDir, MemoryPool)> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let repo = tempfile::tempdir().expect("a temporary directory can be created");
    let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).config(NodeConfig::default());
    let node = runtime.block_on(node.open()).expect("a node starts");
    let pool = MemoryPool::register(&node, &Registry::new()).expect("the metric is new");
    (runtime, repo, pool)
});

/// Reads a body whole and in small pieces, with the boundary of a content type. Both find the same parts, and fail
/// after the same one.
pub(crate) fn multipart(content_type: &[u8], body: &[u8], piece_bytes: u8) {
    let Ok(value) = HeaderValue::from_bytes(content_type) else { return };
    let Ok(Some(boundary)) = boundary(&HeaderMap::from_iter([(CONTENT_TYPE, value)])) else { return };
    let (runtime, _, pool) = &*POOL;
    let whole = runtime.block_on(parts(pool, &boundary, body, usize::MAX));
    let content: usize = whole.0.iter().map(|part| part.content.len()).sum();
    assert!(content <= body.len());
    let small = runtime.block_on(parts(pool, &boundary, body, usize::from(piece_bytes).max(1)));
    assert_eq!(small, whole);
}

/// Returns the parts of a body, and whether it is malformed after them.
async fn parts(pool: &MemoryPool, boundary: &str, body: &[u8], piece_bytes: usize) -> (Vec<Seen>, bool) {
    let pieces: Vec<_> = body.chunks(piece_bytes).map(|piece| Ok::<_, Error>(Bytes::copy_from_slice(piece))).collect();
    let mut parts = Parts::new(pool, Body::from_stream(stream::iter(pieces)), boundary.to_owned());
    let mut seen = Vec::new();
    loop {
        let mut part = match parts.next().await {
            Ok(Some(part)) => part,
            Ok(None) => return (seen, false),
            Err(_) => return (seen, true),
        };
        let (name, kind, attributes) = (part.file_name(), part.kind(), attributes::of_part(part.headers()));
        let (has_source, mut content) = (part.source().is_some(), Vec::new());
        while let Some(piece) = part.next().await {
            match piece {
                Ok(piece) => content.extend_from_slice(&piece),
                Err(_) => return (seen, true),
            }
        }
        seen.push(Seen { name, kind, attributes, has_source, content });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_all_kinds_are_parsed() {
        for command in 0..=u8::MAX {
            for query in [
                "",
                "arg=a%2Fb+c&arg=%FF",
                "a%72g=x&&=y&arg",
                "arg=%EE%AAe",
                "offset=1&o=2&timeout=1s&encoding=xml&x=%",
            ] {
                arguments(command, "a/../b", query);
            }
        }
    }

    #[test]
    fn bodies_are_read_the_same_in_pieces_of_all_sizes() {
        let part = "Content-Disposition: form-data; name=\"file?mode=0644\"; filename=\"a%20b\"\r\n\r\ncontent";
        let whole = format!("--b\r\n{part}\r\n--b\r\n{part}\r\n--b--\r\n");
        for body in [whole.as_str(), &whole[..whole.len() - 20], "", "--b", "--b--", "preamble"] {
            for piece_bytes in [0, 1, 2, 3, 7, 50, 255] {
                multipart(b"multipart/form-data; boundary=\"b\"", body.as_bytes(), piece_bytes);
            }
        }
    }
}
