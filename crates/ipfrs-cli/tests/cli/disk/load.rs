//! Clients that change everything that a daemon stores, and note what it acknowledged.

mod each;
mod ingest;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, codec};
use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use ipfrs_proto::block::v1::{PutBlockRequest, PutOptions};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use reqwest::multipart::{Form, Part};
use reqwest::{Client, RequestBuilder};
use serde_json::json;
use tokio::sync::watch;
use tonic::transport::Channel;

pub(crate) use self::ingest::{connect, continued, ingested};
use super::mounted::Disk;
use crate::harness::Daemon;

/// Something that the daemon stores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A block, by its CID.
    Block(String),
    /// A file at `/ipfs`, by its CID.
    Content(String),
    /// A recursive or direct pin.
    Pin(String),
    /// A mutable file, by its path.
    File(String),
    /// A key for names, by its name.
    Signer(String),
    /// The value of the name of a key.
    Name(String),
    /// Bytes received of an upload, in decimal, by its URL path.
    Upload(String),
    /// Number of bytes of an object in `ingest` in the repo, in decimal, by its name. They are [`ingested`].
    Ingested(String),
    /// The same for an object in `/ingest` of the mutable files.
    Object(String),
}

/// Stored bytes; `None` if there are none.
pub(crate) type Value = Option<Vec<u8>>;

/// Changes that a request makes all or none of.
pub(crate) type Request = Vec<(Key, Value)>;

/// Content that a daemon must hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expected {
    pub(crate) there: BTreeMap<Key, Value>,
    /// Requests that are running, or failed.
    pub(crate) open: BTreeMap<u64, Request>,
}

/// Notes of all clients, with the position of the disk at which each began to hold.
#[derive(Default)]
struct Notes {
    expected: Expected,
    history: Vec<(usize, Arc<Expected>)>,
    next: u64,
}

/// A load on one daemon.
pub(crate) struct Load<'a> {
    /// Disk of the repo, if it is one of the test.
    disk: Option<&'a Disk>,
    url: String,
    /// Address of the gRPC listener.
    grpc: String,
    client: Client,
    notes: Mutex<Notes>,
    /// Number of notes so far.
    noted: watch::Sender<usize>,
    /// Whether requests may fail.
    may_fail: bool,
}

impl<'a> Load<'a> {
    pub(crate) fn new(disk: Option<&'a Disk>, daemon: &Daemon, may_fail: bool) -> Self {
        let client = Client::builder().no_proxy().build().unwrap();
        let (notes, noted) = (Mutex::default(), watch::Sender::new(0));
        Self { disk, url: String::new(), grpc: String::new(), client, notes, noted, may_fail }.at(daemon)
    }

    /// Continues with another daemon on the same repo.
    pub(crate) fn at(mut self, daemon: &Daemon) -> Self {
        self.url = daemon.url().to_owned();
        self.grpc = daemon.grpc.clone().unwrap();
        self
    }

    /// Sets whether requests may fail.
    pub(crate) fn set_may_fail(&mut self, may_fail: bool) {
        self.may_fail = may_fail;
    }

    /// Returns what holds from which position of the disk.
    pub(crate) fn history(&self) -> Vec<(usize, Arc<Expected>)> {
        self.notes.lock().history.clone()
    }

    /// Returns what holds now.
    pub(crate) fn expected(&self) -> Expected {
        self.notes.lock().expected.clone()
    }

    /// Returns a channel to the gRPC listener.
    fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.grpc)).unwrap().connect_lazy()
    }

    /// Runs `clients` at once, each with `requests` requests. Some complete their uploads at the end.
    pub(crate) async fn run(&self, clients: u64, requests: u32, seed: u64) {
        let grpc = self.channel();
        let clients = (0..clients).map(|client| {
            let mut client = Running::new(self, client, seed, grpc.clone());
            async move {
                for _ in 0..requests {
                    client.step().await;
                }
                if client.name.is_multiple_of(2) {
                    client.complete_upload().await;
                }
            }
        });
        futures::future::join_all(clients).await;
    }

    /// Runs `clients` at once. Calls `end` after `notes` more notes, while requests are running, and abandons these.
    pub(crate) async fn run_until(&self, clients: u64, seed: u64, notes: usize, end: impl FnOnce()) {
        let mut noted = self.noted.subscribe();
        let last = *noted.borrow() + notes;
        tokio::select! {
            () = self.run(clients, u32::MAX, seed) => {}
            () = async {
                noted.wait_for(|noted| *noted >= last).await.unwrap();
                end();
            } => {}
        }
    }

    fn note(&self, change: impl FnOnce(&mut Expected)) {
        let mut notes = self.notes.lock();
        change(&mut notes.expected);
        if let Some(disk) = self.disk {
            let expected = Arc::new(notes.expected.clone());
            notes.history.push((disk.position(), expected));
        }
        self.noted.send_modify(|noted| *noted += 1);
    }

    /// Sends a request that makes `changes`. Returns the response if it was acknowledged.
    async fn send(&self, request: RequestBuilder, changes: Vec<Request>) -> Option<Acknowledged> {
        self.call(acknowledged(request), changes).await
    }

    /// Makes a call that makes `changes`. Returns the response if it was acknowledged.
    async fn call(
        &self,
        call: impl Future<Output = Result<Acknowledged, String>>,
        changes: Vec<Request>,
    ) -> Option<Acknowledged> {
        let ids: Vec<u64> = {
            let mut notes = self.notes.lock();
            let first = notes.next;
            notes.next += changes.len() as u64;
            (first..notes.next).collect()
        };
        let numbered: Vec<_> = ids.iter().copied().zip(changes).collect();
        self.note(|expected| expected.open.extend(numbered.iter().cloned()));
        let response = match call.await {
            Ok(response) => response,
            Err(error) => {
                assert!(self.may_fail, "{error}");
                return None;
            }
        };
        // `files/rm` sends what it could not remove. Other changes of files have no text.
        let is_of_file = numbered.iter().flat_map(|(_, changes)| changes).any(|(key, _)| matches!(key, Key::File(_)));
        if is_of_file && !response.text.is_empty() {
            assert!(self.may_fail, "{}", response.text);
            return None;
        }
        self.note(|expected| {
            for (id, changes) in numbered {
                expected.open.remove(&id);
                // Earlier requests that failed concern these no more.
                expected.open.retain(|_, open| open.iter().all(|(key, _)| changes.iter().all(|(new, _)| new != key)));
                expected.there.extend(changes);
            }
        });
        Some(response)
    }

    fn post(&self, command: &str) -> RequestBuilder {
        self.client.post(format!("{}/api/v0/{command}", self.url))
    }
}

/// A response that is not an error.
#[derive(Default)]
struct Acknowledged {
    location: Option<String>,
    /// Content ID of an upload that is complete.
    cid: Option<String>,
    text: String,
}

async fn acknowledged(request: RequestBuilder) -> Result<Acknowledged, String> {
    let received = async {
        let response = request.send().await?.error_for_status()?;
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (location, cid) = (header("location"), header("x-ipfs-cid"));
        reqwest::Result::Ok(Acknowledged { location, cid, text: response.text().await? })
    };
    received.await.map_err(|error| error.to_string())
}

/// Sends an operation of GraphQL, whose errors are in the text of the response.
async fn acknowledged_operation(request: RequestBuilder) -> Result<Acknowledged, String> {
    let response = acknowledged(request).await?;
    if response.text.contains("\"errors\"") { Err(response.text) } else { Ok(response) }
}

/// Returns the CID of a raw block.
fn cid_of(data: &[u8]) -> String {
    let block = Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::copy_from_slice(data)).unwrap();
    block.cid().to_string()
}

fn form(data: Vec<u8>) -> Form {
    Form::new().part("file", Part::bytes(data).file_name("file"))
}

/// One client, whose keys are its own.
struct Running<'a, 'b> {
    load: &'a Load<'b>,
    name: u64,
    random: SmallRng,
    count: u32,
    pinned: Vec<String>,
    files: Vec<(String, Vec<u8>)>,
    keys: Vec<String>,
    /// The upload that is running.
    upload: Option<Upload>,
    root: Option<String>,
    grpc: BlockServiceClient<Channel>,
}

/// An upload in parts.
struct Upload {
    /// URL path.
    path: String,
    /// Bytes received.
    received: Vec<u8>,
    length: usize,
}

impl<'a, 'b> Running<'a, 'b> {
    fn new(load: &'a Load<'b>, name: u64, seed: u64, grpc: Channel) -> Self {
        let random = SmallRng::seed_from_u64(seed * 1_000 + name);
        let name = seed * 100 + name;
        let (pinned, files, keys) = (Vec::new(), Vec::new(), Vec::new());
        let grpc = BlockServiceClient::new(grpc);
        Self { load, name, random, count: 0, pinned, files, keys, upload: None, root: None, grpc }
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.random.random_range(1..most)];
        self.random.fill_bytes(&mut bytes);
        bytes
    }

    fn some<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        (!list.is_empty()).then(|| list[self.random.random_range(0..list.len())].clone())
    }

    async fn step(&mut self) {
        self.count += 1;
        match self.random.random_range(0..18) {
            0 => self.put_block().await,
            1 => self.put_block_by_grpc().await,
            2 => self.put_block_by_graphql().await,
            3 => self.unpin().await,
            4..6 => self.add().await,
            6..9 => self.write_file().await,
            9 => self.remove_file().await,
            10 => self.move_file().await,
            11 => self.create_key().await,
            12 => self.publish().await,
            13..15 => self.upload().await,
            15..17 => self.put_batch().await,
            _ if self.name.is_multiple_of(100) => self.collect().await,
            _ => self.ingest().await,
        }
    }

    /// Returns a new block, its CID, and the changes that store and pin it.
    fn pinned_block(&mut self) -> (Vec<u8>, String, Vec<Request>) {
        let data = self.bytes(20_000);
        let cid = cid_of(&data);
        let block = vec![(Key::Block(cid.clone()), Some(data.clone()))];
        let pin = vec![(Key::Pin(cid.clone()), Some(Vec::new()))];
        (data, cid, vec![block, pin])
    }

    async fn put_block(&mut self) {
        let (data, cid, changes) = self.pinned_block();
        let request = self.load.post("block/put?pin=true").multipart(form(data));
        if self.load.send(request, changes).await.is_some() {
            self.pinned.push(cid);
        }
    }

    async fn put_block_by_grpc(&mut self) {
        let (data, cid, changes) = self.pinned_block();
        let options = Some(PutOptions { pin: true, ..PutOptions::default() });
        let request = PutBlockRequest { data: data.into(), options, ..PutBlockRequest::default() };
        let grpc = &mut self.grpc;
        let call = async { grpc.put_block(request).await.map(|_| Acknowledged::default()).map_err(|e| e.to_string()) };
        if self.load.call(call, changes).await.is_some() {
            self.pinned.push(cid);
        }
    }

    async fn put_block_by_graphql(&mut self) {
        let (data, cid, changes) = self.pinned_block();
        let query = "mutation($data: Base64!) { addBlock(data: $data, pin: true) { cid } }";
        let operation = json!({ "query": query, "variables": { "data": BASE64_STANDARD.encode(data) } });
        let request = self.load.client.post(format!("{}/graphql", self.load.url)).json(&operation);
        if self.load.call(acknowledged_operation(request), changes).await.is_some() {
            self.pinned.push(cid);
        }
    }

    async fn put_batch(&mut self) {
        let blocks: Vec<_> = (0..3).map(|_| self.bytes(10_000)).collect();
        let items: Vec<_> = blocks.iter().map(|data| json!({ "data": BASE64_STANDARD.encode(data) })).collect();
        let request = self.load.client.post(format!("{}/v1/block/batch/put", self.load.url));
        // Until they are pinned, gc may remove the blocks.
        if self.load.send(request.json(&json!({ "blocks": items })), Vec::new()).await.is_none() {
            return;
        }
        let arguments: Vec<_> = blocks.iter().map(|data| format!("arg={}", cid_of(data))).collect();
        let pin = self.load.post(&format!("pin/add?{}", arguments.join("&")));
        if acknowledged(pin).await.is_err() {
            return;
        }
        let changes = blocks.into_iter().flat_map(|data| {
            let cid = cid_of(&data);
            [(Key::Pin(cid.clone()), Some(Vec::new())), (Key::Block(cid), Some(data))]
        });
        self.load.note(|expected| expected.there.extend(changes));
    }

    async fn unpin(&mut self) {
        let Some(cid) = self.some(&self.pinned.clone()) else { return };
        self.pinned.retain(|other| *other != cid);
        // gc may remove the block from now on.
        self.load.note(|expected| drop(expected.there.remove(&Key::Block(cid.clone()))));
        let request = self.load.post(&format!("pin/rm?arg={cid}"));
        self.load.send(request, vec![vec![(Key::Pin(cid), None)]]).await;
    }

    async fn add(&mut self) {
        let data = self.bytes(600_000);
        let request = self.load.post("add?cid-version=1&quieter=true").multipart(form(data.clone()));
        let Some(response) = self.load.send(request, Vec::new()).await else { return };
        let last = response.text.lines().last().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let Some(cid) = last.and_then(|added| added["Hash"].as_str().map(str::to_owned)) else {
            return assert!(self.load.may_fail, "{}", response.text);
        };
        let changes = [(Key::Content(cid.clone()), Some(data)), (Key::Pin(cid.clone()), Some(Vec::new()))];
        self.load.note(|expected| expected.there.extend(changes));
        self.root = Some(cid);
    }

    async fn write_file(&mut self) {
        let known = self.some(&self.files.clone()).filter(|_| self.count.is_multiple_of(2));
        let path = known.map_or_else(|| format!("/{}/{}/file", self.name, self.count), |(path, _)| path);
        let data = self.bytes(300_000);
        let command = format!("files/write?arg={path}&create=true&parents=true&truncate=true");
        let request = self.load.post(&command).multipart(form(data.clone()));
        let changes = vec![(Key::File(path.clone()), Some(data.clone()))];
        if self.load.send(request, vec![changes]).await.is_some() {
            self.files.retain(|(other, _)| *other != path);
            self.files.push((path, data));
        }
    }

    async fn collect(&self) {
        self.load.send(self.load.post("repo/gc"), Vec::new()).await;
    }

    async fn remove_file(&mut self) {
        let Some((path, _)) = self.some(&self.files.clone()) else { return };
        self.files.retain(|(other, _)| *other != path);
        let request = self.load.post(&format!("files/rm?arg={path}"));
        self.load.send(request, vec![vec![(Key::File(path), None)]]).await;
    }

    async fn move_file(&mut self) {
        let Some((path, data)) = self.some(&self.files.clone()) else { return };
        self.files.retain(|(other, _)| *other != path);
        let to = format!("/{}-{}", self.name, self.count);
        let request = self.load.post(&format!("files/mv?arg={path}&arg={to}"));
        let changes = vec![(Key::File(path), None), (Key::File(to.clone()), Some(data.clone()))];
        if self.load.send(request, vec![changes]).await.is_some() {
            self.files.push((to, data));
        }
    }

    async fn create_key(&mut self) {
        let name = format!("key-{}-{}", self.name, self.count);
        let known = self.some(&self.keys.clone()).filter(|_| self.keys.len() > 2);
        if let Some(old) = known {
            self.keys.retain(|other| *other != old);
            // Its name is not asked for any more.
            self.load.note(|expected| drop(expected.there.remove(&Key::Name(old.clone()))));
            let request = self.load.post(&format!("key/rm?arg={old}"));
            self.load.send(request, vec![vec![(Key::Signer(old), None)]]).await;
            return;
        }
        let request = self.load.post(&format!("key/gen?arg={name}"));
        if self.load.send(request, vec![vec![(Key::Signer(name.clone()), Some(Vec::new()))]]).await.is_some() {
            self.keys.push(name);
        }
    }

    async fn publish(&mut self) {
        let (Some(key), Some(root)) = (self.some(&self.keys.clone()), self.root.clone()) else { return };
        let value = format!("/ipfs/{root}");
        let request = self.load.post(&format!("name/publish?arg={value}&key={key}&allow-offline=true&resolve=false"));
        self.load.send(request, vec![vec![(Key::Name(key), Some(value.into_bytes()))]]).await;
    }

    async fn upload(&mut self) {
        let Some(upload) = self.upload.take() else {
            let length: usize = self.random.random_range(20_000..50_000);
            let request = self.load.client.post(format!("{}/v1/stream/upload", self.load.url));
            let request = request.header("tus-resumable", "1.0.0").header("upload-length", length);
            let Some(response) = self.load.send(request, Vec::new()).await else { return };
            let location = response.location.unwrap();
            let path = location.strip_prefix(&self.load.url).unwrap_or(&location).to_owned();
            let begun = (Key::Upload(path.clone()), Some(b"0".to_vec()));
            self.load.note(|expected| expected.there.extend([begun]));
            self.upload = Some(Upload { path, received: Vec::new(), length });
            return;
        };
        let mut data = self.bytes(30_000);
        data.truncate(upload.length - upload.received.len());
        self.append(upload, data).await;
    }

    /// Sends more bytes of an upload, which may be its last.
    async fn append(&mut self, mut upload: Upload, data: Vec<u8>) {
        let (url, offset) = (format!("{}{}", self.load.url, upload.path), upload.received.len());
        upload.received.extend_from_slice(&data);
        let end = upload.received.len();
        let request = self.load.client.patch(url).header("tus-resumable", "1.0.0");
        let request = request.header("upload-offset", offset).header("content-type", "application/offset+octet-stream");
        let changes = vec![(Key::Upload(upload.path.clone()), Some(end.to_string().into_bytes()))];
        let Some(response) = self.load.send(request.body(data), vec![changes]).await else { return };
        if end < upload.length {
            self.upload = Some(upload);
            return;
        }
        let Some(cid) = response.cid else { return assert!(self.load.may_fail, "the upload is not complete") };
        let pin = (Key::Pin(cid.clone()), Some(Vec::new()));
        let content = (Key::Content(cid), Some(upload.received));
        self.load.note(|expected| expected.there.extend([pin, content]));
    }

    /// Completes the upload that is running, or a new one.
    async fn complete_upload(&mut self) {
        if self.upload.is_none() {
            self.upload().await;
        }
        let Some(upload) = self.upload.take() else { return };
        let mut rest = vec![0; upload.length - upload.received.len()];
        self.random.fill_bytes(&mut rest);
        self.append(upload, rest).await;
    }
}
