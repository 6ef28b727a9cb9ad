"""Blocking classes: ``Node`` and ``Client``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from .. import _arguments
from .._lifetime import forgotten
from .._native import Backend
from .._toml import configuration
from .._values import Collected
from .blocks import BlockMethods
from .files import FileMethods
from .tensors import TensorMethods

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from .._values import Path


class _Blocking(FileMethods, BlockMethods, TensorMethods):
    """Methods that :class:`Node` and :class:`Client` share. Many threads may use an instance concurrently."""

    _native: Backend

    def gc(self, *, force: bool = False) -> Collected:
        """Runs garbage collection: removes all blocks that no pin keeps.

        Args:
            force: Collect although `pins.redb` was missing beside blocks, so that earlier pins are lost:
                blocks that no pin leads to now are removed.

        Returns:
            The number of removed blocks, and their size in bytes.

        Raises:
            NotFoundError: A block below a pin is missing, with `force` or without; nothing is removed.
            ConflictError: Pins were lost and `force` is not given, or a collection is running.

        Example:
            >>> cid = node.add(b"garbage", pin=False)
            >>> collected = node.gc()
            >>> node.has(cid)
            False
        """
        return Collected(*self._native.collect(force))

    def version(self) -> str:
        """Returns the version of the node. For a `Client`, that is the version of the daemon.

        Example:
            >>> node.version() == ipfrs.__version__
            True
        """
        return cast(str, self._native.version())

    def stats(self) -> dict[str, int | str]:
        """Returns statistics of the store: ``blocks``, ``bytes`` (packs and index on disk) and ``repo`` (its
        directory).

        Example:
            >>> cid = node.add(b"hello")
            >>> node.stats()["blocks"] > 0
            True
        """
        return cast("dict[str, int | str]", self._native.stats())

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called.

        Example:
            >>> node.closed
            False
        """
        return self._native.closed

    def close(self) -> None:
        """Closes the node or client. A `Node` makes its store durable and releases its lock. Closing twice is not an
        error.

        Afterwards, methods raise `ClosedError`. Results of `get` remain valid.

        Example:
            >>> with ipfrs.Node("other") as other:
            ...     cid = other.add(b"hello")
            >>> other.closed
            True
        """
        self._native.close()

    def __enter__(self) -> Self:
        self._native.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Node(_Blocking):
    """A store in this process, with the same code as the daemon.

    The directory is locked while the store is open, so only one process can use it at a time. Many threads may use a
    `Node` concurrently without blocking each other. Close it, or use it as a context manager.

    Args:
        path: Directory of the repo, which is created if it does not exist. None: the value of ``IPFRS_PATH``, or else
            ``~/.ipfrs``, which the daemon uses by default.
        config: Sections as a mapping, such as ``{"store": {"durability": "os"}}``, or the path of a TOML file. Its
            values override the environment, which overrides ``config.toml`` of the repo.

    Raises:
        ConflictError: Another process has the repo open. Use a `Client` of that process instead.
        InvalidInputError: The configuration is invalid. The message names the key and a remedy.
        LocalFileError: The file `config` cannot be read. If there is none, a `FileNotFoundError`.

    Example:
        >>> with ipfrs.Node("repo") as store:
        ...     store.cat(store.add(b"hello"))
        b'hello'
    """

    def __init__(self, path: Path | None = None, *, config: Path | Mapping[str, object] | None = None) -> None:
        self._path = None if path is None else _arguments.local_path(path, "the path of the repo")
        native = Backend.node(self._path, configuration(config), False)
        native.open()
        self._native = native

    def __repr__(self) -> str:
        return f"<ipfrs.Node {_shown_path(self._path)}{' (closed)' if self.closed else ''}>"

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not native.closed and not native.is_inherited:
            forgotten(self, "use `with`, or call close()")
            # The next step may open the repo, so close it now. An error in a finalizer cannot be reported.
            with contextlib.suppress(Exception):
                native.close()

    def __reduce__(self) -> Any:
        raise TypeError("a Node belongs to its process: open it in the other one, or send a Client there")


class Client(_Blocking):
    """A client of a daemon (``ipfrs-cli gateway start``, or :class:`Gateway`) over HTTP.

    Connections are opened on demand and reused. Many threads may use a `Client` concurrently, and it can be pickled.
    Received blocks are verified against their content IDs.

    Args:
        url: URL of the daemon.
        token: Access token, sent as ``Authorization: Bearer``.
        timeout: Maximum number of seconds that a call waits for data from the daemon; None for no limit.

    Raises:
        InvalidInputError: ``url`` is not an HTTP URL.

    Methods also raise:
        UnavailableError: The daemon is not reachable, or the connection broke.
        TimeoutError: The daemon did not respond in time.

    Example:
        >>> with ipfrs.Client(url) as daemon:
        ...     daemon.cat(daemon.add(b"hello"))
        b'hello'
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        token: str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        self._url, self._token, self._timeout = _arguments.url(url), token, timeout
        self._native = Backend.client(url, token, timeout, False)

    @property
    def url(self) -> str:
        """URL of the daemon.

        Example:
            >>> ipfrs.Client().url
            'http://127.0.0.1:8080'
        """
        return self._url

    def __repr__(self) -> str:
        # The URL may contain a password, which must not appear in a representation.
        return f"<ipfrs.Client {_arguments.without_user(self._url)}{' (closed)' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        return partial(type(self), timeout=self._timeout), (self._url, self._token)


def _shown_path(path: str | None) -> str:
    return "of the default repo" if path is None else repr(path)
