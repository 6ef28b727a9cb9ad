//! A sharded directory that is being changed.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use ipfrs_core::{Cid, Error, Result, codec};
use prost::Message;

use super::cid_format::CidFormat;
use super::staging::{NewLink, Staging};
use crate::dag_pb::{self, PbLink};
use crate::data::{Attributes, Data, DataType, MURMUR3_X64_64};
use crate::hamt::{HashBits, ShardHead, prefix};
use crate::link_name::LinkName;

/// A shard. The shards below it are loaded when a change reaches them, and are stored by [`Self::commit`].
/// Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Shard {
    fanout: u32,
    format: CidFormat,
    /// Used positions, in ascending order.
    slots: Vec<(u32, Slot)>,
}

/// Content of a used position.
#[derive(Debug, Clone)]
enum Slot {
    /// An entry, under its name without the prefix.
    Entry(PbLink),
    /// A child shard, in its block.
    Stored(NewLink),
    /// A child shard that may have changed.
    Loaded(Arc<Shard>),
}

impl Shard {
    pub(super) fn new(fanout: u32, format: CidFormat) -> Self {
        Self { fanout, format, slots: Vec::new() }
    }

    pub(super) fn decode(cid: &Cid, block: &Bytes) -> Result<(Self, Attributes)> {
        if cid.codec() != codec::DAG_PB {
            return Err(Error::invalid_content(format!("block {cid} is linked as a directory shard but is not one")));
        }
        let node = dag_pb::decode(block)?;
        let data = Data::read(node.data.unwrap_or_default())?;
        if data.data_type()? != DataType::HamtShard {
            return Err(Error::invalid_content(format!("block {cid} is linked as a directory shard but is not one")));
        }
        let head = ShardHead::new(&data, node.links.len())?;
        let positions = (0..head.fanout).filter(|position| head.is_used(*position));
        let slots = node.links.into_iter().zip(positions).map(|(link, position)| {
            let slot = match head.strip_prefix(link.name.as_bytes(), position)? {
                [] => Slot::Stored(NewLink { cid: link.cid, tsize: link.tsize }),
                name => Slot::Entry(PbLink { name: name.into(), ..link }),
            };
            Ok((position, slot))
        });
        let slots = slots.collect::<Result<_>>()?;
        Ok((Self { fanout: head.fanout, format: CidFormat::of(cid)?, slots }, data.attributes()))
    }

    pub(super) fn fanout(&self) -> u32 {
        self.fanout
    }

    /// Returns the number of entries and child shards in this shard itself.
    pub(super) fn used(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn format(&self) -> CidFormat {
        self.format
    }

    /// Sets the format of this shard. Existing child shards keep theirs, as in boxo.
    pub(super) fn set_format(&mut self, format: CidFormat) {
        self.format = format;
    }

    /// Returns the entry `name`.
    pub(super) fn find<'a>(
        &'a mut self,
        staging: &'a Staging,
        name: &'a LinkName,
    ) -> BoxFuture<'a, Result<Option<PbLink>>> {
        self.find_from(staging, HashBits::of(name.as_bytes()), name)
    }

    fn find_from<'a>(
        &'a mut self,
        staging: &'a Staging,
        mut bits: HashBits,
        name: &'a LinkName,
    ) -> BoxFuture<'a, Result<Option<PbLink>>> {
        async move {
            let position = bits.next(self.fanout.trailing_zeros())?;
            match self.load(staging, position).await? {
                Some((_, Slot::Entry(entry))) if entry.name == *name => Ok(Some(entry.clone())),
                Some((_, Slot::Loaded(child))) => Arc::make_mut(child).find_from(staging, bits, name).await,
                Some((_, Slot::Entry(_) | Slot::Stored(_))) | None => Ok(None),
            }
        }
        .boxed()
    }

    /// Replaces the entry `name` by `new`, which is `None` to remove it. Returns the previous entry.
    pub(super) fn swap<'a>(
        &'a mut self,
        staging: &'a Staging,
        name: &'a LinkName,
        new: Option<PbLink>,
    ) -> BoxFuture<'a, Result<Option<PbLink>>> {
        self.swap_from(staging, HashBits::of(name.as_bytes()), name, new)
    }

    fn swap_from<'a>(
        &'a mut self,
        staging: &'a Staging,
        mut bits: HashBits,
        name: &'a LinkName,
        new: Option<PbLink>,
    ) -> BoxFuture<'a, Result<Option<PbLink>>> {
        async move {
            let (fanout, format) = (self.fanout, self.format);
            let position = bits.next(fanout.trailing_zeros())?;
            let Some((at, slot)) = self.load(staging, position).await? else {
                if let Some(entry) = new {
                    let at = self.slots.partition_point(|(other, _)| *other < position);
                    self.slots.insert(at, (position, Slot::Entry(entry)));
                }
                return Ok(None);
            };
            match slot {
                Slot::Entry(entry) if entry.name == *name => {
                    let old = entry.clone();
                    match new {
                        Some(new) => *entry = new,
                        None => drop(self.slots.remove(at)),
                    }
                    Ok(Some(old))
                }
                Slot::Entry(other) => {
                    if new.is_some() {
                        // Both entries move into a new shard, which distinguishes more bits of their hashes.
                        let other = other.clone();
                        let (other_name, other_bits) = (other.name.clone(), bits.with_name(other.name.as_bytes()));
                        let mut child = Self::new(fanout, format);
                        child.swap_from(staging, bits, name, new).await?;
                        child.swap_from(staging, other_bits, &other_name, Some(other)).await?;
                        *slot = Slot::Loaded(Arc::new(child));
                    }
                    Ok(None)
                }
                Slot::Loaded(child) => {
                    let (child, is_removal) = (Arc::make_mut(child), new.is_none());
                    let old = child.swap_from(staging, bits, name, new).await?;
                    if is_removal && old.is_some() {
                        match child.slots.as_mut_slice() {
                            [] => drop(self.slots.remove(at)),
                            // The trie must not depend on the order of insertions.
                            [(_, Slot::Entry(entry))] => *slot = Slot::Entry(entry.clone()),
                            _ => {}
                        }
                    }
                    Ok(old)
                }
                Slot::Stored(_) => Err(Error::internal("a shard was not loaded")),
            }
        }
        .boxed()
    }

    /// Returns what is at a position, and loads it if it is a child shard.
    async fn load(&mut self, staging: &Staging, position: u32) -> Result<Option<(usize, &mut Slot)>> {
        let Ok(at) = self.slots.binary_search_by_key(&position, |(position, _)| *position) else { return Ok(None) };
        let slot = &mut self.slots[at].1;
        if let Slot::Stored(NewLink { cid, .. }) = slot {
            *slot = Slot::Loaded(Arc::new(load(staging, cid, self.fanout).await?));
        }
        Ok(Some((at, slot)))
    }

    /// Shows the entries to `is_enough` in the order of the shards, until it says so.
    pub(super) fn visit<'a>(
        &'a self,
        staging: &'a Staging,
        is_enough: &'a mut (dyn FnMut(&PbLink) -> bool + Send),
        depth: usize,
    ) -> BoxFuture<'a, Result<bool>> {
        async move {
            // Each level consumes at least three bits of a hash.
            if depth > u64::BITS as usize / 3 {
                return Err(Error::invalid_content("sharded directory is deeper than the bits of a name hash allow"));
            }
            for (_, slot) in &self.slots {
                let is_done = match slot {
                    Slot::Entry(entry) => is_enough(entry),
                    Slot::Loaded(child) => child.visit(staging, is_enough, depth + 1).await?,
                    Slot::Stored(link) => {
                        let child = load(staging, &link.cid, self.fanout).await?;
                        child.visit(staging, is_enough, depth + 1).await?
                    }
                };
                if is_done {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        .boxed()
    }

    /// Creates the blocks of this shard and of the loaded ones below it, and adds them to `staging`.
    pub(super) fn commit(&mut self, staging: &mut Staging, attributes: &Attributes) -> Result<NewLink> {
        let mut bitfield = vec![0_u8; self.fanout as usize / 8];
        let mut links = Vec::with_capacity(self.slots.len());
        for (position, slot) in &mut self.slots {
            let from_end = (*position / 8) as usize + 1;
            let byte = bitfield.len() - from_end;
            bitfield[byte] |= 1 << (*position % 8);
            let prefix = prefix(self.fanout, *position);
            if let Slot::Loaded(child) = slot {
                *slot = Slot::Stored(Arc::make_mut(child).commit(staging, &Attributes::default())?);
            }
            links.push(match slot {
                Slot::Entry(entry) => {
                    let name = [prefix.as_bytes(), entry.name.as_bytes()].concat().into();
                    PbLink { name, ..entry.clone() }
                }
                Slot::Stored(NewLink { cid, tsize }) => PbLink { cid: *cid, name: prefix.into(), tsize: *tsize },
                Slot::Loaded(_) => return Err(Error::internal("a shard was not stored")),
            });
        }
        let first_used = bitfield.iter().position(|byte| *byte != 0).unwrap_or(bitfield.len());
        let data = Data {
            type_code: Some(DataType::HamtShard.code()),
            data: Some(Bytes::copy_from_slice(&bitfield[first_used..])),
            hash_type: Some(MURMUR3_X64_64),
            fanout: Some(self.fanout.into()),
            ..Data::default()
        };
        let data = data.with_attributes(attributes);
        let block = self.format.block(codec::DAG_PB, dag_pb::encode(&links, &data.encode_to_vec()))?;
        let tsize = links.iter().fold(block.data().len() as u64, |sum, link| sum.saturating_add(link.tsize));
        let cid = *block.cid();
        staging.insert(block);
        Ok(NewLink { cid, tsize })
    }
}

/// Loads a child shard, which must have the fan-out of its parent.
async fn load(staging: &Staging, cid: &Cid, fanout: u32) -> Result<Shard> {
    let (shard, _) = Shard::decode(cid, &staging.load(cid).await?)?;
    if shard.fanout != fanout {
        let other = shard.fanout;
        return Err(Error::invalid_content(format!("shard {cid} has fan-out {other} below one with {fanout}")));
    }
    Ok(shard)
}
