"""Operations of several steps, written once for classes that block and for those of asyncio.

A step is what a generator yields: a call of the native module, which is its value already or an awaitable of it, or a
``functools.partial`` of work on local files, which asyncio hands to a thread. ``finished`` and ``awaited`` drive them.
"""

from __future__ import annotations

import asyncio
import difflib
import errno
import inspect
import io
import os
import stat
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, TypeVar, cast

from . import errors
from ._values import AddOptions
from .errors import InvalidInputError

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from ._native import Backend
    from ._values import Progress

_T = TypeVar("_T")

if TYPE_CHECKING:
    Steps: TypeAlias = Generator[Any, Any, _T]

_READ_BYTES = 1024 * 1024
"""How much of a file is read at once."""
_GATHERED_BYTES = 256 * 1024
"""Pieces that are smaller are gathered up to this size."""


def finished(steps: Steps[_T]) -> _T:
    """Takes all steps, and gives what they lead to."""
    try:
        step = next(steps)
        while True:
            try:
                value = step() if isinstance(step, partial) else step
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as end:
        return cast(_T, end.value)


async def awaited(steps: Steps[_T]) -> _T:
    """Takes all steps on the event loop, and gives what they lead to. Being cancelled is an error of the step."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, partial):
                    value = await in_thread(step)
                else:
                    value = await step if inspect.isawaitable(step) else step
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as end:
        return cast(_T, end.value)


class Reading(partial):  # type: ignore[type-arg]
    """A step that may take for ever and leaves nothing behind, such as reading from a pipe."""


async def in_thread(step: partial[Any]) -> Any:
    """Does what blocks in a thread. Cancelled, it waits until that is over, unless it is :class:`Reading`."""
    work = asyncio.get_running_loop().run_in_executor(None, step)
    if isinstance(step, Reading):
        return await work
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        # It cannot be stopped, and has to be over before it can be undone.
        await asyncio.wait([work])
        raise


class Told:
    """Tells a callable, or a bar as tqdm has it, how far something is.

    Args:
        progress: Called with the bytes that are done and the bytes that there are (None where that is not known), or a
            bar whose ``update`` is called with the bytes since the last time.

    Raises:
        TypeError: It is neither.
    """

    def __init__(self, progress: Progress | None) -> None:
        update = getattr(progress, "update", None)
        if progress is not None and not callable(update) and not callable(progress):
            raise TypeError(
                "progress is a callable that takes (bytes done, bytes total or None), or has an update method as tqdm"
                f" bars do, not {type(progress).__name__}"
            )
        self._bar: Any = progress if callable(update) else None
        self._call: Any = None if callable(update) else progress
        self._done = 0

    @property
    def callback(self) -> Callable[[int, int | None], None] | None:
        """What the native module calls; None where nobody is told."""
        return self.tell if self._bar is not None or self._call is not None else None

    def tell(self, done: int, total: int | None = None) -> None:
        """So many bytes are done, of so many."""
        if self._call is not None:
            self._call(done, total)
        elif self._bar is not None:
            if total is not None and getattr(self._bar, "total", total) is None:
                self._bar.total = total
            self._bar.update(done - self._done)
        self._done = done

    def advance(self, count: int, total: int | None = None) -> None:
        """So many bytes more are done."""
        self.tell(self._done + count, total)


def text(value: object, what: str) -> str:
    """``value`` as it is, if it is a str that is not empty.

    Raises:
        TypeError: It is no str.
        InvalidInputError: It is empty.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}: {value!r:.80}")
    if not value:
        raise InvalidInputError(f"{what} is empty: give a content ID, or a path such as CID/name")
    return value


def texts(values: object) -> list[str]:
    """Content IDs as a list.

    Raises:
        TypeError: It is one str, or something in it is none.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"content IDs are an iterable of str, such as [cid], not {type(values).__name__}")
    return [block_cid(value) for value in values]


def block_cid(value: object) -> str:
    """The content ID in ``CID``, ``/ipfs/CID`` or ``ipfs://CID``: a block has no path.

    Raises:
        TypeError: It is no str.
        InvalidInputError: It is empty, or leads further.
    """
    cid = text(value, "a content ID")
    for prefix in ("/ipfs/", "ipfs://"):
        if cid.startswith(prefix):
            cid = cid[len(prefix) :]
    if "/" in cid.rstrip("/"):
        raise InvalidInputError(f"{value!r} is a path, and this takes the content ID of a block: give resolve(path)")
    return cid.rstrip("/")


def span(offset: int, length: int | None) -> None:
    """Checks a span of bytes.

    Raises:
        InvalidInputError: A number is negative.
    """
    if offset < 0:
        raise InvalidInputError(f"offset is {offset}: it counts bytes from the beginning, from 0 on")
    if length is not None and length < 0:
        raise InvalidInputError(f"length is {length}: give the number of bytes, or None for all there are")


def native_options(options: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Options of ``add`` as the native module takes them; those that are None are left out.

    Raises:
        TypeError: There is no such option.
    """
    known = AddOptions.__annotations__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f": did you mean {near[0]!r}?" if near else f": there are {', '.join(known)}"
            raise TypeError(f"{method}() has no option {name!r}{hint}")
    given = {name: value for name, value in options.items() if value is not None}
    if "inline_limit" in given:
        given.setdefault("inline", True)
    if "wrap" in given:
        given["wrap_with_directory"] = given.pop("wrap")
    return given


def buffer(source: object) -> Any | None:
    """``source`` as something with contiguous bytes, copied only if it has none; None if it is no buffer at all."""
    try:
        view = memoryview(source)  # type: ignore[arg-type]
    except TypeError:
        return None
    except ValueError:
        # A NumPy array of a type that the buffer protocol has no letter for, such as bfloat16 or datetime64.
        return cast(Any, source).tobytes()
    return source if view.c_contiguous else view.tobytes()


def bytes_of(source: object, what: str) -> Any:
    """As :func:`buffer`.

    Raises:
        TypeError: It is no buffer.
    """
    data = buffer(source)
    if data is None:
        raise TypeError(f"{what} is bytes-like, such as bytes, memoryview or a NumPy array, not {_described(source)}")
    return data


def blocks(sources: object) -> list[Any]:
    """Blocks as a list of buffers.

    Raises:
        TypeError: It is one buffer, or something in it is none.
    """
    if isinstance(sources, (str, bytes, bytearray, memoryview)) or not isinstance(sources, Iterable):
        raise TypeError(f"blocks are an iterable of bytes-like, such as [data], not {type(sources).__name__}")
    return [bytes_of(source, "a block") for source in sources]


def refuse_directory(path: str, kind: str) -> None:
    """Only files can be opened.

    Raises:
        InvalidInputError: It is something else.
    """
    if kind == "directory":
        raise InvalidInputError(f"{path} is a directory: open a file in it, or list it with ls")
    if kind != "file":
        raise InvalidInputError(f"{path} is a {kind} and no file: its block can be had with get")


def _described(source: object) -> str:
    return f"{type(source).__name__}: encode it first" if isinstance(source, str) else type(source).__name__


def add(native: Backend, source: Any, options: Mapping[str, Any], progress: Progress | None) -> Steps[str]:
    """Adds one file: bytes, a path, a binary file, or pieces."""
    taken = native_options(options, "add")
    told = Told(progress)
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        yield partial(_check_file, path)
        cid, _ = yield native.add_path(path, cast(Any, taken), told.callback)
        return cast(str, cid)
    data = buffer(source)
    if data is not None:
        cid, _ = yield native.add(data, cast(Any, taken))
        told.tell(memoryview(data).nbytes, memoryview(data).nbytes)
        return cast(str, cid)
    read = _reader(source)
    writer = yield native.begin_add(cast(Any, taken))
    cid, _ = yield from _poured(read, writer, told)
    return cast(str, cid)


def add_dir(
    native: Backend, path: Any, hidden: bool, options: Mapping[str, Any], progress: Progress | None
) -> Steps[str]:
    """Adds a directory with everything in it."""
    taken = native_options(options, "add_dir")
    told = Told(progress)
    name = os.fsdecode(path)
    yield partial(_check_directory, name)
    cid, _ = yield native.add_path(name, cast(Any, {**taken, "hidden": hidden}), told.callback)
    return cast(str, cid)


def import_car(native: Backend, source: Any, pin_roots: bool) -> Steps[list[str]]:
    """Imports a CAR: bytes, a path, a binary file, or pieces."""
    data = None if isinstance(source, (str, os.PathLike)) else buffer(source)
    file: io.BufferedReader | None = None
    if data is not None:
        read = _reader([data])
    elif isinstance(source, (str, os.PathLike)):
        file = yield partial(open, os.fsdecode(source), "rb", 0)
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
            raise
        shown = path if len(path) <= 80 else f"{path[:80]}..."
        raise errors.FileNotFoundError(
            f"there is no file {shown!r}: give the path of one, or the bytes of a text: add(text.encode())"
        ) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory: use add_dir", path)


def _check_directory(path: str) -> None:
    if not stat.S_ISDIR(os.stat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is no directory: use add", path)


def _reader(source: Any) -> Callable[[], Any]:
    """A function whose steps give one piece after the other, and None at the end."""
    if isinstance(source, AsyncIterable):
        pieces = source.__aiter__()
        return lambda: _next(pieces)
    if isinstance(source, io.TextIOBase):
        raise TypeError("the file is open in text mode: open it with mode 'rb'")
    if hasattr(source, "read"):
        return lambda: Reading(_read, source)
    if isinstance(source, Iterable):
        iterator = iter(source)
        return lambda: next(iterator, None)
    raise TypeError(
        f"what is added is bytes-like, a path, a binary file or an iterable of them, not {_described(source)}"
    )


def no_async(source: object) -> None:
    """Refuses what only asyncio can read.

    Raises:
        TypeError: It is an async iterable and nothing else.
    """
    if isinstance(source, AsyncIterable) and not isinstance(source, Iterable):
        raise TypeError("an async iterable is read by AsyncNode and AsyncClient: use one of them, or a plain iterable")


async def _next(pieces: AsyncIterator[Any]) -> Any:
    try:
        return await pieces.__anext__()
    except StopAsyncIteration:
        return None


def _read(file: Any) -> bytes | None:
    piece = file.read(_READ_BYTES)
    if piece is None:
        raise BlockingIOError(errno.EAGAIN, "the file does not block, and has nothing to give now: open it blocking")
    if isinstance(piece, str):
        raise TypeError("the file is open in text mode: open it with mode 'rb'")
    return piece or None


def _poured(read: Callable[[], Any], writer: Any, told: Told) -> Steps[Any]:
    """Hands all pieces to a writer, small ones gathered, and gives what it finishes with."""
    gathered = bytearray()
    try:
        while True:
            piece = yield read()
            if piece is None:
                break
            data = memoryview(bytes_of(piece, "a piece of the content"))
            if data.nbytes < _GATHERED_BYTES:
                # Copied, since whoever makes pieces may use the same buffer for the next.
                gathered += data
            if gathered and (len(gathered) >= _GATHERED_BYTES or data.nbytes >= _GATHERED_BYTES):
                yield writer.write(gathered)
                gathered = bytearray()
            if data.nbytes >= _GATHERED_BYTES:
                yield writer.write(data)
            told.advance(data.nbytes)
        if gathered:
            yield writer.write(gathered)
        return (yield writer.finish())
    except BaseException:
        writer.abort()
        raise
