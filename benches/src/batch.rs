//! The same blocks fetched one by one and as a batch.

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
/// A CIDv1 with a sha2-256 multihash, in binary.
const CID_BYTES: usize = 36;
/// Blocks are added in requests of about this size.
const FORM_BYTES: usize = 32 * 1_024 * 1_024;
/// The most bytes of blocks that are asked for in one JSON document: the harness has it in memory to check it.
const MAX_JSON_BYTES: usize = 64 * 1_024 * 1_024;

/// Blocks of one size in a gateway, with the requests that fetch them.
#[derive(Debug)]
pub struct Batch {
    block_bytes: usize,
    one_by_one: Vec<Vec<u8>>,
    json: Option<Request>,
    car: Request,
}

/// A request and how long its answer is.
#[derive(Debug)]
struct Request {
    text: Vec<u8>,
    answer_bytes: u64,
}

impl Request {
    /// Asks for all blocks, and has the answer checked.
    fn checked(client: &mut Client, body: &str, accept: &str, check: impl Fn(&[u8]) -> Result<()>) -> Result<Self> {
        let head = post(TARGET, "application/json", accept, body.len() as u64);
        let text = [head.as_slice(), body.as_bytes()].concat();
        client.send(&text)?;
        let answer = client.read(200)?;
        check(&answer)?;
        Ok(Self { text, answer_bytes: answer.len() as u64 })
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
    /// Stores `count` blocks of `block_bytes` and checks, byte for byte, what each way of fetching them gives.
    ///
    /// # Errors
    /// When a request fails or an answer is not right.
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
            .then(|| Request::checked(client, &body, "", |answer| check_json(answer, count, content)));
        let car = Request::checked(client, &body, ACCEPT_CAR, |answer| check_car(answer, count, content))?;
        Ok(Self { block_bytes, one_by_one, json: json.transpose()?, car })
    }

    /// How many blocks there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.one_by_one.len()
    }

    /// Bytes of each block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Bytes of all blocks.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        (self.count() * self.block_bytes) as u64
    }

    /// Whether all of them fit into one JSON document. [`Self::fetch_json`] is an error where they do not.
    #[must_use]
    pub fn fits_json(&self) -> bool {
        self.json.is_some()
    }

    /// Fetches each block with a GET of its own, one after the other.
    ///
    /// # Errors
    /// When an answer is not as long as it was at first.
    pub fn fetch_one_by_one(&self, client: &mut Client) -> Result<()> {
        self.one_by_one.iter().try_for_each(|request| client.exchange(request, 200, self.block_bytes as u64))
    }

    /// Fetches all blocks as one JSON document.
    ///
    /// # Errors
    /// When the answer is not as long as it was at first.
    pub fn fetch_json(&self, client: &mut Client) -> Result<()> {
        self.json.as_ref().context("the blocks are too many for one JSON document")?.send(client)
    }

    /// Fetches all blocks as one CAR.
    ///
    /// # Errors
    /// When the answer is not as long as it was at first.
    pub fn fetch_car(&self, client: &mut Client) -> Result<()> {
        self.car.send(client)
    }
}

fn check_json(answer: &[u8], count: usize, content: impl Fn(usize) -> Vec<u8>) -> Result<()> {
    let answer: Answer = serde_json::from_slice(answer).context("the batch is not the JSON that was expected")?;
    ensure!(answer.blocks.len() == count, "the batch has {} blocks", answer.blocks.len());
    for (index, got) in answer.blocks.iter().enumerate() {
        ensure!(STANDARD.decode(&got.data)? == content(index), "block {index} of the JSON batch differs");
    }
    Ok(())
}

/// CARv1: a header and one frame per block, each with its length in front.
fn check_car(answer: &[u8], count: usize, content: impl Fn(usize) -> Vec<u8>) -> Result<()> {
    let (_header, mut rest) = frame(answer)?;
    for index in 0..count {
        let (got, after) = frame(rest)?;
        ensure!(got.get(CID_BYTES..) == Some(content(index).as_slice()), "block {index} of the CAR differs");
        rest = after;
    }
    ensure!(rest.is_empty(), "the CAR has {} bytes more than its blocks", rest.len());
    Ok(())
}

/// The first frame and what follows it.
fn frame(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let mut length = 0;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return bytes[index + 1..].split_at_checked(length).context("the CAR is cut off");
        }
    }
    bail!("the CAR is cut off, or a frame's length is")
}
