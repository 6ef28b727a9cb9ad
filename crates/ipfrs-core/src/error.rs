//! The error type of the workspace.

use std::borrow::Cow;
use std::fmt;

use crate::Cid;

mod public;

use public::without_paths;

/// Error categories on which a caller can act.
///
/// The set is deliberately exhaustive. Each front-end maps it to its own status codes in a `match` without a
/// wildcard, so a new kind does not compile until every front-end handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The named block, path or resource does not exist here.
    NotFound,
    /// A name has neither a valid record nor a DNSLink, so it cannot be resolved.
    Unresolvable,
    /// The request is malformed. An unchanged retry will fail again.
    InvalidInput,
    /// The content itself is malformed: a block does not conform to its codec or to UnixFS. This holds for every
    /// client.
    InvalidContent,
    /// The request is well-formed but uses a feature that this build does not support.
    Unsupported,
    /// A limit is exceeded. The message names the limit.
    TooLarge,
    /// Credentials are missing or wrong.
    Unauthenticated,
    /// The caller is authenticated but not authorized.
    Forbidden,
    /// Too many requests. The caller should retry later.
    RateLimited,
    /// The state of the resource does not allow the request.
    Conflict,
    /// The resource existed here and has been removed permanently.
    Gone,
    /// The content is withheld for legal reasons.
    LegalReasons,
    /// The operation did not complete in time.
    Timeout,
    /// No source of the network delivered content that is not stored here.
    Unretrievable,
    /// Content is not stored here, and the sources that were tried failed or delivered something else.
    BadSource,
    /// A required component is currently unavailable. The caller should retry later.
    Unavailable,
    /// Stored or received bytes do not match their content ID.
    Corrupt,
    /// The disk is full.
    NoSpace,
    /// A defect in the program, or a failure of the machine.
    Internal,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 19] = [
        Self::NotFound,
        Self::Unresolvable,
        Self::InvalidInput,
        Self::InvalidContent,
        Self::Unsupported,
        Self::TooLarge,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::RateLimited,
        Self::Conflict,
        Self::Gone,
        Self::LegalReasons,
        Self::Timeout,
        Self::Unretrievable,
        Self::BadSource,
        Self::Unavailable,
        Self::Corrupt,
        Self::NoSpace,
        Self::Internal,
    ];

    /// Returns the kind with this [code](Self::code). Clients of the daemon use it to interpret error bodies.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the stable, lower-case code that JSON error bodies and metrics contain.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Unresolvable => "unresolvable",
            Self::InvalidInput => "invalid_input",
            Self::InvalidContent => "invalid_content",
            Self::Unsupported => "unsupported",
            Self::TooLarge => "too_large",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::RateLimited => "rate_limited",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::LegalReasons => "legal_reasons",
            Self::Timeout => "timeout",
            Self::Unretrievable => "unretrievable",
            Self::BadSource => "bad_source",
            Self::Unavailable => "unavailable",
            Self::Corrupt => "corrupt",
            Self::NoSpace => "no_space",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A result with the workspace's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with a [kind](ErrorKind), a human-readable message and an optional cause.
///
/// The message names the faulty object and the fault, and a remedy if one is known.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The cause of errors about a missing block.
#[derive(Debug, thiserror::Error)]
#[error("block {0} is missing")]
struct NoBlock(Cid);

/// The cause of errors about a repository that is open read-only.
#[derive(Debug, thiserror::Error)]
#[error("it is open read-only")]
struct ReadOnly;

/// The cause of errors of cancelled operations.
#[derive(Debug, thiserror::Error)]
#[error("a client has cancelled it")]
struct Cancelled;

/// The cause of errors of domains whose DNSLinks lead to too many names.
#[derive(Debug, thiserror::Error)]
#[error("the DNSLinks do not end")]
struct EndlessDnslink;

/// Reason why a block of a supported codec is not UnixFS. It is the cause of errors about the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotUnixfs {
    /// The codec is neither raw nor dag-pb.
    #[error("the codec is neither raw nor dag-pb")]
    OtherCodec,
    /// The block is dag-pb without data, and UnixFS is in the data.
    #[error("the dag-pb node has no data")]
    WithoutData,
}

/// The cause of errors of requests that did not arrive in time.
#[derive(Debug, thiserror::Error)]
#[error("the client paused")]
struct IncompleteRequest;

/// The cause of errors about data with another hash than its content ID.
#[derive(Debug, thiserror::Error)]
#[error("the hash of the data is another one")]
struct Mismatch;

/// The cause of errors about blocks over the size that every peer accepts.
#[derive(Debug, thiserror::Error)]
#[error("the block is too large")]
struct LargeBlock;

impl Error {
    /// Creates an error of `kind` with this `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the failure that caused this error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the message without its causes.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the message for a remote client, without file system paths of this machine.
    ///
    /// Messages about a client's own mistake quote its request and are returned unchanged.
    #[must_use]
    pub fn public_message(&self) -> Cow<'_, str> {
        let is_about_request = match self.kind {
            ErrorKind::NotFound
            | ErrorKind::Unresolvable
            | ErrorKind::InvalidInput
            | ErrorKind::InvalidContent
            | ErrorKind::Unsupported
            | ErrorKind::TooLarge
            | ErrorKind::Gone
            | ErrorKind::LegalReasons => !public::is_of_system(&self.message),
            ErrorKind::Unauthenticated
            | ErrorKind::Forbidden
            | ErrorKind::RateLimited
            | ErrorKind::Conflict
            | ErrorKind::Timeout
            | ErrorKind::Unretrievable
            | ErrorKind::BadSource
            | ErrorKind::Unavailable
            | ErrorKind::Corrupt
            | ErrorKind::NoSpace
            | ErrorKind::Internal => false,
        };
        if is_about_request { Cow::Borrowed(&self.message) } else { without_paths(&self.message) }
    }

    /// Creates an [`ErrorKind::NotFound`] error.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Creates an [`ErrorKind::NotFound`] error for a missing block, which `message` must name. The block is kept as
    /// the error's cause and can be retrieved with [`missing_block`](Self::missing_block).
    pub fn no_block(cid: &Cid, message: impl Into<String>) -> Self {
        Self::not_found(message).with_source(NoBlock(*cid))
    }

    /// Returns the missing block, if one is anywhere in the chain of causes.
    #[must_use]
    pub fn missing_block(&self) -> Option<Cid> {
        self.cause::<NoBlock>().map(|NoBlock(cid)| *cid)
    }

    /// Creates an [`ErrorKind::InvalidInput`] error for data that does not match its content ID.
    pub fn mismatch(message: impl Into<String>) -> Self {
        Self::invalid(message).with_source(Mismatch)
    }

    /// Returns whether [`mismatch`](Self::mismatch) created this error or one of its causes.
    #[must_use]
    pub fn is_mismatch(&self) -> bool {
        self.is_caused_by::<Mismatch>()
    }

    /// Creates an [`ErrorKind::TooLarge`] error for a block over its limit.
    pub fn large_block(message: impl Into<String>) -> Self {
        Self::too_large(message).with_source(LargeBlock)
    }

    /// Returns whether [`large_block`](Self::large_block) created this error or one of its causes.
    #[must_use]
    pub fn is_large_block(&self) -> bool {
        self.is_caused_by::<LargeBlock>()
    }

    /// Creates an [`ErrorKind::Unsupported`] error for a block that is not UnixFS.
    pub fn not_unixfs(reason: NotUnixfs, message: impl Into<String>) -> Self {
        Self::unsupported(message).with_source(reason)
    }

    /// Returns the reason if [`not_unixfs`](Self::not_unixfs) created this error or one of its causes.
    #[must_use]
    pub fn not_unixfs_reason(&self) -> Option<NotUnixfs> {
        self.cause().copied()
    }

    fn is_caused_by<E: std::error::Error + 'static>(&self) -> bool {
        self.cause::<E>().is_some()
    }

    /// Returns the first cause of this type in the chain of causes.
    fn cause<E: std::error::Error + 'static>(&self) -> Option<&E> {
        let first = std::error::Error::source(self);
        std::iter::successors(first, |cause| cause.source()).find_map(|cause| cause.downcast_ref())
    }

    /// Creates an [`ErrorKind::Forbidden`] error that applies to every caller, because the resource is open
    /// read-only. `message` must name the resource.
    pub fn read_only(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, message).with_source(ReadOnly)
    }

    /// Returns whether [`read_only`](Self::read_only) created this error.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is::<ReadOnly>())
    }

    /// Creates the [`ErrorKind::Gone`] error of an operation that was cancelled.
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Gone, message).with_source(Cancelled)
    }

    /// Returns whether [`cancelled`](Self::cancelled) created this error.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is::<Cancelled>())
    }

    /// Creates the [`ErrorKind::Unresolvable`] error of a domain whose DNSLinks lead to too many names.
    pub fn endless_dnslink(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unresolvable, message).with_source(EndlessDnslink)
    }

    /// Returns whether [`endless_dnslink`](Self::endless_dnslink) created this error or one of its causes.
    #[must_use]
    pub fn is_endless_dnslink(&self) -> bool {
        self.is_caused_by::<EndlessDnslink>()
    }

    /// Creates the [`ErrorKind::Timeout`] error of a request whose client paused for too long before its end.
    pub fn incomplete_request(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Timeout, message).with_source(IncompleteRequest)
    }

    /// Returns whether [`incomplete_request`](Self::incomplete_request) created this error or one of its causes.
    #[must_use]
    pub fn is_incomplete_request(&self) -> bool {
        self.is_caused_by::<IncompleteRequest>()
    }

    /// Creates an [`ErrorKind::InvalidInput`] error.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// Creates an [`ErrorKind::InvalidContent`] error.
    pub fn invalid_content(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidContent, message)
    }

    /// Creates an [`ErrorKind::Unsupported`] error.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Creates an [`ErrorKind::TooLarge`] error.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::TooLarge, message)
    }

    /// Creates an [`ErrorKind::Corrupt`] error.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Creates an [`ErrorKind::Internal`] error.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Creates the error of a file operation. `what` names the operation and its path. The kind is derived from the
    /// system error, so a full disk is always [`ErrorKind::NoSpace`]. If this process may not access the file, that is
    /// [`ErrorKind::Internal`], because no right of a caller would change it.
    pub fn io(what: impl fmt::Display, source: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match source.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => ErrorKind::NoSpace,
            Io::TimedOut => ErrorKind::Timeout,
            _ => ErrorKind::Internal,
        };
        Self::new(kind, format!("{what}: {source}")).with_source(source)
    }
}

impl From<std::io::Error> for Error {
    /// Converts the error of a stream or a file whose name the caller does not know. [`Error::io`] adds it.
    fn from(source: std::io::Error) -> Self {
        Self::io("reading or writing failed", source)
    }
}
