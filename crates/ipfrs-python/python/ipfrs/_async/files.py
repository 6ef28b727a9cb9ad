"""Files and directories, with ``await``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from typing import TYPE_CHECKING, Any, Callable, cast

from .. import _adding, _arguments, _saving
from .._files import AsyncFile
from .._steps import awaited
from .._values import AddOptions, Entry, Stat

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._native import Backend
    from .._values import AsyncSource, Path, Progress


class AsyncFileMethods:
    """Methods of files and directories."""

    _native: Backend

    async def add(self, source: AsyncSource, *, progress: Progress | None = None, **options: Unpack[AddOptions]) -> str:
        """Adds one file, as :meth:`Node.add`.

        Besides what that takes, ``source`` may be an async iterable. Files are read in a thread; a plain iterable is
        asked on the event loop.

        Example:
            >>> await anode.add(b"hello world")
            'Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD'
        """
        return await awaited(_adding.add(self._native, source, options, progress))

    async def add_dir(
        self,
        path: Path,
        *,
        hidden: bool = False,
        progress: Progress | None = None,
        **options: Unpack[AddOptions],
    ) -> str:
        """Adds a directory with everything in it, as :meth:`Node.add_dir`.

        Example:
            >>> Path("pages").mkdir()
            >>> _ = Path("pages/a.txt").write_bytes(b"hello")
            >>> folder = await anode.add_dir("pages")
            >>> await anode.cat(folder + "/a.txt")
            b'hello'
        """
        return await awaited(_adding.add_dir(self._native, path, hidden, options, progress))

    async def cat(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """The content of a file, or a range of it, as :meth:`Node.cat`.

        Example:
            >>> await anode.cat(await anode.add(b"hello world"), offset=6)
            b'world'
        """
        start, count = _arguments.span(offset, length)
        return cast(bytes, await self._native.read(_arguments.path(path), start, count))

    async def readinto(self, path: str, buffer: Any, offset: int = 0) -> int:
        """Reads a range of a file into memory that is there already, as :meth:`Node.readinto`.

        Example:
            >>> await anode.readinto(await anode.add(b"hello"), bytearray(10))
            5
        """
        start = _arguments.start(offset)
        return cast(int, await self._native.readinto(_arguments.path(path), _arguments.writable(buffer), start))

    def chunks(self, path: str, offset: int = 0, length: int | None = None) -> AsyncGenerator[memoryview, None]:
        """The content of a file, or a range of it, piece by piece, as :meth:`Node.chunks`; for ``async for``.

        Example:
            >>> cid = await anode.add(bytes(1_000_000))
            >>> sum([piece.nbytes async for piece in anode.chunks(cid)])
            1000000
        """
        start, count = _arguments.span(offset, length)
        checked = _arguments.path(path)
        return pieces(lambda: self._native.chunks(checked, start, count))

    async def open(self, path: str) -> AsyncFile:
        """Opens a file for reading with ``await file.read()``; :meth:`Node.open` is its like.

        Example:
            >>> async with await anode.open(await anode.add(b"hello world")) as file:
            ...     await file.read(5)
            b'hello'
        """
        cid, kind, size, *_ = await self._native.stat(_arguments.path(path))
        _arguments.refuse_directory(path, kind)
        return AsyncFile(self._native, cid, size, path)

    async def ls(self, path: str) -> list[Entry]:
        """The entries of a directory, as :meth:`Node.ls`.

        Example:
            >>> folder = await anode.add(b"hello", name="a.txt", wrap=True)
            >>> [entry.name for entry in await anode.ls(folder)]
            ['a.txt']
        """
        return [Entry(*entry) for entry in await self._native.list(_arguments.path(path))]

    async def stat(self, path: str) -> Stat:
        """What a path leads to, and how large it is, as :meth:`Node.stat`.

        Example:
            >>> (await anode.stat(await anode.add(b"hello"))).size
            5
        """
        return Stat(*await self._native.stat(_arguments.path(path)))

    async def save(self, path: str, dest: Path, *, progress: Progress | None = None) -> str:
        """Saves a file, or a directory with everything in it, on this machine, as :meth:`Node.save`.

        Example:
            >>> saved = await anode.save(await anode.add(b"hello"), "hello.txt")
            >>> Path("hello.txt").read_bytes()
            b'hello'
        """
        return await awaited(_saving.save(self._native, _arguments.path(path), dest, progress))

    async def resolve(self, path: str) -> str:
        """The content ID that a path leads to, as :meth:`Node.resolve`.

        Example:
            >>> folder = await anode.add(b"hello", name="a.txt", wrap=True)
            >>> await anode.resolve(f"{folder}/a.txt") == await anode.add(b"hello")
            True
        """
        return cast(str, await self._native.resolve(_arguments.path(path)))


async def pieces(begin: Callable[[], Awaitable[Any]]) -> AsyncGenerator[memoryview, None]:
    """What the native module gives piece by piece, from when the first one is asked for."""
    chunks = await begin()
    try:
        while (piece := await chunks.next()) is not None:
            yield piece
    finally:
        chunks.close()
