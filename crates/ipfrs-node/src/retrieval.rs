//! Retrieval of missing blocks: the context of a request, and views of the store.

use std::net::IpAddr;
use std::time::Instant;

use ipfrs_stream::{Part, Span};
use tokio::task_local;

use crate::Node;

#[cfg(not(feature = "retrieval"))]
mod local_views;
#[cfg(feature = "retrieval")]
mod retriever;
#[cfg(feature = "retrieval")]
mod views;

#[cfg(feature = "retrieval")]
pub(crate) use retriever::retriever;
#[cfg(feature = "retrieval")]
pub use views::Retrieved;

task_local! {
    /// Context of the request that the current task handles.
    static CONTEXT: RequestContext;
    /// Address of the client of that request.
    static CLIENT: Option<IpAddr>;
}

/// Statements of a request about the retrieval of missing blocks. By default, they are retrieved.
#[derive(Debug, Clone, Default)]
pub struct RequestContext {
    /// Whether only blocks of the store may be used.
    pub offline: bool,
    /// Value of the `Via` header; empty without one. It prevents loops between gateways (RFC 9110, 7.6.3).
    pub via: String,
    /// The part of the content that the response needs.
    pub expected: Expected,
    /// Sources that the client names (`?provider=` of IPIP-504, `?gateway=`): URLs and multiaddrs.
    pub hints: Vec<String>,
    /// Time at which the request began. [`with_context`] sets it.
    pub began: Option<Instant>,
    /// Whether the request waits for peers, until `retrieval.timeout_seconds`, if no known source has a block. Without
    /// peers it fails at once.
    pub waits_for_peers: bool,
}

/// The part of the content that a response needs, which is retrieved together with the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expected {
    /// A file or the entries of a directory.
    #[default]
    Entity,
    /// The target's root block.
    Block,
    /// All blocks below the target.
    All,
    /// Bytes of a file.
    Bytes(Span),
}

impl Expected {
    /// Returns the part of a file from `offset`, of at most `length` bytes.
    #[must_use]
    pub fn of_file(offset: u64, length: Option<u64>) -> Self {
        let most = u64::MAX - offset;
        Self::Bytes(Span { start: offset, len: length.unwrap_or(most).min(most) })
    }
}

/// Runs `work` with a context. It applies to the methods of [`Node`] that `work` calls, but not to tasks that `work`
/// spawns. A stream over several roots chooses its sources while it is read, so a context that forbids retrieval must
/// apply then, too ([`within_context`]).
pub async fn with_context<T>(mut context: RequestContext, work: impl Future<Output = T>) -> T {
    context.began.get_or_insert_with(Instant::now);
    CONTEXT.scope(context, work).await
}

/// Runs `work`, which needs another part of the content than the response: [`Expected::Block`] for a reader that asks
/// for its own part.
pub async fn expecting<T>(expected: Expected, work: impl Future<Output = T>) -> T {
    with_context(RequestContext { expected, ..current_context() }, work).await
}

/// Returns the context of the current request, for a task that works for it.
#[must_use]
pub fn current_context() -> RequestContext {
    CONTEXT.try_with(RequestContext::clone).unwrap_or_default()
}

/// Runs `work` with a context, as [`with_context`] does, but without waiting: a step of a stream that is read after
/// the request was handled.
pub fn within_context<T>(context: RequestContext, work: impl FnOnce() -> T) -> T {
    CONTEXT.sync_scope(context, work)
}

/// Runs `work` on behalf of a client, with which the limits of the Node are shared fairly. `None` stands for callers on
/// this machine without an address.
pub fn with_client<F: Future>(client: Option<IpAddr>, work: F) -> impl Future<Output = F::Output> {
    CLIENT.scope(client, work)
}

/// Returns the client for which the current task works. Tasks that were spawned separately have none.
#[must_use]
pub fn current_client() -> Option<IpAddr> {
    CLIENT.try_with(|client| *client).unwrap_or_default()
}

impl Node {
    /// Returns the part that the current request needs.
    pub(crate) fn expected_part(&self) -> Part {
        let expected = CONTEXT.try_with(|context| context.expected).unwrap_or_default();
        match expected {
            Expected::Entity => Part::Entity,
            Expected::Block => Part::Block,
            Expected::All => Part::All,
            Expected::Bytes(span) => Part::Bytes(span),
        }
    }
}
