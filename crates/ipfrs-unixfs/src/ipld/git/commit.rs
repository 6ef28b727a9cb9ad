//! Commits and tags: lines of headers, an empty line and a message.

use std::collections::BTreeMap;
use std::fmt::Write;

use ipfrs_core::{CidList, Error, Result};
use ipld_core::ipld::Ipld;

use super::{DIGEST_BYTES, cid_of, invalid, link_of, person, text, with_head};
use crate::ipld::value::{Fields, map};

/// First and last line of the only kind of signature that has a field.
const SIGNATURE_BEGINS: &[u8] = b"gpgsig -----BEGIN PGP SIGNATURE-----";
const SIGNATURE_ENDS: &[u8] = b" -----END PGP SIGNATURE-----";

/// Adds the links of the headers that begin with one of `prefixes`.
pub(super) fn digests(text: &[u8], prefixes: &[&[u8]], links: &mut CidList) -> Result<()> {
    let headers = Lines(text).take_while(|line| !line.is_empty());
    for line in headers {
        if let Some(digits) = prefixes.iter().find_map(|prefix| line.strip_prefix(*prefix)) {
            links.push(&cid_of(&digest(digits)?));
        }
    }
    Ok(())
}

/// Checks that there is a header that begins with `required`, and that the digests of all links are well-formed.
pub(super) fn check(text: &[u8], required: &[u8]) -> Result<()> {
    let mut links = CidList::default();
    digests(text, &[b"tree ", b"parent ", b"mergetag object ", b"object "], &mut links)?;
    match Lines(text).take_while(|line| !line.is_empty()).any(|line| line.starts_with(required)) {
        true => Ok(()),
        false => Err(Error::invalid("the commit has no tree, or the tag no object")),
    }
}

pub(super) fn decode_commit(body: &[u8]) -> Result<Ipld> {
    let mut fields = BTreeMap::new();
    let (mut parents, mut tags, mut other) = (Vec::new(), Vec::new(), Vec::new());
    let mut set = |name: &str, value: Ipld| fields.insert(name.to_owned(), value);
    let mut lines = Lines(body);
    while let Some(line) = lines.next() {
        match line {
            [] => break,
            [b't', b'r', b'e', b'e', b' ', digits @ ..] => {
                set("tree", link_of(&digest(digits)?));
            }
            _ if line.starts_with(b"parent ") => parents.push(link_of(&digest(&line[7..])?)),
            _ if line.starts_with(b"author ") => {
                set("author", person::decode(&line[7..])?);
            }
            _ if line.starts_with(b"committer ") => {
                set("committer", person::decode(&line[10..])?);
            }
            _ if line.starts_with(b"encoding ") => {
                set("encoding", text(&line[9..])?);
            }
            _ if line.starts_with(b"mergetag object ") => tags.push(merge_tag(&line[16..], &mut lines)?),
            _ if line == SIGNATURE_BEGINS => {
                set("signature", signature(&mut lines)?);
            }
            _ => other.push(text(line)?),
        }
    }
    // As in Kubo.
    for optional in ["author", "committer", "encoding", "signature"] {
        fields.entry(optional.to_owned()).or_insert(Ipld::Null);
    }
    let mut set = |name: &str, value: Ipld| fields.insert(name.to_owned(), value);
    set("message", text(lines.0)?);
    set("parents", Ipld::List(parents));
    set("mergetag", Ipld::List(tags));
    set("other", Ipld::List(other));
    if !fields.contains_key("tree") {
        return Err(Error::invalid("the commit has no tree"));
    }
    Ok(Ipld::Map(fields))
}

/// Decodes a tag in a header. Its lines begin with a space.
fn merge_tag(digits: &[u8], lines: &mut Lines<'_>) -> Result<Ipld> {
    let mut body = [b"object ", digits, b"\n"].concat();
    while let Some(line) = lines.0.strip_prefix(b" ") {
        let length = line.iter().position(|byte| *byte == b'\n').map_or(line.len(), |end| end + 1);
        body.extend_from_slice(&line[..length]);
        lines.0 = &line[length..];
    }
    // Kubo keeps the space at the start of each line of the message.
    let mut tag = decode_tag(&body)?;
    if let Ipld::Map(fields) = &mut tag
        && let Some(Ipld::String(message)) = fields.get_mut("message")
    {
        *message = message.split_inclusive('\n').map(|line| format!(" {line}")).collect();
    }
    Ok(tag)
}

/// Returns the lines of a signature after the first one.
fn signature(lines: &mut Lines<'_>) -> Result<Ipld> {
    let mut all = Vec::new();
    loop {
        match lines.next() {
            Some(SIGNATURE_ENDS) => return text(&all),
            Some(line) if line.starts_with(b" ") => {
                all.extend_from_slice(line);
                all.push(b'\n');
            }
            _ => return Err(Error::invalid("the signature has no end")),
        }
    }
}

pub(super) fn decode_tag(body: &[u8]) -> Result<Ipld> {
    let empty = || Ipld::String(String::new());
    let nobody = || map([("date", empty()), ("timezone", empty()), ("email", empty()), ("name", empty())]);
    let (mut object, mut kind, mut tag, mut tagger) = (None, empty(), empty(), nobody());
    let mut lines = Lines(body);
    for line in lines.by_ref() {
        match line {
            [] => break,
            _ if line.starts_with(b"object ") => object = Some(link_of(&digest(&line[7..])?)),
            _ if line.starts_with(b"type ") => kind = text(&line[5..])?,
            _ if line.starts_with(b"tag ") => tag = text(&line[4..])?,
            _ if line.starts_with(b"tagger ") => tagger = person::decode(&line[7..])?,
            _ => {}
        }
    }
    let object = object.ok_or_else(|| Error::invalid("the tag has no object"))?;
    Ok(map([("object", object), ("type", kind), ("tag", tag), ("tagger", tagger), ("message", text(lines.0)?)]))
}

pub(super) fn encode_commit(value: &Ipld) -> Result<Vec<u8>> {
    let commit = Fields::of(value, "a commit")?;
    let known = ["tree", "parents", "message", "author", "committer", "encoding", "signature", "mergetag", "other"];
    commit.check_known(&known)?;
    let mut body = String::new();
    line(&mut body, format_args!("tree {}", hex(&commit.digest("tree")?)));
    for parent in commit.list("parents")? {
        line(&mut body, format_args!("parent {}", hex(&Fields::digest_of(parent, "parents")?)));
    }
    for role in ["author", "committer"] {
        if let Some(who) = commit.get_value(role) {
            line(&mut body, format_args!("{role} {}", person::encode(who)?));
        }
    }
    if commit.get_value("encoding").is_some() {
        line(&mut body, format_args!("encoding {}", one_line(commit.text("encoding")?)?));
    }
    for tag in commit.list("mergetag")? {
        let tag = Fields::of(tag, "a mergetag")?;
        let tagger = tag.get_value("tagger").map_or_else(|| Ok(String::new()), person::encode)?;
        line(&mut body, format_args!("mergetag object {}", hex(&tag.digest("object")?)));
        for (name, text) in [("type", tag.text("type")?), ("tag", tag.text("tag")?), ("tagger", &tagger)] {
            line(&mut body, format_args!(" {name} {}", one_line(text)?));
        }
        body.push_str(" \n");
        body.push_str(indented(tag.text("message")?)?);
    }
    if commit.get_value("signature").is_some() {
        let [begins, ends] = [SIGNATURE_BEGINS, SIGNATURE_ENDS].map(String::from_utf8_lossy);
        line(&mut body, format_args!("{begins}"));
        body.push_str(indented(commit.text("signature")?)?);
        line(&mut body, format_args!("{ends}"));
    }
    for other in commit.list("other")? {
        match other {
            Ipld::String(header) if !header.is_empty() => line(&mut body, format_args!("{}", one_line(header)?)),
            _ => return Err(invalid("other is a list of header lines")),
        }
    }
    body.push('\n');
    body.push_str(commit.text("message")?);
    Ok(with_head("commit", body.as_bytes()))
}

pub(super) fn encode_tag(value: &Ipld) -> Result<Vec<u8>> {
    let tag = Fields::of(value, "a tag")?;
    tag.check_known(&["object", "type", "tag", "tagger", "message"])?;
    let mut body = String::new();
    line(&mut body, format_args!("object {}", hex(&tag.digest("object")?)));
    line(&mut body, format_args!("type {}", one_line(tag.text("type")?)?));
    line(&mut body, format_args!("tag {}", one_line(tag.text("tag")?)?));
    let tagger = tag.get_value("tagger").map(person::encode).transpose()?.filter(|tagger| tagger != "<>");
    if let Some(tagger) = tagger {
        line(&mut body, format_args!("tagger {tagger}"));
    }
    let message = tag.text("message")?;
    if !message.is_empty() {
        line(&mut body, format_args!(""));
        body.push_str(message);
    }
    Ok(with_head("tag", body.as_bytes()))
}

fn line(body: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(body, "{content}").expect("writing to a string does not fail");
}

fn one_line(text: &str) -> Result<&str> {
    if text.contains('\n') {
        return Err(invalid(&format!("the header {text:?} has several lines")));
    }
    Ok(text)
}

/// Checks that each line begins with a space and ends, so that it cannot be taken for a header.
fn indented(text: &str) -> Result<&str> {
    let is_indented = |line: &str| line.starts_with(' ') && line.ends_with('\n');
    if !text.split_inclusive('\n').all(is_indented) {
        return Err(invalid("the lines of a signature, and of the message of a mergetag, begin with a space"));
    }
    Ok(text)
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(digits: &[u8]) -> Result<[u8; DIGEST_BYTES]> {
    let malformed = || Error::invalid(format!("{:?} is not a SHA-1 digest", String::from_utf8_lossy(digits)));
    if digits.len() != 2 * DIGEST_BYTES {
        return Err(malformed());
    }
    let mut digest = [0; DIGEST_BYTES];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks(2)) {
        let pair = str::from_utf8(pair).ok().filter(|pair| !pair.starts_with('+'));
        *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or_else(malformed)?;
    }
    Ok(digest)
}

/// The rest of a text, by lines.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let end = self.0.iter().position(|byte| *byte == b'\n').unwrap_or(self.0.len());
        let (line, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        Some(line)
    }
}
