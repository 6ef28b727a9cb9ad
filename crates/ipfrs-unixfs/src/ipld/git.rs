//! Git objects: blocks of the codec git-raw (<https://github.com/ipld/go-ipld-git>). A block is an object as git hashes
//! it, and links are SHA-1 digests.

mod commit;
mod person;

use std::collections::BTreeMap;

use ipfrs_core::{Cid, CidList, Error, Result, cid_from_bytes, codec};
use ipld_core::cid::Cid as LinkCid;
use ipld_core::ipld::Ipld;

use super::Step;
use super::value::{self, Fields, map};

/// Bytes of a CID before its SHA-1 digest: version 1, codec, and hash function with its length.
const CID_PREFIX: [u8; 4] = [1, codec::GIT_RAW as u8, 0x11, DIGEST_BYTES as u8];
const DIGEST_BYTES: usize = 20;

/// Maximum size of a commit or tag into which paths lead, in bytes. Decoding takes up to 50 times as much memory.
const MAX_FOLLOWED_BYTES: usize = 256 * 1024;

/// Mode of an entry that is a directory.
const DIRECTORY_MODE: &str = "40000";

/// Returns the links of an object, in its order. A blob has none.
pub(super) fn links(object: &[u8]) -> Result<CidList> {
    let mut links = CidList::default();
    match Object::of(object)? {
        Object::Blob => {}
        Object::Tree(mut rest) => {
            while let Some(entry) = Entry::next(&mut rest)? {
                links.push(&cid_of(entry.digest));
            }
        }
        Object::Commit(text) => commit::digests(text, &[b"tree ", b"parent ", b"mergetag object "], &mut links)?,
        Object::Tag(text) => commit::digests(text, &[b"object "], &mut links)?,
    }
    Ok(links)
}

/// Checks the form of an object.
///
/// # Errors
/// If it is malformed.
pub fn check(object: &[u8]) -> Result<()> {
    match Object::of(object)? {
        Object::Blob => Ok(()),
        Object::Tree(_) => links(object).map(drop),
        Object::Commit(text) => commit::check(text, b"tree "),
        Object::Tag(text) => commit::check(text, b"object "),
    }
}

/// Follows `segments` in an object up to the first link.
pub(super) fn follow(object: &[u8], segments: &[String]) -> Result<Step> {
    match (Object::of(object)?, segments) {
        (_, []) => Ok(Step::Within),
        (Object::Blob, _) => Ok(Step::Missing(0)),
        (Object::Tree(mut rest), [name, fields @ ..]) => {
            while let Some(entry) = Entry::next(&mut rest)? {
                if entry.name == name.as_bytes() {
                    return Ok(match fields.first().map(String::as_str) {
                        Some("hash") => Step::Link { cid: cid_of(entry.digest), used: 2 },
                        Some("mode") if fields.len() == 1 => Step::Within,
                        Some(other) => Step::Missing(if other == "mode" { 2 } else { 1 }),
                        None => Step::Within,
                    });
                }
            }
            Ok(Step::Missing(0))
        }
        _ if object.len() > MAX_FOLLOWED_BYTES => Err(Error::too_large(format!(
            "paths lead into commits and tags of at most {MAX_FOLLOWED_BYTES} bytes: request the whole block"
        ))),
        // Links are ASCII, whatever the encoding of names.
        (Object::Commit(text), _) => {
            value::follow(&commit::decode_commit(String::from_utf8_lossy(text).as_bytes())?, segments)
        }
        (Object::Tag(text), _) => {
            value::follow(&commit::decode_tag(String::from_utf8_lossy(text).as_bytes())?, segments)
        }
    }
}

/// Decodes an object to the values that Kubo shows.
///
/// # Errors
/// If it is malformed, or a text is not UTF-8.
pub fn decode(object: &[u8]) -> Result<Ipld> {
    match Object::of(object)? {
        Object::Blob => Ok(Ipld::Bytes(object.to_vec())),
        Object::Tree(mut rest) => {
            let mut tree = BTreeMap::new();
            while let Some(entry) = Entry::next(&mut rest)? {
                let value = map([("mode", text(entry.mode)?), ("hash", link_of(entry.digest))]);
                let Ipld::String(name) = text(entry.name)? else { continue };
                if tree.contains_key(&name) {
                    return Err(Error::invalid(format!("two entries have the name {name:?}")));
                }
                tree.insert(name, value);
            }
            Ok(Ipld::Map(tree))
        }
        Object::Commit(text) => commit::decode_commit(text),
        Object::Tag(text) => commit::decode_tag(text),
    }
}

/// Encodes values as an object: bytes as a blob, which must have its head, and maps as a commit, a tag or a tree, which
/// their fields tell apart.
///
/// # Errors
/// If the fields are not those of an object.
pub fn encode(value: &Ipld) -> Result<Vec<u8>> {
    match value {
        Ipld::Bytes(object) => match Object::of(object)? {
            Object::Blob => Ok(object.clone()),
            _ => Err(invalid("bytes are a blob: they begin with \"blob\", their length in digits, and a zero byte")),
        },
        Ipld::Map(fields) if fields.values().all(is_entry) => encode_tree(fields),
        Ipld::Map(fields) if fields.contains_key("object") => commit::encode_tag(value),
        Ipld::Map(_) => commit::encode_commit(value),
        _ => Err(invalid("an object is a map or bytes")),
    }
}

fn is_entry(value: &Ipld) -> bool {
    matches!(value, Ipld::Map(fields)
        if fields.len() == 2 && fields.contains_key("mode") && matches!(fields.get("hash"), Some(Ipld::Link(_))))
}

fn encode_tree(fields: &BTreeMap<String, Ipld>) -> Result<Vec<u8>> {
    let mut entries = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let entry = Fields::of(value, "an entry of a tree")?;
        let mode = entry.text("mode")?;
        if mode.is_empty() || mode.contains([' ', '\0']) || name.is_empty() || name.contains('\0') {
            return Err(invalid("a mode is octal digits, and a name is not empty"));
        }
        entries.push((name, mode, entry.digest("hash")?));
    }
    // Git sorts directories as if their names ended with a slash.
    entries.sort_by_cached_key(|(name, mode, _)| match *mode {
        DIRECTORY_MODE => format!("{name}/"),
        _ => (*name).clone(),
    });
    let mut body = Vec::new();
    for (name, mode, digest) in entries {
        body.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        body.extend_from_slice(&digest);
    }
    Ok(with_head("tree", &body))
}

fn with_head(kind: &str, body: &[u8]) -> Vec<u8> {
    [format!("{kind} {}\0", body.len()).as_bytes(), body].concat()
}

/// An object without its head.
enum Object<'a> {
    Blob,
    Tree(&'a [u8]),
    Commit(&'a [u8]),
    Tag(&'a [u8]),
}

impl<'a> Object<'a> {
    /// Reads the head: the kind, a space, the length in digits and a zero byte.
    fn of(object: &'a [u8]) -> Result<Self> {
        let malformed = || Error::invalid("it has no head such as \"tree 120\" with a zero byte");
        let end = object.iter().take(32).position(|byte| *byte == 0).ok_or_else(malformed)?;
        let head = str::from_utf8(&object[..end]).ok().and_then(|head| head.split_once(' ')).ok_or_else(malformed)?;
        let (kind, length, body) = (head.0, head.1.parse::<usize>().map_err(|_| malformed())?, &object[end + 1..]);
        if length != body.len() {
            let message = format!("its head says {length} bytes, and {} follow", body.len());
            return Err(Error::invalid(message));
        }
        match kind {
            "blob" => Ok(Self::Blob),
            "tree" => Ok(Self::Tree(body)),
            "commit" => Ok(Self::Commit(body)),
            "tag" => Ok(Self::Tag(body)),
            _ => Err(malformed()),
        }
    }
}

/// An entry of a tree.
struct Entry<'a> {
    mode: &'a [u8],
    name: &'a [u8],
    digest: &'a [u8],
}

impl<'a> Entry<'a> {
    fn next(rest: &mut &'a [u8]) -> Result<Option<Self>> {
        if rest.is_empty() {
            return Ok(None);
        }
        let cut_off = || Error::invalid("the last entry of the tree is cut off");
        let mut until = |end: u8| {
            let length = rest.iter().position(|byte| *byte == end)?;
            let (before, behind) = rest.split_at(length);
            *rest = &behind[1..];
            Some(before)
        };
        let mode = until(b' ').ok_or_else(cut_off)?;
        let name = until(0).ok_or_else(cut_off)?;
        let (digest, behind) = rest.split_at_checked(DIGEST_BYTES).ok_or_else(cut_off)?;
        *rest = behind;
        Ok(Some(Self { mode, name, digest }))
    }
}

fn text(bytes: &[u8]) -> Result<Ipld> {
    let text = str::from_utf8(bytes);
    text.map(|text| Ipld::String(text.to_owned())).map_err(|_| {
        Error::unsupported(format!("{:?} is not UTF-8: request the block as git-raw", String::from_utf8_lossy(bytes)))
    })
}

fn cid_of(digest: &[u8]) -> Cid {
    let bytes = [&CID_PREFIX, digest].concat();
    cid_from_bytes(&bytes).expect("a SHA-1 digest has 20 bytes")
}

fn link_of(digest: &[u8]) -> Ipld {
    Ipld::Link(LinkCid::try_from([&CID_PREFIX, digest].concat()).expect("a SHA-1 digest has 20 bytes"))
}

fn invalid(why: &str) -> Error {
    Error::invalid(format!("git-raw cannot represent it: {why}"))
}

#[cfg(test)]
mod tests;
