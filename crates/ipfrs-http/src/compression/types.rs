//! Media types that are worth compressing.

use http::HeaderValue;

/// Subtypes of `application` that are text, or bytes with much repetition.
const APPLICATION: [&str; 26] = [
    // Data and documents as text.
    "json",
    "ndjson",
    "x-ndjson",
    "jsonl",
    "json5",
    "xml",
    "yaml",
    "x-yaml",
    "toml",
    "rtf",
    "n-triples",
    "n-quads",
    "trig",
    "sparql-query",
    "graphql",
    "sql",
    "x-tex",
    "postscript",
    // Programs as text.
    "javascript",
    "x-javascript",
    "ecmascript",
    "typescript",
    "x-sh",
    // WebAssembly shrinks to a third.
    "wasm",
    // Fonts without compression of their own, unlike WOFF.
    "vnd.ms-fontobject",
    "x-font-ttf",
];

/// Other types without compression of their own.
const OTHERS: [&str; 9] = [
    "image/bmp",
    "image/x-ms-bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
    "font/ttf",
    "font/otf",
    "font/collection",
    "model/obj",
    "model/stl",
];

/// Whether content of this type is worth compressing. Types that are not listed are sent uncompressed. Images, sound,
/// video, archives and documents are compressed already. Clients of blocks, CAR, TAR and IPNS records check hashes
/// and expect the exact bytes. The content of octet streams is unknown. Events must not wait for each other.
pub(super) fn is_compressible(content_type: &HeaderValue) -> bool {
    let Ok(text) = content_type.to_str() else { return false };
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.split_once('/') {
        Some(("text", subtype)) => subtype != "event-stream",
        // JSON and XML under any name: problem+json, vnd.ipld.dag-json, rss+xml, svg+xml.
        Some((_, subtype)) if subtype.ends_with("json") || subtype.ends_with("+xml") => true,
        Some(("application", subtype)) => APPLICATION.contains(&subtype),
        _ => OTHERS.contains(&essence.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compressible_media_types_are_compressed() {
        let compressible = |text: &'static str| is_compressible(&HeaderValue::from_static(text));
        for yes in [
            "text/plain; charset=utf-8",
            "TEXT/HTML",
            "text/csv",
            "application/json",
            "application/problem+json",
            "application/vnd.ipld.dag-json",
            "application/x-ndjson",
            "application/javascript",
            "application/wasm",
            "application/rss+xml",
            "image/svg+xml; charset=utf-8",
            "model/gltf+json",
            "font/ttf",
        ] {
            assert!(compressible(yes), "{yes}");
        }
        for no in [
            "text/event-stream",
            "application/vnd.ipld.raw",
            "application/vnd.ipld.car; version=1",
            "application/x-tar",
            "application/vnd.ipfs.ipns-record",
            "application/vnd.ipld.dag-cbor",
            "application/octet-stream",
            "application/gzip",
            "application/zip",
            "application/pdf",
            "image/png",
            "image/webp",
            "video/mp4",
            "audio/mpeg",
            "font/woff2",
            "multipart/byteranges; boundary=text/plain",
            "inode/symlink",
            "",
            "text",
        ] {
            assert!(!compressible(no), "{no}");
        }
    }
}
