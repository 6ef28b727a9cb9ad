"""Files that are read: for the standard library, and for asyncio."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

from ._arguments import writable

if TYPE_CHECKING:
    from types import TracebackType

    from ._native import Backend

BUFFER_BYTES = 256 * 1024
"""How much is read ahead of programs that read little at a time."""


def _position(current: int, size: int, offset: int, whence: int) -> int:
    """Where ``seek`` leads."""
    starts = {os.SEEK_SET: 0, os.SEEK_CUR: current, os.SEEK_END: size}
    if whence not in starts:
        raise ValueError(f"whence is {whence!r}: it is os.SEEK_SET, os.SEEK_CUR or os.SEEK_END")
    position = starts[whence] + offset
    if position < 0:
        raise ValueError(f"cannot seek to {position}: positions count from 0")
    return position


class RawFile(io.RawIOBase):
    """A file of a node, unbuffered: what :meth:`Node.open` puts a buffer around."""

    def __init__(self, native: Backend, cid: str, size: int, name: str) -> None:
        self._native = native
        self._cid = cid
        self._size = size
        self._at = 0
        self.name = name
        self.mode = "rb"

    def readable(self) -> bool:
        self._check_open()
        return True

    def seekable(self) -> bool:
        self._check_open()
        return True

    def tell(self) -> int:
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check_open()
        self._at = _position(self._at, self._size, offset, whence)
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        self._check_open()
        if self._at >= self._size:
            return 0
        count: int = self._native.readinto(self._cid, writable(buffer), self._at)
        self._at += count
        return count

    def readall(self) -> bytes:
        self._check_open()
        if self._at >= self._size:
            return b""
        rest: bytes = self._native.read(self._cid, self._at, None)
        self._at += len(rest)
        return rest

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.name} is closed: open it again")

    def __repr__(self) -> str:
        return f"<ipfrs file {self.name!r} of {self._size} bytes>"


class AsyncFile:
    """A file that is read with ``await``, as :meth:`AsyncNode.open` gives it.

    It is no more than a position in a file: nothing is held open, and :meth:`close` only says that it is not used any
    more. It is used by one task at a time.

    Example:
        >>> async with await anode.open(await anode.add(b"hello world")) as file:
        ...     await file.read(5)
        b'hello'
    """

    def __init__(self, native: Backend, cid: str, size: int, name: str) -> None:
        self._native = native
        self._cid = cid
        self._at = 0
        self.size = size
        """Bytes of the file."""
        self.name = name
        """The path that it was opened with."""
        self.closed = False
        """Whether it was closed."""

    async def read(self, size: int | None = -1) -> bytes:
        """The next bytes.

        Args:
            size: Most bytes to read; None or a negative number for all there are.

        Returns:
            Fewer bytes than ``size`` only at the end of the file.

        Raises:
            ValueError: The file is closed.

        Example:
            >>> file = await anode.open(await anode.add(b"hello world"))
            >>> file.seek(-5, os.SEEK_END)
            6
            >>> await file.read()
            b'world'
        """
        self._check_open()
        length = None if size is None or size < 0 else size
        if self._at >= self.size:
            return b""
        data: bytes = await self._native.read(self._cid, self._at, length)
        self._at += len(data)
        return data

    async def readinto(self, buffer: Any) -> int:
        """Fills ``buffer`` with the next bytes.

        Args:
            buffer: Anything writable with contiguous bytes: bytearray, memoryview, a NumPy array.

        Returns:
            How many bytes were written: fewer than it has only at the end of the file.

        Raises:
            ValueError: The file is closed.

        Example:
            >>> file = await anode.open(await anode.add(b"hello"))
            >>> await file.readinto(bytearray(10))
            5
        """
        self._check_open()
        if self._at >= self.size:
            return 0
        count: int = await self._native.readinto(self._cid, writable(buffer), self._at)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to a byte, as ``seek`` of files does; gives where that is.

        Raises:
            ValueError: The file is closed, or the position negative.
        """
        self._check_open()
        self._at = _position(self._at, self.size, offset, whence)
        return self._at

    def tell(self) -> int:
        """The next byte to be read, counted from 0."""
        self._check_open()
        return self._at

    async def close(self) -> None:
        """Says that it is not used any more; closing twice is no error."""
        self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.name} is closed: open it again")

    async def __aenter__(self) -> AsyncFile:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<ipfrs file {self.name!r} of {self.size} bytes>"
