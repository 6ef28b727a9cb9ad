//! `ipfrs.file.v1.FileService`.

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Cid, Error, parse_cid};
use ipfrs_node::{
    Chunker, ContentPath, Expected, FileContent, Listed, ListedKind, Node, Object, ObjectKind, OperationId, PinOptions,
    Place, Profile, Span, UploadOptions, expecting,
};
use ipfrs_proto::file::v1::add_file_request::Part;
use ipfrs_proto::file::v1::file_service_server::FileService;
use ipfrs_proto::file::v1::{
    AddFileRequest, AddFileResponse, DirectoryEntry, FileMetadata, FileType, GetFileInfoRequest, GetFileInfoResponse,
    GetFileRequest, GetFileResponse, ListDirectoryRequest, ListDirectoryResponse, PinFileRequest, PinFileResponse,
    UnpinFileRequest, UnpinFileResponse,
};
use tonic::{Request, Response, Status, Streaming};

use crate::error::{Fault, in_field};
use crate::inbound::Inbound;
use crate::{Limits, audit_target, payload};

/// Default number of entries on a page.
const PAGE_ENTRIES: usize = 1_000;

/// Maximum number of entries on a page.
const MAX_PAGE_ENTRIES: usize = 10_000;

/// Longest chunk of a file or a tensor, in bytes.
pub(crate) const MAX_CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// Implementation of the service for a node.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) node: Node,
    pub(crate) limits: Limits,
}

#[async_trait::async_trait]
impl FileService for Files {
    async fn add_file(&self, request: Request<Streaming<AddFileRequest>>) -> Result<Response<AddFileResponse>, Status> {
        let audited = audit_target::of(&request);
        let mut inbound = Inbound::new(request.into_inner(), self.limits.upload_idle);
        let (options, operation) = match inbound.next().await?.and_then(|message| message.part) {
            Some(Part::Metadata(metadata)) => import_options(metadata)?,
            Some(Part::Chunk(_)) | None => {
                let why = "the first message must contain the metadata, which may be empty";
                return Err(in_field("metadata")(Error::invalid(why)).into());
            }
        };
        let id = operation.to_string();
        let content = payload::content(inbound, |message| match message.part {
            Some(Part::Chunk(bytes)) if bytes.len() > MAX_CHUNK_BYTES => {
                let why = format!("the chunk has {} bytes: send at most {MAX_CHUNK_BYTES}", bytes.len());
                Err(Error::too_large(why).into())
            }
            Some(Part::Chunk(bytes)) => Ok(bytes),
            Some(Part::Metadata(_)) => {
                Err(in_field("metadata")(Error::invalid("only the first message has metadata: send chunks after it")))
            }
            None => Err(in_field("chunk")(Error::invalid("a message after the first one has no chunk"))),
        });
        let added = self.node.upload(&options, operation, None, content).await.map_err(payload::import_status)?;
        let cid = added.cid.to_string();
        audited.note(&cid);
        Ok(Response::new(AddFileResponse { cid, size: added.size, blocks: added.blocks, operation_id: id }))
    }

    type GetFileStream = BoxStream<'static, Result<GetFileResponse, Status>>;

    async fn get_file(&self, request: Request<GetFileRequest>) -> Result<Response<Self::GetFileStream>, Status> {
        let GetFileRequest { path, offset, length } = request.into_inner();
        let object = expecting(Expected::of_file(offset, length), object(&self.node, &path)).await?;
        let file = file(&object).await?;
        let size = file.size();
        let Some(left) = size.checked_sub(offset) else {
            let why = format!("offset {offset} is beyond the end of the file, which has {size} bytes");
            return Err(in_field("offset")(Error::invalid(why)).into());
        };
        let span = Span { start: offset, len: length.unwrap_or(left).min(left) };
        let mut file_size = Some(size);
        if span.len == 0 {
            let only = GetFileResponse { file_size, ..GetFileResponse::default() };
            return Ok(Response::new(stream::iter([Ok(only)]).boxed()));
        }
        let pieces = payload::outbound(self.node.read(file, span));
        let messages = pieces.map_ok(move |data| GetFileResponse { data, file_size: file_size.take() });
        Ok(Response::new(messages.boxed()))
    }

    async fn list_directory(
        &self,
        request: Request<ListDirectoryRequest>,
    ) -> Result<Response<ListDirectoryResponse>, Status> {
        let request = request.into_inner();
        let object = object(&self.node, &request.path).await?;
        check_directory(&object).await?;
        let from = place(&request.page_token, &object.cid).map_err(in_field("page_token"))?;
        let most = match usize::try_from(request.page_size).unwrap_or(usize::MAX) {
            0 => PAGE_ENTRIES,
            given => given.min(MAX_PAGE_ENTRIES),
        };
        let page = self.node.list_page(&object, &from, most).await.map_err(in_field("page_token"))?;
        let next = page.next.map(|place| token(&object.cid, &place));
        Ok(Response::new(ListDirectoryResponse {
            entries: page.entries.into_iter().map(entry).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn get_file_info(
        &self,
        request: Request<GetFileInfoRequest>,
    ) -> Result<Response<GetFileInfoResponse>, Status> {
        let object = object(&self.node, &request.into_inner().path).await?;
        let info = self.node.object_info(&object).await.map_err(Fault::from)?;
        Ok(Response::new(GetFileInfoResponse {
            cid: object.cid.to_string(),
            r#type: file_type(info.kind).into(),
            size: info.size,
            dag_size: info.dag_size,
            links: u32::try_from(info.links).unwrap_or(u32::MAX),
            mode: info.attributes.mode,
            mtime: info.attributes.mtime.map(|mtime| mtime.seconds),
        }))
    }

    async fn pin_file(&self, request: Request<PinFileRequest>) -> Result<Response<PinFileResponse>, Status> {
        audit_target::note(&request, &request.get_ref().path);
        let PinFileRequest { path, direct, name } = request.into_inner();
        let path = content_path(&self.node, &path).await?;
        let options = PinOptions { recursive: !direct, name };
        let pinned = self.node.pin(&[path], &options, |_| {}).await.map_err(Fault::from)?;
        Ok(Response::new(PinFileResponse { cid: text_of(&pinned) }))
    }

    async fn unpin_file(&self, request: Request<UnpinFileRequest>) -> Result<Response<UnpinFileResponse>, Status> {
        audit_target::note(&request, &request.get_ref().path);
        let path = content_path(&self.node, &request.into_inner().path).await?;
        let unpinned = self.node.unpin(&[path], true).await.map_err(Fault::from)?;
        Ok(Response::new(UnpinFileResponse { cid: text_of(&unpinned) }))
    }
}

/// Parses the path in a request, and resolves its name.
pub(crate) async fn content_path(node: &Node, path: &str) -> Result<ContentPath, Fault> {
    node.content_path(path).await.map_err(in_field("path"))
}

/// Resolves a path to an object, which must be a whole block.
async fn object(node: &Node, path: &str) -> Result<Object, Fault> {
    Ok(node.resolve(content_path(node, path).await?).await?.whole()?)
}

async fn file(object: &Object) -> Result<&FileContent, Fault> {
    let path = &object.resolved.path;
    match &object.kind {
        ObjectKind::File(file) => Ok(file),
        ObjectKind::Directory(_) => {
            Err(in_field("path")(Error::invalid(format!("{path} is a directory: use ListDirectory"))))
        }
        ObjectKind::Symlink(_) => {
            Err(Error::unsupported(format!("{path} is a symlink: use the path of its target")).into())
        }
        ObjectKind::Other => Err(object.not_unixfs("request its block, or use the DAG service").await.into()),
    }
}

async fn check_directory(object: &Object) -> Result<(), Fault> {
    let path = &object.resolved.path;
    match &object.kind {
        ObjectKind::Directory(_) => Ok(()),
        ObjectKind::File(_) | ObjectKind::Symlink(_) => {
            Err(in_field("path")(Error::invalid(format!("{path} is not a directory: use GetFileInfo"))))
        }
        ObjectKind::Other => Err(object.not_unixfs("request its block, or use the DAG service").await.into()),
    }
}

/// Parses the options of an import. Empty fields have defaults.
fn import_options(metadata: FileMetadata) -> Result<(UploadOptions, OperationId), Fault> {
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let (filename, profile) = (given(metadata.name), given(metadata.profile));
    let (chunker, hash) = (given(metadata.chunker), given(metadata.hash));
    filename.as_deref().map_or(Ok(()), UploadOptions::check_name).map_err(in_field("metadata.name"))?;
    profile.as_deref().map(str::parse::<Profile>).transpose().map_err(in_field("metadata.profile"))?;
    chunker.as_deref().map(str::parse::<Chunker>).transpose().map_err(in_field("metadata.chunker"))?;
    hash.as_deref().map(HashFunction::from_name).transpose().map_err(in_field("metadata.hash"))?;
    if let Some(version) = metadata.cid_version.filter(|version| *version > 1) {
        let why = format!("CID version {version} does not exist: use 0 or 1");
        return Err(in_field("metadata.cid_version")(Error::invalid(why)));
    }
    let operation = match given(metadata.operation_id) {
        Some(id) => id.parse().map_err(in_field("metadata.operation_id"))?,
        None => OperationId::random()?,
    };
    let options = UploadOptions {
        filename,
        wrap: metadata.wrap_with_directory,
        pin: !metadata.no_pin,
        cid_version: metadata.cid_version.map(u64::from),
        raw_leaves: metadata.raw_leaves,
        chunker,
        hash,
        profile,
    };
    Ok((options, operation))
}

fn entry(listed: Listed) -> DirectoryEntry {
    let r#type = file_type(listed.kind).into();
    let (name, name_bytes) = match listed.name.to_str() {
        Some(name) => (name.to_owned(), Bytes::new()),
        None => (listed.name.to_string(), Bytes::copy_from_slice(listed.name.as_bytes())),
    };
    DirectoryEntry { name, cid: listed.cid.to_string(), r#type, size: listed.size, name_bytes }
}

fn file_type(kind: ListedKind) -> FileType {
    match kind {
        ListedKind::File => FileType::File,
        ListedKind::Directory => FileType::Directory,
        ListedKind::Symlink => FileType::Symlink,
        ListedKind::Unknown => FileType::Unspecified,
    }
}

fn text_of(cids: &[Cid]) -> String {
    cids.first().map(ToString::to_string).unwrap_or_default()
}

/// Returns the token of a page: a position in a certain directory, as `{cid}:{place}`.
fn token(directory: &Cid, place: &Place) -> String {
    format!("{directory}:{place}")
}

/// Parses a page token. An empty token means the first page.
fn place(token: &str, directory: &Cid) -> Result<Place, Error> {
    if token.is_empty() {
        return Ok(Place::default());
    }
    let (of, place) = token.split_once(':').unwrap_or_default();
    let (Ok(of), Ok(place)) = (parse_cid(of), place.parse()) else {
        return Err(Error::invalid("this is not a next_page_token of ListDirectory: omit it to start over"));
    };
    if of != *directory {
        let why = format!("the token is for {of}, but the path resolves to {directory}: omit it to start over");
        return Err(Error::invalid(why));
    }
    Ok(place)
}
