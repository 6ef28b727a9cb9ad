"""Classes whose methods wait: ``Node`` and ``Client``."""

from __future__ import annotations

import contextlib
import os
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
    """What :class:`Node` and :class:`Client` have in common. May be used from many threads at once."""

    _native: Backend

    def gc(self, *, force: bool = False) -> Collected:
        """Collects garbage: removes all blocks that no pin leads to.

        Args:
            force: Collect although `pins.redb` was missing beside blocks, so that earlier pins are lost:
                blocks that no pin leads to now are removed.

        Returns:
            How many blocks are gone, and how many bytes they had.

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
        """The version of the node, which for a `Client` is that of the daemon.

        Example:
            >>> node.version() == ipfrs.__version__
            True
        """
        return cast(str, self._native.version())

    def stats(self) -> dict[str, int | str]:
        """Figures of the store: ``blocks``, ``bytes`` (of packs and index on the disk) and ``repo`` (its directory).

        Example:
            >>> cid = node.add(b"hello")
            >>> node.stats()["blocks"] > 0
            True
        """
        return cast("dict[str, int | str]", self._native.stats())

    @property
    def closed(self) -> bool:
        """Whether it was closed.

        Example:
            >>> node.closed
            False
        """
        return self._native.closed

    def close(self) -> None:
        """Ends it: a Node's store is made durable, and its lock given back. Closing twice is no error.

        Afterwards methods raise `ClosedError`. What `get` gave stays valid.

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
    """A store in this process: the same code as the daemon's, without a daemon.

    The directory is locked while it is open: one process at a time. May be used from many threads,
    which do not hold each other up. Close it, or use it as a context manager.

    Args:
        path: Directory of the repo, which is made if it is not there. None: the one that ``IPFRS_PATH``
            names, else ``~/.ipfrs``, which is the daemon's.
        config: Sections as a mapping, such as ``{"store": {"durability": "os"}}``, or the path of a
            TOML file. What it says wins over the environment, and that over ``config.toml`` of the repo.

    Raises:
        ConflictError: Another process has it open: speak to that one with `Client`.
        InvalidInputError: The configuration is wrong; the message names key and remedy.

    Example:
        >>> with ipfrs.Node("repo") as store:
        ...     store.cat(store.add(b"hello"))
        b'hello'
    """

    def __init__(self, path: Path | None = None, *, config: Path | Mapping[str, object] | None = None) -> None:
        self._path = None if path is None else os.fsdecode(path)
        native = Backend.node(self._path, configuration(config), False)
        native.open()
        self._native = native

    def __repr__(self) -> str:
        return f"<ipfrs.Node {_shown_path(self._path)}{' (closed)' if self.closed else ''}>"

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not native.closed:
            forgotten(self, "use `with`, or call close()")
            # Whoever lets go of it may open the repo next. Of what goes wrong nobody could be told.
            with contextlib.suppress(Exception):
                native.close()

    def __reduce__(self) -> Any:
        raise TypeError("a Node belongs to its process: open it in the other one, or send a Client there")


class Client(_Blocking):
    """Speaks to a daemon (``ipfrs-cli gateway start``, or :class:`Gateway`) over HTTP.

    Connections are made when they are needed and kept for the next call. May be used from many
    threads; can be pickled. Blocks are compared with their content IDs as they come.

    Args:
        url: Where the daemon listens.
        token: What it is shown as ``Authorization: Bearer``.
        timeout: Most seconds that a call may wait for the daemon to say something; None for no limit.

    Raises:
        InvalidInputError: It is no URL of HTTP.

    Methods also raise:
        UnavailableError: Nobody listens there, or the connection broke.
        TimeoutError: There was no answer in time.

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
        """Where the daemon listens.

        Example:
            >>> ipfrs.Client().url
            'http://127.0.0.1:8080'
        """
        return self._url

    def __repr__(self) -> str:
        # Secrets have no place where representations end up.
        return f"<ipfrs.Client {_arguments.without_user(self._url)}{' (closed)' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        return partial(type(self), timeout=self._timeout), (self._url, self._token)


def _shown_path(path: str | None) -> str:
    return "of the default repo" if path is None else repr(path)
