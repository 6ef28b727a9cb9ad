"""Exceptions by kind. Each is an :class:`IpfrsError` and also a suitable built-in exception.

=======================  ====================  ===================================================
class                    is also a             when
=======================  ====================  ===================================================
`NotFoundError`          KeyError and          the block, path, tensor or pin was not found
                         FileNotFoundError
`LocalFileError`         OSError               a local file cannot be read or written
`FileNotFoundError`      FileNotFoundError     a local file was not found; a `LocalFileError`
`FileExistsError`        FileExistsError       a local file is in the way; a `LocalFileError`
`FilePermissionError`    PermissionError       access to a local file is denied; a `LocalFileError`
`IsADirectoryError`      IsADirectoryError     a local file is required; a `LocalFileError`
`NotADirectoryError`     NotADirectoryError    a local directory is required; a `LocalFileError`
`UnresolvableError`      LookupError           a name does not resolve to content
`GoneError`              KeyError              a denylist blocks it, or it is over a limit
`InvalidInputError`      ValueError            the call is wrong, and will be
`InvalidContentError`    ValueError            a block is not what its codec, or UnixFS, says
`TooLargeError`          ValueError            it is over a limit, which the message names
`UnsupportedError`       ValueError            it is asked for what is not done here
`MissingPackageError`    ImportError           a package is not installed; an `UnsupportedError`
`ConflictError`          RuntimeError          the block is pinned, the repo is in use
`UnauthenticatedError`   PermissionError       the token is missing or wrong
`ForbiddenError`         PermissionError       the call is not allowed, or the repo is read-only
`LegalReasonsError`      PermissionError       the content is blocked for legal reasons
`TimeoutError`           TimeoutError          the operation did not finish in time
`UnretrievableError`     LookupError           no source of the network delivered the content
`BadSourceError`         ConnectionError       the sources of the content failed or are wrong
`UnavailableError`       ConnectionError       the daemon is not reachable, or the connection broke
`RateLimitedError`       OSError               there were too many requests: try again later
`CorruptError`           OSError               bytes do not match their content ID
`NoSpaceError`           OSError               the disk is full
`InternalError`          OSError               a bug, or a failure of the machine
`ClosedError`            ValueError            the object is closed, as with a closed file
`ForkedError`            RuntimeError          a Node, Gateway or stream of the parent in a forked child
=======================  ====================  ===================================================

``error.kind`` is the stable code that the daemon's errors have too, or ``local_file``, ``file_not_found``,
``file_exists``, ``file_permission``, ``closed`` or ``forked``.
``str(error)`` is the message. Arguments of a wrong type raise the built-in TypeError. Errors that a file object or
iterable of the caller raises are passed on unchanged. All errors can be pickled.

Example:
    >>> try:
    ...     node.cat("bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku/missing")
    ... except KeyError as error:
    ...     error.kind
    'not_found'
"""

from __future__ import annotations

import builtins
import errno as _errno

__all__ = [
    "BadSourceError",
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "FileExistsError",
    "FileNotFoundError",
    "FilePermissionError",
    "ForbiddenError",
    "ForkedError",
    "GoneError",
    "InternalError",
    "InvalidContentError",
    "InvalidInputError",
    "IpfrsError",
    "IsADirectoryError",
    "LegalReasonsError",
    "LocalFileError",
    "MissingPackageError",
    "NoSpaceError",
    "NotADirectoryError",
    "NotFoundError",
    "RateLimitedError",
    "TimeoutError",
    "TooLargeError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnresolvableError",
    "UnretrievableError",
    "UnsupportedError",
]


class IpfrsError(Exception):
    """Base class of all errors. ``str(error)`` describes the error, the object that it affects, and a remedy."""

    kind: str = "internal"
    """Stable code of the error, such as ``"not_found"``."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, and OSError its number. The message alone is readable.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class NotFoundError(IpfrsError, KeyError, builtins.FileNotFoundError):
    """The block, path or other resource was not found."""

    kind = "not_found"
    errno = _errno.ENOENT


class LocalFileError(IpfrsError, OSError):
    """A local file or directory cannot be read or written. The cause is in ``__cause__``."""

    kind = "local_file"


class FileNotFoundError(LocalFileError, builtins.FileNotFoundError):
    """A local file was not found."""

    kind = "file_not_found"
    errno = _errno.ENOENT


class FileExistsError(LocalFileError, builtins.FileExistsError):
    """A local file or directory is in the way."""

    kind = "file_exists"
    errno = _errno.EEXIST


class FilePermissionError(LocalFileError, PermissionError):
    """Access to a local file or directory is denied."""

    kind = "file_permission"
    errno = _errno.EACCES


class IsADirectoryError(LocalFileError, builtins.IsADirectoryError):
    """A local path is a directory, where a file is required."""

    errno = _errno.EISDIR


class NotADirectoryError(LocalFileError, builtins.NotADirectoryError):
    """A local path is not a directory, where one is required."""

    errno = _errno.ENOTDIR


class UnresolvableError(IpfrsError, LookupError):
    """A name does not resolve to content, because it has no valid record and no DNSLink."""

    kind = "unresolvable"


class InvalidInputError(IpfrsError, ValueError):
    """The call is invalid, and will fail again."""

    kind = "invalid_input"


class InvalidContentError(IpfrsError, ValueError):
    """The content is invalid: a block does not match its codec, or is not valid UnixFS."""

    kind = "invalid_content"


class UnsupportedError(IpfrsError, ValueError):
    """The call is well-formed, but requests a feature that is not supported."""

    kind = "unsupported"


class MissingPackageError(UnsupportedError, ImportError):
    """A required Python package is not installed. The message says how to install it."""


class TooLargeError(IpfrsError, ValueError):
    """A limit is exceeded, which the message names."""

    kind = "too_large"


class UnauthenticatedError(IpfrsError, PermissionError):
    """The credentials are missing or wrong."""

    kind = "unauthenticated"


class ForbiddenError(IpfrsError, PermissionError):
    """The caller is not allowed to make the call, or the repo is open read-only."""

    kind = "forbidden"


class RateLimitedError(IpfrsError, OSError):
    """There were too many requests. Try again later."""

    kind = "rate_limited"


class ConflictError(IpfrsError, RuntimeError):
    """The state of the resource does not allow the call: a block is pinned, a repo is in use."""

    kind = "conflict"


class GoneError(IpfrsError, KeyError):
    """Blocked by a denylist, or larger than `gateway.max_deserialized_bytes`."""

    kind = "gone"


class LegalReasonsError(IpfrsError, PermissionError):
    """The content is blocked for legal reasons."""

    kind = "legal_reasons"


class TimeoutError(IpfrsError, builtins.TimeoutError):
    """The operation did not finish in time."""

    kind = "timeout"


class UnretrievableError(IpfrsError, LookupError):
    """The content is not in the store, and no source of the network delivered it."""

    kind = "unretrievable"


class BadSourceError(IpfrsError, ConnectionError):
    """The content is not in the store, and the sources that were tried failed or delivered something else."""

    kind = "bad_source"


class UnavailableError(IpfrsError, ConnectionError):
    """A required component, such as the daemon, is unavailable. Try again later."""

    kind = "unavailable"


class CorruptError(IpfrsError, OSError):
    """Stored or received bytes do not match their content ID."""

    kind = "corrupt"


class NoSpaceError(IpfrsError, OSError):
    """The disk is full."""

    kind = "no_space"
    errno = _errno.ENOSPC


class InternalError(IpfrsError, OSError):
    """A bug in ipfrs, or a failure of the machine."""

    kind = "internal"


class ClosedError(IpfrsError, ValueError):
    """The object is closed, as with a closed file."""

    kind = "closed"


class ForkedError(IpfrsError, RuntimeError):
    """The object belongs to the process that this one was forked from, with its threads and locks."""

    kind = "forked"


BY_KIND: dict[str, type[IpfrsError]] = {
    error.kind: error
    for error in (
        NotFoundError,
        LocalFileError,
        FileNotFoundError,
        FileExistsError,
        FilePermissionError,
        UnresolvableError,
        InvalidInputError,
        InvalidContentError,
        UnsupportedError,
        TooLargeError,
        UnauthenticatedError,
        ForbiddenError,
        RateLimitedError,
        ConflictError,
        GoneError,
        LegalReasonsError,
        TimeoutError,
        UnretrievableError,
        BadSourceError,
        UnavailableError,
        CorruptError,
        NoSpaceError,
        InternalError,
        ClosedError,
        ForkedError,
    )
}
"""Exception class of each kind."""


def local_error(action: str, error: OSError, place: str) -> IpfrsError:
    """Returns the error for an action that failed at a local ``place``, with a message that names the cause."""
    message = f"{action}: {error.strerror or error}"
    if error.filename not in (None, place):
        message += f" ({error.filename})"
    if error.errno in (_errno.ENOSPC, _errno.EDQUOT):
        return NoSpaceError(message)
    made: LocalFileError
    if isinstance(error, builtins.FileNotFoundError):
        made = FileNotFoundError(message)
    elif isinstance(error, builtins.FileExistsError):
        made = FileExistsError(message)
    elif isinstance(error, PermissionError):
        made = FilePermissionError(message)
    elif isinstance(error, builtins.IsADirectoryError):
        made = IsADirectoryError(message)
    elif isinstance(error, builtins.NotADirectoryError):
        made = NotADirectoryError(message)
    else:
        made = LocalFileError(message)
    made.errno, made.filename = error.errno, error.filename or place
    return made
