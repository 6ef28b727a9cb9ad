"""Blocks, pins, archives and garbage collection, with all four classes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import ipfrs
from conftest import Store

# The content ID of `printf block | ipfs block put`, and one of a block that does not exist.
BLOCK = "bafkreicjnlfibzgy6kp3r2gnqfwdv62i2pyqhfylhixocyambdfgomtn5y"
ABSENT = "bafkreiafvynwucuwsa6bekk6pffisurkiqckyv4tphi7ndscjxaskatcny"


def test_block_round_trips(store: Store) -> None:
    assert store.put(b"block") == BLOCK
    assert store.put(np.frombuffer(b"block", "uint8")) == BLOCK
    block = store.get(BLOCK)
    assert isinstance(block, memoryview)
    assert block.readonly and block.contiguous and bytes(block) == b"block"
    for prefix in ("/ipfs/", "ipfs://", "ipfs:", "IPFS:/"):
        assert bytes(store.get(prefix + BLOCK)) == b"block", prefix
    assert (store.size(BLOCK), store.has(BLOCK)) == (5, True)


def test_codec_and_hash_are_in_the_content_id(store: Store) -> None:
    assert store.put(b"\xa0", codec="dag-cbor") == "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua"
    assert store.put(b"", hash="blake3").startswith("bafkr4i")
    with pytest.raises(ipfrs.InvalidInputError):
        store.put(b"block", codec="no-codec")
    with pytest.raises(ipfrs.UnsupportedError, match="no-hash"):
        store.put(b"block", hash="no-hash")


def test_many_blocks_keep_their_order(store: Store) -> None:
    blocks = [b"many %d" % at for at in range(999)] + [b""]
    cids = store.put_many(blocks)
    assert store.put_many(iter(blocks[:3])) == cids[:3]
    assert [bytes(block) for block in store.get_many(cids) if block is not None] == blocks
    mixed = [cids[1], ABSENT, cids[0], cids[1]]
    found = store.get_many(mixed)
    assert [None if block is None else bytes(block) for block in found] == [blocks[1], None, blocks[0], blocks[1]]
    assert store.has_many(mixed) == [True, False, True, True]
    assert bytes(store.get_many(cids * 3)[2_345] or b"") == blocks[345]
    assert store.has_many(cids * 3) == [True] * 3_000
    with pytest.raises(ipfrs.TooLargeError, match="max_batch_size"):
        store.put_many([*blocks, b"one too many"])
    assert (store.put_many([]), store.get_many([]), store.has_many([])) == ([], [], [])


def test_put_many_stores_all_or_nothing(fresh: Store) -> None:
    with pytest.raises(TypeError):
        fresh.put_many([b"stored with a str", "no bytes"])  # type: ignore[list-item]
    with pytest.raises(ipfrs.IpfrsError):
        fresh.put_many([b"stored with a large one", bytes(5 * 1024 * 1024)])
    hashes = [
        fresh.add(data, only_hash=True, cid_version=1) for data in (b"stored with a str", b"stored with a large one")
    ]
    assert fresh.has_many(hashes) == [False, False]


def test_exported_pieces_outlive_store(tmp_path: Path, url: str) -> None:
    for store in (ipfrs.Node(tmp_path), ipfrs.Client(url)):
        block = np.frombuffer(store.get(store.put(np.arange(100_000))), "int64")
        store.close()
        assert block.sum() == 4_999_950_000


def test_removed_blocks_are_gone(store: Store) -> None:
    cids = store.put_many([b"removed 1", b"removed 2"])
    store.rm(cids)
    assert store.has_many(cids) == [False, False]
    store.rm(cids, force=True)
    with pytest.raises(ipfrs.NotFoundError):
        store.rm(cids[0])


def test_pinned_blocks_cannot_be_removed(store: Store) -> None:
    cid = store.add(b"pinned, not to be removed", cid_version=1)
    with pytest.raises(ipfrs.ConflictError):
        store.rm(cid)
    assert store.has(cid)


def test_pins_are_listed_with_kind_and_name(store: Store) -> None:
    cid = store.add(b"to be pinned", pin=False)
    assert store.pin(cid, name="ünï") == cid
    assert ipfrs.Pin(cid, "recursive", "ünï") in store.pins()
    store.unpin("/ipfs/" + cid)
    assert cid not in {pin.cid for pin in store.pins()}
    store.pin(cid, recursive=False)
    assert ipfrs.Pin(cid, "direct", "") in store.pins()
    store.unpin(cid, recursive=False)
    with pytest.raises(ipfrs.IpfrsError):
        store.unpin(cid)


def test_gc_removes_garbage_and_keeps_pinned_blocks(fresh: Store) -> None:
    kept = fresh.add(b"kept by its pin", cid_version=1)
    garbage = fresh.add(b"garbage", cid_version=1, pin=False)
    collected = fresh.gc()
    assert collected.blocks >= 1 and collected.bytes >= len(b"garbage")
    assert fresh.has_many([kept, garbage]) == [True, False]


def test_archives_move_content_from_one_store_to_another(store: Store, fresh: Store, tmp_path: Path) -> None:
    folder = store.add(np.arange(200_000), name="numbers.bin", wrap=True)
    pieces = b"".join(store.export_car(folder))
    assert store.export_car(folder, tmp_path / "folder.car") == len(pieces)
    assert (tmp_path / "folder.car").read_bytes() == pieces
    file = io.BytesIO()
    assert store.export_car(folder, file) == len(pieces)
    assert file.getvalue() == pieces
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "repo") == ["folder.car"]

    for source in (pieces, tmp_path / "folder.car", io.BytesIO(pieces), [pieces[:77], pieces[77:]]):
        assert fresh.import_car(source) == [folder]
    assert fresh.cat(folder + "/numbers.bin") == store.cat(folder + "/numbers.bin")
    assert ipfrs.Pin(folder, "recursive", "") in fresh.pins()


def test_damaged_archive_is_rejected(store: Store) -> None:
    cid = store.add(b"to be damaged")
    car = bytearray(b"".join(store.export_car(cid)))
    with pytest.raises(ipfrs.IpfrsError):
        store.import_car(car[:-3])
    car[-1] ^= 1
    with pytest.raises((ipfrs.CorruptError, ipfrs.InvalidInputError)):
        store.import_car(car)
    with pytest.raises(ipfrs.InvalidInputError):
        store.import_car(b"no archive")


def test_roots_are_pinned_only_if_wanted(fresh: Store, node: ipfrs.Node) -> None:
    cid = node.add(b"imported without a pin")
    assert fresh.import_car(b"".join(node.export_car(cid)), pin_roots=False) == [cid]
    assert cid not in {pin.cid for pin in fresh.pins()}


def test_an_export_that_fails_leaves_no_file(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ipfrs.NotFoundError):
        store.export_car(ABSENT, tmp_path / "absent.car")
    (tmp_path / "folder.car").mkdir()
    with pytest.raises(FileExistsError):
        store.export_car(store.put(b"block"), tmp_path / "folder.car")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.car"]


def test_version_and_stats(store: Store) -> None:
    assert store.version() == ipfrs.__version__
    before = store.stats()["blocks"]
    store.put(f"counted {store!r}".encode())
    after = store.stats()["blocks"]
    assert isinstance(before, int) and isinstance(after, int) and after == before + 1
