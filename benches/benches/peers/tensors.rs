//! One tensor of a model, compared with the same bytes as a range of its file.

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result};
use ipfrs_benches::{Bound, Client, Goal, Profile, Series, Table, add_file, get, get_range, random};

use crate::figures::{Measurement, turns};
use crate::site::Site;

/// F32 of 4096 × 4096: 64 MiB.
const TENSOR_BYTES: usize = 4096 * 4096 * 4;
/// Size of the tensors before and after it. As a result, the tensor does not start at a block boundary.
const BIAS_BYTES: usize = 4_000;
/// Number of reads in one round.
const TRANSFERS: u32 = 8;
const GOAL: f64 = 0.9;

pub(crate) struct Tensors {
    ways: Vec<Way>,
}

/// A way of requesting the bytes.
struct Way {
    leaves: &'static str,
    name: &'static str,
    request: Vec<u8>,
    status: u16,
    gb_per_second: Series,
}

impl Tensors {
    /// Adds the model and compares the responses of both ways byte for byte.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let (bias, tensor) = (random(1, BIAS_BYTES), random(2, TENSOR_BYTES));
        let (start, end) = (BIAS_BYTES, BIAS_BYTES + TENSOR_BYTES);
        let header = format!(
            "{{\"a\":{{\"dtype\":\"U8\",\"shape\":[{start}],\"data_offsets\":[0,{start}]}},\
             \"w\":{{\"dtype\":\"F32\",\"shape\":[4096,4096],\"data_offsets\":[{start},{end}]}},\
             \"z\":{{\"dtype\":\"U8\",\"shape\":[{start}],\"data_offsets\":[{end},{}]}}}}",
            end + BIAS_BYTES
        );
        let path = site.scratch("model");
        let mut file = File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
        for bytes in [&u64::try_from(header.len())?.to_le_bytes()[..], header.as_bytes(), &bias, &tensor, &bias] {
            file.write_all(bytes)?;
        }
        let (offset, length) = (u64::try_from(8 + header.len() + start)?, u64::try_from(TENSOR_BYTES)?);
        let mut client = Client::connect(site.gateway.address())?;
        let mut ways = Vec::new();
        for (leaves, profile) in [("dag-pb leaves of 256 KiB", Profile::DagPb), ("raw leaves of 1 MiB", Profile::Raw)] {
            let cid = add_file(&mut client, profile, &mut File::open(&path)?)?;
            let way = |name, request, status| Way { leaves, name, request, status, gb_per_second: Series::default() };
            ways.push(way("range of the file", get_range(&format!("/ipfs/{cid}"), offset, length), 206));
            ways.push(way("tensor by name", get(&format!("/v1/tensor/{cid}?name=w")), 200));
        }
        for way in &ways {
            client.send(&way.request)?;
            let compared = client.compare(way.status, tensor.as_slice());
            compared.with_context(|| format!("{} of {} returns different bytes", way.name, way.leaves))?;
        }
        Ok(Self { ways })
    }
}

impl Measurement for Tensors {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for turn in turns(round, self.ways.len()) {
            let way = &mut self.ways[turn];
            let mut client = Client::connect(site.gateway.address())?;
            let start = Instant::now();
            for _ in 0..TRANSFERS {
                client.exchange(&way.request, way.status, TENSOR_BYTES as u64)?;
            }
            let gigabytes = TENSOR_BYTES as f64 * f64::from(TRANSFERS) / 1e9;
            way.gb_per_second.push(gigabytes / start.elapsed().as_secs_f64());
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let row = |way: &Way| vec![way.leaves.to_owned(), way.name.to_owned(), way.gb_per_second.show(2)];
        vec![Table::new(
            "A tensor of 64 MiB, one connection",
            ["file", "requested as", "GB/s"],
            self.ways.iter().map(row),
        )]
    }

    fn goals(&self) -> Vec<Goal> {
        let goal = |pair: &[Way]| Goal {
            what: format!("A tensor of 64 MiB, GB/s: by name / as a range, {}", pair[0].leaves),
            figure: pair[1].gb_per_second.median() / pair[0].gb_per_second.median(),
            bound: Bound::AtLeast(GOAL),
        };
        self.ways.chunks_exact(2).map(goal).collect()
    }
}
