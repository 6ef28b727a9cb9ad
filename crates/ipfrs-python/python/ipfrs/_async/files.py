"""Files and directories, for asyncio."""

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
    """Methods for files and directories."""

    _native: Backend

    async def add(self, source: AsyncSource, *, progress: Progress | None = None, **options: Unpack[AddOptions]) -> str:
        """Adds one file, as :meth:`Node.add` does.

        In addition, ``source`` may be an async iterable. Files are read in a thread. A plain iterable is consumed on
        the event loop.

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
        """Adds a directory with all its contents, as :meth:`Node.add_dir` does.

        Example:
            >>> Path("pages").mkdir()
            >>> _ = Path("pages/a.txt").write_bytes(b"hello")
            >>> folder = await anode.add_dir("pages")
            >>> await anode.cat(folder + "/a.txt")
            b'hello'
        """
        return await awaited(_adding.add_dir(self._native, path, hidden, options, progress))

    async def cat(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Returns the content of a file, or a range of it, as :meth:`Node.cat` does.

        Example:
            >>> await anode.cat(await anode.add(b"hello world"), offset=6)
            b'world'
        """
        start, count = _arguments.span(offset, length)
        return cast(bytes, await self._native.read(_arguments.path(path), start, count))

    async def readinto(self, path: str, buffer: Any, offset: int = 0) -> int:
        """Reads a range of a file into an existing buffer, as :meth:`Node.readinto` does.

        Example:
            >>> await anode.readinto(await anode.add(b"hello"), bytearray(10))
            5
        """
        start = _arguments.start(offset)
        return cast(int, await self._native.readinto(_arguments.path(path), _arguments.writable(buffer), start))

    def chunks(self, path: str, offset: int = 0, length: int | None = None) -> AsyncGenerator[memoryview, None]:
        """Yields the content of a file, or a range of it, in pieces, as :meth:`Node.chunks` does. Use it with ``async
        for``.

        Example:
            >>> cid = await anode.add(bytes(1_000_000))
            >>> sum([piece.nbytes async for piece in anode.chunks(cid)])
            1000000
        """
        start, count = _arguments.span(offset, length)
        checked = _arguments.path(path)
        return pieces(lambda: self._native.chunks(checked, start, count))

    async def open(self, path: str) -> AsyncFile:
        """Opens a file for reading with ``await file.read()``. The counterpart of :meth:`Node.open`.

        Example:
            >>> async with await anode.open(await anode.add(b"hello world")) as file:
            ...     await file.read(5)
            b'hello'
        """
        cid, kind, size, *_ = await self._native.stat(_arguments.path(path))
        _arguments.refuse_directory(path, kind)
        return AsyncFile(self._native, cid, size, path)

    async def ls(self, path: str) -> list[Entry]:
        """Returns the entries of a directory, as :meth:`Node.ls` does.

        Example:
            >>> folder = await anode.add(b"hello", name="a.txt", wrap=True)
            >>> [entry.name for entry in await anode.ls(folder)]
            ['a.txt']
        """
        return [Entry(*entry) for entry in await self._native.list(_arguments.path(path))]

    async def stat(self, path: str) -> Stat:
        """Returns the kind and size of the content at a path, as :meth:`Node.stat` does.

        Example:
            >>> (await anode.stat(await anode.add(b"hello"))).size
            5
        """
        return Stat(*await self._native.stat(_arguments.path(path)))

    async def save(self, path: str, dest: Path, *, progress: Progress | None = None) -> str:
        """Saves a file, or a directory with all its contents, to the local file system, as :meth:`Node.save` does.

        Example:
            >>> saved = await anode.save(await anode.add(b"hello"), "hello.txt")
            >>> Path("hello.txt").read_bytes()
            b'hello'
        """
        return await awaited(_saving.save(self._native, _arguments.path(path), dest, progress))

    async def resolve(self, path: str) -> str:
        """Returns the content ID that a path resolves to, as :meth:`Node.resolve` does.

        Example:
            >>> folder = await anode.add(b"hello", name="a.txt", wrap=True)
            >>> await anode.resolve(f"{folder}/a.txt") == await anode.add(b"hello")
            True
        """
        return cast(str, await self._native.resolve(_arguments.path(path)))


async def pieces(begin: Callable[[], Awaitable[Any]]) -> AsyncGenerator[memoryview, None]:
    """Yields the pieces from the native module. ``begin`` is called when the first piece is requested."""
    chunks = await begin()
    try:
        while (piece := await chunks.next()) is not None:
            yield piece
    finally:
        chunks.close()
