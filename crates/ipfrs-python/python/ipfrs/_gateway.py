"""A daemon inside this process, for notebooks and tests."""

from __future__ import annotations

import asyncio
import os
import pathlib
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _arguments, _native
from ._async import AsyncClient
from ._lifetime import forgotten
from ._steps import in_thread
from ._sync import Client
from ._toml import document
from .errors import ForkedError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from ._values import Path


class Gateway:
    """A complete daemon in this process, with HTTP and gRPC, as run by ``ipfrs-cli gateway start``.

    Unless configured otherwise, the system chooses the HTTP port, and gRPC is off.

    Args:
        config: The configuration: the path of a TOML file, or sections as a mapping, such as
            ``{"server": {"port": 8080}}``. None: ``config.toml`` of the repo, if it exists.
        repo: Directory of the repo, which is created if it does not exist. None: the value of ``IPFRS_PATH``, or
            else ``~/.ipfrs``.
        **overrides: Sections that override ``config``, key by key: ``server={"port": 8080}``. Values given in
            Python override the environment, which overrides files.

    Raises:
        TypeError: A section is not a mapping, or a value has no TOML representation.
        InvalidInputError: The configuration is wrong. The message names the key and the remedy.

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
        self._repo = None if repo is None else _arguments.local_path(repo, "the path of the repo")
        self._file: str | None = None
        sections: dict[str, Any] = dict(overrides)
        if isinstance(config, Mapping):
            sections = _joined(config, overrides)
        elif isinstance(config, (str, os.PathLike)):
            self._file = _arguments.local_path(config, "the path of the configuration")
        elif config is not None:
            kind = type(config).__name__
            raise TypeError(f"config must be the path of a TOML file or a mapping of sections, not {kind}")
        self._config = document(sections) or None
        _native.Gateway.check(self._repo, self._file, self._config)
        self._native: _native.Gateway | None = None
        # Starting takes time, and two threads must not start two gateways.
        self._turn = threading.Lock()
        self._process = os.getpid()

    def start(self) -> Self:
        """Opens the repo and starts listening. Returns when the gateway accepts requests. Has no effect if it is
        running.

        Returns:
            The gateway itself.

        Raises:
            InvalidInputError: The configuration file is wrong by now, or no interface has the address.
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
        """Stops the gateway and releases the repo. Stopping twice is not an error.

        Running transfers have ``server.shutdown_grace_seconds`` (30) to finish. A transfer that is no longer read,
        such as an abandoned iterator of `chunks`, takes all of this time. A gateway that is garbage-collected without
        `stop` stops in the background, and only the exit of the interpreter waits for it.

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
        """Whether the gateway is serving requests.

        Example:
            >>> gateway.running
            True
        """
        return self._native is not None and self._native.running

    @property
    def url(self) -> str:
        """URL of the gateway, such as ``http://127.0.0.1:8080``. The first one if it listens on several addresses.

        Raises:
            RuntimeError: The gateway is not running.

        Example:
            >>> gateway.url == url
            True
        """
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        """All URLs at which HTTP is served.

        Raises:
            RuntimeError: The gateway is not running.

        Example:
            >>> gateway.urls[0] == url
            True
        """
        return self._started().urls

    @property
    def grpc_addresses(self) -> list[str]:
        """Addresses at which gRPC is served. Empty if gRPC is off.

        Raises:
            RuntimeError: The gateway is not running.

        Example:
            >>> gateway.grpc_addresses
            []
        """
        return self._started().grpc_addresses

    @property
    def repo(self) -> str:
        """Directory of the repo.

        Raises:
            RuntimeError: The gateway is not running.

        Example:
            >>> gateway.repo == client.stats()["repo"]
            True
        """
        return self._started().repo

    def client(self, token: str | None = None, *, timeout: float | None = None) -> Client:
        """Returns a new :class:`Client` of this gateway.

        Args:
            token: API key or token, if the gateway authenticates its callers (``auth.enabled``). By default the client
                may do everything, as other commands on the repo may.
            timeout: As of :class:`Client`.

        Raises:
            RuntimeError: The gateway is not running.

        Example:
            >>> with gateway.client() as client:
            ...     client.cat(client.add(b"hello"))
            b'hello'
        """
        return Client(self.url, token or self._local_token(), timeout=timeout)

    def async_client(self, token: str | None = None, *, timeout: float | None = None) -> AsyncClient:
        """Returns a new :class:`AsyncClient` of this gateway.

        Args:
            token: As of :meth:`client`.
            timeout: As of :class:`AsyncClient`.

        Raises:
            RuntimeError: The gateway is not running.

        Example:
            >>> async with gateway.async_client() as client:
            ...     await client.cat(await client.add(b"hello"))
            b'hello'
        """
        return AsyncClient(self.url, token or self._local_token(), timeout=timeout)

    def _local_token(self) -> str | None:
        """Returns the token of commands on the repo. There is none without ``auth.enabled``."""
        try:
            return pathlib.Path(self.repo, "api-token").read_text()
        except FileNotFoundError:
            return None

    def _exclusive(self) -> threading.Lock:
        """Returns the lock. Raises an error in a forked process, where a thread of the parent may hold the lock
        forever."""
        if self._is_inherited():
            raise ForkedError(f"the gateway belongs to process {self._process}, which was forked: stop it there")
        return self._turn

    def _is_inherited(self) -> bool:
        return os.getpid() != self._process

    def _started(self) -> _native.Gateway:
        # A forked child cannot tell whether the gateway still runs in its parent.
        if self._native is None or not (self._native.running or self._is_inherited()):
            raise RuntimeError("the gateway is not running: start it with `with`, or with start()")
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
    """Merges the sections of both mappings, key by key."""
    sections = dict(config)
    for name, keys in overrides.items():
        given = sections.get(name)
        both = isinstance(given, Mapping) and isinstance(keys, Mapping)
        sections[name] = {**given, **keys} if both else keys  # type: ignore[dict-item]
    return sections
