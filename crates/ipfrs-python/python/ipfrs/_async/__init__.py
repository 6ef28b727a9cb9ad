"""Classes whose methods are awaited: ``AsyncNode`` and ``AsyncClient``.

Their methods are those of ``Node`` and ``Client``, with the same names and arguments, and are documented there.
Cancelling a task ends what it waits for: an import leaves nothing behind, a download stops.
"""

from __future__ import annotations

import os
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
    """What :class:`AsyncNode` and :class:`AsyncClient` have in common. May be used by many tasks at once."""

    _native: Backend

    async def gc(self, *, force: bool = False) -> Collected:
        """Collects garbage, as :meth:`Node.gc`.

        Example:
            >>> cid = await anode.add(b"garbage", pin=False)
            >>> collected = await anode.gc()
            >>> await anode.has(cid)
            False
        """
        return Collected(*await self._native.collect(force))

    async def version(self) -> str:
        """The version of the node, as :meth:`Node.version`.

        Example:
            >>> await anode.version() == ipfrs.__version__
            True
        """
        return cast(str, await self._native.version())

    async def stats(self) -> dict[str, int | str]:
        """Figures of the store, as :meth:`Node.stats`.

        Example:
            >>> cid = await anode.add(b"hello")
            >>> (await anode.stats())["blocks"] > 0
            True
        """
        return cast("dict[str, int | str]", await self._native.stats())

    @property
    def closed(self) -> bool:
        """Whether it was closed.

        Example:
            >>> anode.closed
            False
        """
        return self._native.closed

    async def close(self) -> None:
        """Ends it, as :meth:`Node.close`. Closing twice is no error.

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
    """A store in this process, for asyncio; :class:`Node` is its like.

    It is opened by ``async with``, or when it is first used.

    Args:
        path: Directory of the repo, as for :class:`Node`.
        config: The configuration, as for :class:`Node`.

    Raises:
        ConflictError: When it is opened: another process has it open.
        InvalidInputError: The configuration is wrong; the message names key and remedy.

    Example:
        >>> async with ipfrs.AsyncNode("repo") as store:
        ...     await store.cat(await store.add(b"hello"))
        b'hello'
    """

    def __init__(self, path: Path | None = None, *, config: Path | Mapping[str, object] | None = None) -> None:
        self._path = None if path is None else os.fsdecode(path)
        self._native = Backend.node(self._path, configuration(config), True)

    def __repr__(self) -> str:
        path = "of the default repo" if self._path is None else repr(self._path)
        return f"<ipfrs.AsyncNode {path}{' (closed)' if self.closed else ''}>"

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not native.closed:
            forgotten(self, "use `async with`, or await close()")

    def __reduce__(self) -> Any:
        raise TypeError("an AsyncNode belongs to its process: open it in the other one, or send an AsyncClient there")


class AsyncClient(_Asynchronous):
    """Speaks to a daemon over HTTP, for asyncio; :class:`Client` is its like.

    Args:
        url: Where the daemon listens.
        token: What it is shown as ``Authorization: Bearer``.
        timeout: Most seconds that a call may wait for the daemon to say something; None for no limit.

    Raises:
        InvalidInputError: It is no URL of HTTP.

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
        """Where the daemon listens.

        Example:
            >>> ipfrs.AsyncClient().url
            'http://127.0.0.1:8080'
        """
        return self._url

    def __repr__(self) -> str:
        # Secrets have no place where representations end up.
        return f"<ipfrs.AsyncClient {_arguments.without_user(self._url)}{' (closed)' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        return partial(type(self), timeout=self._timeout), (self._url, self._token)
