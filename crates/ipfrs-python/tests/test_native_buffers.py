"""Memory passed between Python and the native module: its owner, its lifetime, and who may write to it."""

from __future__ import annotations

import array
import gc
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ipfrs
from conftest import url_of
from ipfrs._native import Backend

DATA = bytes(range(256)) * 1_024


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    backend = Backend.node(str(tmp_path / "repo"), None, False)
    yield backend
    backend.close()


def put(backend: Backend, data: object = DATA) -> str:
    cid = backend.put(data, "raw", "sha2-256", False)
    assert isinstance(cid, str)
    return cid


def test_a_view_outlives_the_node_and_its_files(backend: Backend, tmp_path: Path) -> None:
    view = backend.get(put(backend))
    part = view[256:512]
    backend.close()
    shutil.rmtree(tmp_path / "repo")
    del view
    gc.collect()
    assert bytes(part) == DATA[:256]


def test_views_of_block_share_read_only_memory(backend: Backend) -> None:
    numpy = pytest.importorskip("numpy")
    cid = put(backend)
    arrays = [numpy.frombuffer(backend.get(cid), dtype="u1") for _ in range(2)]
    assert numpy.shares_memory(*arrays)
    assert not arrays[0].flags.writeable
    with pytest.raises(TypeError, match="read-only"):
        backend.get(cid)[0] = 1
    with pytest.raises(BufferError, match="not writable"):
        backend.readinto(cid, backend.get(cid), 0)


def test_view_exporter_cannot_be_created_from_python(backend: Backend) -> None:
    block = backend.get(put(backend)).obj
    with pytest.raises(TypeError, match="ipfrs makes these itself"):
        type(block)()
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (type(block),), {})


@pytest.mark.skipif(sys.version_info < (3, 10), reason="any type that is made at run time can be changed in 3.9")
def test_view_exporter_type_is_immutable(backend: Backend) -> None:
    block = backend.get(put(backend)).obj
    with pytest.raises(TypeError, match="immutable type"):
        type(block).__new__ = lambda cls: object.__new__(cls)  # type: ignore[assignment]


@pytest.mark.parametrize("fails", [False, True])
def test_borrowed_buffer_is_released(backend: Backend, fails: bool) -> None:
    data = bytearray(DATA)
    codec = "no-such-codec" if fails else "raw"
    try:
        backend.put(data, codec, "sha2-256", False)
        backend.put_many([data, data], codec, "sha2-256", False)
        backend.add(data, {"chunker": "rubbish"} if fails else {})
    except ipfrs.InvalidInputError:
        assert fails
    try:
        backend.readinto("rubbish" if fails else put(backend), data, 0)
    except ipfrs.InvalidInputError:
        assert fails
    # A bytearray cannot grow while its buffer is borrowed.
    data.append(1)


def test_buffer_sent_to_daemon_is_released_after_call(client: ipfrs.Client) -> None:
    data = bytearray(DATA)
    for _ in range(50):
        client.add(data, only_hash=True)
        data.append(1)


def test_buffer_not_read_by_daemon_is_released() -> None:
    data = bytearray(30_000_000)
    with socket.create_server(("127.0.0.1", 0)) as deaf, ipfrs.Client(url_of(deaf), timeout=0.1) as client:
        with pytest.raises(TimeoutError):
            client.add(data)
        data.append(1)


def test_a_buffer_may_change_once_the_call_is_over(backend: Backend) -> None:
    data = bytearray(DATA)
    cid = put(backend, data)
    root, _ = backend.add(data, {})
    data[:] = bytes(len(data))
    assert backend.get(cid) == DATA
    assert backend.read(root, 0, None) == DATA


def test_buffers_of_any_item_size_are_accepted(backend: Backend) -> None:
    numbers = array.array("d", [1.5, 2.5])
    assert backend.get(put(backend, numbers)) == numbers.tobytes()
    room = array.array("d", [0.0, 0.0])
    assert backend.readinto(put(backend, numbers), room, 0) == 16
    assert room == numbers


def test_non_contiguous_buffer_is_rejected_with_remedy(backend: Backend) -> None:
    with pytest.raises(ipfrs.InvalidInputError, match="are not contiguous.*copy it first"):
        put(backend, memoryview(DATA)[::2])
    with pytest.raises(TypeError, match="bytes-like object is required, not 'str'"):
        put(backend, "text")


@pytest.mark.parametrize("size", [0, 1, 2, 64 * 1_024, 64 * 1_024 + 1, 3_000_000])
def test_a_file_of_any_size_is_read_whole_and_in_part(backend: Backend, size: int) -> None:
    data = (DATA * (size // len(DATA) + 1))[:size]
    root, _ = backend.add(data, {})
    assert backend.read(root, 0, None) == data
    assert backend.read(root, size // 2, 10) == data[size // 2 : size // 2 + 10]
    assert backend.read(root, size + 1, None) == b""
    room = bytearray(b"x" * (size + 3))
    assert backend.readinto(root, room, 0) == size
    assert room == data + b"xxx"


def test_writer_fails_after_backend_is_closed(backend: Backend) -> None:
    writer = backend.begin_add({})
    writer.write(DATA)
    backend.close()
    with pytest.raises(ipfrs.ClosedError):
        writer.finish()


def test_incomplete_file_read_raises(backend: Backend) -> None:
    root, _ = backend.add(DATA * 8, {"pin": False, "raw_leaves": True})
    leaf = put(backend, DATA)
    backend.remove([leaf], False)
    with pytest.raises(ipfrs.NotFoundError, match=leaf):
        backend.read(root, 0, None)
    with pytest.raises(ipfrs.NotFoundError, match=leaf):
        backend.readinto(root, bytearray(len(DATA)), 0)
