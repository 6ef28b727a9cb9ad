//! The same blocks fetched one by one and as a batch.

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use crate::add::{Multipart, Profile};
use crate::client::{Client, get, post};
use crate::content::random;

const BLOCK_BYTES: usize = 1_024;
const TARGET: &str = "/v1/block/batch/get";
const ACCEPT_CAR: &str = "Accept: application/vnd.ipld.car\r\n";
/// A CIDv1 with a sha2-256 multihash, in binary.
const CID_BYTES: usize = 36;

/// Blocks of 1 KiB in a gateway, with the requests that fetch them.
#[derive(Debug)]
pub struct Batch {
    one_by_one: Vec<Vec<u8>>,
    json: Vec<u8>,
    json_bytes: u64,
    car: Vec<u8>,
    car_bytes: u64,
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
    /// Stores `count` blocks and checks, byte for byte, what each way of fetching them gives.
    ///
    /// # Errors
    /// When a request fails or an answer is not right.
    pub fn prepare(client: &mut Client, count: usize) -> Result<Self> {
        let content: Vec<_> = (0..count).map(|index| random(index as u64, BLOCK_BYTES)).collect();
        let mut form = Multipart::default();
        content.iter().for_each(|block| form.file(block));
        let cids = form.send(client, Profile::Raw)?;
        let one_by_one: Vec<_> = cids.iter().map(|cid| get(&format!("/ipfs/{cid}?format=raw"))).collect();
        for (request, block) in one_by_one.iter().zip(&content) {
            client.send(request)?;
            client.compare(200, block.as_slice())?;
        }
        let body = json!({ "cids": cids }).to_string();
        let request = |accept| {
            let head = post(TARGET, "application/json", accept, body.len() as u64);
            [head.as_slice(), body.as_bytes()].concat()
        };
        let (json, car) = (request(""), request(ACCEPT_CAR));
        client.send(&json)?;
        let as_json = client.read(200)?;
        check_json(&as_json, &content)?;
        client.send(&car)?;
        let as_car = client.read(200)?;
        check_car(&as_car, &content)?;
        Ok(Self { one_by_one, json, json_bytes: as_json.len() as u64, car, car_bytes: as_car.len() as u64 })
    }

    /// How many blocks there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.one_by_one.len()
    }

    /// Bytes of all blocks.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        (self.count() * BLOCK_BYTES) as u64
    }

    /// Fetches each block with a GET of its own, one after the other.
    ///
    /// # Errors
    /// When an answer is not as long as it was at first.
    pub fn fetch_one_by_one(&self, client: &mut Client) -> Result<()> {
        self.one_by_one.iter().try_for_each(|request| client.exchange(request, 200, BLOCK_BYTES as u64))
    }

    /// Fetches all blocks as one JSON document.
    ///
    /// # Errors
    /// When the answer is not as long as it was at first.
    pub fn fetch_json(&self, client: &mut Client) -> Result<()> {
        client.exchange(&self.json, 200, self.json_bytes)
    }

    /// Fetches all blocks as one CAR.
    ///
    /// # Errors
    /// When the answer is not as long as it was at first.
    pub fn fetch_car(&self, client: &mut Client) -> Result<()> {
        client.exchange(&self.car, 200, self.car_bytes)
    }
}

fn check_json(answer: &[u8], content: &[Vec<u8>]) -> Result<()> {
    let answer: Answer = serde_json::from_slice(answer).context("the batch is not the JSON that was expected")?;
    ensure!(answer.blocks.len() == content.len(), "the batch has {} blocks", answer.blocks.len());
    for (index, (got, block)) in answer.blocks.iter().zip(content).enumerate() {
        ensure!(STANDARD.decode(&got.data)? == *block, "block {index} of the JSON batch differs");
    }
    Ok(())
}

/// CARv1: a header and one frame per block, each with its length in front.
fn check_car(answer: &[u8], content: &[Vec<u8>]) -> Result<()> {
    let (_header, mut rest) = frame(answer)?;
    for (index, block) in content.iter().enumerate() {
        let (got, after) = frame(rest)?;
        ensure!(got.get(CID_BYTES..) == Some(block.as_slice()), "block {index} of the CAR differs");
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
