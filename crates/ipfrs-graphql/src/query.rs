//! Queries.

#![allow(clippy::unused_async, reason = "the macro makes fields of asynchronous functions")]

use std::sync::Arc;

use async_graphql::connection::{Connection, Edge, EmptyFields};
use async_graphql::{Context, Object};
use ipfrs_core::{Error, parse_cid};
use ipfrs_node::{Expected, PinFilter, expecting};

use crate::GraphQlConfig;
use crate::context::{entries_cost, node, page_cost, page_size, request};
use crate::error::{FieldResult, failed};
use crate::limits::READ_COST;
use crate::scalars::{Cid, Long};
use crate::types::block::{Block, load};
use crate::types::content::{
    self, DAG_JSON, DagNode, DirectoryEntry, DirectoryFields, File, Position, content_path, object_at,
};
use crate::types::name::Name;
use crate::types::operation::Operation;
use crate::types::pin::{Pin, PinType};
use crate::types::store::{Bandwidth, Stats, Version};
use crate::types::tensor::{Tensor, TensorFields};

/// Root of queries.
pub(crate) struct Query;

/// Content and state of the node. Paths are content paths: /ipfs/{cid}/..., /ipns/{name}/..., or a content ID.
#[Object]
impl Query {
    /// A block; null if it is not in this store. All blocks that a query names on one level are read together.
    async fn block(&self, context: &Context<'_>, cid: Cid) -> FieldResult<Option<Block>> {
        load(context, cid.0).await
    }

    /// Whether a block is in this store.
    async fn has_block(&self, context: &Context<'_>, cid: Cid) -> FieldResult<Option<bool>> {
        let found = node(context)?.batch_has(&[cid.0]).await.map_err(failed)?;
        Ok(Some(found.iter().all(Option::is_some)))
    }

    /// Blocks by their content IDs, in this order; null for each that is not in this store.
    #[graphql(complexity = "entries_cost(cids.len(), child_complexity)")]
    async fn blocks_by_cid(&self, context: &Context<'_>, cids: Vec<Cid>) -> FieldResult<Option<Vec<Option<Block>>>> {
        let (count, most) = (cids.len(), context.data::<GraphQlConfig>()?.max_page_size);
        if count > most {
            let text = format!("{count} content IDs: a query names at most {most} (graphql.max_page_size)");
            return Err(failed(Error::invalid(text)));
        }
        futures::future::try_join_all(cids.into_iter().map(|cid| load(context, cid.0))).await.map(Some)
    }

    /// All blocks of the store, in the order of their hashes.
    #[graphql(complexity = "page_cost(first, child_complexity)")]
    async fn blocks(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Maximum number of blocks; 100 if missing.")] first: Option<i32>,
        #[graphql(desc = "Cursor of the block before the first.")] after: Option<String>,
    ) -> FieldResult<Option<Connection<String, Block>>> {
        let most = page_size(context, first)?;
        let after = cid_cursor(after.as_deref())?;
        let (cids, has_more) = node(context)?.block_page(after.as_ref(), most).await.map_err(failed)?;
        let mut page = Connection::new(after.is_some(), has_more);
        page.edges.extend(cids.into_iter().map(|cid| Edge::new(cid.to_string(), Block::listed(cid))));
        Ok(Some(page))
    }

    /// A value of the IPLD data model: a block, or a value within a block.
    #[graphql(complexity = "READ_COST + child_complexity")]
    async fn dag(&self, context: &Context<'_>, path: String) -> FieldResult<Option<DagNode>> {
        let node = node(context)?;
        let path = content_path(node, &path).await.map_err(failed)?;
        let (found, json) = node.get_node(path, DAG_JSON).await.map_err(failed)?;
        request(context)?.budget.take(json.len()).map_err(failed)?;
        let remainder = found.remainder.iter().map(ToString::to_string).collect();
        Ok(Some(DagNode { cid: found.cid, remainder, json }))
    }

    /// A file, a directory or a symlink.
    #[graphql(complexity = "READ_COST + child_complexity")]
    async fn file(&self, context: &Context<'_>, path: String) -> FieldResult<Option<File>> {
        let (object, memory) = object_at(context, &path).await?;
        Ok(Some(File { object, _memory: memory }))
    }

    /// The entries of a directory, in their stored order.
    #[graphql(complexity = "READ_COST + page_cost(first, child_complexity)")]
    async fn directory(
        &self,
        context: &Context<'_>,
        path: String,
        #[graphql(desc = "Maximum number of entries; 100 if missing.")] first: Option<i32>,
        #[graphql(desc = "Cursor of the entry before the first.")] after: Option<String>,
    ) -> FieldResult<Option<Connection<String, DirectoryEntry, DirectoryFields, EmptyFields>>> {
        let most = page_size(context, first)?;
        let node = node(context)?;
        let (object, _memory) = object_at(context, &path).await?;
        let total_count = match &object.kind {
            ipfrs_node::ObjectKind::Directory(directory) => directory.count().map(Long::from),
            _ => None,
        };
        let from = Position::parse(after.as_deref(), &object.cid).map_err(failed)?;
        let (entries, has_more) = content::entries(node, &object, from, most).await.map_err(failed)?;
        let names = entries.iter().map(|(cursor, entry)| cursor.len() + entry.json_len()).sum();
        request(context)?.budget.take(names).map_err(failed)?;
        let fields = DirectoryFields { cid: Cid(object.cid), total_count };
        let mut page = Connection::with_additional_fields(after.is_some(), has_more, fields);
        page.edges.extend(entries.into_iter().map(|(cursor, entry)| Edge::new(cursor, entry)));
        Ok(Some(page))
    }

    /// Direct and recursive pins, in the order of their content IDs.
    #[graphql(complexity = "page_cost(first, child_complexity)")]
    async fn pins(
        &self,
        context: &Context<'_>,
        #[graphql(name = "type", desc = "Only pins of this type.")] pin_type: Option<PinType>,
        #[graphql(desc = "Maximum number of pins; 100 if missing.")] first: Option<i32>,
        #[graphql(desc = "Cursor of the pin before the first.")] after: Option<String>,
    ) -> FieldResult<Option<Connection<String, Pin>>> {
        let most = page_size(context, first)?;
        let after = cid_cursor(after.as_deref())?;
        let filter = pin_type.map_or(PinFilter::All, PinFilter::from);
        let (pins, has_more) = node(context)?.pin_page(after, filter, most).await.map_err(failed)?;
        let mut page = Connection::new(after.is_some(), has_more);
        page.edges.extend(pins.into_iter().map(|pin| Edge::new(pin.cid.to_string(), Pin(pin))));
        Ok(Some(page))
    }

    /// The tensors of a safetensors or .npy file, in their order in the file.
    #[graphql(complexity = "READ_COST + page_cost(first, child_complexity)")]
    async fn tensors(
        &self,
        context: &Context<'_>,
        path: String,
        #[graphql(desc = "Maximum number of tensors; 100 if missing.")] first: Option<i32>,
        #[graphql(desc = "Cursor of the tensor before the first.")] after: Option<String>,
    ) -> FieldResult<Option<Connection<String, Tensor, TensorFields, EmptyFields>>> {
        let most = page_size(context, first)?;
        let node = node(context)?;
        node.check_tensors().map_err(failed)?;
        let (object, memory) = expecting(Expected::Block, object_at(context, &path)).await?;
        let (file, memory) = (node.tensors_of(object).await.map_err(failed)?, Arc::new(memory));
        let start = number_cursor(after.as_deref())?;
        let tensors = file.catalogue.tensors();
        let fields = TensorFields { cid: Cid(file.cid), total_count: tensors.len().into() };
        let has_more = start.saturating_add(most) < tensors.len();
        let mut page = Connection::with_additional_fields(start > 0, has_more, fields);
        page.edges.extend(tensors.iter().enumerate().skip(start).take(most).map(|(index, info)| {
            let tensor = Tensor { file: file.clone(), info: info.clone(), _memory: Arc::clone(&memory) };
            Edge::new((index + 1).to_string(), tensor)
        }));
        Ok(Some(page))
    }

    /// The IPNS names whose keys are in this repo: the identity first, the others by name.
    #[graphql(complexity = "page_cost(first, child_complexity)")]
    async fn names(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Maximum number of names; 100 if missing.")] first: Option<i32>,
        #[graphql(desc = "Cursor of the name before the first.")] after: Option<String>,
    ) -> FieldResult<Option<Connection<String, Name>>> {
        let most = page_size(context, first)?;
        let keys = node(context)?.keys().await.map_err(failed)?;
        let start = match &after {
            None => 0,
            Some(after) => keys.iter().position(|key| key.name == *after).map_or(keys.len(), |index| index + 1),
        };
        let mut page = Connection::new(start > 0, start.saturating_add(most) < keys.len());
        let keys = keys.into_iter().skip(start).take(most);
        page.edges.extend(keys.map(|key| Edge::new(key.name.clone(), Name(key))));
        Ok(Some(page))
    }

    /// Operations that have not ended, in no particular order.
    #[graphql(complexity = "page_cost(first, child_complexity)")]
    async fn operations(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Maximum number of operations; 100 if missing.")] first: Option<i32>,
    ) -> FieldResult<Option<Vec<Operation>>> {
        let most = page_size(context, first)?;
        Ok(Some(node(context)?.operations().into_iter().take(most).map(Operation).collect()))
    }

    /// Totals of the store.
    async fn stats(&self, context: &Context<'_>) -> FieldResult<Option<Stats>> {
        let node = node(context)?;
        let stats = node.stats().await.map_err(failed)?;
        Ok(Some(Stats {
            blocks: Long(stats.blocks),
            payload_bytes: Long(stats.payload_bytes),
            disk_bytes: Long(stats.disk_bytes),
            dead_bytes: Long(stats.dead_bytes),
            bandwidth: Bandwidth::of(&node.bandwidth()),
        }))
    }

    /// Version of the daemon.
    async fn version(&self, context: &Context<'_>) -> FieldResult<Version> {
        let node = node(context)?;
        let (peer_id, instance) = (node.identity().peer_id(), node.events_instance());
        Ok(Version { version: env!("CARGO_PKG_VERSION"), peer_id, instance })
    }
}

/// Parses a cursor that is a content ID.
fn cid_cursor(after: Option<&str>) -> FieldResult<Option<ipfrs_core::Cid>> {
    let cid = after.map(parse_cid).transpose();
    cid.map_err(|_| failed(Error::invalid("after is not a cursor of this connection: omit it to start over")))
}

/// Parses a cursor that is the number of entries before it.
fn number_cursor(after: Option<&str>) -> FieldResult<usize> {
    let number = after.map(str::parse).transpose();
    let number = number.map_err(|_| failed(Error::invalid("after is not a cursor of this connection: omit it")));
    Ok(number?.unwrap_or(0))
}
