"""Blocks, pins and archives."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, cast, overload

from .. import _adding, _arguments, _saving
from .._steps import finished
from .._values import Pin
from .files import pieces

if TYPE_CHECKING:
    from .._native import Backend
    from .._values import BytesLike, Destination, Source


class BlockMethods:
    """Methods of blocks, pins and archives."""

    _native: Backend

    def put(self, data: BytesLike, *, codec: str = "raw", hash: str = "sha2-256", pin: bool = False) -> str:
        """Stores one block. Once this returns, it is durable.

        Args:
            data: At most 2 MiB, as anything with the buffer protocol.
            codec: What the bytes are: ``"raw"``, ``"dag-pb"``, ``"dag-cbor"``, ``"dag-json"`` ...
            hash: Hash function of its content ID.
            pin: Keep it, and everything below it, when garbage is collected.

        Returns:
            The block's content ID.

        Raises:
            TypeError: `data` has no buffer.
            InvalidInputError, UnsupportedError: There is no such codec or hash function.
            TooLargeError: The block is larger than blocks may be.

        Example:
            >>> node.put(b"block")
            'bafkreicjnlfibzgy6kp3r2gnqfwdv62i2pyqhfylhixocyambdfgomtn5y'
        """
        return cast(str, self._native.put(_arguments.bytes_of(data, "a block"), codec, hash, pin))

    def put_many(
        self,
        blocks: Iterable[BytesLike],
        *,
        codec: str = "raw",
        hash: str = "sha2-256",
        pin: bool = False,
    ) -> list[str]:
        """Stores blocks with one call: all of them, or none.

        Args:
            blocks: Each as for `put`; together at most ``batch.max_batch_size`` (1,000) blocks and
                ``batch.max_batch_bytes`` (64 MiB), which the configuration may change.
            codec, hash: As for `put`.
            pin: Pin them once all of them are stored. That is a step of its own: where it fails, they are stored,
                and some of them pinned or none. Putting them again does the rest.

        Returns:
            Their content IDs, in the same order.

        Raises:
            TypeError, InvalidInputError, UnsupportedError, TooLargeError: As for `put`, or there are
                too many; nothing was stored.
            NotFoundError, InvalidContentError: With `pin`, a block that one of them links to is not here, or one is
                not what its codec says; all of them are stored.

        Example:
            >>> len(node.put_many([b"one", b"two", b"three"]))
            3
        """
        taken = _arguments.blocks(blocks)
        return cast("list[str]", self._native.put_many(taken, codec, hash, pin))

    def get(self, cid: str) -> memoryview:
        """The bytes of one block, which are compared with the content ID when they come from elsewhere.

        Args:
            cid: A content ID, or ``/ipfs/CID``.

        Returns:
            A read-only memoryview. In the process it lies over the mapped store, without a copy, and
            keeps that alive; ``numpy.frombuffer`` takes it as it is.

        Raises:
            NotFoundError: There is no such block here.
            InvalidInputError: It is no content ID.
            CorruptError: The bytes are not those of the content ID.

        Example:
            >>> bytes(node.get(node.put(b"block")))
            b'block'
            >>> numpy.frombuffer(node.get(node.put(bytes(8))), dtype="int64")
            array([0])
        """
        return cast(memoryview, self._native.get(_arguments.block_cid(cid)))

    def get_many(self, cids: Iterable[str]) -> list[memoryview | None]:
        """The bytes of many blocks with one call.

        Args:
            cids: Content IDs.

        Returns:
            As `get` gives them, in the same order; None for what is not here.

        Raises:
            InvalidInputError: Something is no content ID.

        Example:
            >>> blocks = node.get_many(node.put_many([b"one", b"two"]))
            >>> [bytes(block) for block in blocks]
            [b'one', b'two']
        """
        return cast("list[memoryview | None]", self._native.get_many(_arguments.texts(cids)))

    def has(self, cid: str) -> bool:
        """Whether a block is here.

        Args:
            cid: A content ID, or ``/ipfs/CID``.

        Raises:
            InvalidInputError: It is no content ID.

        Example:
            >>> node.has(node.put(b"block"))
            True
        """
        return cast(bool, self._native.has_many([_arguments.block_cid(cid)])[0])

    def has_many(self, cids: Iterable[str]) -> list[bool]:
        """Whether blocks are here, with one call.

        Args:
            cids: Content IDs.

        Returns:
            True or False for each, in the same order.

        Raises:
            InvalidInputError: Something is no content ID.

        Example:
            >>> node.has_many([node.put(b"block")])
            [True]
        """
        return cast("list[bool]", self._native.has_many(_arguments.texts(cids)))

    def size(self, cid: str) -> int:
        """Bytes of one block. What a file has is what `stat` tells.

        Args:
            cid: A content ID, or ``/ipfs/CID``.

        Raises:
            NotFoundError: There is no such block here.
            InvalidInputError: It is no content ID.

        Example:
            >>> node.size(node.put(b"block"))
            5
        """
        return cast(int, self._native.size(_arguments.block_cid(cid)))

    def rm(self, cids: str | Iterable[str], *, force: bool = False) -> None:
        """Removes blocks.

        Args:
            cids: One content ID, or several.
            force: Take no offence at blocks that are not here.

        Raises:
            NotFoundError: A block is not here, and `force` is not given.
            ConflictError: A pin leads to a block: unpin it first.
            InvalidInputError: Something is no content ID.

        Example:
            >>> cid = node.put(b"not for long")
            >>> node.rm(cid)
            >>> node.has(cid)
            False
        """
        self._native.remove(_arguments.texts([cids] if isinstance(cids, str) else cids), force)

    # Pins

    def pin(self, path: str, *, recursive: bool = True, name: str | None = None) -> str:
        """Keeps content when garbage is collected.

        Args:
            path: As for `cat`.
            recursive: With everything below it; False keeps the one block.
            name: A name for the pin, to find it again.

        Returns:
            The content ID that is pinned.

        Raises:
            NotFoundError: Something of it is not here.
            ConflictError: It is pinned recursively, and is to be pinned directly.

        Example:
            >>> cid = node.pin(node.add(b"kept", pin=False), name="important")
            >>> [pin.kind for pin in node.pins() if pin.name == "important"]
            ['recursive']
        """
        return cast(str, self._native.pin(_arguments.path(path), recursive, name))

    def unpin(self, path: str, *, recursive: bool = True) -> None:
        """Takes a pin away. What nothing else keeps goes with the next garbage collection.

        Args:
            path: As for `cat`.
            recursive: As it was pinned.

        Raises:
            NotFoundError: There is no such pin.
            ConflictError: It is pinned in the other way.

        Example:
            >>> node.unpin(node.add(b"not kept"))
        """
        self._native.unpin(_arguments.path(path), recursive)

    def pins(self) -> list[Pin]:
        """All pins, but not what is kept because something above it is pinned.

        Example:
            >>> cid = node.add(b"kept")
            >>> [pin.kind for pin in node.pins() if pin.cid == cid]
            ['recursive']
        """
        return [Pin(*pin) for pin in self._native.pins()]

    # Archives

    @overload
    def export_car(self, path: str, dest: None = None) -> Generator[memoryview, None, None]: ...
    @overload
    def export_car(self, path: str, dest: Destination) -> int: ...
    def export_car(self, path: str, dest: Destination | None = None) -> Generator[memoryview, None, None] | int:
        """Everything that a path leads to as a CAR (CARv1) archive.

        Args:
            path: As for `cat`.
            dest: The path of a file, which appears when it is whole; or a binary file object; or None
                for an iterator of pieces.

        Returns:
            How many bytes were written; or, without ``dest``, an iterator of memoryviews.

        Raises:
            NotFoundError: A block of it is not here.
            FileExistsError: Something that is no file is in the way.

        Example:
            >>> folder = node.add(b"hello", name="a.txt", wrap=True)
            >>> node.export_car(folder, "folder.car")
            191
            >>> client.import_car("folder.car") == [folder]
            True
        """
        checked = _arguments.path(path)
        if dest is None:
            return pieces(self._native.export_car(checked))
        return finished(_saving.export_car(self._native, checked, dest))

    def import_car(self, source: Source, *, pin_roots: bool = True) -> list[str]:
        """Stores all blocks of a CAR archive, each compared with its content ID.

        Args:
            source: As for `add`: bytes-like, a path, a binary file object, or an iterable of pieces.
            pin_roots: Pin what the archive names as its roots; all of it must be here then.

        Returns:
            The content IDs of the roots.

        Raises:
            InvalidInputError: The source is not a CAR, is cut short, or a block does not match its content ID.
            NotFoundError: A root is to be pinned, and something below it is not here.

        Example:
            >>> car = b"".join(node.export_car(node.add(b"hello")))
            >>> client.import_car(car) == [node.add(b"hello")]
            True
        """
        _arguments.no_async(source)
        return finished(_adding.import_car(self._native, source, pin_roots))
