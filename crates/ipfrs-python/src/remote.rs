//! A client of a daemon over HTTP. It uses Kubo's RPC API where possible, and the native API for batches and tensors.
//!
//! All threads share the persistent connections and do not wait for each other. Received blocks are verified.

mod answer;
mod blocks;
mod failure;
mod files;
mod http;
mod multipart;
mod patience;
mod repo;
mod sized;
mod tensors;
mod upload;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::LinkName;
use parking_lot::RwLock;

use crate::backing::{
    AddOptions, Added, Backing, BlockOptions, Content, Entry, Pieces, PinEntry, Progress, Stat, StoreStats,
    TensorBytes, TensorList, TensorStats,
};
use blocks::BatchLimit;
use http::Http;

/// A client of the daemon at a URL.
#[derive(Debug)]
pub(crate) struct Remote {
    /// `None` once the client is closed. Connections are closed when the last call that uses them ends.
    http: RwLock<Option<Arc<Http>>>,
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
        let http = Arc::new(Http::new(url, token, timeout)?);
        Ok(Self { http: RwLock::new(Some(http)), limit: BatchLimit::new() })
    }

    fn http(&self) -> Result<Arc<Http>> {
        let closed = || Error::new(ErrorKind::Conflict, "the client is closed: create another one");
        self.http.read().clone().ok_or_else(closed)
    }
}

#[async_trait]
impl Backing for Remote {
    /// Does nothing, because requests open connections as needed.
    async fn open(&self) -> Result<()> {
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        if let Some(http) = self.http.write().take() {
            http.end_streams();
        }
        Ok(())
    }

    async fn version(&self) -> Result<String> {
        repo::version(&*self.http()?).await
    }

    async fn stats(&self) -> Result<StoreStats> {
        repo::stats(&*self.http()?).await
    }

    async fn put(&self, data: Bytes, options: BlockOptions) -> Result<String> {
        blocks::put(&*self.http()?, data, &options).await
    }

    async fn put_many(&self, blocks: Vec<Bytes>, options: BlockOptions) -> Result<Vec<String>> {
        blocks::put_many(&*self.http()?, blocks, &options).await
    }

    async fn get(&self, cid: String) -> Result<Bytes> {
        blocks::get(&*self.http()?, &cid).await
    }

    async fn get_many(&self, cids: Vec<String>) -> Result<Vec<Option<Bytes>>> {
        blocks::get_many(&*self.http()?, &self.limit, &cids).await
    }

    async fn has_many(&self, cids: Vec<String>) -> Result<Vec<bool>> {
        blocks::has_many(&*self.http()?, &self.limit, &cids).await
    }

    async fn size(&self, cid: String) -> Result<u64> {
        blocks::size(&*self.http()?, &cid).await
    }

    async fn remove(&self, cids: Vec<String>, force: bool) -> Result<()> {
        blocks::remove(&*self.http()?, &cids, force).await
    }

    async fn add(&self, content: Pieces, options: AddOptions) -> Result<Added> {
        upload::add(&*self.http()?, content, &options).await
    }

    async fn add_path(&self, path: PathBuf, options: AddOptions, progress: Option<Progress>) -> Result<Added> {
        upload::add_path(&*self.http()?, path, &options, progress).await
    }

    async fn read(&self, path: LinkName, offset: u64, length: Option<u64>) -> Result<Content> {
        files::read(&*self.http()?, &path, offset, length).await
    }

    async fn list(&self, path: LinkName) -> Result<Vec<Entry>> {
        files::list(&*self.http()?, &path).await
    }

    async fn stat(&self, path: LinkName) -> Result<Stat> {
        files::stat(&*self.http()?, &path).await
    }

    async fn resolve(&self, path: LinkName) -> Result<String> {
        files::resolve(&*self.http()?, &path).await
    }

    async fn pin(&self, path: LinkName, recursive: bool, name: Option<String>) -> Result<String> {
        repo::pin(&*self.http()?, &path, recursive, name).await
    }

    async fn unpin(&self, path: LinkName, recursive: bool) -> Result<()> {
        repo::unpin(&*self.http()?, &path, recursive).await
    }

    async fn pins(&self) -> Result<Vec<PinEntry>> {
        repo::pins(&*self.http()?).await
    }

    async fn export_car(&self, path: LinkName) -> Result<Pieces> {
        repo::export_car(&*self.http()?, &path).await
    }

    async fn import_car(&self, car: Pieces, pin_roots: bool) -> Result<Vec<String>> {
        repo::import_car(&*self.http()?, car, pin_roots).await
    }

    async fn collect(&self, force: bool) -> Result<(u64, u64)> {
        repo::collect(&*self.http()?, force).await
    }

    async fn tensors(&self, path: LinkName) -> Result<TensorList> {
        tensors::list(&*self.http()?, &path).await
    }

    async fn tensor(&self, path: LinkName, name: String, slice: String) -> Result<TensorBytes> {
        tensors::tensor(&*self.http()?, &path, &name, &slice).await
    }

    async fn tensor_stats(&self, path: LinkName, name: String) -> Result<TensorStats> {
        tensors::stats(&*self.http()?, &path, &name).await
    }
}
