//! Requests to `POST /api/v0/add`, as Kubo's clients send them.

use std::fs::File;
use std::io::Seek;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::client::{Client, post};

const BOUNDARY: &str = "ipfrs-benches-3f8a1c7e";
const CONTENT_TYPE: &str = "multipart/form-data; boundary=ipfrs-benches-3f8a1c7e";

/// Chunking profile of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// dag-pb leaves of 256 KiB, the default.
    DagPb,
    /// Raw leaves of 1 MiB. A small file is one block that holds exactly its bytes.
    Raw,
    /// Raw leaves of 256 KiB, requested with parameters that Kubo also knows. A file of at most 256 KiB is one block.
    /// Nothing is pinned.
    RawBlocks,
    /// Same as [`Self::RawBlocks`], in a directory that is reported last.
    Directory,
}

impl Profile {
    fn target(self) -> &'static str {
        match self {
            Self::DagPb => "/api/v0/add?profile=unixfs-v0-2015",
            Self::Raw => "/api/v0/add?profile=unixfs-v1-2025",
            Self::RawBlocks => "/api/v0/add?cid-version=1&raw-leaves=true&pin=false",
            Self::Directory => "/api/v0/add?cid-version=1&raw-leaves=true&wrap-with-directory=true",
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Added {
    hash: String,
}

/// Multipart request that adds files.
#[derive(Debug, Default)]
pub struct Multipart {
    body: Vec<u8>,
    files: usize,
}

impl Multipart {
    /// Appends a file to the request.
    pub fn file(&mut self, content: &[u8]) {
        self.named(&self.files.to_string(), content);
    }

    /// Appends a file with a path to the request.
    pub fn named(&mut self, path: &str, content: &[u8]) {
        self.body.extend_from_slice(part_head(path).as_bytes());
        self.body.extend_from_slice(content);
        self.body.extend_from_slice(b"\r\n");
        self.files += 1;
    }

    /// Sends the request and returns the content IDs of the files, in order, and those of their directories.
    ///
    /// # Errors
    /// Returns an error if the import fails.
    pub fn send(mut self, client: &mut Client, profile: Profile) -> Result<Vec<String>> {
        self.body.extend_from_slice(end().as_bytes());
        client.send(&post(profile.target(), CONTENT_TYPE, "", self.body.len() as u64))?;
        client.send(&self.body)?;
        let added = added(&client.read(200)?)?;
        let is_complete = added.len() == self.files || (profile == Profile::Directory && added.len() > self.files);
        ensure!(is_complete, "{} files were added, but {} were sent", added.len(), self.files);
        Ok(added)
    }
}

/// Adds `count` files of `bytes` bytes in one directory and one request. Their names and content are created while they
/// are sent. Returns their content IDs, in order, and that of the directory.
///
/// # Errors
/// Returns an error if the import fails.
pub fn add_directory(
    client: &mut Client,
    count: usize,
    bytes: usize,
    name: impl Fn(usize) -> String + Sync,
    content: impl Fn(usize) -> Vec<u8> + Sync,
) -> Result<Vec<String>> {
    let parts: usize = (0..count).map(|number| part_head(&name(number)).len() + bytes + 2).sum();
    let head = post(Profile::Directory.target(), CONTENT_TYPE, "", (parts + end().len()) as u64);
    let response = client.read_while(|request| {
        request.write_all(&head)?;
        for number in 0..count {
            request.write_all(part_head(&name(number)).as_bytes())?;
            request.write_all(&content(number))?;
            request.write_all(b"\r\n")?;
        }
        request.write_all(end().as_bytes())
    })?;
    let added = added(&response)?;
    ensure!(added.len() > count, "{} files and directories were added, but {count} files were sent", added.len());
    Ok(added)
}

/// Adds one large file and returns its content ID.
///
/// # Errors
/// Returns an error if the file cannot be read or the import fails.
pub fn add_file(client: &mut Client, profile: Profile, file: &mut File) -> Result<String> {
    upload(client, profile.target(), file)?;
    added(&client.read(200)?)?.pop().context("the response has no file")
}

/// Sends `file` as the only part of a multipart body.
pub(crate) fn upload(client: &mut Client, target: &str, file: &mut File) -> Result<()> {
    let size = file.metadata()?.len();
    file.rewind()?;
    let (part, end) = (part_head("0"), format!("\r\n{}", end()));
    let length = (part.len() + end.len()) as u64 + size;
    client.send(&[&post(target, CONTENT_TYPE, "", length), part.as_bytes()].concat())?;
    client.send_file(file, size)?;
    client.send(end.as_bytes())
}

fn part_head(path: &str) -> String {
    format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{path}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    )
}

fn end() -> String {
    format!("--{BOUNDARY}--\r\n")
}

fn added(response: &[u8]) -> Result<Vec<String>> {
    let lines = serde_json::Deserializer::from_slice(response).into_iter::<Added>();
    lines
        .map(|line| Ok(line.with_context(|| format!("add responded with {}", String::from_utf8_lossy(response)))?.hash))
        .collect()
}
