"""Content-addressed storage for Python: a store in this process, or a client of the ipfrs daemon.

>>> import ipfrs
>>> with ipfrs.Node("my-repo") as node:         # a store in this process
...     cid = node.add(b"hello world")
...     node.cat(cid, offset=6)
b'world'

=====================  ==============================================================
:class:`Node`          a store in this process, without a daemon
:class:`Client`        a client of a daemon's store, over HTTP
:class:`AsyncNode`     ``Node`` for asyncio
:class:`AsyncClient`   ``Client`` for asyncio
:class:`Gateway`       a daemon inside this process, for notebooks and tests
:mod:`ipfrs.errors`    exceptions by kind; all are :class:`IpfrsError`
:mod:`ipfrs.fs`        ``ipfrs://`` for fsspec: pandas, pyarrow, dask, zarr
:mod:`ipfrs.bench`     ``python -m ipfrs.bench concurrency``: how fast it is here
=====================  ==============================================================

The first four have the same methods. A *path* is ``CID``, ``CID/name``, ``/ipfs/CID/name``, ``/ipns/name``,
``ipfs://CID/name`` or ``ipfs:CID/name``; content IDs are plain ``str``.
"""

from __future__ import annotations

from . import _lifetime as _lifetime
from . import errors as errors
from ._async import AsyncClient, AsyncNode
from ._files import AsyncFile
from ._gateway import Gateway
from ._native import __version__
from ._sync import Client, Node
from ._values import AddOptions, Collected, Entry, Pin, Stat, TensorFile, TensorInfo
from .errors import (
    BadSourceError,
    ClosedError,
    ConflictError,
    CorruptError,
    FilePermissionError,
    ForbiddenError,
    ForkedError,
    GoneError,
    InternalError,
    InvalidContentError,
    InvalidInputError,
    IpfrsError,
    LegalReasonsError,
    LocalFileError,
    MissingPackageError,
    NoSpaceError,
    NotFoundError,
    RateLimitedError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    UnresolvableError,
    UnretrievableError,
    UnsupportedError,
)

# Not part of `from ipfrs import *`, because these names would hide built-in ones.
from .errors import FileExistsError as FileExistsError
from .errors import FileNotFoundError as FileNotFoundError
from .errors import IsADirectoryError as IsADirectoryError
from .errors import NotADirectoryError as NotADirectoryError
from .errors import TimeoutError as TimeoutError

__all__ = [
    "AddOptions",
    "AsyncClient",
    "AsyncFile",
    "AsyncNode",
    "Client",
    "BadSourceError",
    "ClosedError",
    "Collected",
    "ConflictError",
    "CorruptError",
    "Entry",
    "FilePermissionError",
    "ForbiddenError",
    "ForkedError",
    "Gateway",
    "GoneError",
    "InternalError",
    "InvalidContentError",
    "InvalidInputError",
    "IpfrsError",
    "LegalReasonsError",
    "LocalFileError",
    "MissingPackageError",
    "NoSpaceError",
    "Node",
    "NotFoundError",
    "Pin",
    "RateLimitedError",
    "Stat",
    "TensorFile",
    "TensorInfo",
    "TooLargeError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnresolvableError",
    "UnretrievableError",
    "UnsupportedError",
    "__version__",
    "errors",
]

for _name in __all__:
    # Show users the module from which a class is imported, not the one that defines it.
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "ipfrs"
del _name
