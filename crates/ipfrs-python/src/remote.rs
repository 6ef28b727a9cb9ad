//! A client of a daemon over HTTP. It uses Kubo's RPC API where possible, and the native API for batches and tensors.
//!
//! All threads share the persistent connections and do not wait for each other. Received blocks are verified.

mod blocks;
mod files;
mod repo;
mod sized;
mod tensors;
mod upload;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Error, ErrorKind, Result, uri_as_path};
use ipfrs_node::LinkName;
use ipfrs_rpc::client::{Client, ClientOptions};
use parking_lot::RwLock;

use crate::backing::{
    AddOptions, Added, Backing, BlockOptions, Content, Entry, Pieces, PinEntry, Progress, Stat, StoreStats,
    TensorBytes, TensorList, TensorStats,
};
use blocks::BatchLimit;

const USER_AGENT: &str = concat!("ipfrs-python/", env!("CARGO_PKG_VERSION"));

/// A client of the daemon at a URL.
#[derive(Debug)]
pub(crate) struct Remote {
    /// `None` once the client is closed. Connections are closed when the last call that uses them ends.
    client: RwLock<Option<Arc<Client>>>,
    limit: BatchLimit,
}

impl Remote {
    /// Creates a client of the daemon at `url`, which may include a path prefix. Every request carries `token` as
    /// `Authorization: Bearer`. `timeout` is the maximum time in seconds that the daemon may send nothing, with no
    /// limit by default. Sends no request yet.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an invalid URL, token or timeout.
    pub(crate) fn new(url: &str, token: Option<&str>, timeout: Option<f64>) -> Result<Self> {
        let client = Client::remote(url, &ClientOptions { user_agent: USER_AGENT, token, timeout })?;
        Ok(Self { client: RwLock::new(Some(Arc::new(client))), limit: BatchLimit::new() })
    }

    fn client(&self) -> Result<Arc<Client>> {
        let closed = || Error::new(ErrorKind::Conflict, "the client is closed: create another one");
        self.client.read().clone().ok_or_else(closed)
    }
}

/// Returns a path or URI as a path that all commands read as the Node does, in which `.` and `..` are names.
///
/// Kubo's commands remove them instead, so that `..` selects another root. Such a path is resolved first, by the one
/// command that takes them as names.
///
/// # Errors
/// Returns [`ErrorKind::NotFound`] if no link has this name.
async fn literal(client: &Client, path: LinkName) -> Result<LinkName> {
    let path = LinkName::from(&*uri_as_path(path.as_bytes()));
    match path.as_bytes().split(|byte| *byte == b'/').any(|name| matches!(name, b"." | b"..")) {
        true => Ok(format!("/ipfs/{}", files::resolve_dots(client, &path).await?).into()),
        false => Ok(path),
    }
}

/// Returns a path as an argument of a command.
fn arg(path: &LinkName) -> &OsStr {
    OsStr::from_bytes(path.as_bytes())
}

#[async_trait]
impl Backing for Remote {
    /// Does nothing, because requests open connections as needed.
    async fn open(&self) -> Result<()> {
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        if let Some(client) = self.client.write().take() {
            client.close();
        }
        Ok(())
    }

    async fn version(&self) -> Result<String> {
        repo::version(&*self.client()?).await
    }

    async fn stats(&self) -> Result<StoreStats> {
        repo::stats(&*self.client()?).await
    }

    async fn put(&self, data: Bytes, options: BlockOptions) -> Result<String> {
        blocks::put(&*self.client()?, data, &options).await
    }

    async fn put_many(&self, blocks: Vec<Bytes>, options: BlockOptions) -> Result<Vec<String>> {
        blocks::put_many(&*self.client()?, blocks, &options).await
    }

    async fn get(&self, cid: String) -> Result<Bytes> {
        blocks::get(&*self.client()?, &cid).await
    }

    async fn get_many(&self, cids: Vec<String>) -> Result<Vec<Option<Bytes>>> {
        blocks::get_many(&*self.client()?, &self.limit, &cids).await
    }

    async fn has_many(&self, cids: Vec<String>) -> Result<Vec<bool>> {
        blocks::has_many(&*self.client()?, &self.limit, &cids).await
    }

    async fn size(&self, cid: String) -> Result<u64> {
        blocks::size(&*self.client()?, &cid).await
    }

    async fn remove(&self, cids: Vec<String>, force: bool) -> Result<()> {
        blocks::remove(&*self.client()?, &cids, force).await
    }

    async fn add(&self, content: Pieces, options: AddOptions) -> Result<Added> {
        upload::add(&*self.client()?, content, &options).await
    }

    async fn add_path(&self, path: PathBuf, options: AddOptions, progress: Option<Progress>) -> Result<Added> {
        upload::add_path(&*self.client()?, path, &options, progress).await
    }

    async fn read(&self, path: LinkName, offset: u64, length: Option<u64>) -> Result<Content> {
        let client = self.client()?;
        files::read(&client, &literal(&client, path).await?, offset, length).await
    }

    async fn list(&self, path: LinkName) -> Result<Vec<Entry>> {
        let client = self.client()?;
        files::list(&client, &literal(&client, path).await?).await
    }

    async fn stat(&self, path: LinkName) -> Result<Stat> {
        let client = self.client()?;
        files::stat(&client, &literal(&client, path).await?).await
    }

    async fn resolve(&self, path: LinkName) -> Result<String> {
        let client = self.client()?;
        files::resolve(&client, &literal(&client, path).await?).await
    }

    async fn pin(&self, path: LinkName, recursive: bool, name: Option<String>) -> Result<String> {
        let client = self.client()?;
        repo::pin(&client, &literal(&client, path).await?, recursive, name).await
    }

    async fn unpin(&self, path: LinkName, recursive: bool) -> Result<()> {
        let client = self.client()?;
        repo::unpin(&client, &literal(&client, path).await?, recursive).await
    }

    async fn pins(&self) -> Result<Vec<PinEntry>> {
        repo::pins(&*self.client()?).await
    }

    async fn export_car(&self, path: LinkName) -> Result<Pieces> {
        let client = self.client()?;
        repo::export_car(&client, &literal(&client, path).await?).await
    }

    async fn import_car(&self, car: Pieces, pin_roots: bool) -> Result<Vec<String>> {
        repo::import_car(&*self.client()?, car, pin_roots).await
    }

    async fn collect(&self, force: bool) -> Result<(u64, u64)> {
        repo::collect(&*self.client()?, force).await
    }

    async fn tensors(&self, path: LinkName) -> Result<TensorList> {
        let client = self.client()?;
        tensors::list(&client, &literal(&client, path).await?).await
    }

    async fn tensor(&self, path: LinkName, name: String, slice: String) -> Result<TensorBytes> {
        let client = self.client()?;
        tensors::tensor(&client, &literal(&client, path).await?, &name, &slice).await
    }

    async fn tensor_stats(&self, path: LinkName, name: String) -> Result<TensorStats> {
        let client = self.client()?;
        tensors::stats(&client, &literal(&client, path).await?, &name).await
    }
}
