"""Saves content to the local file system: first beside the target, then moved there when it is complete.

Names in content are untrusted. Every entry is created anew inside a directory with an unpredictable name, each name
is a single plain component, and no created entry is ever followed. A symlink and a directory of the same name cannot
both be created, so no name can lead outside.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
import stat
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from ._progress import Told
from .errors import InvalidInputError, IpfrsError, local_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import TypeAlias

    from ._native import Backend
    from ._steps import Steps
    from ._values import Progress

    _Leaf: TypeAlias = tuple[str, str, str, int]
    """CID, kind, target path and size."""

_T = TypeVar("_T")

_MAX_DEPTH = 128
"""Maximum depth of nested directories."""

_MAX_SMALL_BYTES = 256 * 1024
"""Files up to this size are fetched together with one call. They are single blocks unless they were chunked more
finely."""

_MAX_BATCH = 128
"""Maximum number of blocks per such call. A block has at most 2 MiB, whatever size a directory claims."""

_RAW, _DAG_PB = ("bafkrei",), ("bafybei", "Qm")
"""Prefixes of content IDs with SHA2-256, by codec."""


def save(native: Backend, path: str, dest: Any, progress: Progress | None) -> Steps[str]:
    """Saves a file, a symlink or a directory with all its contents, and returns its path."""
    wanted = _given(dest)
    # An IPNS name may resolve differently from one call to the next.
    cid, kind, size, *_ = yield native.stat(path)
    if kind == "node":
        remedy = "save its block with get, or all with export_car"
        raise InvalidInputError(f"{path} is neither a file nor a directory: {remedy}")
    target: str = yield partial(_target, path, wanted)

    with Told(progress) as told:

        def built(root: str) -> Steps[str]:
            if kind == "directory":
                yield from _tree(native, cid, root, told)
            else:
                yield from _leaf(native, cid, kind, root, told, size)
            return target

        return (yield from _staged(path, target, kind == "file", built))


def export_car(native: Backend, path: str, dest: Any) -> Steps[int]:
    """Writes a CAR to a path or a file object, and returns its size in bytes."""
    target = "" if hasattr(dest, "write") else _given(dest)
    chunks = yield native.export_car(path)
    if not target:
        return (yield from _written(chunks, dest, Told(None), None))

    def built(root: str) -> Steps[int]:
        with (yield partial(open, root, "xb")) as file:
            return (yield from _written(chunks, file, Told(None), None))

    return (yield from _staged(path, target, True, built))


def _staged(path: str, target: str, is_file: bool, built: Callable[[str], Steps[_T]]) -> Steps[_T]:
    """Builds the content of ``path`` in a temporary directory, moves it to the target, and returns the result of
    ``built``."""
    if "\0" in target:
        raise InvalidInputError(f"cannot save {path} to {target!r}: a path contains no NUL character")
    try:
        return (yield from _moved(target, is_file, built))
    except OSError as error:
        if isinstance(error, IpfrsError):
            raise
        raise local_error(f"cannot save {path} to {target}", error, target) from error


def _moved(target: str, is_file: bool, built: Callable[[str], Steps[_T]]) -> Steps[_T]:
    directory = _stage(target)
    # Failing to remove the directory does not fail a completed operation.
    remove = partial(shutil.rmtree, directory, ignore_errors=True)
    try:
        root = yield partial(_begin, directory, target, is_file)
        done = yield from built(root)
        yield partial(os.replace, root, target)
    except GeneratorExit:
        # The event loop has ended, so no further step will run.
        remove()
        raise
    except BaseException:
        yield remove
        raise
    yield remove
    return done


def _given(dest: Any) -> str:
    """Returns the path to save to, before anything is fetched."""
    path = os.fsdecode(dest)
    if not path:
        raise InvalidInputError("dest is empty: give the path of a file or directory to save to")
    return path


def _target(path: str, dest: str) -> str:
    """Returns ``dest``, or, if that is a directory, the path within it named after the last component of ``path``."""
    if not os.path.isdir(dest):
        return dest
    return _inside(dest, path.rstrip("/").rpartition("/")[2])


def _stage(target: str) -> str:
    """Returns the name of a new directory beside the target."""
    parent, name = os.path.split(os.path.abspath(target))
    return os.path.join(parent, f".{name[:48]}.partial-{secrets.token_hex(8)}")


def _begin(directory: str, target: str, is_file: bool) -> str:
    """Creates the directory, and returns the path at which to build the content. A file may replace a file. Any other
    existing target is an error, reported before anything is fetched."""
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        pass
    else:
        if not (is_file and stat.S_ISREG(mode)):
            raise FileExistsError(errno.EEXIST, "already exists: remove it, or save elsewhere", target)
    try:
        os.mkdir(directory, 0o700)
    except FileNotFoundError:
        parent = os.path.dirname(directory)
        message = "the directory to save in does not exist: create it first"
        raise FileNotFoundError(errno.ENOENT, message, parent) from None
    return os.path.join(directory, "root")


def _inside(directory: str, name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name or os.sep in name:
        raise InvalidInputError(f"refusing to save an entry called {name!r}: that is not a valid file name")
    return os.path.join(directory, name)


def _tree(native: Backend, root: str, path: str, told: Told) -> Steps[None]:
    pending = [(root, path, 0)]
    while pending:
        cid, directory, depth = pending.pop()
        if depth > _MAX_DEPTH:
            raise InvalidInputError(f"refusing to save directories that are nested more than {_MAX_DEPTH} levels deep")
        yield partial(_made, os.mkdir, directory)
        leaves: list[_Leaf] = []
        for name, child, kind, size in (yield native.list(cid)):
            inside = _inside(directory, name)
            if kind == "directory":
                pending.append((child, inside, depth + 1))
            else:
                leaves.append((child, kind, inside, size))
        for start in range(0, len(leaves), _MAX_BATCH):
            yield from _leaves(native, leaves[start : start + _MAX_BATCH], told)


def _leaves(native: Backend, leaves: list[_Leaf], told: Told) -> Steps[None]:
    """Saves files and symlinks of one directory. Small ones are fetched together, and others one by one."""
    small = (cid for cid, kind, _, size in leaves if kind == "symlink" or (kind == "file" and size <= _MAX_SMALL_BYTES))
    wanted = list(dict.fromkeys(cid for cid in small if cid.startswith(_RAW + _DAG_PB)))
    blocks: dict[str, Any] = {}
    if len(wanted) > 1:
        # If the call fails, request each block on its own, which reports the error of that block.
        with suppress(IpfrsError):
            blocks = dict(zip(wanted, (yield native.get_many(wanted))))
    made: list[tuple[str, str, Any]] = []
    others: list[_Leaf] = []
    for leaf in leaves:
        cid, kind, path, _ = leaf
        content = _content(cid, kind, blocks.get(cid))
        if content is None:
            others.append(leaf)
        else:
            made.append((kind, path, content))
    if made:
        yield partial(_make_all, made)
    for kind, _, content in made:
        if kind == "file":
            told.advance(len(content), None)
    for cid, kind, path, _ in others:
        yield from _leaf(native, cid, kind, path, told, None)


def _content(cid: str, kind: str, block: Any) -> Any:
    """Returns the target of a symlink, or the bytes of a file, from its block. Returns None if the block is
    incomplete."""
    if block is None:
        return None
    if kind == "symlink":
        return symlink_target(bytes(block))
    return block if cid.startswith(_RAW) else _file_content(bytes(block))


def _file_content(block: bytes) -> bytes | None:
    """Returns the bytes of a UnixFS file that is a single block. Returns None if the file has other blocks, or is
    malformed."""
    try:
        ((number, node),) = _fields(block)
        data = list(_fields(node)) if number == 1 and isinstance(node, bytes) else []
    except (InvalidInputError, ValueError):
        return None
    kinds, contents, sizes, parts = ([value for found, value in data if found == wanted] for wanted in (1, 2, 3, 4))
    content = contents[0] if contents else b""
    # A valid block has the type Raw or File, no parts, and at most one content field, whose size matches the node.
    if kinds not in ([0], [2]) or len(contents) > 1 or parts or not isinstance(content, bytes):
        return None
    return content if sizes in ([], [len(content)]) else None


def _make_all(made: list[tuple[str, str, Any]]) -> None:
    for kind, path, content in made:
        if kind == "symlink":
            _made(partial(os.symlink, content), os.fsencode(path))
        else:
            with _made(_new_file, path) as file:
                _write(file, memoryview(content))


def _leaf(native: Backend, cid: str, kind: str, path: str, told: Told, size: int | None) -> Steps[None]:
    if kind == "symlink":
        target = symlink_target(bytes((yield native.get(cid))))
        yield partial(_made, partial(os.symlink, target), os.fsencode(path))
        return
    with (yield partial(_made, _new_file, path)) as file:
        chunks = yield native.chunks(cid, 0, None)
        yield from _written(chunks, file, told, size)


def symlink_target(block: bytes) -> bytes:
    """Returns the target of a UnixFS symlink: field 2 of the message in field 1 of the dag-pb node.

    Raises:
        InvalidInputError: The block is not a symlink, or its target is invalid.
    """
    target = _field(_field(block, 1), 2)
    if not target or b"\0" in target:
        raise InvalidInputError(f"refusing to save a symlink to {target!r}: that is not a path")
    return target


def _field(message: bytes, wanted: int) -> bytes:
    """Returns the bytes of a field of a protobuf message, or empty bytes if the field is absent."""
    found = b""
    for number, value in _fields(message):
        if number == wanted and isinstance(value, bytes):
            found = value
    return found


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the numbers and values of the fields of a protobuf message, up to a truncated one."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == 2:
            end = at + value
            if end > len(message):
                return
            yield key >> 3, message[at:end]
            at = end
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            raise InvalidInputError("a symlink has a field that UnixFS does not have: it is damaged")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise InvalidInputError("a symlink is truncated: it is damaged")


def _written(chunks: Any, file: Any, told: Told, total: int | None) -> Steps[int]:
    count = 0
    try:
        while True:
            piece = yield chunks.next()
            if piece is None:
                return count
            yield partial(_write, file, piece)
            count += piece.nbytes
            told.advance(piece.nbytes, total)
    finally:
        chunks.close()


def _new_file(path: str) -> Any:
    return open(path, "xb")


def _write(file: Any, piece: memoryview) -> None:
    while piece.nbytes:
        count = file.write(piece)
        if count == 0 or (count is None and isinstance(file, io.RawIOBase)):
            raise BlockingIOError(errno.EAGAIN, "the file accepts no data now: open it in blocking mode")
        # Raw files may write a part of it and return its size. Others write all of it, and need not return a size.
        if not isinstance(count, int) or count >= piece.nbytes:
            return
        piece = piece[count:]


def _made(make: Any, path: Any) -> Any:
    """Creates an entry with ``make``. Entries are never opened again, so the second entry of the same name fails."""
    try:
        return make(path)
    except FileExistsError:
        name = os.path.basename(os.fsdecode(path))
        raise InvalidInputError(f"refusing to save a directory that has two entries called {name!r}") from None
