//! Mutations.

use async_graphql::{Context, Object, SimpleObject};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, codec};
use ipfrs_middleware::auth::Scope;
use ipfrs_node::{BlockFormat, OperationId, PinOptions, PutBlock, PutBlockOptions, UploadOptions};

use crate::context::{audited, node, request};
use crate::error::{FieldResult, failed};
use crate::scalars::{Base64, Cid, Long, Upload};
use crate::types::content::content_path;

/// Root of mutations.
pub(crate) struct Mutation;

/// A block that was stored.
#[derive(SimpleObject)]
struct AddedBlock {
    /// Content ID of the block.
    cid: Cid,
    /// Number of bytes.
    size: Long,
}

/// A file that was imported.
#[derive(SimpleObject)]
struct AddedFile {
    /// Content ID of the file, or of the directory that wraps it.
    cid: Cid,
    /// Size of the file in bytes.
    size: Long,
    /// Number of blocks.
    blocks: Long,
    /// ID of the operation, whose progress can be watched.
    operation_id: String,
}

/// Changes. Each is durable when its result is returned.
#[Object]
impl Mutation {
    /// Stores a block.
    async fn add_block(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "The bytes.")] data: Base64,
        #[graphql(desc = "Content ID that the bytes must have.")] cid: Option<Cid>,
        #[graphql(desc = "Codec of a new content ID; raw if missing.")] codec: Option<String>,
        #[graphql(desc = "Hash function of a new content ID; sha2-256 if missing.")] mhtype: Option<String>,
        #[graphql(desc = "Whether to pin the block and everything below it.", default)] pin: bool,
    ) -> FieldResult<Option<AddedBlock>> {
        let target = cid.as_ref().map_or_else(String::new, |cid| cid.0.to_string());
        let change = async {
            if cid.is_some() && (codec.is_some() || mhtype.is_some()) {
                return Err(failed(Error::invalid("cid determines codec and mhtype: omit them, or omit cid")));
            }
            let codec = codec.as_deref().map_or(Ok(codec::RAW), codec::parse).map_err(failed)?;
            let hash = mhtype.as_deref().map_or(Ok(HashFunction::default()), HashFunction::from_name);
            let format = BlockFormat { version: 1, codec, hash: hash.map_err(failed)?, digest_bytes: None };
            let block = PutBlock { data: data.0, cid: cid.map(|cid| cid.0), format };
            let node = node(context)?;
            let stored = node.put_block_with(block, PutBlockOptions { pin, ..PutBlockOptions::default() }).await;
            let (cid, size) = stored.map_err(failed)?;
            FieldResult::Ok(Some(AddedBlock { cid: Cid(cid), size: size.into() }))
        };
        audited(context, Scope::Write, &target, change, |added| added.as_ref().map(|added| added.cid.0)).await
    }

    /// Imports a file while it arrives.
    #[expect(clippy::too_many_arguments, reason = "the arguments of the field")]
    async fn add_file(
        &self,
        context: &Context<'_>,
        file: Upload,
        #[graphql(desc = "Name for wrap and for the pin; that of the upload if missing.")] name: Option<String>,
        #[graphql(desc = "Whether to put the file into a directory, under its name.", default)] wrap: bool,
        #[graphql(desc = "Whether to pin the file.", default = true)] pin: bool,
        #[graphql(desc = "Version of content IDs: 0 or 1.")] cid_version: Option<i32>,
        #[graphql(desc = "Whether the leaves are raw blocks.")] raw_leaves: Option<bool>,
        #[graphql(desc = "Chunker, such as size-1048576.")] chunker: Option<String>,
        #[graphql(desc = "Import profile, such as unixfs-v1-2025.")] profile: Option<String>,
        #[graphql(desc = "ID of the operation; a random one if missing.")] operation_id: Option<String>,
    ) -> FieldResult<Option<AddedFile>> {
        let target = name.clone().unwrap_or_default();
        let change = async {
            let files = request(context)?.files.as_ref();
            let files = files
                .ok_or_else(|| failed(Error::invalid("the request has no files: send it as multipart/form-data")))?;
            let part = files.take(file.0).await.map_err(failed)?;
            let filename = name.or_else(|| part.name.clone());
            filename.as_deref().map_or(Ok(()), UploadOptions::check_name).map_err(failed)?;
            let id = operation_id.map_or_else(OperationId::random, |id| id.parse()).map_err(failed)?;
            let cid_version = cid_version.map(u64::try_from).transpose();
            let options = UploadOptions {
                filename,
                wrap,
                pin,
                cid_version: cid_version.map_err(|_| failed(Error::invalid("cidVersion must be 0 or 1")))?,
                raw_leaves,
                chunker,
                hash: None,
                profile,
            };
            let operation_id = id.to_string();
            let uploaded = node(context)?.upload(&options, id, None, part.content).await.map_err(failed)?;
            FieldResult::Ok(Some(AddedFile {
                cid: Cid(uploaded.cid),
                size: Long(uploaded.size),
                blocks: Long(uploaded.blocks),
                operation_id,
            }))
        };
        audited(context, Scope::Write, &target, change, |added| added.as_ref().map(|added| added.cid.0)).await
    }

    /// Removes a block that no pin leads to. Returns its content ID.
    async fn delete_block(
        &self,
        context: &Context<'_>,
        cid: Cid,
        #[graphql(desc = "Whether a missing block is no error.", default)] force: bool,
    ) -> FieldResult<Option<Cid>> {
        let target = cid.0.to_string();
        let change = async {
            for (_, outcome) in node(context)?.remove_blocks(&[cid.0], force).await.map_err(failed)? {
                outcome.map_err(|e| failed(Error::new(e.kind(), format!("cannot remove {}: {e}", cid.0))))?;
            }
            FieldResult::Ok(Some(cid))
        };
        audited(context, Scope::Write, &target, change, |_| None).await
    }

    /// Pins the target of a path. All blocks must be in this store. Returns its content ID.
    async fn pin(
        &self,
        context: &Context<'_>,
        path: String,
        #[graphql(desc = "Whether to pin everything below the block too.", default = true)] recursive: bool,
        #[graphql(desc = "Name of the pin.", default)] name: String,
    ) -> FieldResult<Option<Cid>> {
        let change = async {
            let node = node(context)?;
            let path = content_path(node, &path).await.map_err(failed)?;
            let pinned = node.pin(&[path], &PinOptions { recursive, name }, |_| {}).await.map_err(failed)?;
            FieldResult::Ok(pinned.first().map(|cid| Cid(*cid)))
        };
        audited(context, Scope::Pin, &path, change, |_| None).await
    }

    /// Removes the pin of the target of a path. Returns its content ID.
    async fn unpin(
        &self,
        context: &Context<'_>,
        path: String,
        #[graphql(desc = "Whether a recursive pin is removed too.", default = true)] recursive: bool,
    ) -> FieldResult<Option<Cid>> {
        let change = async {
            let node = node(context)?;
            let path = content_path(node, &path).await.map_err(failed)?;
            let unpinned = node.unpin(&[path], recursive).await.map_err(failed)?;
            FieldResult::Ok(unpinned.first().map(|cid| Cid(*cid)))
        };
        audited(context, Scope::Pin, &path, change, |_| None).await
    }
}
