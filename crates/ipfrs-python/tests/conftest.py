"""Fixtures. One test suite runs with ``Node``, ``Client``, ``AsyncNode`` and ``AsyncClient``."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, Union, cast

import pytest

import ipfrs

T = TypeVar("T")
Store = Union[ipfrs.Node, ipfrs.Client]

KINDS = ["Node", "Client", "AsyncNode", "AsyncClient"]
"""Classes for the fixture ``store``."""


class Waiting:
    """A wrapper that gives an asynchronous object the blocking methods of its counterpart, by waiting for each call."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return self._waiting(value) if callable(value) else value

    def _waiting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = self._loop.run_until_complete(_called(method, args, kwargs))
            if isinstance(result, AsyncIterator):
                return self._pieces(result)
            return Waiting(result, self._loop) if isinstance(result, ipfrs.AsyncFile) else result

        return call

    def _pieces(self, pieces: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run_until_complete(_next(pieces))
            except StopAsyncIteration:
                return

    def __enter__(self) -> Waiting:
        self._loop.run_until_complete(self._target.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.run_until_complete(self._target.__aexit__(*error))

    def __repr__(self) -> str:
        return repr(self._target)


def url_of(server: socket.socket) -> str:
    """Returns the URL of a listening socket."""
    host, port = server.getsockname()[:2]
    return f"http://{host}:{port}"


async def _called(method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    result = method(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result


async def _next(pieces: AsyncIterator[T]) -> T:
    return await pieces.__anext__()


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The event loop for all asynchronous fixtures."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture(scope="session")
def wait(loop: asyncio.AbstractEventLoop) -> Callable[[Awaitable[T]], T]:
    """Returns a function that waits for an awaitable."""

    async def awaiting(awaitable: Awaitable[T]) -> T:
        return await awaitable

    return lambda awaitable: loop.run_until_complete(awaiting(awaitable))


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ipfrs.Gateway]:
    """A daemon in this process."""
    repo = tmp_path_factory.mktemp("gateway")
    with ipfrs.Gateway(repo=repo, server={"port": 0}, grpc={"enabled": False}) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def url(gateway: ipfrs.Gateway) -> str:
    """URL of the daemon."""
    return gateway.url


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ipfrs.Node]:
    """A Node shared by all tests."""
    with ipfrs.Node(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[ipfrs.Client]:
    """A Client of the daemon, shared by all tests."""
    with ipfrs.Client(url) as client:
        yield client


@pytest.fixture(scope="session")
def anode(
    tmp_path_factory: pytest.TempPathFactory, wait: Callable[[Awaitable[None]], None]
) -> Iterator[ipfrs.AsyncNode]:
    """An AsyncNode shared by all tests."""
    node = ipfrs.AsyncNode(tmp_path_factory.mktemp("anode"))
    yield node
    wait(node.close())


@pytest.fixture(scope="session")
def aclient(url: str, wait: Callable[[Awaitable[None]], None]) -> Iterator[ipfrs.AsyncClient]:
    """An AsyncClient of the daemon, shared by all tests."""
    client = ipfrs.AsyncClient(url)
    yield client
    wait(client.close())


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> Store:
    """An instance of each of the four classes, with blocking methods."""
    names = {"Node": "node", "Client": "client", "AsyncNode": "anode", "AsyncClient": "aclient"}
    found = request.getfixturevalue(names[request.param])
    if request.param.startswith("Async"):
        return cast(ipfrs.Node, Waiting(found, loop))
    return cast(Store, found)


@pytest.fixture(params=["node", "client"])
def blocking(request: pytest.FixtureRequest) -> Store:
    """An instance of each of the two classes that several threads may use."""
    return cast(Store, request.getfixturevalue(request.param))


@pytest.fixture(params=KINDS)
def fresh(request: pytest.FixtureRequest, tmp_path: Path, url: str, loop: asyncio.AbstractEventLoop) -> Iterator[Store]:
    """Like ``store``, but for a single test. Nodes are empty."""
    made = getattr(ipfrs, request.param)(tmp_path / "repo" if request.param.endswith("Node") else url)
    if request.param.startswith("Async"):
        made = Waiting(made, loop)
    yield made
    made.close()
