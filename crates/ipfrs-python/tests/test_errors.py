"""Exceptions: the class tells the caller how to react, and the message names the affected object."""

from __future__ import annotations

import builtins
import errno
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ipfrs
from conftest import Store

ABSENT = "bafkreiafvynwucuwsa6bekk6pffisurkiqckyv4tphi7ndscjxaskatcny"


def test_missing_content_raises_key_error_that_names_it(store: Store) -> None:
    folder = store.add(b"hello", name="a.txt", wrap=True)
    calls: list[Callable[[], Any]] = [
        lambda: store.get(ABSENT),
        lambda: store.size(ABSENT),
        lambda: store.cat(ABSENT),
        lambda: store.pin(ABSENT),
        lambda: store.cat(folder + "/missing.txt"),
        lambda: store.stat(folder + "/missing.txt"),
        lambda: store.ls(folder + "/missing.txt"),
        lambda: store.resolve(folder + "/missing.txt"),
        lambda: store.readinto(folder + "/missing.txt", bytearray(3)),
        lambda: store.open(folder + "/missing.txt"),
        lambda: list(store.chunks(folder + "/missing.txt")),
        lambda: list(store.export_car(folder + "/missing.txt")),
    ]
    for call in calls:
        with pytest.raises(KeyError) as caught:
            call()
        assert isinstance(caught.value, ipfrs.NotFoundError) and caught.value.kind == "not_found"
        assert ABSENT in str(caught.value) or "missing.txt" in str(caught.value), str(caught.value)
        assert not str(caught.value).startswith(("'", '"'))


@pytest.mark.parametrize(
    "bad", ["no-cid", "/ipfs/", "/ipfs/no-cid/a", "Qmzz", "https://example.com", "bafk\0", "/", "ü"]
)
def test_invalid_path_raises_value_error(store: Store, bad: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: store.cat(bad),
        lambda: store.get(bad),
        lambda: store.stat(bad),
        lambda: store.has(bad),
        lambda: store.get_many([bad]),
        lambda: store.pin(bad),
        lambda: store.rm(bad),
    ]
    for call in calls:
        with pytest.raises(ValueError) as caught:
            call()
        assert isinstance(caught.value, ipfrs.InvalidInputError)


def test_wrong_argument_type_raises_type_error_with_remedy(store: Store, tmp_path: Path) -> None:
    text = io.TextIOWrapper(io.BytesIO(b"text"))
    anything: Any = store
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: anything.add(42), "bytes-like"),
        (lambda: anything.add(None), "bytes-like"),
        (lambda: anything.add([1, 2]), "piece"),
        (lambda: anything.add(["text"]), "encode"),
        (lambda: anything.add(io.StringIO("text")), "'rb'"),
        (lambda: anything.add(text), "'rb'"),
        (lambda: anything.add(b"", chunkr="size-1"), "chunker"),
        (lambda: anything.add(b"", progress=3), "tqdm"),
        (lambda: anything.add_dir(tmp_path, to_files="/a"), "to_files"),
        (lambda: anything.put("text"), "encode"),
        (lambda: anything.put_many(b"block"), "iterable"),
        (lambda: anything.cat(42), "str"),
        (lambda: anything.cat(None), "str"),
        (lambda: anything.get(b"bafy"), "str"),
        (lambda: anything.get_many(ABSENT), "iterable"),
        (lambda: anything.has_many([1]), "str"),
    ]
    for call, hint in calls:
        with pytest.raises(TypeError, match=hint):
            call()


def test_invalid_values_raise_value_error(store: Store, tmp_path: Path) -> None:
    cid = store.add(b"hello", name="a.txt", wrap=True)
    calls: list[Callable[[], Any]] = [
        lambda: store.add(b"", chunker="size-0"),
        lambda: store.add(b"", chunker="nothing"),
        lambda: store.add(b"", hash="md5"),
        lambda: store.add(b"", profile="no-profile"),
        lambda: store.add(b"", inline_limit=10_000),
        lambda: store.add(b"", pin=False, pin_name="a name of no pin"),
        lambda: store.cat(cid + "/a.txt", -1),
        lambda: store.cat(cid + "/a.txt", 0, -1),
        lambda: list(store.chunks(cid + "/a.txt", -1)),
        lambda: store.readinto(cid + "/a.txt", bytearray(1), -1),
        lambda: store.cat(""),
        lambda: store.get(cid + "/a.txt"),
        lambda: store.ls(cid + "/a.txt"),
        lambda: store.cat(cid),
        lambda: store.open(cid),
        lambda: list(store.chunks(cid)),
    ]
    for call in calls:
        with pytest.raises(ValueError) as caught:
            call()
        assert isinstance(caught.value, (ipfrs.InvalidInputError, ipfrs.UnsupportedError)), repr(caught.value)


def test_file_and_directory_mismatch_raises(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello")
    with pytest.raises(IsADirectoryError, match="add_dir") as directory:
        store.add(tmp_path)
    assert isinstance(directory.value, ipfrs.LocalFileError) and directory.value.filename == str(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ipfrs.InvalidInputError, match="pipe, a socket or a device: open it"):
        store.add(tmp_path / "pipe")
    with pytest.raises(NotADirectoryError, match="use add") as file:
        store.add_dir(tmp_path / "file")
    assert isinstance(file.value, ipfrs.LocalFileError) and file.value.filename == str(tmp_path / "file")
    for missing in (tmp_path / "missing", "a text that is no file", "x" * 10_000):
        with pytest.raises(FileNotFoundError, match="encode") as caught:
            store.add(missing)
        assert isinstance(caught.value, ipfrs.IpfrsError)
    for read in (store.add_dir, store.import_car):
        with pytest.raises(FileNotFoundError, match="missing") as caught:
            read(tmp_path / "missing")
        assert isinstance(caught.value, ipfrs.LocalFileError) and caught.value.filename == str(tmp_path / "missing")
    with pytest.raises(IsADirectoryError) as directory:
        store.import_car(tmp_path)
    assert isinstance(directory.value, ipfrs.LocalFileError)
    for call in (store.add, store.add_dir, store.import_car):
        with pytest.raises(ipfrs.InvalidInputError, match="no NUL character"):
            call("a\0b")


def test_producer_error_is_propagated(store: Store) -> None:
    def failing(piece: bytes) -> Any:
        yield piece
        raise LookupError("the producer failed")

    class Failing(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            raise OSError("the disk failed")

    with pytest.raises(LookupError, match="the producer failed"):
        store.add(failing(b"x" * 1_000_000))
    with pytest.raises(OSError, match="the disk failed"):
        store.add(Failing())
    with pytest.raises(LookupError, match="the producer failed"):
        store.import_car(failing(b"\x11"))


def test_non_byte_arrays_are_added_in_element_order(store: Store) -> None:
    days = np.array(["2024-01-01", "2024-01-02"], "datetime64[D]")
    assert store.cat(store.add(days)) == days.tobytes()
    assert store.cat(store.add(np.arange(10)[::2])) == np.arange(10)[::2].tobytes()


BUILT_IN = {
    "not_found": (KeyError, FileNotFoundError),
    "local_file": OSError,
    "file_exists": FileExistsError,
    "file_permission": PermissionError,
    "file_not_found": FileNotFoundError,
    "unresolvable": LookupError,
    "gone": KeyError,
    "invalid_input": ValueError,
    "invalid_content": ValueError,
    "too_large": ValueError,
    "unsupported": ValueError,
    "conflict": RuntimeError,
    "unauthenticated": PermissionError,
    "forbidden": PermissionError,
    "legal_reasons": PermissionError,
    "timeout": TimeoutError,
    "unretrievable": LookupError,
    "bad_source": ConnectionError,
    "unavailable": ConnectionError,
    "rate_limited": OSError,
    "corrupt": OSError,
    "no_space": OSError,
    "internal": OSError,
    "closed": ValueError,
    "forked": RuntimeError,
}


@pytest.mark.parametrize("kind", sorted(ipfrs.errors.BY_KIND))
def test_each_error_is_built_in_subclass_and_pickles(kind: str) -> None:
    error = ipfrs.errors.BY_KIND[kind]
    assert issubclass(error, ipfrs.IpfrsError)
    built_in = BUILT_IN[kind]
    assert all(issubclass(error, one) for one in (built_in if isinstance(built_in, tuple) else (built_in,)))
    raised = error("what was wrong with 'it'")
    assert str(raised) == "what was wrong with 'it'"
    again = pickle.loads(pickle.dumps(raised))
    assert (type(again), str(again), again.kind) == (error, str(raised), kind)
    assert getattr(ipfrs, error.__name__) is error
    assert f"`{error.__name__}`" in (ipfrs.errors.__doc__ or "")


def test_directory_errors_are_local_file_errors() -> None:
    cases: list[tuple[Any, Any, int]] = [
        (ipfrs.IsADirectoryError, IsADirectoryError, errno.EISDIR),
        (ipfrs.NotADirectoryError, NotADirectoryError, errno.ENOTDIR),
    ]
    for error, built_in, number in cases:
        assert issubclass(error, ipfrs.LocalFileError) and issubclass(error, built_in)
        again = pickle.loads(pickle.dumps(error("where")))
        assert (type(again), str(again), again.kind, again.errno) == (error, "where", "local_file", number)
        assert f"`{error.__name__}`" in (ipfrs.errors.__doc__ or "")


def test_all_names_can_be_imported_without_hiding_built_in_ones() -> None:
    assert not set(ipfrs.__all__) & set(dir(builtins)) - {"__doc__", "__name__"}
    assert set(BUILT_IN) == set(ipfrs.errors.BY_KIND)


def test_file_errors_have_errno() -> None:
    for error, number in ((ipfrs.NoSpaceError, errno.ENOSPC), (ipfrs.FileNotFoundError, errno.ENOENT)):
        for made in (error("full"), pickle.loads(pickle.dumps(error("full")))):
            assert made.errno == number and str(made) == "full"
