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
    """Methods for blocks, pins and archives."""

    _native: Backend

    def put(self, data: BytesLike, *, codec: str = "raw", hash: str = "sha2-256", pin: bool = False) -> str:
        """Stores one block. The block is durable when this returns.

        Args:
            data: At most 2 MiB, as any object with the buffer protocol.
            codec: Codec of the block: ``"raw"``, ``"dag-pb"``, ``"dag-cbor"``, ``"dag-json"`` ...
            hash: Hash function of the content ID.
            pin: Pin the block and everything below it.

        Returns:
            The content ID of the block.

        Raises:
            TypeError: `data` does not support the buffer protocol.
            InvalidInputError, UnsupportedError: There is no such codec or hash function.
            TooLargeError: The block exceeds the maximum block size.

        Example:
            >>> node.put(b"block")
            'bafkreicjnlfibzgy6kp3r2gnqfwdv62i2pyqhfylhixocyambdfgomtn5y'
        """
        data = _arguments.bytes_of(data, "a block")
        return cast(str, self._native.put(data, *_arguments.block_format(codec, hash), pin))

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
            blocks: Each as for `put`. By default, at most ``batch.max_batch_size`` (1,000) blocks with together at
                most ``batch.max_batch_bytes`` (64 MiB), which are set in the configuration.
            codec, hash: As for `put`.
            pin: Pin the blocks after all of them are stored. This is a separate step: if it fails, the blocks are
                stored, and only some or none of them are pinned. Repeating the call pins the rest.

        Returns:
            The content IDs, in the same order.

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
        return cast("list[str]", self._native.put_many(taken, *_arguments.block_format(codec, hash), pin))

    def get(self, cid: str) -> memoryview:
        """Returns the bytes of one block. Bytes from a daemon are verified against the content ID.

        Args:
            cid: A content ID, or ``/ipfs/CID``.

        Returns:
            A read-only memoryview. For a `Node` it is a view of the memory-mapped store, without a copy, and keeps the
            mapping alive. ``numpy.frombuffer`` accepts it directly.

        Raises:
            NotFoundError: The block is not stored here.
            InvalidInputError: `cid` is not a content ID.
            CorruptError: The bytes do not match the content ID.

        Example:
            >>> bytes(node.get(node.put(b"block")))
            b'block'
            >>> numpy.frombuffer(node.get(node.put(bytes(8))), dtype="int64")
            array([0])
        """
        return cast(memoryview, self._native.get(_arguments.block_cid(cid)))

    def get_many(self, cids: Iterable[str]) -> list[memoryview | None]:
        """Returns the bytes of many blocks with one call.

        Args:
            cids: Content IDs.

        Returns:
            Blocks as returned by `get`, in the same order; None for each block that is not stored here.

        Raises:
            InvalidInputError: An element is not a content ID.

        Example:
            >>> blocks = node.get_many(node.put_many([b"one", b"two"]))
            >>> [bytes(block) for block in blocks]
            [b'one', b'two']
        """
        return cast("list[memoryview | None]", self._native.get_many(_arguments.texts(cids)))

    def has(self, cid: str) -> bool:
        """Returns whether a block is stored here.

        Args:
            cid: A content ID, or ``/ipfs/CID``.

        Raises:
            InvalidInputError: `cid` is not a content ID.

        Example:
            >>> node.has(node.put(b"block"))
            True
        """
        return cast(bool, self._native.has_many([_arguments.block_cid(cid)])[0])

    def has_many(self, cids: Iterable[str]) -> list[bool]:
        """Returns for each block whether it is stored here, with one call.

        Args:
            cids: Content IDs.

        Returns:
            True or False for each, in the same order.

        Raises:
            InvalidInputError: An element is not a content ID.

        Example:
            >>> node.has_many([node.put(b"block")])
            [True]
        """
        return cast("list[bool]", self._native.has_many(_arguments.texts(cids)))

    def size(self, cid: str) -> int:
        """Returns the size of one block in bytes. Use `stat` for the size of a file.

        Args:
            cid: A content ID, or ``/ipfs/CID``.

        Raises:
            NotFoundError: The block is not stored here.
            InvalidInputError: `cid` is not a content ID.

        Example:
            >>> node.size(node.put(b"block"))
            5
        """
        return cast(int, self._native.size(_arguments.block_cid(cid)))

    def rm(self, cids: str | Iterable[str], *, force: bool = False) -> None:
        """Removes blocks.

        This is not one transaction: if a block cannot be removed, the error names it, and other blocks may have been
        removed, before it and after it. `has_many` tells which ones remain.

        Args:
            cids: One content ID, or several.
            force: Ignore blocks that are not stored here.

        Raises:
            NotFoundError: A block is not stored here, and `force` is not given.
            ConflictError: A pin keeps a block. Unpin it first.
            InvalidInputError: An element is not a content ID.

        Example:
            >>> cid = node.put(b"not for long")
            >>> node.rm(cid)
            >>> node.has(cid)
            False
        """
        self._native.remove(_arguments.texts([cids] if isinstance(cids, str) else cids), force)

    # Pins

    def pin(self, path: str, *, recursive: bool = True, name: str | None = None) -> str:
        """Pins content, so that garbage collection keeps it.

        Args:
            path: As for `cat`.
            recursive: Pin everything below the block too. False pins only the block.
            name: A name by which to find the pin.

        Returns:
            The content ID that is pinned.

        Raises:
            NotFoundError: A block to pin is missing.
            ConflictError: The block is pinned recursively and cannot be pinned directly as well.

        Example:
            >>> cid = node.pin(node.add(b"kept", pin=False), name="important")
            >>> [pin.kind for pin in node.pins() if pin.name == "important"]
            ['recursive']
        """
        return cast(str, self._native.pin(_arguments.path(path), recursive, name))

    def unpin(self, path: str, *, recursive: bool = True) -> None:
        """Removes a pin. The next garbage collection removes all blocks that no other pin keeps.

        Args:
            path: As for `cat`.
            recursive: The value with which the content was pinned.

        Raises:
            NotFoundError: There is no such pin.
            ConflictError: The content is pinned with the other value of `recursive`.

        Example:
            >>> node.unpin(node.add(b"not kept"))
        """
        self._native.unpin(_arguments.path(path), recursive)

    def pins(self) -> list[Pin]:
        """Returns all recursive and direct pins. Blocks that are kept only by a recursive pin above them are not
        included.

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
        """Exports everything below a path as a CAR (CARv1) archive.

        Args:
            path: As for `cat`.
            dest: The path of a file, which appears when it is complete; or a binary file object; or None for an
                iterator of pieces.

        Returns:
            The number of bytes written; or, without ``dest``, an iterator of memoryviews.

        Raises:
            NotFoundError: A block is missing.
            FileExistsError: The target exists and is not a regular file.
            InvalidInputError: `dest` is empty.

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
        """Stores all blocks of a CAR archive. Each block is verified against its content ID.

        Args:
            source: As for `add`: bytes-like, a path, a binary file object, or an iterable of pieces.
            pin_roots: Pin the roots of the archive. All blocks below them must then be present.

        Returns:
            The content IDs of the roots.

        Raises:
            InvalidInputError: The source is not a CAR, is cut short, or a block does not match its content ID.
            NotFoundError: A root is to be pinned, and something below it is not here.
            LocalFileError: The file cannot be read. If there is none, a `FileNotFoundError`.

        Example:
            >>> car = b"".join(node.export_car(node.add(b"hello")))
            >>> client.import_car(car) == [node.add(b"hello")]
            True
        """
        _arguments.no_async(source)
        return finished(_adding.import_car(self._native, source, pin_roots))
