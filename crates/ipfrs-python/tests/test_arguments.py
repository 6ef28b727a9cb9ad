"""Arguments rejected early: wrong types raise TypeError, wrong values ValueError, each with a remedy in the message."""

from __future__ import annotations

import errno
import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ipfrs
from conftest import Store
from content import directory_block


def test_object_arrays_are_rejected(store: Store) -> None:
    cid = store.add(bytes(64))
    for array in (np.array([{}, "text"], dtype=object), np.zeros(2, dtype=[("a", "i4"), ("b", object)])):
        before = array.copy()
        for call in (store.add, store.put, lambda one: store.add([one]), lambda one: store.readinto(cid, one)):
            with pytest.raises(TypeError, match="Python objects.*astype"):
                call(array)
        assert (array == before).all()


def test_closed_buffer_raises_value_error(store: Store) -> None:
    view, mapped = memoryview(b"data"), mmap.mmap(-1, 10)
    view.release()
    mapped.close()
    for gone in (view, mapped):
        with pytest.raises(ValueError, match="released|closed"):
            store.add(gone)


def test_mapping_as_content_raises_type_error(store: Store) -> None:
    with pytest.raises(TypeError, match="dict cannot be added.*json"):
        store.add({b"key": 1})
    with pytest.raises(TypeError, match="mapping of names to arrays, not int"):
        store.add_tensors(5)  # type: ignore[arg-type]


def test_range_past_end_is_empty_and_invalid_range_raises(store: Store) -> None:
    cid = store.add(b"hello world")
    assert store.cat(cid, offset=10**30) == b"" and store.cat(cid, offset=6, length=10**30) == b"world"
    assert store.cat(cid, np.int64(6), np.uint8(3)) == b"wor"  # type: ignore[arg-type]
    assert b"".join(store.chunks(cid, offset=10**30)) == b"" and store.readinto(cid, bytearray(3), 10**30) == 0
    calls: list[Any] = [store.cat, lambda *given: list(store.chunks(*given))]
    for call in calls:
        for offset in (None, "1", 1.5, np.float64(1)):
            with pytest.raises(TypeError, match="offset must be an int, not"):
                call(cid, offset)
            if offset is not None:
                with pytest.raises(TypeError, match="length must be an int, not"):
                    call(cid, 0, offset)
        with pytest.raises(ipfrs.InvalidInputError, match="must be 0 or more"):
            call(cid, -(10**30))


@pytest.mark.parametrize(
    "options",
    [{"wrap": 5}, {"pin": "yes"}, {"raw_leaves": 1}, {"name": 5}, {"cid_version": "1"}, {"mode": 1.5}, {"mtime": "x"}],
)
def test_option_of_wrong_type_is_named_in_error(store: Store, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"option {next(iter(options))}="):
        store.add(b"data", **options)


def test_mode_accepts_permission_bits_only(store: Store) -> None:
    mode = Path(__file__).stat().st_mode
    with pytest.raises(ipfrs.InvalidInputError, match="option mode=0o100.*S_IMODE"):
        store.add(b"data", mode=mode)
    assert store.stat(store.add(b"data", mode=0o7777)).mode == 0o7777


def test_pin_of_other_kind_raises_conflict(store: Store) -> None:
    cid = store.add(b"pinned with everything below")
    with pytest.raises(ipfrs.ConflictError, match="recursively"):
        store.unpin(cid, recursive=False)


def test_fsspec_rejects_directories_and_escaping_names(blocking: Store, tmp_path: Path) -> None:
    fs = pytest.importorskip("ipfrs.fs").IpfrsFileSystem(client=blocking)
    leaf = blocking.put(b"leaf")
    folder = blocking.put(directory_block([("a", leaf)]), codec="dag-pb")
    with pytest.raises(IsADirectoryError) as caught:
        fs.open(folder)
    assert caught.value.errno == errno.EISDIR
    for name in ("..", ".", "", "../outside", "/outside", "a/b", "a\0b"):
        hostile = blocking.put(directory_block([(name, leaf if "out" in name else folder)]), codec="dag-pb")
        with pytest.raises(ipfrs.InvalidInputError, match="not a valid file name"):
            fs.get(hostile, str(tmp_path / "within" / "dest"), recursive=True)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_missing_package_is_named_in_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    model = store.add_tensors({"weight": np.ones(3)})
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ipfrs.MissingPackageError, match="pip install torch"):
        store.load_tensors(model, framework="torch")


def test_invalid_repo_path_is_rejected() -> None:
    for make in (ipfrs.Node, ipfrs.AsyncNode, lambda path: ipfrs.Gateway(repo=path).start()):
        with pytest.raises(ipfrs.InvalidInputError, match="path of the repo is empty: give"):
            make("")
        with pytest.raises(ipfrs.InvalidInputError, match="no NUL character"):
            make("a\0b")


def test_none_among_pieces_raises_type_error(store: Store) -> None:
    car = b"".join(store.export_car(store.add(b"content of an archive")))
    calls: list[tuple[Any, bytes]] = [(store.add, bytes(600_000)), (store.import_car, car)]
    for add, data in calls:
        for pieces in ([data[:50], None, data[50:]], [None], [data, None]):
            with pytest.raises(TypeError, match="a piece of the content must be bytes-like.*not NoneType"):
                add(iter(pieces))


def test_name_of_wrapped_content_is_one_entry(store: Store, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "leaf").write_bytes(b"leaf")
    calls: list[tuple[Any, Any]] = [
        (store.add, b"leaf"),
        (store.add, tmp_path / "leaf"),
        (store.add_dir, tmp_path / "tree"),
        (store.add_tensors, {"weight": np.ones(1)}),
    ]
    for add, source in calls:
        for name in ("", ".", "..", "/", "a/b", "/a", "a/", "a\0b"):
            with pytest.raises(ipfrs.InvalidInputError, match="name"):
                add(source, wrap=True, name=name)
        # A name without a directory has no effect.
        assert add(source, name="..") == add(source)
        assert [entry.name for entry in store.ls(add(source, wrap=True, name="..."))] == ["..."]


def test_empty_codec_and_hash_are_rejected(store: Store) -> None:
    calls: list[Any] = [
        lambda: store.put(b"block", codec=""),
        lambda: store.put(b"block", hash=""),
        lambda: store.put_many([b"block"], codec=""),
        lambda: store.put_many([b"block"], hash=""),
        lambda: store.add(b"file", hash=""),
    ]
    for call in calls:
        with pytest.raises(ipfrs.InvalidInputError, match="is empty"):
            call()


def calls_with_path(store: Store, directory: Path) -> dict[str, Any]:
    """Returns all methods that take a path, as functions of the path."""
    return {
        "cat": store.cat,
        "readinto": lambda path: store.readinto(path, bytearray(9)),
        "chunks": lambda path: list(store.chunks(path)),
        "open": store.open,
        "ls": store.ls,
        "stat": store.stat,
        "save": lambda path: store.save(path, directory / "saved"),
        "resolve": store.resolve,
        "pin": store.pin,
        "unpin": store.unpin,
        "export_car": lambda path: list(store.export_car(path)),
        "export_car to a file": lambda path: store.export_car(path, directory / "saved.car"),
        "tensors": store.tensors,
        "tensor": store.tensor,
        "tensor_many": lambda path: store.tensor_many(path, "", [0]),
        "load_tensors": store.load_tensors,
        "tensor_stats": store.tensor_stats,
    }


def test_dots_in_paths_are_names(store: Store, tmp_path: Path) -> None:
    secret = store.add_tensors({"weight": np.ones(1)}, name="x", wrap=True)
    folder = store.add_tensors({"weight": np.ones(2)}, name="x", wrap=True)
    file = store.resolve(f"{folder}/x")
    cases = [
        (f"{folder}/../{secret}/x", "..", folder),
        (f"/ipfs/{folder}/x/../../{secret}/x", "..", file),
        (f"ipfs://{folder}/./x", ".", folder),
        (f"{folder}/x/.", ".", file),
        (f"{folder}/..", "..", folder),
        (f"{folder}/none/../x", "none", folder),
    ]
    for method, call in calls_with_path(store, tmp_path).items():
        for path, name, under in cases:
            with pytest.raises(ipfrs.NotFoundError) as caught:
                call(path)
            assert str(caught.value) == f'no link named "{name}" under {under}', (method, path)
        for path in (f"../{folder}/x", f"./{folder}/x", f"/ipfs/../ipfs/{folder}/x", "..", "."):
            with pytest.raises(ipfrs.InvalidInputError):
                call(path)
    assert list(tmp_path.iterdir()) == []


def test_links_that_are_named_dots_are_followed(store: Store) -> None:
    leaf = store.put(b"leaf")
    folder = store.put(directory_block([(".", leaf), ("..", leaf)]), codec="dag-pb")
    for name in (".", ".."):
        assert store.cat(f"{folder}/{name}") == b"leaf"
        assert store.resolve(f"{folder}/{name}") == store.stat(f"{folder}/{name}").cid == leaf


def test_added_path_gets_requested_name(store: Store, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "leaf").write_bytes(b"leaf")
    tree = tmp_path / "tree"
    cases: list[tuple[Any, Path, str]] = [(store.add, tree / "leaf", ""), (store.add_dir, tree, "/leaf")]
    for add, path, inside in cases:
        for options, name in (({}, path.name), ({"name": "other ü"}, "other ü")):
            folder = add(path, wrap=True, **options)
            assert [entry.name for entry in store.ls(folder)] == [name]
            assert store.cat(f"{folder}/{name}{inside}") == b"leaf"
        assert add(path, name="other") == add(path)


def test_file_that_writes_nothing_raises_instead_of_looping(store: Store) -> None:
    class Full(io.RawIOBase):
        given: int | None = 0

        def write(self, data: object, /) -> int | None:
            return self.given

    cid, full = store.add(b"content"), Full()
    for full.given in (0, None):
        with pytest.raises(BlockingIOError, match="accepts no data now"):
            store.export_car(cid, full)
