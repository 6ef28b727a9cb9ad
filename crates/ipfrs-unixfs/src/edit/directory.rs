//! A directory that is being changed.

use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, Result, codec};
use prost::Message;

use super::attributes::AttributeChange;
use super::cid_format::CidFormat;
use super::shard::Shard;
use super::staging::{NewLink, Staging};
use crate::dag_pb::{self, PbLink};
use crate::data::{Attributes, Data, DataType};
use crate::hamt::prefix;
use crate::import::{DirectoryBytes, DirectorySize, Sharding, basic_data, check_name};
use crate::link_name::LinkName;

/// A directory that is being changed, in one block or sharded.
///
/// Content IDs equal those of boxo, which converts a directory to shards when its size exceeds a threshold, and back
/// only after its links have become shorter since it was loaded or converted. Whether a directory is sharded therefore
/// depends on its history, and boxo's estimates of that change and of the number of entries are part of it.
#[derive(Debug, Clone)]
pub struct DirectoryEdit {
    form: Form,
    attributes: Attributes,
    sharding: Sharding,
}

#[derive(Debug, Clone)]
enum Form {
    Basic(Basic),
    Sharded(Sharded),
}

#[derive(Debug, Clone)]
struct Basic {
    format: CidFormat,
    /// Entries, in the order of their names after the first change. Clones share them until then.
    links: Arc<Vec<PbLink>>,
    /// Encoded UnixFS data.
    data: Bytes,
    bytes: DirectoryBytes,
}

#[derive(Debug, Clone)]
struct Sharded {
    root: Shard,
    /// Change of the length of names and binary content IDs, as boxo estimates it whatever size decides on sharding.
    growth: i64,
    /// Number of entries, as boxo counts it: in a loaded directory, those of the root shard.
    links: usize,
}

impl DirectoryEdit {
    /// Creates an empty directory.
    #[must_use]
    pub fn empty(format: CidFormat, sharding: Sharding) -> Self {
        let attributes = Attributes::default();
        Self { form: Form::Basic(Basic::new(format, Vec::new(), &attributes, &sharding)), attributes, sharding }
    }

    /// Loads a directory.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for anything but a directory,
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a malformed block, and the errors of the source.
    pub async fn load(staging: &Staging, cid: &Cid, sharding: Sharding) -> Result<Self> {
        Self::decode(cid, &staging.load(cid).await?, sharding)
    }

    /// Decodes the root block of a directory.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn decode(cid: &Cid, block: &Bytes, sharding: Sharding) -> Result<Self> {
        if cid.codec() != codec::DAG_PB {
            return Err(Error::unsupported("merkledag node was not a directory or shard"));
        }
        let node = dag_pb::decode(block)?;
        let data = Data::read(node.data.clone().unwrap_or_default())?;
        match data.data_type()? {
            DataType::Directory => {
                let attributes = data.attributes();
                let basic = Basic::new(CidFormat::of(cid)?, node.links, &attributes, &sharding);
                let basic = Basic { data: node.data.unwrap_or_default(), ..basic };
                Ok(Self { form: Form::Basic(basic), attributes, sharding })
            }
            DataType::HamtShard => {
                let (root, attributes) = Shard::decode(cid, block)?;
                let links = root.used();
                Ok(Self { form: Form::Sharded(Sharded { root, growth: 0, links }), attributes, sharding })
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

    /// Returns when and how the directory is sharded.
    #[must_use]
    pub fn sharding(&self) -> Sharding {
        self.sharding
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
                if !sharded.fits_into_block(staging, name, Some(&link), &self.attributes, &self.sharding).await? {
                    return sharded.swap(staging, name, Some(link)).await.map(drop);
                }
                let mut basic = sharded.to_basic(staging, &self.attributes, &self.sharding).await?;
                basic.insert(link, &self.sharding);
                self.form = Form::Basic(basic);
            }
            Form::Basic(basic) => {
                let old = basic.position(name);
                let old_bytes = old.map(|at| self.sharding.link_bytes(&basic.links[at])).unwrap_or_default();
                let bytes = basic.bytes - old_bytes + self.sharding.link_bytes(&link);
                let is_over_links = old.is_none() && self.sharding.is_over_links(basic.links.len() + 1);
                if !self.sharding.is_over_size(bytes) && !is_over_links {
                    basic.insert(link, &self.sharding);
                    return Ok(());
                }
                let root = Shard::new(self.sharding.fanout, basic.format);
                let mut sharded = Sharded { root, growth: 0, links: basic.links.len() };
                for link in basic.links.iter() {
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
            Form::Basic(basic) => Ok(basic.remove(name, &self.sharding)),
            Form::Sharded(sharded) => {
                if sharded.root.find(staging, name).await?.is_none() {
                    return Ok(false);
                }
                if !sharded.fits_into_block(staging, name, None, &self.attributes, &self.sharding).await? {
                    return Ok(sharded.swap(staging, name, None).await?.is_some());
                }
                let mut basic = sharded.to_basic(staging, &self.attributes, &self.sharding).await?;
                let existed = basic.remove(name, &self.sharding);
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
                basic.bytes = basic.bytes - self.sharding.empty_bytes(&self.attributes);
                self.attributes = data.attributes();
                basic.bytes = basic.bytes + self.sharding.empty_bytes(&self.attributes);
                basic.data = data.encode_to_vec().into();
            }
            Form::Sharded(sharded) => {
                let mut data = Data::default().with_attributes(&self.attributes);
                change.apply(&mut data);
                self.attributes = data.attributes();
                // boxo loads the directory again.
                (sharded.growth, sharded.links) = (0, sharded.root.used());
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
    fn new(format: CidFormat, links: Vec<PbLink>, attributes: &Attributes, sharding: &Sharding) -> Self {
        let bytes = links.iter().map(|link| sharding.link_bytes(link)).sum();
        let data = basic_data(attributes).encode_to_vec().into();
        Self { format, links: Arc::new(links), data, bytes: sharding.empty_bytes(attributes) + bytes }
    }

    fn position(&self, name: &LinkName) -> Option<usize> {
        self.links.iter().position(|link| link.name == *name)
    }

    fn insert(&mut self, link: PbLink, sharding: &Sharding) {
        self.remove(&link.name, sharding);
        self.bytes = self.bytes + sharding.link_bytes(&link);
        let links = Arc::make_mut(&mut self.links);
        if !links.is_sorted_by(|a, b| a.name <= b.name) {
            links.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let at = links.partition_point(|other| other.name <= link.name);
        links.insert(at, link);
    }

    /// Removes all entries with a name. Another implementation may have written several.
    fn remove(&mut self, name: &LinkName, sharding: &Sharding) -> bool {
        let links = Arc::make_mut(&mut self.links);
        let count = links.len();
        let mut removed = DirectoryBytes::default();
        links.retain(|link| {
            let is_kept = link.name != *name;
            if !is_kept {
                removed = removed + sharding.link_bytes(link);
            }
            is_kept
        });
        self.bytes = self.bytes - removed;
        if links.len() < count {
            links.sort_by(|a, b| a.name.cmp(&b.name));
        }
        links.len() < count
    }

    fn block(&self) -> Result<Block> {
        self.format.block(codec::DAG_PB, dag_pb::encode(&self.links, &self.data))
    }
}

impl Sharded {
    /// Replaces or removes an entry and updates the estimates. boxo counts the prefix of an old link as part of its
    /// name.
    async fn swap(&mut self, staging: &Staging, name: &LinkName, new: Option<PbLink>) -> Result<Option<PbLink>> {
        let (added, is_added) = (new.as_ref().map_or(0, name_and_cid_bytes), new.is_some());
        let old = self.root.swap(staging, name, new).await?;
        self.growth += added - old.as_ref().map_or(0, |old| name_and_cid_bytes(&self.prefixed(old)));
        self.links = (self.links + usize::from(is_added)).saturating_sub(usize::from(old.is_some()));
        Ok(old)
    }

    /// Returns whether boxo would convert the directory into one block before it replaces or removes an entry. For a
    /// new entry, boxo omits its name. Where it would convert a directory with too many entries and fail, or make a
    /// block that is too long, the directory stays sharded.
    async fn fits_into_block(
        &mut self,
        staging: &Staging,
        name: &LinkName,
        new: Option<&PbLink>,
        attributes: &Attributes,
        sharding: &Sharding,
    ) -> Result<bool> {
        let old = self.root.find(staging, name).await?;
        let (added, removed) = (usize::from(new.is_some()), usize::from(old.is_some()));
        if sharding.is_over_links((self.links + added).saturating_sub(removed)) {
            return Ok(false);
        }
        // Only boxo's estimates are wrong about names, not the length of the block.
        let nameless = |link: &PbLink| PbLink { name: LinkName::default(), ..link.clone() };
        let estimated =
            |link: &PbLink, estimate: PbLink| sharding.link_bytes(&estimate).with_block_of(sharding.link_bytes(link));
        let added_bytes = new.map(|link| estimated(link, nameless(link))).unwrap_or_default();
        let removed_bytes = old.as_ref().map(|old| estimated(old, self.prefixed(old))).unwrap_or_default();
        let is_smaller = self.growth + added_bytes.deciding() < removed_bytes.deciding();
        match sharding.size {
            DirectorySize::Disabled if sharding.max_links.is_none() => return Ok(false),
            DirectorySize::Links | DirectorySize::Block if !is_smaller => return Ok(false),
            _ => {}
        }
        let (mut bytes, mut links) = (sharding.empty_bytes(attributes) + added_bytes, 0);
        let mut is_over = |link: &PbLink| {
            bytes = bytes + sharding.link_bytes(link);
            links += 1;
            sharding.is_over_size(bytes - removed_bytes) || sharding.is_over_links(links + added - removed)
        };
        let fits = !self.root.visit(staging, &mut is_over, 0).await?;
        // The next change then counts no entries in vain.
        self.links = self.links.max(links);
        Ok(fits)
    }

    async fn to_basic(&self, staging: &Staging, attributes: &Attributes, sharding: &Sharding) -> Result<Basic> {
        let mut links = Vec::new();
        let mut collect = |link: &PbLink| {
            links.push(link.clone());
            false
        };
        self.root.visit(staging, &mut collect, 0).await?;
        links.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Basic::new(self.root.format(), links, attributes, sharding))
    }

    /// Returns a link of the root shard with a name as long as that with its prefix.
    fn prefixed(&self, link: &PbLink) -> PbLink {
        let name = [prefix(self.root.fanout(), 0).as_bytes(), link.name.as_bytes()].concat();
        PbLink { name: name.into(), ..link.clone() }
    }
}

/// Returns the size of an entry in boxo's estimate of the change of a directory.
fn name_and_cid_bytes(link: &PbLink) -> i64 {
    (link.name.len() + link.cid.encoded_len()) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clone_shares_the_entries_until_one_changes() {
        let (sharding, link) = (Sharding::default(), PbLink { cid: Cid::default(), name: "a".into(), tsize: 1 });
        let basic = Basic::new(CidFormat::new(0, None).unwrap(), vec![link], &Attributes::default(), &sharding);
        let mut changed = basic.clone();
        assert!(Arc::ptr_eq(&basic.links, &changed.links));
        assert!(changed.remove(&"a".into(), &sharding));
        assert_eq!((basic.links.len(), changed.links.len()), (1, 0));
    }
}
