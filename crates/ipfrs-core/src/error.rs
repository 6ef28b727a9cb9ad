//! The one error type of the workspace.

use std::borrow::Cow;
use std::fmt;

use crate::Cid;

mod public;

use public::without_paths;

/// What went wrong, as far as a caller can act on it.
///
/// The set is closed on purpose: each front-end maps it to its own statuses in one `match` without a wildcard, so a new
/// kind does not build until every front-end has decided what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The named block, path or resource does not exist here.
    NotFound,
    /// A name leads to no content: it has no valid record and no DNSLink.
    Unresolvable,
    /// The request is malformed; sending it again unchanged will fail again.
    InvalidInput,
    /// The content itself is malformed: a block is not what its codec, or UnixFS, says. Every client gets it so.
    InvalidContent,
    /// Well-formed, but asks for something that this build does not do.
    Unsupported,
    /// Over one of the limits; the message names the limit.
    TooLarge,
    /// No credentials, or wrong ones.
    Unauthenticated,
    /// The caller is known and not allowed.
    Forbidden,
    /// Too many requests; try again later.
    RateLimited,
    /// The state of the resource does not allow the request.
    Conflict,
    /// Was here and will not come back.
    Gone,
    /// Is not given out for legal reasons.
    LegalReasons,
    /// The operation did not end in its time.
    Timeout,
    /// A part that is needed is not there now; try again later.
    Unavailable,
    /// Stored or received bytes are not what their content ID says.
    Corrupt,
    /// The disk is full.
    NoSpace,
    /// A defect, or a failure of the machine.
    Internal,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 17] = [
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
        Self::Unavailable,
        Self::Corrupt,
        Self::NoSpace,
        Self::Internal,
    ];

    /// The kind with this [code](Self::code), for whoever is told of errors by a daemon.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The stable, lower-case code that appears in JSON error bodies and in metrics.
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

/// An error with a [kind](ErrorKind), a message for a person and, where there is one, a cause.
///
/// The message says what was wrong with which thing, and what to do about it where that is known.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The cause of errors about a block that is not there.
#[derive(Debug, thiserror::Error)]
#[error("there is no block {0}")]
struct NoBlock(Cid);

/// The cause of errors about a repo that is open read-only.
#[derive(Debug, thiserror::Error)]
#[error("it is open read-only")]
struct ReadOnly;

impl Error {
    /// An error of `kind` whose message is `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error with the failure that caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What a caller can act on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message without its causes.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The message for a client of another machine: without paths in the file system of this one.
    ///
    /// Messages about a client's own mistake quote what it sent, and are given back as they are.
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
            | ErrorKind::Unavailable
            | ErrorKind::Corrupt
            | ErrorKind::NoSpace
            | ErrorKind::Internal => false,
        };
        if is_about_request { Cow::Borrowed(&self.message) } else { without_paths(&self.message) }
    }

    /// Shorthand for [`ErrorKind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// [`ErrorKind::NotFound`] for a block that is not there, which `message` names. The block is the error's cause, so that
    /// it can be told which one it is: see [`missing_block`](Self::missing_block).
    pub fn no_block(cid: &Cid, message: impl Into<String>) -> Self {
        Self::not_found(message).with_source(NoBlock(*cid))
    }

    /// The block that is missing, where that is the cause of this error, however far down.
    #[must_use]
    pub fn missing_block(&self) -> Option<Cid> {
        let first = std::error::Error::source(self);
        let mut causes = std::iter::successors(first, |cause| cause.source());
        causes.find_map(|cause| cause.downcast_ref::<NoBlock>()).map(|NoBlock(cid)| *cid)
    }

    /// [`ErrorKind::Forbidden`] to everybody: what would be changed is open read-only. `message` names it.
    pub fn read_only(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, message).with_source(ReadOnly)
    }

    /// Whether this was made by [`read_only`](Self::read_only).
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is::<ReadOnly>())
    }

    /// Shorthand for [`ErrorKind::InvalidInput`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// Shorthand for [`ErrorKind::InvalidContent`].
    pub fn invalid_content(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidContent, message)
    }

    /// Shorthand for [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Shorthand for [`ErrorKind::TooLarge`].
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::TooLarge, message)
    }

    /// Shorthand for [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Shorthand for [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// The error of a file operation: `what` names the operation and its path. The kind follows from the system's
    /// answer, so that a full disk is [`ErrorKind::NoSpace`] wherever it happens.
    pub fn io(what: impl fmt::Display, source: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match source.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::PermissionDenied | Io::ReadOnlyFilesystem => ErrorKind::Forbidden,
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => ErrorKind::NoSpace,
            Io::TimedOut => ErrorKind::Timeout,
            _ => ErrorKind::Internal,
        };
        Self::new(kind, format!("{what}: {source}")).with_source(source)
    }
}
