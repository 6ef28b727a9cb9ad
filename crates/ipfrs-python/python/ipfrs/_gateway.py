"""A daemon inside the process, for notebooks and tests."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _native
from ._async import AsyncClient
from ._lifetime import forgotten
from ._steps import in_thread
from ._sync import Client
from ._toml import document

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from ._values import Path


class Gateway:
    """The daemon in this process: HTTP, gRPC and everything, as ``ipfrs-cli gateway start`` runs it.

    Where nobody says otherwise, the system chooses the port of HTTP, and there is no gRPC.

    Args:
        config: The configuration: the path of a TOML file, or sections as a mapping, such as
            ``{"server": {"port": 8080}}``. None: ``config.toml`` of the repo if it is there.
        repo: Directory of the repo, which is made if it is not there. None: the one that ``IPFRS_PATH``
            names, else ``~/.ipfrs``.
        **overrides: Sections that win over ``config``, key by key: ``server={"port": 8080}``. What is
            said in Python wins over the environment, and that over files.

    Raises:
        TypeError: A section is no mapping, or a value is none that TOML has.

    Example:
        >>> with ipfrs.Gateway(repo="served") as gateway:
        ...     client = gateway.client()
        ...     client.cat(client.add(b"hello"))
        ...     client.close()
        b'hello'
    """

    def __init__(
        self,
        config: Path | Mapping[str, Mapping[str, object]] | None = None,
        *,
        repo: Path | None = None,
        **overrides: Mapping[str, object],
    ) -> None:
        self._repo = None if repo is None else os.fsdecode(repo)
        self._file: str | None = None
        sections: dict[str, Any] = dict(overrides)
        if isinstance(config, Mapping):
            sections = _joined(config, overrides)
        elif isinstance(config, (str, os.PathLike)):
            self._file = os.fsdecode(config)
        elif config is not None:
            raise TypeError(f"config is the path of a TOML file or a mapping of sections, not {type(config).__name__}")
        self._config = document(sections) or None
        self._native: _native.Gateway | None = None
        # Starting takes its time: two threads must not start two.
        self._turn = threading.Lock()

    def start(self) -> Self:
        """Opens the repo and listens; returns once requests are answered. Does nothing where it runs already.

        Returns:
            The gateway itself.

        Raises:
            InvalidInputError: The configuration is wrong (the message names the key and the remedy), or no
                interface has the address.
            ConflictError: Another process has the repo open, or the port is in use.
            ForbiddenError: The address is beyond loopback without `allow_unauthenticated`.

        Example:
            >>> gateway = ipfrs.Gateway(repo="served").start()
            >>> gateway.url
            'http://127.0.0.1:...'
            >>> gateway.stop()
        """
        with self._exclusive():
            if not self.running:
                self._native = _native.Gateway.start(self._repo, self._file, self._config)
        return self

    def stop(self) -> None:
        """Ends it, and gives the repo back. Stopping twice is no error.

        Running transfers may end first, for ``server.shutdown_grace_seconds`` (30) at most: one that is left half-way,
        such as an iterator of `chunks` that nobody asks for more, takes all of them. A gateway that is let go of
        without this is asked to end, and only the end of the interpreter waits until it has.

        Example:
            >>> gateway = ipfrs.Gateway(repo="served").start()
            >>> gateway.stop()
            >>> gateway.running
            False
        """
        with self._exclusive():
            if self._native is not None:
                self._native.stop()

    @property
    def running(self) -> bool:
        """Whether requests are answered.

        Example:
            >>> gateway.running
            True
        """
        return self._native is not None and self._native.running

    @property
    def url(self) -> str:
        """Where it listens, for instance ``http://127.0.0.1:8080``; of several addresses the first.

        Raises:
            RuntimeError: It does not run.

        Example:
            >>> gateway.url == url
            True
        """
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        """All addresses where HTTP is served.

        Raises:
            RuntimeError: It does not run.

        Example:
            >>> gateway.urls[0] == url
            True
        """
        return self._started().urls

    @property
    def grpc_addresses(self) -> list[str]:
        """Where gRPC is served; empty where it is not.

        Raises:
            RuntimeError: It does not run.

        Example:
            >>> gateway.grpc_addresses
            []
        """
        return self._started().grpc_addresses

    @property
    def repo(self) -> str:
        """The directory of the repo.

        Raises:
            RuntimeError: It does not run.

        Example:
            >>> gateway.repo == client.stats()["repo"]
            True
        """
        return self._started().repo

    def client(self, token: str | None = None, *, timeout: float | None = None) -> Client:
        """A new :class:`Client` of this gateway.

        Raises:
            RuntimeError: It does not run.

        Example:
            >>> with gateway.client() as client:
            ...     client.cat(client.add(b"hello"))
            b'hello'
        """
        return Client(self.url, token, timeout=timeout)

    def async_client(self, token: str | None = None, *, timeout: float | None = None) -> AsyncClient:
        """A new :class:`AsyncClient` of this gateway.

        Raises:
            RuntimeError: It does not run.

        Example:
            >>> async with gateway.async_client() as client:
            ...     await client.cat(await client.add(b"hello"))
            b'hello'
        """
        return AsyncClient(self.url, token, timeout=timeout)

    def _exclusive(self) -> threading.Lock:
        """The lock, unless a thread of the parent may have it: then nobody gives it back."""
        _native.check_fork()
        return self._turn

    def _started(self) -> _native.Gateway:
        if self._native is None or not self._native.running:
            raise RuntimeError("the gateway does not run: start it with `with`, or with start()")
        return self._native

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        try:
            await in_thread(partial(self.start))
        except asyncio.CancelledError:
            await in_thread(partial(self.stop))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(partial(self.stop))

    def __repr__(self) -> str:
        return f"<ipfrs.Gateway at {self.url}>" if self.running else "<ipfrs.Gateway (stopped)>"

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and native.running:
            forgotten(self, "use `with`, or call stop()")

    def __reduce__(self) -> Any:
        raise TypeError("a Gateway belongs to its process: send its client() to the other one")


def _joined(config: Mapping[str, object], overrides: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Sections of both, key by key."""
    sections = dict(config)
    for name, keys in overrides.items():
        given = sections.get(name)
        both = isinstance(given, Mapping) and isinstance(keys, Mapping)
        sections[name] = {**given, **keys} if both else keys  # type: ignore[dict-item]
    return sections
