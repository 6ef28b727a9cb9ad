"""What is measured: ways to push and fetch content, one after the other and at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import numpy

from .._gateway import Gateway
from .._sync import Client, Node

T = TypeVar("T")

CONTROL = "numpy.copy"
"""The name of the control."""


@dataclass(frozen=True)
class Fetched:
    """When one item was fetched, in seconds since the clock of its attempt started."""

    index: int
    start: float
    end: float


@dataclass(frozen=True)
class Attempt:
    """All items fetched once. `seconds` is wall time, from before the first to behind the last."""

    seconds: float
    items: tuple[Fetched, ...]


class Subject(Protocol):
    """One way to push and fetch."""

    name: str

    def push(self, data: bytes) -> str:
        """Stores an item; gives its content ID."""

    def fetch(self, cid: str) -> Any:
        """One item, as something that ``bytes`` takes."""

    def sequential(self, cids: Sequence[str]) -> Attempt:
        """Fetches one item after the other."""

    def concurrent(self, cids: Sequence[str]) -> Attempt:
        """Fetches all items at the same time."""


class Pool:
    """Threads that run already, and all do the same when they are told to."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._executor = ThreadPoolExecutor(threads)
        everybody = threading.Barrier(threads)
        list(self._executor.map(lambda _: everybody.wait(), range(threads)))

    def together(self, work: Callable[[], T]) -> list[T]:
        """What `work` gives on each of the threads."""
        return [future.result() for future in [self._executor.submit(work) for _ in range(self._threads)]]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown()


class Blocking:
    """Calls that block, from one thread or from many."""

    def __init__(self, name: str, client: Any, push: Any, fetch: Any, threads: Pool | None) -> None:
        self.name = name
        self.client = client
        self.push = push
        self.fetch = fetch
        self._threads = threads

    def sequential(self, cids: Sequence[str]) -> Attempt:
        """Fetches one item after the other."""
        begin = time.perf_counter()
        items = [self._timed(begin, index, cid) for index, cid in enumerate(cids)]
        return Attempt(time.perf_counter() - begin, tuple(items))

    def concurrent(self, cids: Sequence[str]) -> Attempt:
        """Fetches all items at the same time: a thread for each, or the pool that there is."""
        return self._on_new_threads(cids) if self._threads is None else self._on_pool(self._threads, cids)

    def _on_new_threads(self, cids: Sequence[str]) -> Attempt:
        items: list[Fetched] = []
        begin = time.perf_counter()
        threads = [
            threading.Thread(target=lambda index, cid: items.append(self._timed(begin, index, cid)), args=numbered)
            for numbered in enumerate(cids)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Attempt(time.perf_counter() - begin, _complete(items, cids))

    def _on_pool(self, pool: Pool, cids: Sequence[str]) -> Attempt:
        # Whoever is free takes the next item.
        left = iter(enumerate(cids))
        begin = time.perf_counter()
        shares = pool.together(lambda: [self._timed(begin, index, cid) for index, cid in left])
        seconds = time.perf_counter() - begin
        return Attempt(seconds, _complete([item for share in shares for item in share], cids))

    def _timed(self, begin: float, index: int, cid: str) -> Fetched:
        start = time.perf_counter() - begin
        self.fetch(cid)
        return Fetched(index, start, time.perf_counter() - begin)


def control(pool: Pool | None) -> Blocking:
    """What has to be done at least: numpy copies the item in memory, which needs no GIL either."""
    held: list[numpy.ndarray[Any, Any]] = []

    def push(data: bytes) -> str:
        held.append(numpy.frombuffer(data, numpy.uint8))
        return str(len(held) - 1)

    return Blocking(CONTROL, None, push, lambda cid: held[int(cid)].copy(), pool)


class Aioipfs:
    """The package aioipfs. It has no threads: at the same time means tasks of one event loop."""

    name = "aioipfs"

    def __init__(self, url: str) -> None:
        import aioipfs  # type: ignore[import-not-found,import-untyped,unused-ignore]

        where = urlsplit(url)
        self._loop = asyncio.new_event_loop()

        async def connect() -> Any:
            return aioipfs.AsyncIPFS(host=where.hostname, port=where.port or 80, scheme=where.scheme)

        self._client = self._loop.run_until_complete(connect())

    def push(self, data: bytes) -> str:
        """Stores an item; gives its content ID."""
        return str(self._loop.run_until_complete(self._client.add_bytes(data))["Hash"])

    def fetch(self, cid: str) -> bytes:
        """One item."""
        data: bytes = self._loop.run_until_complete(self._client.cat(cid))
        return data

    def sequential(self, cids: Sequence[str]) -> Attempt:
        """Fetches one item after the other."""

        async def all_items() -> Attempt:
            begin = time.perf_counter()
            items = [await self._timed(begin, index, cid) for index, cid in enumerate(cids)]
            return Attempt(time.perf_counter() - begin, tuple(items))

        return self._loop.run_until_complete(all_items())

    def concurrent(self, cids: Sequence[str]) -> Attempt:
        """Fetches all items at the same time."""

        async def all_items() -> Attempt:
            begin = time.perf_counter()
            items = await asyncio.gather(*(self._timed(begin, index, cid) for index, cid in enumerate(cids)))
            return Attempt(time.perf_counter() - begin, tuple(items))

        return self._loop.run_until_complete(all_items())

    async def _timed(self, begin: float, index: int, cid: str) -> Fetched:
        start = time.perf_counter() - begin
        await self._client.cat(cid)
        return Fetched(index, start, time.perf_counter() - begin)

    def close(self) -> None:
        """Ends the connections."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


def _complete(items: list[Fetched], cids: Sequence[str]) -> tuple[Fetched, ...]:
    """An exception of a thread is printed by the thread; here it is found."""
    if len(items) != len(cids):
        raise RuntimeError(f"{len(cids) - len(items)} of {len(cids)} items were not fetched")
    return tuple(sorted(items, key=lambda item: item.end))


@contextlib.contextmanager
def subjects(
    names: Sequence[str], url: str | None, kubo_url: str | None, threads: int | None
) -> Iterator[list[Subject]]:
    """The subjects of these names: ``node``, ``client``, ``kubo``, ``control``.

    Args:
        names: Which ones.
        url: The daemon of the client; None starts one in the process.
        kubo_url: The RPC of the Kubo-compatible client; None takes the daemon's.
        threads: Threads of a pool that is started before anything is timed; None starts one for each item.
    """
    found: list[Subject] = []
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(Pool(threads)) if threads else None
        if "node" in names:
            repo = stack.enter_context(tempfile.TemporaryDirectory(prefix="ipfrs-bench-"))
            node = stack.enter_context(Node(repo))
            found.append(Blocking("Node", node, node.add, node.cat, pool))
        if ("client" in names and url is None) or ("kubo" in names and kubo_url is None and url is None):
            url = stack.enter_context(gateway()).url
        if "client" in names and url is not None:
            client = stack.enter_context(Client(url))
            found.append(Blocking("Client", client, client.add, client.cat, pool))
        if "kubo" in names:
            found.extend(_kubo_compatible(stack, kubo_url or url or "", pool))
        if "control" in names:
            found.append(control(pool))
        yield found


@contextlib.contextmanager
def gateway() -> Iterator[Gateway]:
    """A daemon in the process, on a port that the system chooses, whose store is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="ipfrs-bench-") as repo:
        with Gateway(repo=repo, server={"port": 0}, grpc={"enabled": False}) as running:
            yield running


def _kubo_compatible(stack: contextlib.ExitStack, url: str, pool: Pool | None) -> Iterator[Subject]:
    if importlib.util.find_spec("ipfshttpclient"):
        import ipfshttpclient  # type: ignore[import-not-found,import-untyped,unused-ignore]

        where = urlsplit(url)
        # Made without connect(), which refuses versions of Kubo that are newer than the package.
        client = ipfshttpclient.Client(f"/dns/{where.hostname}/tcp/{where.port or 80}/{where.scheme}", session=True)
        stack.callback(client.close)
        yield Blocking("ipfshttpclient", client, client.add_bytes, client.cat, pool)
    if importlib.util.find_spec("aioipfs"):
        tasks = Aioipfs(url)
        stack.callback(tasks.close)
        yield tasks
