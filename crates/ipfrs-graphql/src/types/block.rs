//! Blocks and their links.

use async_graphql::{Context, Object, SimpleObject};
use bytes::Bytes;
use ipfrs_core::{Cid as CoreCid, codec};
use ipfrs_node::{PbLink, block_links};

use crate::context::{page_cost, page_size, request};
use crate::error::{FieldResult, failed};
use crate::json::text_len;
use crate::scalars::{Base64, Cid, Long, base64_len};

/// A block: bytes with their content ID.
pub(crate) struct Block {
    cid: CoreCid,
    /// The bytes, if they were read already.
    data: Option<Bytes>,
}

impl Block {
    /// Returns a block in the store, which is read when a field needs it.
    pub(crate) fn listed(cid: CoreCid) -> Self {
        Self { cid, data: None }
    }

    /// Returns a block that was read.
    pub(crate) fn read(cid: CoreCid, data: Bytes) -> Self {
        Self { cid, data: Some(data) }
    }

    async fn bytes(&self, context: &Context<'_>) -> FieldResult<Bytes> {
        match &self.data {
            Some(data) => Ok(data.clone()),
            None => {
                let found = request(context)?.blocks.load(self.cid).await.map_err(failed)?;
                found.ok_or_else(|| {
                    failed(ipfrs_core::Error::not_found(format!("block {} is no longer in this store", self.cid)))
                })
            }
        }
    }
}

/// A block: bytes with their content ID.
#[Object]
impl Block {
    /// Content ID of the block.
    async fn cid(&self) -> Cid {
        Cid(self.cid)
    }

    /// Number of bytes.
    async fn size(&self, context: &Context<'_>) -> FieldResult<Option<Long>> {
        Ok(Some(self.bytes(context).await?.len().into()))
    }

    /// Name of the codec (https://github.com/multiformats/multicodec), or its code in hexadecimal digits.
    async fn codec(&self) -> String {
        codec_name(self.cid.codec())
    }

    /// The bytes.
    #[graphql(complexity = 10)]
    async fn data(&self, context: &Context<'_>) -> FieldResult<Option<Base64>> {
        let data = self.bytes(context).await?;
        request(context)?.budget.take(base64_len(data.len())).map_err(failed)?;
        Ok(Some(Base64(data)))
    }

    /// Links to other blocks, in their order in the block.
    #[graphql(complexity = "page_cost(first, child_complexity)")]
    async fn links(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Maximum number of links; 100 if missing.")] first: Option<i32>,
    ) -> FieldResult<Option<Vec<Link>>> {
        let most = page_size(context, first)?;
        let mut links = block_links(self.cid, self.bytes(context).await?).await.map_err(failed)?;
        links.truncate(most);
        let names = links.iter().map(|link| text_len(link.name.as_bytes())).sum();
        request(context)?.budget.take(names).map_err(failed)?;
        Ok(Some(links.into_iter().map(Link::from).collect()))
    }
}

/// A link from a block to another.
#[derive(SimpleObject)]
#[graphql(complex)]
pub(crate) struct Link {
    /// Content ID of the other block.
    cid: Cid,
    /// Name of the link; empty if it has none.
    name: String,
    /// Size of everything below the link, in bytes, as the block claims; 0 if the format has none.
    size: Long,
    #[graphql(skip)]
    block: Target,
}

impl From<PbLink> for Link {
    fn from(link: PbLink) -> Self {
        let name = link.name.to_string_lossy().into_owned();
        Self { cid: Cid(link.cid), name, size: Long(link.tsize), block: Target(link.cid) }
    }
}

/// A block that a link leads to.
struct Target(CoreCid);

/// Fields that read.
#[async_graphql::ComplexObject]
impl Link {
    /// The other block; null if it is not in this store.
    async fn block(&self, context: &Context<'_>) -> FieldResult<Option<Block>> {
        load(context, self.block.0).await
    }
}

/// Reads a block together with those of other fields.
pub(crate) async fn load(context: &Context<'_>, cid: CoreCid) -> FieldResult<Option<Block>> {
    let found = request(context)?.blocks.load(cid).await.map_err(failed)?;
    Ok(found.map(|data| Block::read(cid, data)))
}

/// Returns the name of a codec, or its code.
pub(crate) fn codec_name(code: u64) -> String {
    codec::name(code).map_or_else(|| format!("0x{code:x}"), str::to_owned)
}
