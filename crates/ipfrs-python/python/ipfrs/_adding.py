"""Adds content from bytes, paths, files and iterables of pieces."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, cast

from . import errors
from ._arguments import buffer, bytes_of, described, local_path, native_options
from ._progress import Told
from ._steps import Reading

if TYPE_CHECKING:
    from ._native import Backend
    from ._steps import Steps
    from ._values import Progress

_READ_BYTES = 1024 * 1024
"""Bytes of a file that are read at once."""
_GATHERED_BYTES = 256 * 1024
"""Smaller pieces are combined up to this size."""
_END: Any = object()
"""End of the pieces. It is not None, because a None among the pieces would then cut the content short."""
_ADD_TEXT = ", or the bytes of a text: add(text.encode())"


@contextlib.contextmanager
def _importing(progress: Progress | None) -> Iterator[Told]:
    """Reports progress, and tells a user who interrupts the import what becomes of its blocks."""
    try:
        with Told(progress) as told:
            yield told
    except KeyboardInterrupt:
        message = "the import was interrupted: gc frees its blocks, unless it had just been completed and pinned"
        raise KeyboardInterrupt(message) from None


def add(
    native: Backend, source: Any, options: Mapping[str, Any], progress: Progress | None, size: int | None = None
) -> Steps[str]:
    """Adds one file from bytes, a path, a binary file object or pieces, whose total size may be given."""
    taken = native_options(options, "add")
    with _importing(progress) as told:
        if isinstance(source, (str, os.PathLike)):
            path = local_path(source, "the path", f": pass a valid one{_ADD_TEXT}")
            yield partial(_check_file, path)
            cid, _ = yield native.add_path(path, cast(Any, taken), told.callback)
            return cast(str, cid)
        if taken.get("nocopy"):
            raise errors.InvalidInputError("nocopy leaves the content in its file: pass the path of the file")
        data = buffer(source)
        if data is not None:
            cid, _ = yield native.add(data, cast(Any, taken))
            told.tell(memoryview(data).nbytes, memoryview(data).nbytes)
            return cast(str, cid)
        read = _reader(source)
        writer = yield native.begin_add(cast(Any, taken))
        cid, _ = yield from _poured(read, writer, told, size)
        return cast(str, cid)


def add_dir(
    native: Backend, path: Any, hidden: bool, options: Mapping[str, Any], progress: Progress | None
) -> Steps[str]:
    """Adds a directory with all its contents."""
    taken = native_options(options, "add_dir")
    name = local_path(path, "the path")
    yield partial(_check_directory, name)
    with _importing(progress) as told:
        cid, _ = yield native.add_path(name, cast(Any, {**taken, "hidden": hidden}), told.callback)
        return cast(str, cid)


def import_car(native: Backend, source: Any, pin_roots: bool) -> Steps[list[str]]:
    """Imports a CAR from bytes, a path, a binary file object or pieces."""
    data = None if isinstance(source, (str, os.PathLike)) else buffer(source)
    file: io.FileIO | None = None
    if data is not None:
        read = _reader([data])
    elif isinstance(source, (str, os.PathLike)):
        file = yield partial(_opened, local_path(source, "the path"))
        read = _reader(file)
    else:
        read = _reader(source)
    try:
        writer = yield native.begin_import_car(pin_roots)
        roots = yield from _poured(read, writer, Told(None))
    finally:
        if file is not None:
            file.close()
    return list(roots)


def _check_file(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
            raise errors.local_error(f"cannot add {path}", error, path) from error
        shown = path if len(path) <= 80 else f"{path[:80]}..."
        raise errors.FileNotFoundError(f"there is no file {shown!r}: pass an existing path{_ADD_TEXT}") from None
    if stat.S_ISDIR(mode):
        raise _named(errors.IsADirectoryError(f"{path} is a directory: use add_dir"), path)
    if not stat.S_ISREG(mode):
        raise errors.InvalidInputError(f"{path} is a pipe, a socket or a device: open it with mode 'rb', and add that")


def _check_directory(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise errors.local_error(f"cannot add {path}", error, path) from error
    if not stat.S_ISDIR(mode):
        raise _named(errors.NotADirectoryError(f"{path} is not a directory: use add"), path)


def _named(error: errors.LocalFileError, path: str) -> errors.LocalFileError:
    error.filename = path
    return error


def _opened(path: str) -> io.FileIO:
    try:
        return open(path, "rb", 0)
    except OSError as error:
        raise errors.local_error(f"cannot import {path}", error, path) from error


def _reader(source: Any) -> Callable[[], Any]:
    """Returns a function whose steps return one piece after the other, and ``_END`` at the end."""
    if isinstance(source, Mapping):
        raise TypeError(f"a {type(source).__name__} cannot be added: pass its bytes, such as json.dumps(data).encode()")
    if isinstance(source, AsyncIterable):
        pieces = source.__aiter__()
        return lambda: _next(pieces)
    if isinstance(source, io.TextIOBase):
        raise TypeError("the file is open in text mode: open it with mode 'rb'")
    if hasattr(source, "read"):
        return lambda: Reading(_read, source)
    if isinstance(source, Iterable):
        iterator = iter(source)
        return lambda: next(iterator, _END)
    raise TypeError(
        f"the content must be bytes-like, a path, a binary file or an iterable of them, not {described(source)}"
    )


async def _next(pieces: AsyncIterator[Any]) -> Any:
    try:
        return await pieces.__anext__()
    except StopAsyncIteration:
        return _END


def _read(file: Any) -> Any:
    piece = file.read(_READ_BYTES)
    if piece is None:
        raise BlockingIOError(errno.EAGAIN, "the file is non-blocking and has no data now: open it in blocking mode")
    if isinstance(piece, str):
        raise TypeError("the file is open in text mode: open it with mode 'rb'")
    return piece or _END


def _poured(read: Callable[[], Any], writer: Any, told: Told, total: int | None = None) -> Steps[Any]:
    """Passes all pieces to a writer, combining small ones, and returns the result of its ``finish``."""
    gathered = bytearray()
    try:
        while True:
            piece = yield read()
            if piece is _END:
                break
            data = memoryview(bytes_of(piece, "a piece of the content"))
            if data.nbytes < _GATHERED_BYTES:
                # Copy the piece, because its producer may reuse the buffer for the next one.
                gathered += data
            if gathered and (len(gathered) >= _GATHERED_BYTES or data.nbytes >= _GATHERED_BYTES):
                yield writer.write(gathered)
                gathered = bytearray()
            if data.nbytes >= _GATHERED_BYTES:
                yield writer.write(data)
            told.advance(data.nbytes, total)
        if gathered:
            yield writer.write(gathered)
        return (yield writer.finish())
    except BaseException:
        writer.abort()
        raise
