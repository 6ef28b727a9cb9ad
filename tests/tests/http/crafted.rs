//! DAGs that no importer creates: hand-written dag-pb and UnixFS with arbitrary sizes, links and names
//! (<https://ipld.io/specs/codecs/dag-pb/spec/>, <https://specs.ipfs.tech/unixfs/>).

use ipfrs_core::hash::sha2_256;
use ipfrs_core::{Cid, codec};

use crate::car;
use crate::harness::{TestGateway, ndjson};
use crate::multipart::Form;

/// UnixFS types.
pub(crate) const DIRECTORY: u64 = 1;
pub(crate) const FILE: u64 = 2;
pub(crate) const SYMLINK: u64 = 4;
pub(crate) const SHARD: u64 = 5;

/// The UnixFS `Data` message. Fields with the value `None` are omitted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data<'a> {
    pub(crate) kind: u64,
    pub(crate) data: &'a [u8],
    pub(crate) filesize: Option<u64>,
    pub(crate) blocksizes: &'a [u64],
    pub(crate) fanout: Option<u64>,
}

impl Data<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, 1, self.kind);
        if !self.data.is_empty() {
            put_bytes(&mut out, 2, self.data);
        }
        self.filesize.into_iter().for_each(|size| put_number(&mut out, 3, size));
        self.blocksizes.iter().for_each(|size| put_number(&mut out, 4, *size));
        if let Some(fanout) = self.fanout {
            put_number(&mut out, 5, 0x22);
            put_number(&mut out, 6, fanout);
        }
        out
    }
}

/// Encodes a dag-pb block with named links and data.
pub(crate) fn node(links: impl IntoIterator<Item = (impl AsRef<[u8]>, Cid)>, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, cid) in links {
        let mut link = Vec::new();
        put_bytes(&mut link, 1, &cid.to_bytes());
        put_bytes(&mut link, 2, name.as_ref());
        put_number(&mut link, 3, 0);
        put_bytes(&mut out, 2, &link);
    }
    put_bytes(&mut out, 1, data);
    out
}

fn put_number(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3);
    car::put_varint(out, value as usize);
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    car::put_varint(out, bytes.len());
    out.extend(bytes);
}

/// Blocks to import into a gateway.
#[derive(Debug, Default)]
pub(crate) struct Dag(Vec<(String, Vec<u8>)>);

impl Dag {
    /// Adds a block of any codec.
    pub(crate) fn put(&mut self, codec: u64, data: Vec<u8>) -> Cid {
        let cid = Cid::new_v1(codec, sha2_256(&data));
        self.0.push((cid.to_string(), data));
        cid
    }

    /// Adds a dag-pb block.
    pub(crate) fn node(&mut self, links: impl IntoIterator<Item = (impl AsRef<[u8]>, Cid)>, data: &Data<'_>) -> Cid {
        self.put(codec::DAG_PB, node(links, &data.encode()))
    }

    /// Adds a node of a file with its own bytes, and its children with their sizes.
    pub(crate) fn file(&mut self, data: &[u8], children: &[(Cid, u64)]) -> Cid {
        let blocksizes: Vec<u64> = children.iter().map(|(_, size)| *size).collect();
        let size = blocksizes.iter().sum::<u64>() + data.len() as u64;
        let data = Data { kind: FILE, data, filesize: Some(size), blocksizes: &blocksizes, ..Data::default() };
        self.node(children.iter().map(|(cid, _)| ("", *cid)), &data)
    }

    /// Adds a directory in one block.
    pub(crate) fn directory(&mut self, entries: &[(impl AsRef<[u8]>, Cid)]) -> Cid {
        self.node(entries.iter().map(|(name, cid)| (name.as_ref(), *cid)), &Data { kind: DIRECTORY, ..Data::default() })
    }

    /// Adds a shard with fanout 8 in which every link has the same target: another shard if `name` is empty, an entry
    /// otherwise.
    pub(crate) fn full_shard(&mut self, name: &str, target: Cid) -> Cid {
        let names: Vec<String> = (0..8).map(|position| format!("{position}{name}")).collect();
        let data = Data { kind: SHARD, data: b"\xff", fanout: Some(8), ..Data::default() };
        self.node(names.iter().map(|name| (name.as_str(), target)), &data)
    }

    /// Imports the blocks.
    pub(crate) async fn import(&self, gateway: &TestGateway) {
        let blocks: Vec<_> = self.0.iter().map(|(cid, data)| (cid.as_str(), data.as_slice())).collect();
        let form = Form::new().file("blocks.car", car::write(&blocks));
        ndjson(gateway.post_form("dag/import?pin-roots=false", form).await).await;
    }
}
