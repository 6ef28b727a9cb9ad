"""Adding and reading files, with all four classes."""

from __future__ import annotations

import array
import io
import json
import mmap
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ipfrs
from conftest import Store
from content import keystream, small_tree

SEED, SIZE = "ipfrs-262145", 262_145
# Content ID of these bytes, from `ipfs add` (Kubo 0.44).
KUBO_CID = "QmYJuERxfYR6BYMiQ5pM9mwYFhKXyAsH48eHuxa8NJDD2G"


@pytest.fixture(scope="module")
def data() -> bytes:
    return keystream(SEED, SIZE)


# All expected values are from Kubo: `ipfs add -Q --only-hash` with the options of the same names.
@pytest.mark.parametrize(
    ("options", "cid"),
    [
        ({}, KUBO_CID),
        ({"profile": "unixfs-v0-2015"}, KUBO_CID),
        ({"profile": "unixfs-v1-2025"}, "bafkreifpsjit4wicdaedjadm4ngh67k23rotniq3ilnolwbgxhvyptjo2a"),
        (
            {"profile": "unixfs-v0-2015", "cid_version": 1},
            "bafybeiaqabwmcyypfvlw4nfrbkqfgpqrhu2wlgmgsntds42yxio4kz6aqa",
        ),
        ({"raw_leaves": True}, "Qmduw53ttSs134GRPtfUsPtqvYcyjxSzWHKLuDaB253oV9"),
        ({"trickle": True}, "Qme9toZLVEXpTchWQoGykhQzjdYWJwmj7MUs95fuBeJLuV"),
        ({"chunker": "size-65536"}, "QmS8cs3R16c1Nssgv8vT9MDysofX1EMjeV5HJ2K3QYGMLL"),
        ({"chunker": "rabin"}, "Qmb4maxLttxS7wi35CwkPaVGgQFQTSGiLFfgTccPJfTqwD"),
        ({"chunker": "buzhash"}, "QmcfuLT1MPDKpThS1WPGq3NtzbwLpApGfevxayEMJHgEcJ"),
        (
            {"profile": "unixfs-v0-2015", "hash": "blake3"},
            "bafyb4ifyllifsys4wsrq2svhwc7jenj4tkrjugzemnk5mxstofjdpuasa4",
        ),
        ({"inline_limit": 32}, "QmPnr4iUtd48FLJPemWWBiE2eDreigQdswc6XBCPoDP7rs"),
        ({"mode": 0o644}, "QmNjFoWnEQjpBqSARNDz4EyDb8jx96tbr4bwvqkQ9MHfZZ"),
        ({"mtime": 1_700_000_000}, "QmXHGcjWT18JNhyeZ9JxGNkezhywnQ1yFGM57xQUQdoreR"),
    ],
)
def test_content_ids_are_those_of_kubo(store: Store, data: bytes, options: Any, cid: str) -> None:
    assert store.add(data, **options) == cid
    assert store.cat(cid) == data


def test_content_of_one_byte_and_of_none(store: Store) -> None:
    # The expected values are from Kubo.
    assert store.add(b"") == "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH"
    assert store.add(keystream("ipfrs-1", 1)) == "QmXDSGwJj4q73CE2RifQA8RL7cUouC2zY5V7P8nqGkescX"
    for options in ({"inline": True}, {"inline_limit": 32}):
        assert store.add(keystream("ipfrs-1", 1), **options) == "bafyaacika4eaeeqbbmmac"
    assert store.cat("QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH") == b""
    assert store.cat("bafyaacika4eaeeqbbmmac") == keystream("ipfrs-1", 1)


@pytest.mark.parametrize(
    "made",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: array.array("B", data),
        lambda data: np.frombuffer(data, "uint8"),
        lambda data: np.asfortranarray(np.frombuffer(data, "uint8").reshape(5, -1)),
        io.BytesIO,
        lambda data: [data],
        lambda data: (data[at : at + 1000] for at in range(0, len(data), 1000)),
        lambda data: iter([data[:100], b"", memoryview(data)[100:200_000], bytearray(data[200_000:])]),
    ],
    ids="bytes bytearray memoryview array numpy fortran file list generator mixed".split(),
)
def test_sources_with_same_bytes_get_same_content_id(store: Store, data: bytes, made: Callable[[bytes], Any]) -> None:
    assert store.add(made(data)) == KUBO_CID


def test_paths_and_files_of_this_machine_are_read(store: Store, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ünï çödé.bin"
    path.write_bytes(data)
    assert store.add(path) == KUBO_CID
    assert store.add(str(path)) == KUBO_CID
    with open(path, "rb") as file:
        assert store.add(file) == KUBO_CID
    with open(path, "rb", buffering=0) as raw:
        assert store.add(raw) == KUBO_CID
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert store.add(mapped) == KUBO_CID


def test_producer_may_reuse_buffer(store: Store, data: bytes) -> None:
    def reused(size: int) -> Iterator[memoryview]:
        buffer = bytearray(size)
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            buffer[: len(piece)] = piece
            yield memoryview(buffer)[: len(piece)]

    assert store.add(reused(1_000)) == KUBO_CID
    assert store.add(reused(262_144)) == KUBO_CID


def test_only_hash_stores_nothing(fresh: Store) -> None:
    cid = fresh.add(b"not stored by only_hash", only_hash=True, cid_version=1)
    assert not fresh.has(cid)


def test_wrapping_keeps_the_name(store: Store, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_bytes(b"hello")
    for source, options in ((b"hello", {"name": "own.txt"}), (tmp_path / "own.txt", {})):
        folder = store.add(source, wrap=True, **options)  # type: ignore[arg-type]
        assert [(entry.name, entry.kind, entry.size) for entry in store.ls(folder)] == [("own.txt", "file", 5)]
        assert store.cat(folder + "/own.txt") == b"hello"


# The expected values are from Kubo: `ipfs add -Q -r` of the same tree.
@pytest.mark.parametrize(
    ("options", "cid"),
    [
        ({}, "QmT5AeDbdf8DLvpi84V1m1xhXtxHbgXVLQ7WFT1c58wSgH"),
        ({"hidden": True}, "QmeLxrYnRVwK4AXx4NgXAPN2XMudDWFC597UJSrnZ1zg1n"),
        (
            {"profile": "unixfs-v0-2015", "cid_version": 1},
            "bafybeidkmtf7jc3k7od32s6vnymrbpeqx4i6ml6buvfiqpzl4og6npintm",
        ),
        ({"profile": "unixfs-v1-2025", "hidden": True}, "bafybeig2qb7wn7prd3i2dnoe7feaugrql6n7uajq2becewjqzzv2vvihee"),
    ],
)
def test_directories_are_those_of_kubo(store: Store, tmp_path: Path, options: Any, cid: str) -> None:
    assert store.add_dir(small_tree(tmp_path / "small"), **options) == cid
    names = {entry.name: entry.kind for entry in store.ls(cid)}
    expected = {"a": "directory", "empty": "directory", "link": "symlink", "z": "file", "ünï çödé": "file"}
    assert names == ({**expected, ".hidden": "file"} if "hidden" in options else expected)
    assert store.cat(f"/ipfs/{cid}/a/b/hello.txt") == b"hello\n"
    assert store.cat(f"ipfs://{cid}/ünï çödé") == b"u"


def test_paths_are_the_same_with_any_prefix(store: Store, tmp_path: Path) -> None:
    cid = store.add_dir(small_tree(tmp_path / "small"))
    for root in (cid, f"/{cid}", f"//{cid}", f"/ipfs/{cid}", f"ipfs://{cid}", f"ipfs:{cid}", f"IPFS:/{cid}"):
        assert store.stat(root).kind == "directory", root
        assert store.stat(f"{root}/z").kind == "file", root
    # Below /ipld, a directory is the value that its block encodes.
    for root in (f"/ipld/{cid}", f"ipld://{cid}", f"ipld:{cid}"):
        assert store.stat(root).cid == cid, root
    names = sorted(os.fsencode(entry.name) for entry in store.ls(cid))
    found = store.stat(f"/ipld/{cid}/Links/{names.index(b'z')}/Hash")
    assert (found.kind, found.cid) == ("file", store.stat(f"{cid}/z").cid)


def test_a_symlink_that_is_named_is_followed(store: Store, tmp_path: Path) -> None:
    tree = small_tree(tmp_path / "small")
    (tmp_path / "to-file").symlink_to("small/z")
    (tmp_path / "to-tree").symlink_to("small")
    assert store.add(tmp_path / "to-file") == store.add(tree / "z")
    assert store.add_dir(tmp_path / "to-tree") == store.add_dir(tree)


def test_dereferenced_symlinks_are_their_targets(store: Store, tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    tree.mkdir()
    (outside / "inner" / "file").write_bytes(b"content")
    os.symlink("../outside", tree / "directory")
    os.symlink("../outside/inner/file", tree / "file")
    copied = shutil.copytree(tree, tmp_path / "copied")
    calls: list[tuple[int, Any]] = []
    cid = store.add_dir(tree, dereference_symlinks=True, progress=lambda done, total: calls.append((done, total)))
    assert cid == store.add_dir(copied) != store.add_dir(tree)
    assert calls[-1][0] == 14
    assert store.add(tree / "file", dereference_symlinks=True) == store.add(b"content")
    os.symlink("..", outside / "inner" / "loop")
    with pytest.raises(ipfrs.InvalidInputError, match="leads back"):
        store.add_dir(tree, dereference_symlinks=True)
    (outside / "inner" / "loop").unlink()
    os.symlink("nothing", tree / "dangling")
    with pytest.raises(FileNotFoundError, match="dangling"):
        store.add_dir(tree, dereference_symlinks=True)


def test_progress_reports_done_and_total_bytes(store: Store, tmp_path: Path, data: bytes) -> None:
    for at in range(3):
        (tmp_path / f"{at}.bin").write_bytes(data)
    calls: list[tuple[int, Any]] = []

    def told(done: int, total: Any) -> None:
        calls.append((done, total))

    store.add_dir(tmp_path, progress=told)
    assert calls[-1] == (3 * SIZE, 3 * SIZE)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    calls.clear()
    store.add(io.BytesIO(data), progress=told)
    assert calls[-1][0] == SIZE


class Bar:
    """A progress bar with tqdm's interface."""

    def __init__(self) -> None:
        self.total: Any = None
        self.n = 0

    def update(self, n: int = 1) -> None:
        self.n += n


def test_progress_may_be_a_bar(store: Store, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file.bin").write_bytes(data)
    bar = Bar()
    store.add_dir(tmp_path, progress=bar)
    assert (bar.n, bar.total) == (SIZE, SIZE)
    for source in (data, io.BytesIO(data), tmp_path / "file.bin"):
        bar = Bar()
        store.add(source, progress=bar)
        assert bar.n == SIZE


def test_progress_true_shows_a_bar_of_tqdm(
    blocking: Store, tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cid = blocking.add(data, progress=True)
    assert "B/s" in capsys.readouterr().err
    blocking.save(cid, tmp_path / "saved", progress=True)
    assert "B/s" in capsys.readouterr().err
    blocking.add(data, progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ipfrs.MissingPackageError, match="pip install tqdm"):
        blocking.add(data, progress=True)


def test_an_error_in_progress_ends_the_import(store: Store, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file.bin").write_bytes(data)

    def failing(done: int, total: Any) -> None:
        raise RuntimeError("no more, thanks")

    with pytest.raises(RuntimeError, match="no more, thanks"):
        store.add_dir(tmp_path, progress=failing)


def test_ranges_are_cut_to_the_file(store: Store, data: bytes) -> None:
    cid = store.add(data)
    for offset, length in ((0, 0), (0, 1), (262_143, 2), (262_144, None), (SIZE - 1, 10), (SIZE, 5), (SIZE + 9, 1)):
        expected = data[offset:] if length is None else data[offset : offset + length]
        assert store.cat(cid, offset, length) == expected, (offset, length)
        assert b"".join(store.chunks(cid, offset, length)) == expected, (offset, length)


def test_readinto_fills_buffer_up_to_end_of_file(store: Store, data: bytes) -> None:
    cid = store.add(data)
    buffer = bytearray(b"?" * 20)
    assert store.readinto(cid, buffer, SIZE - 5) == 5
    assert buffer == data[-5:] + b"?" * 15
    numbers = np.empty(SIZE // 4, "<u4")
    assert store.readinto(cid, numbers, 1) == SIZE - 1
    assert numbers.tobytes() == data[1:]
    assert store.readinto(cid, bytearray(), 3) == 0
    with pytest.raises((ValueError, TypeError, BufferError)):
        store.readinto(cid, b"read-only")


def test_chunks_are_read_only_and_can_be_abandoned(store: Store, data: bytes) -> None:
    pieces = store.chunks(store.add(data))
    first = next(pieces)
    assert first.readonly and first.nbytes > 0 and bytes(first) == data[: first.nbytes]
    pieces.close()
    assert bytes(first) == data[: first.nbytes]


def test_open_gives_a_file_of_the_standard_library(node: ipfrs.Node, client: ipfrs.Client) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("inner.txt", b"x" * 100_000)
    for store in (node, client):
        with store.open(store.add(packed.getvalue())) as file, zipfile.ZipFile(file) as archive:
            assert archive.read("inner.txt") == b"x" * 100_000
        with store.open(store.add(json.dumps({"answer": [42]}).encode())) as file:
            assert json.load(file) == {"answer": [42]}
        with store.open(store.add(b"one\ntwo\n")) as file, io.TextIOWrapper(file) as lines:
            assert lines.read().splitlines() == ["one", "two"]


def test_open_seeks_as_files_do(store: Store, data: bytes) -> None:
    with store.open(store.add(data)) as file:
        assert file.read(3) == data[:3]
        assert file.tell() == 3
        assert file.seek(-4, os.SEEK_END) == SIZE - 4
        assert file.read() == data[-4:]
        assert file.read(1) == b""
        assert file.seek(10) == 10
        assert file.seek(5, os.SEEK_CUR) == 15
        buffer = bytearray(300_000)
        assert file.readinto(buffer) == SIZE - 15
        assert buffer[: SIZE - 15] == data[15:]
        with pytest.raises(ValueError):
            file.seek(-1)
        with pytest.raises(ValueError):
            file.seek(0, 9)
    assert file.closed
    with pytest.raises(ValueError):
        file.read()


def test_stat_tells_kind_size_mode_and_time(store: Store, data: bytes) -> None:
    stat = store.stat(store.add(data, mode=0o600, mtime=1_700_000_000.5))
    assert (stat.kind, stat.size, stat.links, stat.mode, stat.mtime) == ("file", SIZE, 2, 0o600, 1_700_000_000.5)
    folder = store.add(b"hello", name="a", wrap=True)
    stat = store.stat(folder)
    assert (stat.cid, stat.kind, stat.size, stat.mode, stat.mtime) == (folder, "directory", 0, None, None)
    assert store.stat(folder + "/a").cid == store.resolve(f"/ipfs/{folder}/a") == store.add(b"hello")
    assert store.stat(store.put(b"\xa0", codec="dag-cbor")).kind == "node"


def test_nocopy_leaves_content_in_its_file(tmp_path: Path) -> None:
    data = keystream("nocopy", 1_000_000)
    file = tmp_path / "files" / "data.bin"
    file.parent.mkdir()
    file.write_bytes(data)
    config: dict[str, Any] = {"store": {"filestore_root": str(file.parent)}}

    def check(store: Store, repo: Path) -> None:
        cid = store.add(file, nocopy=True, cid_version=1)
        assert cid == store.add(data, only_hash=True, cid_version=1)
        assert store.cat(cid) == data
        assert sum(path.stat().st_size for path in repo.rglob("*.car")) < len(data) / 2
        # The blocks that are there already are not stored either.
        assert store.add(data, fscache=True, cid_version=1) == cid
        assert sum(path.stat().st_size for path in repo.rglob("*.car")) < len(data) / 2
        with pytest.raises(ipfrs.InvalidInputError, match="pass the path"):
            store.add(data, nocopy=True)
        with pytest.raises(ipfrs.InvalidInputError):
            store.add(file, nocopy=True, raw_leaves=False)

    with ipfrs.Node(tmp_path / "repo", config=config) as node:
        check(node, tmp_path / "repo")
    other = tmp_path / "other"
    listeners: dict[str, Any] = {"server": {"port": 0}, "grpc": {"enabled": False}, "api": {"enabled": False}}
    with ipfrs.Gateway({**config, **listeners}, repo=other) as gateway, gateway.client() as client:
        check(client, other)
