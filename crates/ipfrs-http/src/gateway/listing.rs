//! The directory listing: an HTML page, sent while it is rendered.

use std::fmt;
use std::time::Duration;

use askama::Template;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream, Chunks};
use ipfrs_core::{Result, codec};
use ipfrs_node::{Listed, ListedKind, Node, Object, ObjectKind};

use super::escape::visible;
use super::page::{Crumb, Places, counted, not_rendered, readable};
use super::request::GatewayRequest;
use crate::body::Chunked;

/// Rows that are rendered into one piece of the body, and that a browser lays out together. The style sheet contains
/// their height.
const ROWS_PER_PIECE: usize = 128;
/// Maximum number of entries whose targets are read. Each read is a random access, which takes minutes for a large
/// directory on a cold disk. Further entries show only what their names and links say.
const INSPECTED_ENTRIES: usize = 2_048;

/// Time for reading the targets, which other servers may have to deliver. The page does not wait longer for them.
const INSPECTION_LIMIT: Duration = Duration::from_secs(3);

#[derive(Template)]
#[template(path = "listing_head.html")]
struct Head<'a> {
    title: String,
    namespace: &'a str,
    crumbs: &'a [Crumb],
    cid: String,
    /// Number of entries, if it is known before they are listed.
    count: Option<String>,
    parent: Option<String>,
}

#[derive(Template)]
#[template(path = "listing_rows.html")]
struct Rows {
    rows: Vec<Row>,
    /// Whether the piece holds [`ROWS_PER_PIECE`] rows.
    is_full: bool,
}

struct Row {
    /// CSS class of the symbol.
    icon: &'static str,
    name: String,
    href: String,
    cid: String,
    cid_href: String,
    /// Whether `cid_href` leads to another site.
    is_foreign: bool,
    /// Size in readable form.
    size: String,
    /// Size in bytes for sorting, if `size` shows one.
    bytes: Option<u64>,
}

#[derive(Template)]
#[template(path = "listing_foot.html")]
struct Foot {
    /// Summary of the entries; `None` for an empty directory.
    total: Option<String>,
}

/// Returns the page as a stream: entries are looked up while the first ones are already sent.
pub(super) fn body(node: &Node, request: &GatewayRequest<'_>, object: &Object) -> Result<Body> {
    let places = Places::of(request);
    let count = match &object.kind {
        ObjectKind::Directory(directory) => directory.count(),
        ObjectKind::File(_) | ObjectKind::Symlink(_) | ObjectKind::Other => None,
    };
    let head = Head {
        title: format!("Index of {}", places.title()),
        namespace: places.namespace,
        crumbs: &places.crumbs,
        cid: object.cid.to_string(),
        count: count.map(|count| counted(count as u64, "entry", "entries")),
        parent: places.parent(),
    };
    let head = head.render().map(Bytes::from).map_err(not_rendered)?;
    let entries = node.list_within(object, INSPECTED_ENTRIES, Some(INSPECTION_LIMIT)).chunks(ROWS_PER_PIECE);
    let listing = Listing { entries, places, total: Total::default(), has_ended: false };
    let pieces = stream::try_unfold(listing, |mut listing| async move {
        let piece = listing.piece().await?;
        Ok(piece.map(|piece| (Bytes::from(piece), listing)))
    });
    Ok(Chunked::body(stream::iter([Ok(head)]).chain(pieces).boxed(), false))
}

/// The rest of a listing, after its head.
struct Listing {
    entries: Chunks<BoxStream<'static, Result<Listed>>>,
    places: Places,
    total: Total,
    has_ended: bool,
}

impl Listing {
    /// Returns the next rows, and finally the foot.
    async fn piece(&mut self) -> Result<Option<String>> {
        if self.has_ended {
            return Ok(None);
        }
        let Some(batch) = self.entries.next().await else {
            self.has_ended = true;
            let foot = Foot { total: (self.total.entries > 0).then(|| self.total.to_string()) };
            return foot.render().map(Some).map_err(not_rendered);
        };
        let is_full = batch.len() == ROWS_PER_PIECE;
        let mut rows = Vec::with_capacity(batch.len());
        for entry in batch {
            let entry = entry?;
            let is_inspected = self.total.entries < INSPECTED_ENTRIES as u64;
            self.total.add(&entry);
            rows.push(row(&self.places, &entry, is_inspected));
        }
        Rows { rows, is_full }.render().map(Some).map_err(not_rendered)
    }
}

/// Totals of the entries listed so far.
#[derive(Default)]
struct Total {
    entries: u64,
    directories: u64,
    files: u64,
    bytes: u64,
}

impl Total {
    fn add(&mut self, entry: &Listed) {
        self.entries += 1;
        match entry.kind {
            ListedKind::Directory => self.directories += 1,
            ListedKind::File => {
                self.files += 1;
                // A crafted directory may claim any size.
                self.bytes = self.bytes.saturating_add(entry.size);
            }
            ListedKind::Symlink | ListedKind::Unknown => {}
        }
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.entries > INSPECTED_ENTRIES as u64 {
            return f.write_str(&counted(self.entries, "entry", "entries"));
        }
        let others = self.entries - self.directories - self.files;
        let parts = [
            (self.directories, counted(self.directories, "directory", "directories")),
            (self.files, format!("{} ({})", counted(self.files, "file", "files"), readable(self.bytes))),
            (others, counted(others, "other", "others")),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
        f.write_str(&parts.join(", "))
    }
}

fn row(places: &Places, entry: &Listed, is_inspected: bool) -> Row {
    let icon = match entry.kind {
        ListedKind::Directory => "folder",
        ListedKind::Symlink => "link",
        ListedKind::File => icon(&entry.name.to_string_lossy()),
        ListedKind::Unknown if is_inspected && entry.cid.codec() != codec::RAW => "unknown",
        ListedKind::Unknown => icon(&entry.name.to_string_lossy()),
    };
    let cid = entry.cid.to_string();
    let (cid_href, is_foreign) = places.cid(&cid, &entry.name);
    let bytes = match entry.kind {
        ListedKind::File | ListedKind::Unknown => Some(entry.size),
        ListedKind::Directory | ListedKind::Symlink => None,
    };
    Row {
        icon,
        name: visible(&entry.name).into_owned(),
        // An entry that no path can name is linked by its CID.
        href: if entry.name.is_segment() { places.entry(&entry.name) } else { cid_href.clone() },
        cid_href,
        is_foreign,
        cid,
        size: bytes.map_or_else(|| String::from("—"), readable),
        bytes,
    }
}

/// Returns the symbol for a file name.
fn icon(name: &str) -> &'static str {
    let mime = mime_guess::from_path(name).first_raw().unwrap_or_default();
    match mime.split_once('/').unwrap_or_default() {
        ("image", _) => "image",
        ("video", _) => "video",
        ("audio", _) => "audio",
        ("text", "html" | "css" | "javascript" | "xml" | "x-rust" | "x-python" | "x-c" | "x-toml" | "x-sh") => "code",
        ("application", "json" | "javascript" | "xml" | "wasm" | "x-sh" | "sql") => "code",
        ("text", _) | ("application", "pdf" | "epub+zip" | "msword" | "rtf") => "text",
        ("application", "zip" | "gzip" | "x-gzip" | "x-tar" | "x-bzip2" | "x-7z-compressed" | "zstd" | "x-xz") => {
            "archive"
        }
        _ => "file",
    }
}
