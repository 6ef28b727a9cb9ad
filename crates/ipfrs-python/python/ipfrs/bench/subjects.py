"""Benchmark subjects: ways to push and fetch content, sequentially and concurrently."""

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
"""Name of the control."""


@dataclass(frozen=True)
class Fetched:
    """Times at which one item was fetched, in seconds since the start of its attempt."""

    index: int
    start: float
    end: float


@dataclass(frozen=True)
class Attempt:
    """One pass over all items. `seconds` is the wall time from before the first to after the last."""

    seconds: float
    items: tuple[Fetched, ...]


class Subject(Protocol):
    """A way to push and fetch content."""

    name: str

    def push(self, data: bytes) -> str:
        """Stores an item and returns its content ID."""

    def fetch(self, cid: str) -> Any:
        """Returns one item as an object that ``bytes`` accepts."""

    def sequential(self, cids: Sequence[str]) -> Attempt:
        """Fetches one item after the other."""

    def concurrent(self, cids: Sequence[str]) -> Attempt:
        """Fetches all items concurrently."""


class Pool:
    """A pool of threads that are already running, and execute the same work concurrently."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._executor = ThreadPoolExecutor(threads)
        everybody = threading.Barrier(threads)
        list(self._executor.map(lambda _: everybody.wait(), range(threads)))

    def together(self, work: Callable[[], T]) -> list[T]:
        """Runs `work` on each thread, and returns the results."""
        return [future.result() for future in [self._executor.submit(work) for _ in range(self._threads)]]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown()


class Blocking:
    """Blocking calls from one or many threads."""

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
        """Fetches all items concurrently, with one thread per item or with the existing pool."""
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
        # A thread that is free takes the next item.
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
    """Returns the control, a lower bound: numpy copies the item in memory, which also does not need the GIL."""
    held: list[numpy.ndarray[Any, Any]] = []

    def push(data: bytes) -> str:
        held.append(numpy.frombuffer(data, numpy.uint8))
        return str(len(held) - 1)

    return Blocking(CONTROL, None, push, lambda cid: held[int(cid)].copy(), pool)


class Aioipfs:
    """The package aioipfs. It has no threads, so concurrent calls are tasks of one event loop."""

    name = "aioipfs"

    def __init__(self, url: str) -> None:
        import aioipfs  # type: ignore[import-not-found,import-untyped,unused-ignore]

        where = urlsplit(url)
        self._loop = asyncio.new_event_loop()

        async def connect() -> Any:
            return aioipfs.AsyncIPFS(host=where.hostname, port=where.port or 80, scheme=where.scheme)

        self._client = self._loop.run_until_complete(connect())

    def push(self, data: bytes) -> str:
        """Stores an item and returns its content ID."""
        return str(self._loop.run_until_complete(self._client.add_bytes(data))["Hash"])

    def fetch(self, cid: str) -> bytes:
        """Returns one item."""
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
        """Fetches all items concurrently."""

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
        """Closes the connections."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


def _complete(items: list[Fetched], cids: Sequence[str]) -> tuple[Fetched, ...]:
    """Checks that no item is missing, because an exception in a thread is only printed there."""
    if len(items) != len(cids):
        raise RuntimeError(f"{len(cids) - len(items)} of {len(cids)} items were not fetched")
    return tuple(sorted(items, key=lambda item: item.end))


@contextlib.contextmanager
def subjects(
    names: Sequence[str], url: str | None, kubo_url: str | None, threads: int | None
) -> Iterator[list[Subject]]:
    """Returns the subjects with these names: ``node``, ``client``, ``kubo``, ``control``.

    Args:
        names: Names of the subjects.
        url: URL of the daemon for the client; None starts one in the process.
        kubo_url: URL of the RPC API for the Kubo-compatible client; None uses the daemon's.
        threads: Number of threads of a pool that is started before the measurement; None starts one thread per item.
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
    """Runs a daemon in the process, on a port chosen by the system. Its store is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="ipfrs-bench-") as repo:
        with Gateway(repo=repo, server={"port": 0}, grpc={"enabled": False}) as running:
            yield running


def _kubo_compatible(stack: contextlib.ExitStack, url: str, pool: Pool | None) -> Iterator[Subject]:
    if importlib.util.find_spec("ipfshttpclient"):
        import ipfshttpclient  # type: ignore[import-not-found,import-untyped,unused-ignore]

        where = urlsplit(url)
        # Not created with connect(), which rejects versions of Kubo that are newer than the package.
        client = ipfshttpclient.Client(f"/dns/{where.hostname}/tcp/{where.port or 80}/{where.scheme}", session=True)
        stack.callback(client.close)
        yield Blocking("ipfshttpclient", client, client.add_bytes, client.cat, pool)
    if importlib.util.find_spec("aioipfs"):
        tasks = Aioipfs(url)
        stack.callback(tasks.close)
        yield tasks
