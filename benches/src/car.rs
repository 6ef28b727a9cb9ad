//! CAR files of pseudo-random raw blocks, and their import.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, codec};
use serde::Deserialize;
use serde_json::Value;

use crate::add::upload;
use crate::client::Client;
use crate::content::random;

/// CARv1 file of raw blocks of one size.
#[derive(Debug)]
pub struct CarFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of blocks.
    pub blocks: u64,
    /// Size of all blocks, in bytes.
    pub payload: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Stats {
    block_count: u64,
    block_bytes_count: u64,
}

impl CarFile {
    /// Writes one block of `size` bytes for each of `seeds` to `path`, with one block in memory at a time. Every
    /// `root_each`-th block is a root, and an import pins the roots.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(path: &Path, seeds: Range<u64>, size: usize, root_each: usize) -> Result<Self> {
        let roots = seeds.clone().step_by(root_each).map(|seed| Ok(raw_block(seed, size)?.cid().to_bytes()));
        let header = header(&roots.collect::<Result<Vec<_>>>()?);
        let mut file = BufWriter::new(File::create(path).with_context(|| format!("cannot write {}", path.display()))?);
        file.write_all(&varint(header.len() as u64))?;
        file.write_all(&header)?;
        let blocks = seeds.end - seeds.start;
        for seed in seeds {
            let block = raw_block(seed, size)?;
            let cid = block.cid().to_bytes();
            file.write_all(&varint((cid.len() + size) as u64))?;
            file.write_all(&cid)?;
            file.write_all(block.data())?;
        }
        // Pending writes must not disturb the measurement.
        file.into_inner()?.sync_all()?;
        Ok(Self { path: path.to_owned(), blocks, payload: blocks * size as u64 })
    }
}

/// Returns the content ID of the block of `size` bytes that [`CarFile::write`] makes from `seed`.
///
/// # Errors
/// Never fails for SHA2-256.
pub fn raw_cid(seed: u64, size: usize) -> Result<String> {
    Ok(raw_block(seed, size)?.cid().to_string())
}

fn raw_block(seed: u64, size: usize) -> Result<Block> {
    Ok(Block::hash(1, codec::RAW, HashFunction::Sha2_256, random(seed, size).into())?)
}

/// Returns the DAG-CBOR of `{"roots": [...], "version": 1}` (<https://ipld.io/specs/transport/car/carv1/>).
fn header(roots: &[Vec<u8>]) -> Vec<u8> {
    let mut out = b"\xa2\x65roots".to_vec();
    out.extend(cbor_head(4, roots.len()));
    for root in roots {
        // A link: tag 42 with a byte string that begins with a zero byte.
        out.extend_from_slice(b"\xd8\x2a");
        out.extend(cbor_head(2, root.len() + 1));
        out.push(0);
        out.extend_from_slice(root);
    }
    out.extend_from_slice(b"\x67version\x01");
    out
}

/// Returns the head of a CBOR item of the major type `major`, in its shortest form.
fn cbor_head(major: u8, value: usize) -> Vec<u8> {
    let kind = major << 5;
    match value {
        0..24 => vec![kind | value as u8],
        24..0x100 => vec![kind | 24, value as u8],
        0x100..0x1_0000 => [&[kind | 25], &(value as u16).to_be_bytes()[..]].concat(),
        _ => [&[kind | 26], &(value as u32).to_be_bytes()[..]].concat(),
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// Imports a CAR with `/api/v0/dag/import`, pins its roots, and checks that all blocks were imported.
///
/// # Errors
/// Returns an error if the import fails or does not import exactly the blocks of `car`.
pub fn import_car(client: &mut Client, car: &CarFile) -> Result<()> {
    import(client, car, "/api/v0/dag/import?stats=true")
}

/// Does the same as [`import_car`] without pinning anything.
///
/// # Errors
/// As [`import_car`].
pub fn import_unpinned_car(client: &mut Client, car: &CarFile) -> Result<()> {
    import(client, car, "/api/v0/dag/import?stats=true&pin-roots=false")
}

fn import(client: &mut Client, car: &CarFile, target: &str) -> Result<()> {
    upload(client, target, &mut File::open(&car.path)?)?;
    let response = client.read(200)?;
    let shown = || String::from_utf8_lossy(&response).into_owned();
    let lines = serde_json::Deserializer::from_slice(&response).into_iter::<Value>();
    let lines: Vec<Value> = lines.collect::<Result<_, _>>().with_context(shown)?;
    let stats = lines.iter().find_map(|line| line.get("Stats")).with_context(shown)?;
    let stats: Stats = serde_json::from_value(stats.clone()).with_context(shown)?;
    ensure!(
        (stats.block_count, stats.block_bytes_count) == (car.blocks, car.payload),
        "the import stored something else: {}",
        shown()
    );
    Ok(())
}
