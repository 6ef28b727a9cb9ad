"""What goes wrong, by kind: each error is an :class:`IpfrsError` and a fitting built-in exception at the same time.

=======================  ====================  ===================================================
class                    is also a             when
=======================  ====================  ===================================================
`NotFoundError`          KeyError              the block, path, tensor or pin is not here
`FileNotFoundError`      FileNotFoundError     a file of this machine is not there
`UnresolvableError`      LookupError           a name leads to no content
`GoneError`              KeyError              a denylist blocks it, or it is over a limit
`InvalidInputError`      ValueError            the call is wrong, and will be
`InvalidContentError`    ValueError            a block is not what its codec, or UnixFS, says
`TooLargeError`          ValueError            it is over a limit, which the message names
`UnsupportedError`       ValueError            it is asked for what is not done here
`MissingPackageError`    ImportError           a package is not installed; an `UnsupportedError`
`ConflictError`          RuntimeError          the block is pinned, the repo is in use
`UnauthenticatedError`   PermissionError       there is no token, or a wrong one
`ForbiddenError`         PermissionError       it is not allowed; the repo is open read-only
`LegalReasonsError`      PermissionError       it is not given out for legal reasons
`TimeoutError`           TimeoutError          it did not end in time
`UnavailableError`       ConnectionError       nobody listens there, or the connection broke
`RateLimitedError`       OSError               there were too many requests: try again later
`CorruptError`           OSError               bytes are not what their content ID says
`NoSpaceError`           OSError               the disk is full
`InternalError`          OSError               a defect, or a failure of the machine
`ClosedError`            ValueError            it was closed before, as with a closed file
`ForkedError`            RuntimeError          the process was forked after ``import ipfrs``
=======================  ====================  ===================================================

``error.kind`` is the stable code that the daemon's errors have too, or ``file_not_found``, ``closed`` or ``forked``, and
``str(error)`` the message. Arguments of a wrong type are the built-in TypeError, and what Python says of local files
is the built-in OSError. All errors can be pickled.

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
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "FileNotFoundError",
    "ForbiddenError",
    "ForkedError",
    "GoneError",
    "InternalError",
    "InvalidContentError",
    "InvalidInputError",
    "IpfrsError",
    "LegalReasonsError",
    "MissingPackageError",
    "NoSpaceError",
    "NotFoundError",
    "RateLimitedError",
    "TimeoutError",
    "TooLargeError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnresolvableError",
    "UnsupportedError",
]


class IpfrsError(Exception):
    """Anything that ipfrs reports. ``str(error)`` says what was wrong with which thing, and what to do about it."""

    kind: str = "internal"
    """The stable code of what went wrong, such as ``"not_found"``."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, OSError its number: the message alone is what a person can read.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class NotFoundError(IpfrsError, KeyError):
    """The named block, path or resource is not here."""

    kind = "not_found"


class FileNotFoundError(IpfrsError, builtins.FileNotFoundError):
    """A file of this machine is not there."""

    kind = "file_not_found"
    errno = _errno.ENOENT


class UnresolvableError(IpfrsError, LookupError):
    """A name leads to no content: it has no valid record and no DNSLink."""

    kind = "unresolvable"


class InvalidInputError(IpfrsError, ValueError):
    """The call is malformed; the same call will fail again."""

    kind = "invalid_input"


class InvalidContentError(IpfrsError, ValueError):
    """The content itself is malformed: a block is not what its codec, or UnixFS, says."""

    kind = "invalid_content"


class UnsupportedError(IpfrsError, ValueError):
    """Well-formed, but asks for something that is not done here."""

    kind = "unsupported"


class MissingPackageError(UnsupportedError, ImportError):
    """Needs a Python package that is not installed; the message says how to install it."""


class TooLargeError(IpfrsError, ValueError):
    """Over one of the limits, which the message names."""

    kind = "too_large"


class UnauthenticatedError(IpfrsError, PermissionError):
    """No credentials, or wrong ones."""

    kind = "unauthenticated"


class ForbiddenError(IpfrsError, PermissionError):
    """The caller is known and not allowed, or the repo is open read-only."""

    kind = "forbidden"


class RateLimitedError(IpfrsError, OSError):
    """Too many requests; try again later."""

    kind = "rate_limited"


class ConflictError(IpfrsError, RuntimeError):
    """The state of the resource does not allow the call: a block is pinned, a repo is in use."""

    kind = "conflict"


class GoneError(IpfrsError, KeyError):
    """Blocked by a denylist, or larger than `gateway.max_deserialized_bytes`."""

    kind = "gone"


class LegalReasonsError(IpfrsError, PermissionError):
    """Is not given out for legal reasons."""

    kind = "legal_reasons"


class TimeoutError(IpfrsError, builtins.TimeoutError):
    """The operation did not end in its time."""

    kind = "timeout"


class UnavailableError(IpfrsError, ConnectionError):
    """A part that is needed, such as the daemon, is not there now; try again later."""

    kind = "unavailable"


class CorruptError(IpfrsError, OSError):
    """Stored or received bytes are not what their content ID says."""

    kind = "corrupt"


class NoSpaceError(IpfrsError, OSError):
    """The disk is full."""

    kind = "no_space"
    errno = _errno.ENOSPC


class InternalError(IpfrsError, OSError):
    """A defect, or a failure of the machine."""

    kind = "internal"


class ClosedError(IpfrsError, ValueError):
    """It was closed before; as with a closed file."""

    kind = "closed"


class ForkedError(IpfrsError, RuntimeError):
    """The process was forked after ``import ipfrs``: threads and locks stay with the parent."""

    kind = "forked"


BY_KIND: dict[str, type[IpfrsError]] = {
    error.kind: error
    for error in (
        NotFoundError,
        FileNotFoundError,
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
        UnavailableError,
        CorruptError,
        NoSpaceError,
        InternalError,
        ClosedError,
        ForkedError,
    )
}
"""The class of each kind."""
