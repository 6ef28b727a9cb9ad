//! Pins that clients of the pinning service API request (<https://ipfs.github.io/pinning-services-api-spec/>). Each
//! request is a file in `<repo>/pin-requests/`, and in memory. A task pins what is requested, and retrieves it if
//! necessary.

mod config;
mod filter;
mod others;
mod queue;
mod record;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ipfrs_core::{Cid, Error, ErrorKind, Result, parse_cid, timestamp};
use ipfrs_rpc::types::{PinResults, PinState, PinStatus, RequestedPin};
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinHandle;

pub use self::config::PinningConfig;
pub use self::filter::{NameMatch, PinRequestFilter};
use self::queue::Queue;
use self::record::{Directory, MadePin, Record};
use crate::operations::random_id;
use crate::{Node, off_workers, to_the_end};

/// Largest number of characters in a name, as in the specification.
const MAX_NAME_CHARACTERS: usize = 255;
/// Largest number of origins, as in the specification, and the longest one, in bytes.
pub(crate) const MAX_ORIGINS: usize = 20;
const MAX_ORIGIN_BYTES: usize = 1_024;
/// Largest number of addresses of this node that a client gets, as in the specification.
const MAX_DELEGATES: usize = 20;
/// Largest number of properties in `meta`, as in the specification, and of their bytes.
const MAX_META: usize = 1_000;
const MAX_META_BYTES: usize = 16 * 1024;
/// Longest ID, in bytes.
const MAX_ID_BYTES: usize = 64;

/// The requests of a node.
#[derive(Debug)]
pub(crate) struct PinRequests {
    directory: Directory,
    /// Files that were no requests when the node was opened.
    damaged: Vec<PathBuf>,
    queue: Arc<parking_lot::Mutex<Queue>>,
    /// Held while a change is written.
    changing: Arc<Mutex<()>>,
    /// Notified when a request is added.
    changed: Arc<Notify>,
    /// Notified when a request is removed.
    removed: watch::Sender<()>,
    task: parking_lot::Mutex<Option<JoinHandle<()>>>,
}

impl PinRequests {
    /// Reads the requests. Blocks on the disk.
    pub(crate) fn open(repo: &Path) -> Result<Self> {
        let directory = Directory::new(repo);
        let (records, damaged) = directory.read()?;
        Ok(Self {
            directory,
            damaged,
            queue: Arc::new(Queue::of(records).into()),
            changing: Arc::default(),
            changed: Arc::default(),
            removed: watch::Sender::default(),
            task: parking_lot::Mutex::default(),
        })
    }

    /// Ends the task that pins, and waits for changes that are being written.
    pub(crate) async fn close(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
            let _ended = task.await;
        }
        drop(self.changing.lock().await);
    }

    /// Returns the number of requests in each state.
    pub(crate) fn counts(&self) -> [(PinState, u64); 4] {
        let queue = self.queue.lock();
        PinState::ALL.map(|state| (state, queue.records().filter(|record| record.status == state).count() as u64))
    }
}

impl Node {
    /// Returns which files were no requests when the node was opened, and are still there, with the remedy.
    pub(crate) async fn damaged_pin_requests(&self) -> Result<Vec<String>> {
        let damaged = self.inner.pin_requests.damaged.clone();
        if damaged.is_empty() {
            return Ok(Vec::new());
        }
        let problem = |path: &PathBuf| {
            format!(
                "pin-requests/{} is no pin request: restore it from a backup and restart, or remove it and request the \
                 pin again",
                path.file_name().unwrap_or_default().display()
            )
        };
        off_workers(move || Ok(damaged.iter().filter(|path| path.exists()).map(problem).collect())).await
    }

    /// Adds a request of `owner` durably: the requests of other owners are separate. With `replaced`, it takes the
    /// place of that request, whose content stays pinned until the new one is pinned or has failed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a malformed pin; [`ErrorKind::NotFound`] if the replaced request does not exist;
    /// [`ErrorKind::RateLimited`] if there are too many requests; as [`Node::get_block`] for content that is blocked;
    /// errors of the file system.
    pub async fn request_pin(
        &self,
        owner: Option<&str>,
        pin: RequestedPin,
        replaced: Option<&str>,
    ) -> Result<PinStatus> {
        let requests = self.pin_requests()?;
        let cid = check(&pin)?;
        self.check_block(&cid)?;
        let (node, owner, replaced) = (self.clone(), owner.map(str::to_owned), replaced.map(str::to_owned));
        let changing = Arc::clone(&requests.changing).lock_owned().await;
        let old = match &replaced {
            Some(id) => Some(requests.queue.lock().find(owner.as_deref(), id)?.clone()),
            None => None,
        };
        let created = {
            let queue = requests.queue.lock();
            let limit = self.inner.config.pinning.max_requests;
            queue.check_room(owner.as_deref(), limit, usize::from(old.is_some()))?;
            queue.next_time(milliseconds(SystemTime::now()))
        };
        let record = Record {
            id: random_id()?,
            owner,
            created,
            status: PinState::Queued,
            cid,
            pin,
            details: String::new(),
            made_pin: false,
            direct: None,
            replaces: old.iter().flat_map(Record::left_behind).collect(),
        };
        to_the_end(async move {
            let _changing = changing;
            let requests = node.pin_requests()?;
            let mut written = requests.directory.write(&record).await;
            if let Some(old) = old.as_ref().filter(|_| written.is_ok()) {
                written = requests.directory.remove(&old.id).await;
            }
            if let Err(error) = written {
                // The client does not know the request, so a restart must not find it, but the replaced one.
                let _ = requests.directory.remove(&record.id).await;
                if let Some(old) = &old {
                    let _ = requests.directory.write(old).await;
                }
                return Err(error);
            }
            let status = node.status_of(&record);
            {
                let mut queue = requests.queue.lock();
                old.iter().for_each(|old| drop(queue.remove(old.created)));
                queue.insert(record);
            }
            requests.changed.notify_one();
            requests.removed.send_replace(());
            Ok(status)
        })
        .await
    }

    /// Returns a request of `owner`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist.
    pub fn pin_request(&self, owner: Option<&str>, id: &str) -> Result<PinStatus> {
        let record = self.pin_requests()?.queue.lock().find(owner, id)?.clone();
        Ok(self.status_of(&record))
    }

    /// Returns the requests of `owner` that `filter` selects, newest first.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the service is disabled.
    pub fn list_pin_requests(&self, owner: Option<&str>, filter: &PinRequestFilter) -> Result<PinResults> {
        let (count, records) = {
            let queue = self.pin_requests()?.queue.lock();
            let mut selected =
                queue.records().rev().filter(|record| record.owner.as_deref() == owner && filter.selects(record));
            let records: Vec<_> = selected.by_ref().take(filter.limit).cloned().collect();
            (records.len() + selected.count(), records)
        };
        Ok(PinResults { count: count as u64, results: records.iter().map(|record| self.status_of(record)).collect() })
    }

    /// Removes a request of `owner`, and the pin that it made, unless another request is for the same content.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist; errors of the pins and of the file system.
    pub async fn remove_pin_request(&self, owner: Option<&str>, id: &str) -> Result<()> {
        let requests = self.pin_requests()?;
        let changing = Arc::clone(&requests.changing).lock_owned().await;
        let record = requests.queue.lock().find(owner, id)?.clone();
        let node = self.clone();
        to_the_end(async move {
            let _changing = changing;
            let requests = node.pin_requests()?;
            node.discard(&record).await?;
            // A task that pins for this request ends when it finds that it is gone. Until then, it changes nothing.
            requests.queue.lock().remove(record.created);
            requests.removed.send_replace(());
            Ok(())
        })
        .await
    }

    /// Removes the file of a request, and its pins that no other request needs.
    async fn discard(&self, record: &Record) -> Result<()> {
        for pin in record.left_behind() {
            self.release(record, &pin).await?;
        }
        let requests = self.pin_requests()?;
        let removed = requests.directory.remove(&record.id).await;
        if removed.is_err() && record.made_pin {
            // The request stays, and its pin is gone, so it is pinned again.
            let status = PinState::Queued;
            let again = Record { status, made_pin: false, direct: None, replaces: Vec::new(), ..record.clone() };
            if requests.queue.lock().update(again) {
                requests.changed.notify_one();
            }
        }
        removed
    }

    /// Removes a pin that `record` leaves behind, or leaves it to another request for the same content. A direct pin
    /// that was there before is there again.
    async fn release(&self, record: &Record, pin: &MadePin) -> Result<()> {
        let requests = self.pin_requests()?;
        let heir = requests.queue.lock().hand_over(record, pin);
        if let Some(heir) = heir {
            return requests.directory.write(&heir).await;
        }
        let released = match &pin.direct {
            Some(name) => self.restore_direct_pin(&pin.cid, name.clone()).await,
            None => self.unpin_for_request(&[pin.cid], true).await,
        };
        match released {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn pin_requests(&self) -> Result<&PinRequests> {
        if !self.inner.config.pinning.enabled {
            return Err(Error::unsupported("this node is no pinning service (pinning.enabled = false)"));
        }
        self.check_writable()?;
        Ok(&self.inner.pin_requests)
    }

    fn status_of(&self, record: &Record) -> PinStatus {
        PinStatus {
            requestid: record.id.clone(),
            status: record.status,
            created: timestamp::format_milliseconds(time_of(record.created)),
            pin: record.pin.clone(),
            delegates: self.addresses_with_id().into_iter().take(MAX_DELEGATES).collect(),
            info: Some(&record.details)
                .filter(|details| !details.is_empty())
                .map(|details| ("status_details".to_owned(), details.clone()))
                .into_iter()
                .collect(),
        }
    }
}

/// Checks a pin, and returns its content ID.
fn check(pin: &RequestedPin) -> Result<Cid> {
    let cid = parse_cid(&pin.cid).map_err(|e| Error::invalid(format!("pin.cid: {e}")))?;
    if pin.name.chars().count() > MAX_NAME_CHARACTERS {
        return Err(Error::invalid(format!("pin.name: use at most {MAX_NAME_CHARACTERS} characters")));
    }
    let is_address = |origin: &String| origin.starts_with('/') && origin.len() <= MAX_ORIGIN_BYTES;
    if pin.origins.len() > MAX_ORIGINS || !pin.origins.iter().all(is_address) {
        return Err(Error::invalid(format!(
            "pin.origins: use at most {MAX_ORIGINS} multiaddrs, such as /ip4/192.0.2.1/tcp/4001/p2p/PEER"
        )));
    }
    let meta_bytes: usize = pin.meta.iter().map(|(name, value)| name.len() + value.len()).sum();
    if pin.meta.len() > MAX_META || meta_bytes > MAX_META_BYTES {
        return Err(Error::invalid(format!("pin.meta: use at most {MAX_META} properties of {MAX_META_BYTES} bytes")));
    }
    Ok(cid)
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn time_of(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + std::time::Duration::from_millis(milliseconds)
}
