"""Classes for asyncio: ``AsyncNode`` and ``AsyncClient``.

Their methods have the same names and arguments as those of ``Node`` and ``Client``, and are documented there.
Cancelling a task stops the operation that it awaits, such as a download. A cancelled import pins nothing, and gc frees
the blocks that it stored, unless its last bytes had already been sent: it may then still be completed and pinned.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from .. import _arguments
from .._lifetime import forgotten
from .._native import Backend
from .._toml import configuration
from .._values import Collected
from .blocks import AsyncBlockMethods
from .files import AsyncFileMethods
from .tensors import AsyncTensorMethods

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from .._values import Path


class _Asynchronous(AsyncFileMethods, AsyncBlockMethods, AsyncTensorMethods):
    """Methods that :class:`AsyncNode` and :class:`AsyncClient` share. Many tasks may use an instance concurrently."""

    _native: Backend

    async def gc(self, *, force: bool = False) -> Collected:
        """Runs garbage collection, as :meth:`Node.gc` does.

        Example:
            >>> cid = await anode.add(b"garbage", pin=False)
            >>> collected = await anode.gc()
            >>> await anode.has(cid)
            False
        """
        return Collected(*await self._native.collect(force))

    async def version(self) -> str:
        """Returns the version of the node, as :meth:`Node.version` does.

        Example:
            >>> await anode.version() == ipfrs.__version__
            True
        """
        return cast(str, await self._native.version())

    async def stats(self) -> dict[str, int | str]:
        """Returns statistics of the store, as :meth:`Node.stats` does.

        Example:
            >>> cid = await anode.add(b"hello")
            >>> (await anode.stats())["blocks"] > 0
            True
        """
        return cast("dict[str, int | str]", await self._native.stats())

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called.

        Example:
            >>> anode.closed
            False
        """
        return self._native.closed

    async def close(self) -> None:
        """Closes the node or client, as :meth:`Node.close` does. Closing twice is not an error.

        Example:
            >>> other = AsyncClient(url)
            >>> await other.close()
            >>> other.closed
            True
        """
        await self._native.close()

    async def __aenter__(self) -> Self:
        await self._native.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncNode(_Asynchronous):
    """A store in this process, for asyncio. The counterpart of :class:`Node`.

    ``async with`` opens the store. Otherwise, its first use does.

    Args:
        path: Directory of the repo, as for :class:`Node`.
        config: The configuration, as for :class:`Node`.

    Raises:
        ConflictError: On opening: another process has the repo open.
        InvalidInputError: The configuration is invalid. The message names the key and a remedy.
        LocalFileError: The file `config` cannot be read. If there is none, a `FileNotFoundError`.

    Example:
        >>> async with ipfrs.AsyncNode("repo") as store:
        ...     await store.cat(await store.add(b"hello"))
        b'hello'
    """

    def __init__(self, path: Path | None = None, *, config: Path | Mapping[str, object] | None = None) -> None:
        self._path = None if path is None else _arguments.local_path(path, "the path of the repo")
        self._native = Backend.node(self._path, configuration(config), True)

    def __repr__(self) -> str:
        path = "of the default repo" if self._path is None else repr(self._path)
        return f"<ipfrs.AsyncNode {path}{' (closed)' if self.closed else ''}>"

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not native.closed and not native.is_inherited:
            forgotten(self, "use `async with`, or await close()")

    def __reduce__(self) -> Any:
        raise TypeError("an AsyncNode belongs to its process: open it in the other one, or send an AsyncClient there")


class AsyncClient(_Asynchronous):
    """A client of a daemon over HTTP, for asyncio. The counterpart of :class:`Client`.

    Args:
        url: URL of the daemon.
        token: Access token, sent as ``Authorization: Bearer``.
        timeout: Maximum number of seconds that a call waits for data from the daemon; None for no limit.

    Raises:
        InvalidInputError: ``url`` is not an HTTP URL.

    Example:
        >>> async with ipfrs.AsyncClient(url) as daemon:
        ...     await daemon.cat(await daemon.add(b"hello"))
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
        self._native = Backend.client(url, token, timeout, True)

    @property
    def url(self) -> str:
        """URL of the daemon.

        Example:
            >>> ipfrs.AsyncClient().url
            'http://127.0.0.1:8080'
        """
        return self._url

    def __repr__(self) -> str:
        # The URL may contain a password, which must not appear in a representation.
        return f"<ipfrs.AsyncClient {_arguments.without_user(self._url)}{' (closed)' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        return partial(type(self), timeout=self._timeout), (self._url, self._token)
