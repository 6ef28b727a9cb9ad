//! Data of one request: its memory, its files, and the blocks that its fields read.

use std::collections::HashMap;
use std::sync::Arc;

use async_graphql::Context;
use bytes::Bytes;
use futures::StreamExt;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_middleware::auth::{AuditLine, Caller, Scope};
use ipfrs_middleware::{Client, MemoryPool, RequestMemory};
use ipfrs_node::Node;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::GraphQlConfig;
use crate::error::{FieldResult, code_of, failed};
use crate::files::Files;
use crate::limits::{MAX_COST, MAX_OBJECT_BYTES, PAGE_ENTRIES};

/// Data of a request.
pub(crate) struct RequestContext {
    pub(crate) budget: Arc<Budget>,
    pub(crate) blocks: BlockLoader,
    /// Files of a multipart request.
    pub(crate) files: Option<Files>,
    /// Sender of the request.
    caller: Caller,
    /// ID of the request, or of the handshake of its WebSocket, for the audit log. Empty if it has none.
    pub(crate) request_id: String,
}

impl RequestContext {
    pub(crate) fn new(node: &Node, memory: &MemoryPool, config: &GraphQlConfig, caller: Caller) -> Self {
        let held = Mutex::new(Held { content: 0, body: 0, objects: 0, memory: memory.reservation() });
        let budget = Arc::new(Budget { most: config.max_response_bytes, held });
        Self { budget, blocks: BlockLoader::new(node), files: None, caller, request_id: String::new() }
    }
}

/// Returns the node.
pub(crate) fn node<'a>(context: &Context<'a>) -> FieldResult<&'a Node> {
    context.data()
}

/// Returns the data of the request.
pub(crate) fn request<'a>(context: &Context<'a>) -> FieldResult<&'a RequestContext> {
    context.data()
}

/// Makes the change of a mutation if the caller has its scope, and writes the outcome into the audit log. `target` is
/// what the change is about, and `stored` returns the content that it has stored, if any.
///
/// # Errors
/// If the caller lacks the scope, or the change fails.
pub(crate) async fn audited<T>(
    context: &Context<'_>,
    scope: Scope,
    target: &str,
    change: impl Future<Output = FieldResult<T>>,
    stored: impl FnOnce(&T) -> Option<Cid>,
) -> FieldResult<T> {
    let RequestContext { caller, request_id, .. } = request(context)?;
    let what = format!("graphql {}", context.field().name());
    let mut line = AuditLine::new(caller.clone(), Client::current(), what, request_id.clone());
    line.set_target(target);
    let result = match caller.require(scope) {
        Ok(()) => change.await,
        Err(error) => Err(failed(error)),
    };
    let stored = result.as_ref().ok().and_then(stored).map(|cid| cid.to_string());
    if let Some(stored) = stored.filter(|stored| stored != target) {
        line.set_target(format!("{target} {stored}").trim_start());
    }
    line.write(result.as_ref().map_or_else(code_of, |_| "ok"));
    result
}

/// Returns the number of entries that a page may have.
///
/// # Errors
/// If the query asks for a negative number or for too many.
pub(crate) fn page_size(context: &Context<'_>, first: Option<i32>) -> FieldResult<usize> {
    let most = context.data::<GraphQlConfig>()?.max_page_size;
    let wanted = first.unwrap_or_else(|| PAGE_ENTRIES.min(i32::try_from(most).unwrap_or(i32::MAX)));
    usize::try_from(wanted).ok().filter(|wanted| *wanted <= most).ok_or_else(|| {
        failed(Error::invalid(format!("first = {wanted}: accepted values are 0 to {most} (graphql.max_page_size)")))
    })
}

/// Returns the cost of a page.
pub(crate) fn page_cost(first: Option<i32>, child_complexity: usize) -> usize {
    entries_cost(usize::try_from(first.unwrap_or(PAGE_ENTRIES)).unwrap_or(0), child_complexity)
}

/// Returns the cost of a list with this number of entries.
pub(crate) fn entries_cost(entries: usize, child_complexity: usize) -> usize {
    // The library adds costs without a check for overflow, so that pages within pages could cost nothing.
    entries.saturating_mul(child_complexity).saturating_add(1).min(MAX_COST)
}

/// Memory of a response: of the values in it, of their JSON, which exists beside them, and of the objects that fields
/// hold meanwhile.
pub(crate) struct Budget {
    most: usize,
    held: Mutex<Held>,
}

struct Held {
    /// Length of the JSON of the content, in bytes.
    content: usize,
    /// Size of the buffer for the whole response, in bytes.
    body: usize,
    /// Memory of decoded objects, in bytes.
    objects: usize,
    memory: RequestMemory,
}

/// Memory of a decoded object, which counts until this value is dropped.
pub(crate) struct ObjectMemory {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for ObjectMemory {
    fn drop(&mut self) {
        let mut held = self.budget.held.lock();
        held.objects -= self.bytes;
        let total = held.total();
        held.memory.shrink_to(total);
    }
}

impl Held {
    fn total(&self) -> usize {
        self.content.saturating_add(self.body).saturating_add(self.objects)
    }

    /// Grows the reservation to this content and body.
    fn grow_to(&mut self, content: usize, body: usize) -> Result<()> {
        let total = content.saturating_add(body).saturating_add(self.objects);
        // Small responses are bounded by the number of requests.
        if total > SMALL_BYTES {
            self.memory.grow_to(total)?;
        }
        (self.content, self.body) = (content, body);
        Ok(())
    }
}

impl Budget {
    /// Takes memory for content whose JSON has this length.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] over `graphql.max_response_bytes`; [`ErrorKind::RateLimited`] if the memory for requests
    /// is used up.
    pub(crate) fn take(&self, bytes: usize) -> Result<()> {
        let mut held = self.held.lock();
        let (content, body) = (held.content.saturating_add(bytes), held.body);
        self.check(content)?;
        held.grow_to(content, body)
    }

    /// Takes memory for a buffer in which `len` bytes of the response fit, and returns its size. A response may be much
    /// longer than its content: a document may give fields long names.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub(crate) fn take_body(&self, len: usize) -> Result<usize> {
        self.check(len)?;
        let mut held = self.held.lock();
        let content = held.content;
        let size = len.saturating_add(len / 4).max(content + BODY_BYTES).min(self.most);
        held.grow_to(content, size)?;
        Ok(size)
    }

    /// Takes memory for a decoded object.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if the fields of the document hold more than [`MAX_OBJECT_BYTES`];
    /// [`ErrorKind::RateLimited`] if the memory for requests is used up.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Result<ObjectMemory> {
        let mut held = self.held.lock();
        let objects = held.objects.saturating_add(bytes);
        if objects > MAX_OBJECT_BYTES {
            return Err(Error::too_large(format!(
                "the files and directories of the document take more than {MAX_OBJECT_BYTES} bytes of memory at the \
                 same time: query fewer of them"
            )));
        }
        let (before, content, body) = (held.objects, held.content, held.body);
        held.objects = objects;
        if let Err(error) = held.grow_to(content, body) {
            held.objects = before;
            return Err(error);
        }
        Ok(ObjectMemory { budget: Arc::clone(self), bytes })
    }

    fn check(&self, bytes: usize) -> Result<()> {
        if bytes <= self.most {
            return Ok(());
        }
        Err(Error::too_large(format!(
            "the response has more than {} bytes (graphql.max_response_bytes): query less, or stream content from /v1 \
             or /ipfs",
            self.most
        )))
    }

    /// Returns the length of the JSON of the content, in bytes.
    pub(crate) fn content(&self) -> usize {
        self.held.lock().content
    }
}

/// The field that reads for the others. If it is dropped too early, they wait no longer.
struct Leader<'a>(&'a BlockLoader);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().clear();
    }
}

/// Size of content that needs no reserved memory, in bytes.
const SMALL_BYTES: usize = 16 * 1024;

/// Size of the buffer for a response in addition to its content, in bytes, which suffices for most.
const BODY_BYTES: usize = 1024;

/// Reads the blocks that several fields of a request name, together.
pub(crate) struct BlockLoader {
    node: Node,
    waiting: Mutex<Vec<Waiting>>,
}

/// A field that waits for its block.
type Waiting = (Cid, oneshot::Sender<Result<Option<Bytes>>>);

impl BlockLoader {
    fn new(node: &Node) -> Self {
        Self { node: node.clone(), waiting: Mutex::default() }
    }

    /// Returns a block, or `None` if it is not in the store. The fields of one level are polled one after another: the
    /// first lets all others register, and then reads for them too.
    pub(crate) async fn load(&self, cid: Cid) -> Result<Option<Bytes>> {
        loop {
            let (sender, receiver) = oneshot::channel();
            let is_first = {
                let mut waiting = self.waiting.lock();
                waiting.push((cid, sender));
                waiting.len() == 1
            };
            if is_first {
                let _leader = Leader(self);
                yield_now().await;
                let waiting = std::mem::take(&mut *self.waiting.lock());
                self.read(waiting).await?;
            }
            // If the field that reads is dropped, because its parent failed, another one reads.
            if let Ok(found) = receiver.await {
                return found;
            }
        }
    }

    async fn read(&self, waiting: Vec<Waiting>) -> Result<()> {
        // Several fields may wait for the same block.
        let mut cids = Vec::new();
        let mut senders: HashMap<Cid, Vec<_>> = HashMap::new();
        for (cid, sender) in waiting {
            let of_cid = senders.entry(cid).or_default();
            if of_cid.is_empty() {
                cids.push(cid);
            }
            of_cid.push(sender);
        }
        for cids in cids.chunks(self.node.config().batch.max_batch_size) {
            let mut blocks = self.node.batch_get(cids.to_vec())?;
            for cid in cids {
                let found = match blocks.next().await {
                    Some((_, Ok(block))) => Ok(Some(block)),
                    Some((_, Err(e))) if e.kind() == ErrorKind::NotFound => Ok(None),
                    Some((_, Err(e))) => Err(e),
                    None => Err(Error::internal("the store returned fewer results than requested")),
                };
                for sender in senders.remove(cid).unwrap_or_default() {
                    let found = found.as_ref().map(Clone::clone);
                    // The field may be gone.
                    let _ = sender.send(found.map_err(|e| Error::new(e.kind(), e.public_message())));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_node::MemoryStore;
    use prometheus::Registry;

    use super::*;

    #[tokio::test]
    async fn objects_are_limited_and_count_until_they_are_dropped() {
        let repo = tempfile::tempdir().unwrap();
        let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).open().await.unwrap();
        let pool = MemoryPool::register(&node, &Registry::new()).unwrap();
        let held = Held { content: 0, body: 0, objects: 0, memory: pool.reservation() };
        let budget = Arc::new(Budget { most: 1_000_000, held: Mutex::new(held) });
        let reserved = || budget.held.lock().memory.bytes();
        budget.take(100_000).unwrap();
        let of_content = reserved();
        let first = budget.hold(MAX_OBJECT_BYTES - 1).unwrap();
        assert!(reserved() > MAX_OBJECT_BYTES);
        let second = budget.hold(1).unwrap();
        let refused = budget.hold(1).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::TooLarge);
        assert!(refused.message().contains("query fewer"), "{refused}");
        drop(first);
        assert_eq!(reserved(), of_content, "the content stays");
        drop(budget.hold(MAX_OBJECT_BYTES - 1).unwrap());
        drop(second);
        assert_eq!(budget.held.lock().objects, 0);
    }
}
