"""Classes whose methods are awaited: ``AsyncNode`` and ``AsyncClient``.

Their methods are those of ``Node`` and ``Client``, with the same names and arguments, and are documented there.
Cancelling a task ends what it waits for: an import leaves nothing behind, a download stops.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast, overload

from . import _adding, _arguments, _saving, _tensors
from ._files import AsyncFile
from ._lifetime import forgotten
from ._native import Backend
from ._steps import awaited
from ._toml import configuration
from ._values import AddOptions, Collected, Entry, Pin, Stat, TensorFile

if TYPE_CHECKING:
    from types import TracebackType

    import numpy
    from typing_extensions import Self, Unpack

    from ._tensors import Key
    from ._values import AsyncSource, BytesLike, Destination, Path, Progress


class _Asynchronous:
    """What :class:`AsyncNode` and :class:`AsyncClient` have in common. May be used by many tasks at once."""

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
        _arguments.span(offset, length)
        return cast(bytes, await self._native.read(_arguments.path(path), offset, length))

    async def readinto(self, path: str, buffer: Any, offset: int = 0) -> int:
        """Reads a range of a file into memory that is there already, as :meth:`Node.readinto`.

        Example:
            >>> await anode.readinto(await anode.add(b"hello"), bytearray(10))
            5
        """
        _arguments.span(offset, None)
        return cast(int, await self._native.readinto(_arguments.path(path), buffer, offset))

    def chunks(self, path: str, offset: int = 0, length: int | None = None) -> AsyncGenerator[memoryview, None]:
        """The content of a file, or a range of it, piece by piece, as :meth:`Node.chunks`; for ``async for``.

        Example:
            >>> cid = await anode.add(bytes(1_000_000))
            >>> sum([piece.nbytes async for piece in anode.chunks(cid)])
            1000000
        """
        _arguments.span(offset, length)
        checked = _arguments.path(path)
        return _pieces(lambda: self._native.chunks(checked, offset, length))

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

    async def put(self, data: BytesLike, *, codec: str = "raw", hash: str = "sha2-256", pin: bool = False) -> str:
        """Stores one block, as :meth:`Node.put`.

        Example:
            >>> await anode.put(b"block")
            'bafkreicjnlfibzgy6kp3r2gnqfwdv62i2pyqhfylhixocyambdfgomtn5y'
        """
        return cast(str, await self._native.put(_arguments.bytes_of(data, "a block"), codec, hash, pin))

    async def put_many(
        self, blocks: Iterable[BytesLike], *, codec: str = "raw", hash: str = "sha2-256", pin: bool = False
    ) -> list[str]:
        """Stores blocks with one call, all of them or none, as :meth:`Node.put_many`.

        Example:
            >>> len(await anode.put_many([b"one", b"two"]))
            2
        """
        taken = _arguments.blocks(blocks)
        return cast("list[str]", await self._native.put_many(taken, codec, hash, pin))

    async def get(self, cid: str) -> memoryview:
        """The bytes of one block, as :meth:`Node.get`.

        Example:
            >>> bytes(await anode.get(await anode.put(b"block")))
            b'block'
        """
        return cast(memoryview, await self._native.get(_arguments.block_cid(cid)))

    async def get_many(self, cids: Iterable[str]) -> list[memoryview | None]:
        """The bytes of many blocks with one call, as :meth:`Node.get_many`.

        Example:
            >>> [bytes(block) for block in await anode.get_many([await anode.put(b"block")])]
            [b'block']
        """
        return cast("list[memoryview | None]", await self._native.get_many(_arguments.texts(cids)))

    async def has(self, cid: str) -> bool:
        """Whether a block is here, as :meth:`Node.has`.

        Example:
            >>> await anode.has(await anode.put(b"block"))
            True
        """
        return cast(bool, (await self._native.has_many([_arguments.block_cid(cid)]))[0])

    async def has_many(self, cids: Iterable[str]) -> list[bool]:
        """Whether blocks are here, with one call, as :meth:`Node.has_many`.

        Example:
            >>> await anode.has_many([await anode.put(b"block")])
            [True]
        """
        return cast("list[bool]", await self._native.has_many(_arguments.texts(cids)))

    async def size(self, cid: str) -> int:
        """Bytes of one block, as :meth:`Node.size`.

        Example:
            >>> await anode.size(await anode.put(b"block"))
            5
        """
        return cast(int, await self._native.size(_arguments.block_cid(cid)))

    async def rm(self, cids: str | Iterable[str], *, force: bool = False) -> None:
        """Removes blocks, as :meth:`Node.rm`.

        Example:
            >>> cid = await anode.put(b"not for long")
            >>> await anode.rm(cid)
            >>> await anode.has(cid)
            False
        """
        await self._native.remove(_arguments.texts([cids] if isinstance(cids, str) else cids), force)

    async def pin(self, path: str, *, recursive: bool = True, name: str | None = None) -> str:
        """Keeps content when garbage is collected, as :meth:`Node.pin`.

        Example:
            >>> cid = await anode.add(b"kept", pin=False)
            >>> await anode.pin(cid) == cid
            True
        """
        return cast(str, await self._native.pin(_arguments.path(path), recursive, name))

    async def unpin(self, path: str, *, recursive: bool = True) -> None:
        """Takes a pin away, as :meth:`Node.unpin`.

        Example:
            >>> await anode.unpin(await anode.add(b"not kept"))
        """
        await self._native.unpin(_arguments.path(path), recursive)

    async def pins(self) -> list[Pin]:
        """All pins, as :meth:`Node.pins`.

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
        """Everything that a path leads to as a CAR archive, as :meth:`Node.export_car`.

        Without ``dest`` it is an async iterator of pieces; with one, it is awaited for the number of bytes.

        Example:
            >>> await anode.export_car(await anode.add(b"hello"), "hello.car")
            105
        """
        checked = _arguments.path(path)
        if dest is None:
            return _pieces(lambda: self._native.export_car(checked))
        return awaited(_saving.export_car(self._native, checked, dest))

    async def import_car(self, source: AsyncSource, *, pin_roots: bool = True) -> list[str]:
        """Stores all blocks of a CAR archive, as :meth:`Node.import_car`; also from an async iterable.

        Example:
            >>> cid = await anode.add(b"hello")
            >>> await aclient.import_car(anode.export_car(cid)) == [cid]
            True
        """
        return await awaited(_adding.import_car(self._native, source, pin_roots))

    async def tensors(self, path: str) -> TensorFile:
        """The tensors of a ``.safetensors`` or ``.npy`` file, as :meth:`Node.tensors`.

        Example:
            >>> model = await anode.add_tensors({"weight": numpy.ones((2, 3), "float32")})
            >>> [info.name for info in (await anode.tensors(model)).tensors]
            ['weight']
        """
        return await awaited(_tensors.tensors(self._native, _arguments.path(path)))

    async def tensor(self, path: str, name: str = "", slice: Key = None) -> numpy.ndarray[Any, Any]:
        """A tensor, or a slice of it, as :meth:`Node.tensor`.

        Example:
            >>> model = await anode.add_tensors({"weight": numpy.arange(6, dtype="float32")})
            >>> await anode.tensor(model, "weight", numpy.s_[4:])
            array([4., 5.], dtype=float32)
        """
        return await awaited(_tensors.tensor(self._native, _arguments.path(path), name, slice))

    async def load_tensors(
        self, path: str, names: Iterable[str] | None = None, *, framework: str = "numpy"
    ) -> dict[str, Any]:
        """All tensors of a file, or some, as :meth:`Node.load_tensors`.

        Example:
            >>> model = await anode.add_tensors({"bias": numpy.zeros(2), "weight": numpy.ones(3)})
            >>> sorted(await anode.load_tensors(model))
            ['bias', 'weight']
        """
        return await awaited(_tensors.load_tensors(self._native, _arguments.path(path), names, framework))

    async def add_tensors(
        self,
        tensors: Mapping[str, Any],
        *,
        metadata: Mapping[str, str] | None = None,
        **options: Unpack[AddOptions],
    ) -> str:
        """Adds tensors as one safetensors file, as :meth:`Node.add_tensors`.

        Example:
            >>> model = await anode.add_tensors({"weight": numpy.ones(3)}, metadata={"by": "me"})
            >>> (await anode.tensors(model)).metadata
            {'by': 'me'}
        """
        pieces = _tensors.safetensors_pieces(tensors, metadata)
        return await awaited(_adding.add(self._native, pieces, options, None))

    async def tensor_stats(self, path: str, name: str = "") -> dict[str, int | float | str | None]:
        """Statistics of a tensor, as :meth:`Node.tensor_stats`.

        Example:
            >>> model = await anode.add_tensors({"weight": numpy.array([1.0, 2.0, 3.0])})
            >>> (await anode.tensor_stats(model, "weight"))["mean"]
            2.0
        """
        stats = await self._native.tensor_stats(_arguments.path(path), name)
        return cast("dict[str, int | float | str | None]", stats)

    async def gc(self, *, force: bool = False) -> Collected:
        """Collects garbage, as :meth:`Node.gc`.

        Example:
            >>> cid = await anode.add(b"garbage", pin=False)
            >>> collected = await anode.gc()
            >>> await anode.has(cid)
            False
        """
        return Collected(*await self._native.collect(force))

    async def version(self) -> str:
        """The version of the node, as :meth:`Node.version`.

        Example:
            >>> await anode.version() == ipfrs.__version__
            True
        """
        return cast(str, await self._native.version())

    async def stats(self) -> dict[str, int | float | str | None]:
        """Figures of the store, as :meth:`Node.stats`.

        Example:
            >>> cid = await anode.add(b"hello")
            >>> (await anode.stats())["blocks"] > 0
            True
        """
        return cast("dict[str, int | float | str | None]", await self._native.stats())

    @property
    def closed(self) -> bool:
        """Whether it was closed.

        Example:
            >>> anode.closed
            False
        """
        return self._native.closed

    async def close(self) -> None:
        """Ends it, as :meth:`Node.close`. Closing twice is no error.

        Example:
            >>> other = AsyncClient(url)
            >>> await other.close()
            >>> other.closed
            True
        """
        await self._native.close()

    async def __aenter__(self) -> Self:
        await self._native.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncNode(_Asynchronous):
    """A store in this process, for asyncio; :class:`Node` is its like.

    It is opened by ``async with``, or when it is first used.

    Args:
        path: Directory of the repo, as for :class:`Node`.
        config: The configuration, as for :class:`Node`.

    Raises:
        ConflictError: When it is opened: another process has it open.
        InvalidInputError: The configuration is wrong; the message names key and remedy.

    Example:
        >>> async with ipfrs.AsyncNode("repo") as store:
        ...     await store.cat(await store.add(b"hello"))
        b'hello'
    """

    def __init__(self, path: Path | None = None, *, config: Path | Mapping[str, object] | None = None) -> None:
        self._path = None if path is None else os.fsdecode(path)
        self._native = Backend.node(self._path, configuration(config), True)

    def __repr__(self) -> str:
        path = "of the default repo" if self._path is None else repr(self._path)
        return f"<ipfrs.AsyncNode {path}{' (closed)' if self.closed else ''}>"

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not native.closed:
            forgotten(self, "use `async with`, or await close()")

    def __reduce__(self) -> Any:
        raise TypeError("an AsyncNode belongs to its process: open it in the other one, or send an AsyncClient there")


class AsyncClient(_Asynchronous):
    """Speaks to a daemon over HTTP, for asyncio; :class:`Client` is its like.

    Args:
        url: Where the daemon listens.
        token: What it is shown as ``Authorization: Bearer``.
        timeout: Most seconds that a call may wait for the daemon to say something; None for the default.

    Raises:
        InvalidInputError: It is no URL of HTTP.

    Example:
        >>> async with ipfrs.AsyncClient(url) as daemon:
        ...     await daemon.cat(await daemon.add(b"hello"))
        b'hello'
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        token: str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        self._url, self._token, self._timeout = _arguments.text(url, "a URL"), token, timeout
        self._native = Backend.client(url, token, timeout, True)

    @property
    def url(self) -> str:
        """Where the daemon listens.

        Example:
            >>> ipfrs.AsyncClient().url
            'http://127.0.0.1:8080'
        """
        return self._url

    def __repr__(self) -> str:
        # The token is a secret, and representations end up in logs.
        return f"<ipfrs.AsyncClient {self._url}{' (closed)' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        return partial(type(self), timeout=self._timeout), (self._url, self._token)


async def _pieces(begin: Any) -> AsyncGenerator[memoryview, None]:
    chunks = await begin()
    try:
        while (piece := await chunks.next()) is not None:
            yield piece
    finally:
        chunks.close()
