"""Blocks, pins and archives, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Iterable
from typing import TYPE_CHECKING, cast, overload

from .. import _adding, _arguments, _saving
from .._steps import awaited
from .._values import Pin
from .files import pieces

if TYPE_CHECKING:
    from .._native import Backend
    from .._values import AsyncSource, BytesLike, Destination


class AsyncBlockMethods:
    """Methods for blocks, pins and archives."""

    _native: Backend

    async def put(self, data: BytesLike, *, codec: str = "raw", hash: str = "sha2-256", pin: bool = False) -> str:
        """Stores one block, as :meth:`Node.put` does.

        Example:
            >>> await anode.put(b"block")
            'bafkreicjnlfibzgy6kp3r2gnqfwdv62i2pyqhfylhixocyambdfgomtn5y'
        """
        data = _arguments.bytes_of(data, "a block")
        return cast(str, await self._native.put(data, *_arguments.block_format(codec, hash), pin))

    async def put_many(
        self, blocks: Iterable[BytesLike], *, codec: str = "raw", hash: str = "sha2-256", pin: bool = False
    ) -> list[str]:
        """Stores blocks with one call, all or none, as :meth:`Node.put_many` does. Pinning them is a separate step
        that follows.

        Example:
            >>> len(await anode.put_many([b"one", b"two"]))
            2
        """
        taken = _arguments.blocks(blocks)
        return cast("list[str]", await self._native.put_many(taken, *_arguments.block_format(codec, hash), pin))

    async def get(self, cid: str) -> memoryview:
        """Returns the bytes of one block, as :meth:`Node.get` does.

        Example:
            >>> bytes(await anode.get(await anode.put(b"block")))
            b'block'
        """
        return cast(memoryview, await self._native.get(_arguments.block_cid(cid)))

    async def get_many(self, cids: Iterable[str]) -> list[memoryview | None]:
        """Returns the bytes of many blocks with one call, as :meth:`Node.get_many` does.

        Example:
            >>> [bytes(block) for block in await anode.get_many([await anode.put(b"block")])]
            [b'block']
        """
        return cast("list[memoryview | None]", await self._native.get_many(_arguments.texts(cids)))

    async def has(self, cid: str) -> bool:
        """Returns whether a block is stored, as :meth:`Node.has` does.

        Example:
            >>> await anode.has(await anode.put(b"block"))
            True
        """
        return cast(bool, (await self._native.has_many([_arguments.block_cid(cid)]))[0])

    async def has_many(self, cids: Iterable[str]) -> list[bool]:
        """Returns for each block whether it is stored, with one call, as :meth:`Node.has_many` does.

        Example:
            >>> await anode.has_many([await anode.put(b"block")])
            [True]
        """
        return cast("list[bool]", await self._native.has_many(_arguments.texts(cids)))

    async def size(self, cid: str) -> int:
        """Returns the size of one block in bytes, as :meth:`Node.size` does.

        Example:
            >>> await anode.size(await anode.put(b"block"))
            5
        """
        return cast(int, await self._native.size(_arguments.block_cid(cid)))

    async def rm(self, cids: str | Iterable[str], *, force: bool = False) -> None:
        """Removes blocks, as :meth:`Node.rm` does.

        Example:
            >>> cid = await anode.put(b"not for long")
            >>> await anode.rm(cid)
            >>> await anode.has(cid)
            False
        """
        await self._native.remove(_arguments.texts([cids] if isinstance(cids, str) else cids), force)

    async def pin(self, path: str, *, recursive: bool = True, name: str | None = None) -> str:
        """Pins content, as :meth:`Node.pin` does.

        Example:
            >>> cid = await anode.add(b"kept", pin=False)
            >>> await anode.pin(cid) == cid
            True
        """
        return cast(str, await self._native.pin(_arguments.path(path), recursive, name))

    async def unpin(self, path: str, *, recursive: bool = True) -> None:
        """Removes a pin, as :meth:`Node.unpin` does.

        Example:
            >>> await anode.unpin(await anode.add(b"not kept"))
        """
        await self._native.unpin(_arguments.path(path), recursive)

    async def pins(self) -> list[Pin]:
        """Returns all pins, as :meth:`Node.pins` does.

        Example:
            >>> cid = await anode.add(b"kept")
            >>> [pin.kind for pin in await anode.pins() if pin.cid == cid]
            ['recursive']
        """
        return [Pin(*pin) for pin in await self._native.pins()]

    @overload
    def export_car(self, path: str, dest: None = None) -> AsyncGenerator[memoryview, None]: ...
    @overload
    def export_car(self, path: str, dest: Destination) -> Awaitable[int]: ...
    def export_car(
        self, path: str, dest: Destination | None = None
    ) -> AsyncGenerator[memoryview, None] | Awaitable[int]:
        """Exports everything below a path as a CAR archive, as :meth:`Node.export_car` does.

        Without ``dest``, returns an async iterator of pieces. With ``dest``, returns an awaitable of the number of
        bytes.

        Example:
            >>> await anode.export_car(await anode.add(b"hello"), "hello.car")
            105
        """
        checked = _arguments.path(path)
        if dest is None:
            return pieces(lambda: self._native.export_car(checked))
        return awaited(_saving.export_car(self._native, checked, dest))

    async def import_car(self, source: AsyncSource, *, pin_roots: bool = True) -> list[str]:
        """Stores all blocks of a CAR archive, as :meth:`Node.import_car` does. ``source`` may also be an async
        iterable.

        Example:
            >>> cid = await anode.add(b"hello")
            >>> await aclient.import_car(anode.export_car(cid)) == [cid]
            True
        """
        return await awaited(_adding.import_car(self._native, source, pin_roots))
