//! Changes of permissions and modification times.

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, Result, codec};
use prost::Message;

use super::cid_format::CidFormat;
use crate::dag_pb;
use crate::data::{Data, DataType, Mtime, WireMtime};

/// The permission bits of `Data.mode`. The others are reserved and kept.
const MODE_BITS: u32 = 0o7777;

/// A change of one attribute of a file, directory or symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeChange {
    /// Sets the permissions; 0 removes them.
    Mode(u32),
    /// Sets the modification time.
    Mtime(Mtime),
}

impl AttributeChange {
    pub(super) fn apply(self, data: &mut Data) {
        match self {
            Self::Mode(mode) => {
                let mode = data.mode.unwrap_or_default() & !MODE_BITS | mode & MODE_BITS;
                data.mode = Some(mode).filter(|mode| *mode != 0);
            }
            Self::Mtime(mtime) => {
                let nanos = Some(mtime.nanos).filter(|nanos| *nanos > 0);
                data.mtime = Some(WireMtime { seconds: Some(mtime.seconds), nanos });
            }
        }
    }

    /// Returns the root block of the file or symbolic link `cid` after this change. As in Kubo, a raw block becomes a
    /// dag-pb block with a CIDv0.
    ///
    /// # Errors
    /// Returns an error for a block of another codec or without valid UnixFS data.
    pub fn of_file(self, cid: &Cid, block: &Bytes) -> Result<Block> {
        let (links, mut data, format) = match cid.codec() {
            codec::RAW => {
                let data = Data {
                    type_code: Some(DataType::File.code()),
                    data: Some(block.clone()),
                    filesize: Some(block.len() as u64),
                    ..Data::default()
                };
                (Vec::new(), data, CidFormat::V0)
            }
            codec::DAG_PB => {
                let node = dag_pb::decode(block)?;
                (node.links, Data::read(node.data.unwrap_or_default())?, CidFormat::of(cid)?)
            }
            _ => return Err(Error::unsupported("expected a ProtoNode as internal node")),
        };
        self.apply(&mut data);
        format.block(codec::DAG_PB, dag_pb::encode(&links, &data.encode_to_vec()))
    }
}
