//! A directory that is being changed.

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, Result, codec};
use prost::Message;

use super::attributes::AttributeChange;
use super::cid_format::CidFormat;
use super::shard::Shard;
use super::staging::{NewLink, Staging};
use crate::dag_pb::{self, PbLink};
use crate::data::{Attributes, Data, DataType};
use crate::import::{SHARDING_THRESHOLD_BYTES, check_name};
use crate::link_name::LinkName;

/// Fan-out of new shards, as in boxo.
const FANOUT: u32 = 256;

/// A directory that is being changed, in one block or sharded.
///
/// Content IDs equal those of boxo, which converts a directory to shards when its links exceed 256 KiB, and back only
/// after its links have become shorter since it was loaded or converted. Whether a directory is sharded therefore
/// depends on its history, and boxo's estimate of that change is part of it.
#[derive(Debug)]
pub struct DirectoryEdit {
    form: Form,
    attributes: Attributes,
}

#[derive(Debug)]
enum Form {
    Basic(Basic),
    Sharded(Sharded),
}

#[derive(Debug)]
struct Basic {
    format: CidFormat,
    /// Entries, in the order of their names after the first change.
    links: Vec<PbLink>,
    /// Encoded UnixFS data.
    data: Bytes,
    /// Length of the names and binary content IDs of the entries.
    bytes: usize,
}

#[derive(Debug)]
struct Sharded {
    root: Shard,
    /// Change of the length of names and binary content IDs, as boxo estimates it.
    growth: i64,
}

impl DirectoryEdit {
    /// Creates an empty directory.
    #[must_use]
    pub fn empty(format: CidFormat) -> Self {
        let attributes = Attributes::default();
        Self { form: Form::Basic(Basic::empty(format, &attributes)), attributes }
    }

    /// Loads a directory.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for anything but a directory,
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a malformed block, and the errors of the source.
    pub async fn load(staging: &Staging, cid: &Cid) -> Result<Self> {
        Self::decode(cid, &staging.load(cid).await?)
    }

    /// Decodes the root block of a directory.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn decode(cid: &Cid, block: &Bytes) -> Result<Self> {
        if cid.codec() != codec::DAG_PB {
            return Err(Error::unsupported("merkledag node was not a directory or shard"));
        }
        let node = dag_pb::decode(block)?;
        let data = Data::read(node.data.clone().unwrap_or_default())?;
        match data.data_type()? {
            DataType::Directory => {
                let bytes = node.links.iter().map(link_bytes).sum();
                let basic = Basic {
                    format: CidFormat::of(cid)?,
                    links: node.links,
                    data: node.data.unwrap_or_default(),
                    bytes,
                };
                Ok(Self { form: Form::Basic(basic), attributes: data.attributes() })
            }
            DataType::HamtShard => {
                let (root, attributes) = Shard::decode(cid, block)?;
                Ok(Self { form: Form::Sharded(Sharded { root, growth: 0 }), attributes })
            }
            DataType::File | DataType::Raw | DataType::Symlink | DataType::Metadata => {
                Err(Error::unsupported("merkledag node was not a directory or shard"))
            }
        }
    }

    /// Returns whether the directory consists of shards.
    #[must_use]
    pub fn is_sharded(&self) -> bool {
        matches!(self.form, Form::Sharded(_))
    }

    /// Returns the format of the content ID of the root.
    #[must_use]
    pub fn format(&self) -> CidFormat {
        match &self.form {
            Form::Basic(basic) => basic.format,
            Form::Sharded(sharded) => sharded.root.format(),
        }
    }

    /// Sets the format of the content ID of the root. Existing shards below the root keep theirs.
    pub fn set_format(&mut self, format: CidFormat) {
        match &mut self.form {
            Form::Basic(basic) => basic.format = format,
            Form::Sharded(sharded) => sharded.root.set_format(format),
        }
    }

    /// Returns a link to the entry `name`.
    ///
    /// # Errors
    /// Returns the errors of the source, for the shards along the hash of the name.
    pub async fn find(&mut self, staging: &Staging, name: &LinkName) -> Result<Option<NewLink>> {
        let found = match &mut self.form {
            Form::Basic(basic) => basic.position(name).map(|at| basic.links[at].clone()),
            Form::Sharded(sharded) => sharded.root.find(staging, name).await?,
        };
        Ok(found.map(|link| NewLink { cid: link.cid, tsize: link.tsize }))
    }

    /// Adds or replaces an entry.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a name that is empty, `.` or `..` or contains a
    /// slash or NUL; otherwise the errors of the source.
    pub async fn insert(&mut self, staging: &Staging, name: &LinkName, entry: NewLink) -> Result<()> {
        check_name(name)?;
        let link = PbLink { cid: entry.cid, name: name.clone(), tsize: entry.tsize };
        match &mut self.form {
            Form::Sharded(sharded) => {
                if !sharded.fits_into_block(staging, name, Some(&link)).await? {
                    return sharded.swap(staging, name, Some(link)).await.map(drop);
                }
                let mut basic = sharded.to_basic(staging, &self.attributes).await?;
                basic.insert(link);
                self.form = Form::Basic(basic);
            }
            Form::Basic(basic) => {
                let old = basic.position(name).map_or(0, |at| link_bytes(&basic.links[at]));
                if basic.bytes - old + link_bytes(&link) <= SHARDING_THRESHOLD_BYTES {
                    basic.insert(link);
                    return Ok(());
                }
                let mut sharded = Sharded { root: Shard::new(FANOUT, basic.format), growth: 0 };
                for link in &basic.links {
                    sharded.root.swap(staging, &link.name, Some(link.clone())).await?;
                }
                sharded.swap(staging, name, Some(link)).await?;
                self.form = Form::Sharded(sharded);
            }
        }
        Ok(())
    }

    /// Removes an entry. Returns whether it existed.
    ///
    /// # Errors
    /// Returns the errors of the source.
    pub async fn remove(&mut self, staging: &Staging, name: &LinkName) -> Result<bool> {
        match &mut self.form {
            Form::Basic(basic) => Ok(basic.remove(name)),
            Form::Sharded(sharded) => {
                if !sharded.fits_into_block(staging, name, None).await? {
                    return Ok(sharded.swap(staging, name, None).await?.is_some());
                }
                let mut basic = sharded.to_basic(staging, &self.attributes).await?;
                let existed = basic.remove(name);
                self.form = Form::Basic(basic);
                Ok(existed)
            }
        }
    }

    /// Changes an attribute of the directory.
    ///
    /// # Errors
    /// Returns an error if the data of the directory cannot be decoded.
    pub fn set_attribute(&mut self, change: AttributeChange) -> Result<()> {
        match &mut self.form {
            Form::Basic(basic) => {
                let mut data = Data::read(basic.data.clone())?;
                change.apply(&mut data);
                self.attributes = data.attributes();
                basic.data = data.encode_to_vec().into();
            }
            Form::Sharded(sharded) => {
                let mut data = Data::default().with_attributes(&self.attributes);
                change.apply(&mut data);
                self.attributes = data.attributes();
                // boxo loads the directory again.
                sharded.growth = 0;
            }
        }
        Ok(())
    }

    /// Creates the new blocks and adds them to `staging`. Returns a link to the root.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a block over the limit.
    pub fn commit(&mut self, staging: &mut Staging) -> Result<NewLink> {
        match &mut self.form {
            Form::Sharded(sharded) => sharded.root.commit(staging, &self.attributes),
            Form::Basic(basic) => {
                let block = basic.block()?;
                let tsize =
                    basic.links.iter().fold(block.data().len() as u64, |sum, link| sum.saturating_add(link.tsize));
                let cid = *block.cid();
                staging.insert(block);
                Ok(NewLink { cid, tsize })
            }
        }
    }
}

impl Basic {
    fn empty(format: CidFormat, attributes: &Attributes) -> Self {
        let data = Data { type_code: Some(DataType::Directory.code()), ..Data::default() };
        let data = data.with_attributes(attributes).encode_to_vec().into();
        Self { format, links: Vec::new(), data, bytes: 0 }
    }

    fn position(&self, name: &LinkName) -> Option<usize> {
        self.links.iter().position(|link| link.name == *name)
    }

    fn insert(&mut self, link: PbLink) {
        self.remove(&link.name);
        self.bytes += link_bytes(&link);
        if !self.links.is_sorted_by(|a, b| a.name <= b.name) {
            self.links.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let at = self.links.partition_point(|other| other.name <= link.name);
        self.links.insert(at, link);
    }

    /// Removes all entries with a name. Another implementation may have written several.
    fn remove(&mut self, name: &LinkName) -> bool {
        let count = self.links.len();
        let mut removed = 0;
        self.links.retain(|link| {
            let is_kept = link.name != *name;
            removed += if is_kept { 0 } else { link_bytes(link) };
            is_kept
        });
        self.bytes -= removed;
        if self.links.len() < count {
            self.links.sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.links.len() < count
    }

    fn block(&self) -> Result<Block> {
        self.format.block(codec::DAG_PB, dag_pb::encode(&self.links, &self.data))
    }
}

impl Sharded {
    /// Replaces or removes an entry and updates the estimate. boxo counts the prefix of an old link as part of its
    /// name.
    async fn swap(&mut self, staging: &Staging, name: &LinkName, new: Option<PbLink>) -> Result<Option<PbLink>> {
        let added = new.as_ref().map_or(0, |link| link_bytes(link) as i64);
        let old = self.root.swap(staging, name, new).await?;
        self.growth += added - old.as_ref().map_or(0, prefixed_bytes);
        Ok(old)
    }

    /// Returns whether boxo would convert the directory into one block before it replaces or removes an entry. For a
    /// new entry, boxo omits its name.
    async fn fits_into_block(&mut self, staging: &Staging, name: &LinkName, new: Option<&PbLink>) -> Result<bool> {
        let old = self.root.find(staging, name).await?;
        let added = new.map_or(0, |link| link.cid.encoded_len() as i64);
        let change = added - old.as_ref().map_or(0, prefixed_bytes);
        if self.growth + change >= 0 {
            return Ok(false);
        }
        let mut total = change;
        let mut is_over = |link: &PbLink| {
            total += link_bytes(link) as i64;
            total > SHARDING_THRESHOLD_BYTES as i64
        };
        Ok(!self.root.entries(staging, &mut Vec::new(), &mut is_over, 0).await?)
    }

    async fn to_basic(&self, staging: &Staging, attributes: &Attributes) -> Result<Basic> {
        let mut basic = Basic::empty(self.root.format(), attributes);
        self.root.entries(staging, &mut basic.links, &mut |_| false, 0).await?;
        basic.links.sort_by(|a, b| a.name.cmp(&b.name));
        basic.bytes = basic.links.iter().map(link_bytes).sum();
        Ok(basic)
    }
}

/// Returns the size of an entry for the decision on sharding.
fn link_bytes(link: &PbLink) -> usize {
    link.name.len() + link.cid.encoded_len()
}

fn prefixed_bytes(link: &PbLink) -> i64 {
    (link_bytes(link) + prefix_len()) as i64
}

fn prefix_len() -> usize {
    FANOUT.trailing_zeros().div_ceil(4) as usize
}
