//! A directory that is being changed.

use bytes::Bytes;
use ipfrs_core::{Cid, Error, ErrorKind, Result, codec};
use prost::Message;

use super::attributes::AttributeChange;
use super::basic::Basic;
use super::cid_format::CidFormat;
use super::shard::Shard;
use super::staging::{NewLink, Staging};
use crate::dag_pb::{self, PbLink};
use crate::data::{Attributes, Data, DataType};
use crate::hamt::prefix;
use crate::import::{DirectoryBytes, DirectorySize, Sharding, check_name};
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
struct Sharded {
    root: Shard,
    /// Change of the length of names and binary content IDs, as boxo estimates it whatever size decides on sharding.
    growth: i64,
    /// Number of entries, as boxo counts it: in a loaded directory, those of the root shard.
    links: usize,
    /// Entries that are certainly there. While they are too many for one block, no change visits the shards.
    known: EntrySums,
}

/// Sums over some of the entries of a directory.
#[derive(Debug, Clone, Copy, Default)]
struct EntrySums {
    links: usize,
    bytes: DirectoryBytes,
}

impl EntrySums {
    fn add(&mut self, link: &PbLink, sharding: &Sharding) {
        self.links += 1;
        self.bytes = self.bytes + sharding.link_bytes(link);
    }

    fn remove(&mut self, link: &PbLink, sharding: &Sharding) {
        self.links = self.links.saturating_sub(1);
        self.bytes = self.bytes - sharding.link_bytes(link);
    }
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
                let mut basic = Basic::new(CidFormat::of(cid)?, node.links, &attributes, &sharding);
                // A directory may stay in memory for long, and a slice would keep the mapped pack of its block.
                basic.data = Bytes::copy_from_slice(&node.data.unwrap_or_default());
                Ok(Self { form: Form::Basic(basic), attributes, sharding })
            }
            DataType::HamtShard => {
                let (root, attributes) = Shard::decode(cid, block)?;
                let links = root.used();
                let sharded = Sharded { root, growth: 0, links, known: EntrySums::default() };
                Ok(Self { form: Form::Sharded(sharded), attributes, sharding })
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
                    return sharded.swap(staging, name, Some(link), &self.sharding).await.map(drop);
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
                let mut sharded = Sharded { root, growth: 0, links: basic.links.len(), known: EntrySums::default() };
                for link in basic.links.iter() {
                    sharded.put(staging, &link.name, Some(link.clone()), &self.sharding).await?;
                }
                sharded.swap(staging, name, Some(link), &self.sharding).await?;
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
                    return Ok(sharded.swap(staging, name, None, &self.sharding).await?.is_some());
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

impl Sharded {
    /// Replaces or removes an entry and updates the estimates. boxo counts the prefix of an old link as part of its
    /// name.
    async fn swap(
        &mut self,
        staging: &Staging,
        name: &LinkName,
        new: Option<PbLink>,
        sharding: &Sharding,
    ) -> Result<Option<PbLink>> {
        let (added, is_added) = (new.as_ref().map_or(0, name_and_cid_bytes), new.is_some());
        let old = self.put(staging, name, new, sharding).await?;
        self.growth += added - old.as_ref().map_or(0, |old| name_and_cid_bytes(&self.prefixed(old)));
        self.links = (self.links + usize::from(is_added)).saturating_sub(usize::from(old.is_some()));
        Ok(old)
    }

    /// Replaces or removes an entry, and updates only what is known to be there.
    async fn put(
        &mut self,
        staging: &Staging,
        name: &LinkName,
        new: Option<PbLink>,
        sharding: &Sharding,
    ) -> Result<Option<PbLink>> {
        let added = new.clone();
        let old = self.root.swap(staging, name, new).await?;
        old.iter().for_each(|old| self.known.remove(old, sharding));
        added.iter().for_each(|added| self.known.add(added, sharding));
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
        let other_bytes = sharding.empty_bytes(attributes) + added_bytes;
        let is_over = |entries: &EntrySums| {
            sharding.is_over_size(other_bytes + entries.bytes - removed_bytes)
                || sharding.is_over_links((entries.links + added).saturating_sub(removed))
        };
        // As in boxo, a directory without entries always fits.
        if self.known.links == 0 || !is_over(&self.known) {
            self.known = self.visited(staging, &is_over, sharding).await?;
        }
        // The next change then counts no entries in vain.
        self.links = self.links.max(self.known.links);
        Ok(self.known.links == 0 || !is_over(&self.known))
    }

    /// Returns the sums over all entries, or over so many that `is_over` returns true for half of them. It then stays
    /// true for many changes, which do not visit the shards again.
    async fn visited(
        &self,
        staging: &Staging,
        is_over: impl Fn(&EntrySums) -> bool + Send + Sync,
        sharding: &Sharding,
    ) -> Result<EntrySums> {
        let (mut seen, mut over_at) = (EntrySums::default(), None);
        let mut is_enough = |link: &PbLink| {
            seen.add(link, sharding);
            if over_at.is_none() && is_over(&seen) {
                over_at = Some(seen.links);
            }
            over_at.is_some_and(|over_at| seen.links >= 2 * over_at)
        };
        let visit = self.root.visit(staging, &mut is_enough, 0).await;
        match visit {
            // The shards that boxo would load could be read.
            Err(error) if over_at.is_some() && is_lost(&error) => Ok(seen),
            visit => visit.map(|_| seen),
        }
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

/// Returns whether a shard cannot be read however often it is tried: it is missing, damaged, invalid or blocked.
fn is_lost(error: &Error) -> bool {
    use ErrorKind::{Corrupt, Gone, InvalidContent, LegalReasons};
    error.missing_block().is_some() || matches!(error.kind(), Corrupt | Gone | InvalidContent | LegalReasons)
}

/// Returns the size of an entry in boxo's estimate of the change of a directory.
fn name_and_cid_bytes(link: &PbLink) -> i64 {
    (link.name.len() + link.cid.encoded_len()) as i64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;

    use super::*;
    use crate::BlockSource;

    struct NoBlocks;

    #[async_trait]
    impl BlockSource for NoBlocks {
        async fn block(&self, cid: &Cid) -> Result<Bytes> {
            Err(Error::no_block(cid, "there are no blocks"))
        }
    }

    #[tokio::test]
    async fn decoded_directory_does_not_keep_its_block() {
        for max_links in [None, Some(4)] {
            let sharding = Sharding { size: DirectorySize::Disabled, threshold_bytes: 0, max_links, fanout: 8 };
            let mut staging = Staging::new(Arc::new(NoBlocks));
            let entry = DirectoryEdit::empty(CidFormat::V0, sharding).commit(&mut staging).unwrap();
            let mut edit = DirectoryEdit::empty(CidFormat::V0, sharding);
            for name in ["a", "b", "c", "d", "e", "f"] {
                edit.insert(&staging, &LinkName::from(name), entry).await.unwrap();
            }
            let root = edit.commit(&mut staging).unwrap().cid;
            let block = Bytes::from(staging.load(&root).await.unwrap().to_vec());
            let decoded = DirectoryEdit::decode(&root, &block, sharding).unwrap();
            assert_eq!(decoded.is_sharded(), max_links.is_some());
            assert!(block.is_unique(), "{decoded:?}");
        }
    }

    #[tokio::test]
    async fn known_entries_do_not_change_when_a_directory_is_converted() {
        // The sizes of about 30 entries: there are 15 and 45 in turns.
        for (size, threshold_bytes, max_links) in [
            (DirectorySize::Links, 175, None),
            (DirectorySize::Block, 500, None),
            (DirectorySize::Disabled, 0, Some(30)),
            (DirectorySize::Links, 175, Some(25)),
        ] {
            let sharding = Sharding { size, threshold_bytes, max_links, fanout: 8 };
            let mut staging = Staging::new(Arc::new(NoBlocks));
            // The second one knows nothing before any change.
            let mut edits = [(); 2].map(|()| DirectoryEdit::empty(CidFormat::V0, sharding));
            let (mut random, mut conversions) = (1_u64, 0);
            for step in 0..4_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let name = LinkName::from(((random >> 33) % 60).to_string().as_str());
                // The directory grows and shrinks in turns.
                let adds = (random >> 60) < if step / 250 % 2 == 0 { 12 } else { 4 };
                let was_sharded = edits[0].is_sharded();
                let mut links = Vec::new();
                for edit in &mut edits {
                    if adds {
                        let entry = NewLink { cid: Cid::default(), tsize: random >> 40 };
                        edit.insert(&staging, &name, entry).await.unwrap();
                    } else {
                        edit.remove(&staging, &name).await.unwrap();
                    }
                    links.push(edit.commit(&mut staging).unwrap());
                }
                conversions += usize::from(edits[0].is_sharded() != was_sharded);
                assert_eq!(links[0], links[1], "{sharding:?}, step {step}");
                if let Form::Sharded(sharded) = &mut edits[1].form {
                    sharded.known = EntrySums::default();
                }
            }
            assert!(conversions > 4, "{sharding:?}: {conversions}");
        }
    }
}
