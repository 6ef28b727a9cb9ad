"""Files that are open for reading: for the standard library, and for asyncio."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

from ._arguments import writable

if TYPE_CHECKING:
    from types import TracebackType

    from ._native import Backend

BUFFER_BYTES = 256 * 1024
"""Read-ahead for programs that read little at a time."""


def _position(current: int, size: int, offset: int, whence: int) -> int:
    """Returns the position that ``seek`` moves to."""
    starts = {os.SEEK_SET: 0, os.SEEK_CUR: current, os.SEEK_END: size}
    if whence not in starts:
        raise ValueError(f"whence is {whence!r}: use os.SEEK_SET, os.SEEK_CUR or os.SEEK_END")
    position = starts[whence] + offset
    if position < 0:
        raise ValueError(f"cannot seek to {position}: positions count from 0")
    return position


class RawFile(io.RawIOBase):
    """An unbuffered file of a node, which :meth:`Node.open` wraps in a buffer."""

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
    """A file that is open for reading with ``await``. Created by :meth:`AsyncNode.open`.

    It is only a position in a file and holds no resources. :meth:`close` only prevents further use. One task at a
    time may use it.

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
        """Size of the file in bytes."""
        self.name = name
        """The path with which the file was opened."""
        self.closed = False
        """Whether the file was closed."""

    async def read(self, size: int | None = -1) -> bytes:
        """Reads the next bytes.

        Args:
            size: Maximum number of bytes to read; None or a negative number for all remaining ones.

        Returns:
            The bytes. They are fewer than ``size`` only at the end of the file.

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
        """Reads the next bytes into ``buffer``.

        Args:
            buffer: A writable object with contiguous bytes, such as a bytearray, a memoryview or a NumPy array.

        Returns:
            The number of bytes written. It is less than the size of the buffer only at the end of the file.

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
        """Moves to a position, as ``seek`` of built-in files does, and returns it.

        Raises:
            ValueError: The file is closed, or the position is negative.
        """
        self._check_open()
        self._at = _position(self._at, self.size, offset, whence)
        return self._at

    def tell(self) -> int:
        """Returns the position of the next byte to read, from 0."""
        self._check_open()
        return self._at

    async def close(self) -> None:
        """Marks the file as closed. Closing twice is not an error."""
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
