"""Tests specific to asyncio: concurrent tasks, and cancelled tasks."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import socket
import threading
import warnings
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

import ipfrs
from conftest import url_of
from ipfrs import _saving

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(main, 60))


def test_tasks_share_node_without_blocking_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with ipfrs.AsyncNode(tmp_path) as node:

            async def round_trip(at: int) -> None:
                data = f"{at} ".encode() * 10_000
                assert await node.cat(await node.add(data)) == data

            await asyncio.gather(*(round_trip(at) for at in range(100)))

    run(main())


def test_async_node_opens_on_first_use(tmp_path: Path) -> None:
    async def main() -> None:
        node = ipfrs.AsyncNode(tmp_path / "repo")
        assert not (tmp_path / "repo").exists()
        assert await node.cat(await node.add(b"hello")) == b"hello"
        await node.close()

    run(main())


def test_cancelled_open_releases_repo(tmp_path: Path) -> None:
    async def main() -> None:
        for steps in range(20):
            node = ipfrs.AsyncNode(tmp_path)
            opening = asyncio.ensure_future(node.stats())
            for _ in range(steps):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait([opening])
            assert opening.cancelled() or opening.exception() is None
            await node.close()
        async with ipfrs.AsyncNode(tmp_path) as node:
            assert await node.cat(await node.add(b"hello")) == b"hello"

    run(main())


def test_async_iterables_are_streamed(tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(1000):
            await asyncio.sleep(0)
            yield b"%d," % at

    async def with_none() -> AsyncIterator[Any]:
        yield None
        yield b"more"

    async def main() -> None:
        async with ipfrs.AsyncNode(tmp_path) as node:
            cid = await node.add(pieces())
            assert await node.cat(cid) == b"".join(b"%d," % at for at in range(1000))
            with pytest.raises(TypeError, match="piece of the content.*not NoneType"):
                await node.add(with_none())
            with pytest.raises(TypeError, match="piece of the content.*not NoneType"):
                await node.import_car(with_none())
            archive = node.export_car(cid)
            assert await node.import_car(archive) == [cid]

    run(main())
    with ipfrs.Node(tmp_path) as node, pytest.raises(TypeError, match="AsyncNode"):
        node.add(pieces())  # type: ignore[arg-type]


def test_the_loop_runs_while_a_file_is_read(tmp_path: Path) -> None:
    """The same loop fills a pipe, so reading the pipe on the loop would never finish."""
    read_end, write_end = os.pipe()

    async def main() -> None:
        async with ipfrs.AsyncNode(tmp_path) as node:
            with open(read_end, "rb", buffering=0) as file:
                adding = asyncio.create_task(node.add(file))
                for _ in range(5):
                    await asyncio.sleep(0)
                    os.write(write_end, b"hello ")
                os.close(write_end)
                assert await node.cat(await adding) == b"hello " * 5

    run(main())


class Pipe:
    """A file that sets an event when it is read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.is_read = threading.Event()

    def read(self, size: int, /) -> bytes:
        self.is_read.set()
        return os.read(self._descriptor, size)


def test_import_blocked_on_pipe_can_be_cancelled(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()

    async def main() -> None:
        async with ipfrs.AsyncNode(tmp_path) as node:
            pipe = Pipe(read_end)
            adding = asyncio.create_task(node.add(pipe))
            await asyncio.to_thread(pipe.is_read.wait)
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
        # The reading thread ends only now.
        os.close(write_end)

    run(main())
    os.close(read_end)


def test_file_opened_after_cancelled_import_is_closed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def main() -> None:
        async with ipfrs.AsyncNode(tmp_path / "repo") as node:
            importing = asyncio.create_task(node.import_car(pipe))
            # A thread now opens the pipe, and blocks until another process opens it for writing.
            await asyncio.sleep(0)
            importing.cancel()
            write_end = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
            with pytest.raises(asyncio.CancelledError):
                await importing
            os.close(write_end)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        run(main())
        gc.collect()
    assert [str(warning.message) for warning in told if "pipe" in str(warning.message)] == []


async def until_asked(silent: socket.socket) -> socket.socket:
    """Returns the connection of a client that is waiting for a response."""
    loop = asyncio.get_running_loop()
    connection, _ = await loop.sock_accept(silent)
    connection.setblocking(False)
    assert await loop.sock_recv(connection, 1) != b""
    return connection


async def hung_up(connection: socket.socket) -> None:
    """Waits until the peer has closed the connection."""
    loop = asyncio.get_running_loop()
    while await loop.sock_recv(connection, 65_536):
        pass
    connection.close()


def test_cancelling_a_task_ends_its_request() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.setblocking(False)
            async with ipfrs.AsyncClient(url_of(silent)) as client:
                task = asyncio.create_task(client.version())
                connection = await until_asked(silent)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await hung_up(connection)
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.version(), 0.01)

    run(main())


def test_cancelled_import_leaves_no_pin(tmp_path: Path) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield b"x" * 1_000_000
            asked.set()
            await asyncio.Event().wait()

        async with ipfrs.AsyncNode(tmp_path) as node:
            task = asyncio.create_task(node.add(endless()))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await node.pins() == []
            assert await node.cat(await node.add(b"hello")) == b"hello"

    run(main())


def test_a_cancelled_save_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with ipfrs.AsyncNode(tmp_path / "repo") as node:
            cid = await node.add(bytes(20_000_000))
            saving: list[asyncio.Task[str]] = []

            def told(done: int, total: object) -> None:
                saving[0].cancel()

            (tmp_path / "out").mkdir()
            saving.append(asyncio.create_task(node.save(cid, tmp_path / "out" / "file", progress=told)))
            with pytest.raises(asyncio.CancelledError):
                await saving[0]
            assert list((tmp_path / "out").iterdir()) == []

    run(main())


def test_cancelled_save_is_removed_off_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removing: list[threading.Thread] = []
    remove = shutil.rmtree

    def noted(*arguments: Any, **options: Any) -> None:
        removing.append(threading.current_thread())
        remove(*arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", noted)
    out = tmp_path / "out"
    out.mkdir()

    async def main() -> None:
        async with ipfrs.AsyncNode(tmp_path / "repo") as node:
            cid = await node.add(b"hello")
            await node.save(cid, out / "file")
            await node.export_car(cid, out / "car")
            (out / cid).mkdir()
            with pytest.raises(FileExistsError):
                await node.save(cid, out)

    run(main())
    assert len(removing) == 3 and threading.main_thread() not in removing
    assert len(list(out.iterdir())) == 3


def test_save_is_removed_when_event_loop_has_ended(tmp_path: Path) -> None:
    def built(root: str) -> Any:
        yield partial(Path(root).write_bytes, b"half")

    steps: Any = _saving._staged("bafy", str(tmp_path / "file"), True, built)
    step = next(steps)
    steps.send(step())()
    assert len(list(tmp_path.iterdir())) == 1
    steps.close()
    assert list(tmp_path.iterdir()) == []


def test_download_can_be_abandoned(tmp_path: Path) -> None:
    async def main() -> None:
        async with ipfrs.AsyncNode(tmp_path) as node:
            cid = await node.add(bytes(5_000_000))
            async for piece in node.chunks(cid):
                assert piece.nbytes
                break
            pieces = node.chunks(cid)
            await pieces.__anext__()
            await pieces.aclose()

    run(main())


def test_a_gateway_is_an_asynchronous_context_manager_too(tmp_path: Path) -> None:
    async def main() -> None:
        sections: dict[str, Any] = {"server": {"port": 0}, "grpc": {"enabled": False}}
        async with ipfrs.Gateway(sections, repo=tmp_path) as gateway, gateway.async_client() as client:
            assert await client.cat(await client.add(b"hello")) == b"hello"
        assert not gateway.running

    run(main())
