//! Fetches the same blocks one by one and as a batch.

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use crate::add::{Multipart, Profile};
use crate::client::{Client, get, post};
use crate::content::random;

const TARGET: &str = "/v1/block/batch/get";
const ACCEPT_CAR: &str = "Accept: application/vnd.ipld.car\r\n";
/// Length of a binary CIDv1 with a sha2-256 multihash, in bytes.
const CID_BYTES: usize = 36;
/// Approximate size of the requests that add blocks, in bytes.
const FORM_BYTES: usize = 32 * 1_024 * 1_024;
/// Maximum number of block bytes in one JSON document, because the harness holds the document in memory to check it.
const MAX_JSON_BYTES: usize = 64 * 1_024 * 1_024;

/// Blocks of one size in a gateway, with the requests that fetch them.
#[derive(Debug)]
pub struct Batch {
    block_bytes: usize,
    one_by_one: Vec<Vec<u8>>,
    json: Option<Request>,
    car: Request,
}

/// Request with the length of its response.
#[derive(Debug)]
struct Request {
    text: Vec<u8>,
    answer_bytes: u64,
}

impl Request {
    /// Requests all blocks and checks the response with `check`.
    fn checked(client: &mut Client, body: &str, accept: &str, check: impl Fn(&[u8]) -> Result<()>) -> Result<Self> {
        let head = post(TARGET, "application/json", accept, body.len() as u64);
        let text = [head.as_slice(), body.as_bytes()].concat();
        client.send(&text)?;
        let response = client.read(200)?;
        check(&response)?;
        Ok(Self { text, answer_bytes: response.len() as u64 })
    }

    fn send(&self, client: &mut Client) -> Result<()> {
        client.exchange(&self.text, 200, self.answer_bytes)
    }
}

#[derive(Deserialize)]
struct Answer {
    blocks: Vec<AnsweredBlock>,
}

#[derive(Deserialize)]
struct AnsweredBlock {
    data: String,
}

impl Batch {
    /// Stores `count` blocks of `block_bytes` each and compares the response of each way of fetching them byte for
    /// byte.
    ///
    /// # Errors
    /// Returns an error if a request fails or a response is wrong.
    pub fn prepare(client: &mut Client, count: usize, block_bytes: usize) -> Result<Self> {
        let content = |index: usize| random(index as u64, block_bytes);
        let indices: Vec<_> = (0..count).collect();
        let mut cids = Vec::with_capacity(count);
        for some in indices.chunks((FORM_BYTES / block_bytes).max(1)) {
            let mut form = Multipart::default();
            some.iter().for_each(|index| form.file(&content(*index)));
            cids.extend(form.send(client, Profile::Raw)?);
        }
        let one_by_one: Vec<_> = cids.iter().map(|cid| get(&format!("/ipfs/{cid}?format=raw"))).collect();
        for (index, request) in one_by_one.iter().enumerate() {
            client.send(request)?;
            client.compare(200, content(index).as_slice())?;
        }
        let body = json!({ "cids": cids }).to_string();
        let json = (count * block_bytes <= MAX_JSON_BYTES)
            .then(|| Request::checked(client, &body, "", |response| check_json(response, count, content)));
        let car = Request::checked(client, &body, ACCEPT_CAR, |response| check_car(response, count, content))?;
        Ok(Self { block_bytes, one_by_one, json: json.transpose()?, car })
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.one_by_one.len()
    }

    /// Returns the size of a block, in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Returns the size of all blocks, in bytes.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        (self.count() * self.block_bytes) as u64
    }

    /// Whether all blocks fit into one JSON document. If not, [`Self::fetch_json`] returns an error.
    #[must_use]
    pub fn fits_json(&self) -> bool {
        self.json.is_some()
    }

    /// Fetches the blocks sequentially, each with its own GET.
    ///
    /// # Errors
    /// Returns an error if a response does not have the length that `prepare` recorded.
    pub fn fetch_one_by_one(&self, client: &mut Client) -> Result<()> {
        self.one_by_one.iter().try_for_each(|request| client.exchange(request, 200, self.block_bytes as u64))
    }

    /// Fetches all blocks as one JSON document.
    ///
    /// # Errors
    /// Returns an error if the response does not have the length that `prepare` recorded.
    pub fn fetch_json(&self, client: &mut Client) -> Result<()> {
        self.json.as_ref().context("the blocks are too many for one JSON document")?.send(client)
    }

    /// Fetches all blocks as one CAR.
    ///
    /// # Errors
    /// Returns an error if the response does not have the length that `prepare` recorded.
    pub fn fetch_car(&self, client: &mut Client) -> Result<()> {
        self.car.send(client)
    }
}

fn check_json(response: &[u8], count: usize, content: impl Fn(usize) -> Vec<u8>) -> Result<()> {
    let response: Answer = serde_json::from_slice(response).context("the batch is not the expected JSON")?;
    ensure!(response.blocks.len() == count, "the batch has {} blocks", response.blocks.len());
    for (index, got) in response.blocks.iter().enumerate() {
        ensure!(STANDARD.decode(&got.data)? == content(index), "block {index} of the JSON batch differs");
    }
    Ok(())
}

/// Checks a CARv1: a header and one frame per block, each with a length prefix.
fn check_car(response: &[u8], count: usize, content: impl Fn(usize) -> Vec<u8>) -> Result<()> {
    let (_header, mut rest) = frame(response)?;
    for index in 0..count {
        let (got, after) = frame(rest)?;
        ensure!(got.get(CID_BYTES..) == Some(content(index).as_slice()), "block {index} of the CAR differs");
        rest = after;
    }
    ensure!(rest.is_empty(), "the CAR has {} bytes more than its blocks", rest.len());
    Ok(())
}

/// Splits off the first frame and returns it with the rest.
fn frame(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let mut length = 0;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return bytes[index + 1..].split_at_checked(length).context("the CAR is truncated");
        }
    }
    bail!("the CAR is truncated, or the length of a frame is")
}
