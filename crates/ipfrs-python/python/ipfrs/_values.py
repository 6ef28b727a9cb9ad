"""Values that methods take and give back: frozen dataclasses, and the types of arguments."""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, Protocol, TypedDict, Union

from .errors import NotFoundError

if TYPE_CHECKING:
    import array
    import mmap

    import numpy
    from typing_extensions import TypeAlias

Kind = Literal["file", "directory", "symlink", "node"]
"""What a path leads to. ``"node"``: something that is no UnixFS, such as dag-cbor."""


@dataclass(frozen=True)
class Entry:
    """One entry of a directory, as :meth:`Node.ls` gives it.

    Attributes:
        name: Its name within the directory.
        cid: Its content ID.
        kind: ``"file"``, ``"directory"``, ``"symlink"``, or ``"node"`` for what is no UnixFS or not here.
        size: Bytes of a file; 0 for a directory or a symlink.

    Example:
        >>> folder = node.add(b"hello", name="a.txt", wrap=True)
        >>> [entry.name for entry in node.ls(folder)]
        ['a.txt']
    """

    name: str
    cid: str
    kind: Kind
    size: int


@dataclass(frozen=True)
class Stat:
    """What is known of a path, as :meth:`Node.stat` gives it.

    Attributes:
        cid: Content ID of what the path leads to.
        kind: ``"file"``, ``"directory"``, ``"symlink"``, or ``"node"`` for what is no UnixFS.
        size: Bytes of a file; 0 for a directory or a symlink; of anything else those of its block.
        blocks: Number of links of the root block; None where that is not known.
        mode: Unix permissions, such as ``0o644``; None where none were stored.
        mtime: Seconds since 1970; None where no time was stored.

    Example:
        >>> node.stat(node.add(b"hello")).size
        5
    """

    cid: str
    kind: Kind
    size: int
    blocks: int | None = None
    mode: int | None = None
    mtime: float | None = None


@dataclass(frozen=True)
class Pin:
    """One pin, as :meth:`Node.pins` gives it.

    Attributes:
        cid: Content ID of what is kept.
        kind: ``"recursive"``: with everything below it; ``"direct"``: this block alone.
        name: The name that it was pinned with; empty where there is none.

    Example:
        >>> cid = node.add(b"kept", pin_name="important")
        >>> [pin.name for pin in node.pins() if pin.cid == cid]
        ['important']
    """

    cid: str
    kind: str
    name: str


@dataclass(frozen=True)
class Collected:
    """What :meth:`Node.gc` has removed.

    Attributes:
        blocks: Number of blocks.
        bytes: Bytes of their data.

    Example:
        >>> node.gc().blocks >= 0
        True
    """

    blocks: int
    bytes: int


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file.

    Attributes:
        name: Its name; empty for the one tensor of an ``.npy`` file.
        dtype: Type of its elements as safetensors calls it: ``"F32"``, ``"BF16"``, ``"I64"`` ...
        shape: Its dimensions, outermost first.
        nbytes: Bytes of its elements.
        offset: Bytes before it in the file.

    Example:
        >>> TensorInfo("weight", "F32", (2, 3), 24, 0).shape
        (2, 3)
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int


@dataclass(frozen=True)
class TensorFile(Mapping[str, TensorInfo]):
    """The tensors of a ``.safetensors`` or ``.npy`` file by their names, as :meth:`Node.tensors` gives them.

    Attributes:
        cid: Content ID of the file.
        format: ``"safetensors"`` or ``"npy"``.
        metadata: What the file says of itself.
        tensors: All tensors, in the order of the file.

    Example:
        >>> file = TensorFile("Qm", "safetensors", {}, (TensorInfo("w", "F32", (2,), 8, 128),))
        >>> file["w"].dtype, list(file)
        ('F32', ['w'])
    """

    cid: str
    format: str
    metadata: Mapping[str, str]
    tensors: tuple[TensorInfo, ...]

    def __getitem__(self, name: str) -> TensorInfo:
        try:
            return self._by_name[name]
        except KeyError:
            raise NotFoundError(f"no tensor named {name!r} among the {len(self.tensors)} of {self.cid}") from None

    def __iter__(self) -> Iterator[str]:
        return (info.name for info in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    @functools.cached_property
    def _by_name(self) -> dict[str, TensorInfo]:
        return {info.name: info for info in self.tensors}


class AddOptions(TypedDict, total=False):
    """Options of :meth:`Node.add` and :meth:`Node.add_dir`, as ``ipfs add`` has them.

    What is left out follows from the profile, and that from ``import.profile`` of the
    configuration: without options, content IDs are those of ``ipfs add``.

    Example:
        >>> modern: AddOptions = {"cid_version": 1, "raw_leaves": True}
        >>> node.add(b"hello world", **modern)
        'bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e'
    """

    profile: str
    """Set of defaults: ``"unixfs-v0-2015"`` or ``"unixfs-v1-2025"``."""
    cid_version: Literal[0, 1]
    """Version of content IDs."""
    raw_leaves: bool
    """Store the leaves of files as raw blocks."""
    chunker: str
    """How files are cut: ``"size-262144"`` (bytes), ``"rabin-MIN-AVG-MAX"``, ``"buzhash"``."""
    hash: str
    """``"sha2-256"``, ``"sha2-512"``, ``"sha3-256"``, ``"blake2b-256"``, ``"blake3"`` ..."""
    trickle: bool
    """Lay files out so that their beginning is near the root."""
    inline: bool
    """Small blocks go into the content IDs that name them, and are not stored."""
    inline_limit: int
    """Most bytes of such a block, up to 128; 32 if left out. It needs no ``inline`` beside it."""
    max_file_links: int
    """Most links of a file's inner nodes."""
    max_directory_links: int
    """Most entries of a directory that is not sharded."""
    max_hamt_fanout: int
    """Fan-out of the shards of large directories: a power of two, 8 to 1024."""
    mode: int
    """Unix permissions to give to everything, such as ``0o644``."""
    mtime: float
    """Time to give to everything, in seconds since 1970."""
    preserve_mode: bool
    """Keep the permissions that files have on disk."""
    preserve_mtime: bool
    """Keep the times that files have on disk."""
    name: str
    """Name of the file in the directory that ``wrap`` makes; of a path, its last part if left out."""
    wrap: bool
    """Put it into a directory of its own, so that its name is kept, and return that one's ID."""
    only_hash: bool
    """Make the content ID and store nothing."""
    pin: bool
    """Keep it when garbage is collected; True if left out."""
    pin_name: str
    """Name of the pin."""


class _Bar(Protocol):
    """What a tqdm bar has of what is used here."""

    total: Any

    def update(self, n: int, /) -> object: ...


class _Readable(Protocol):
    """A binary file, or anything else that is read like one."""

    def read(self, size: int, /) -> bytes: ...


class _Writable(Protocol):
    """A binary file, or anything else that is written like one."""

    def write(self, data: memoryview, /) -> object: ...


if TYPE_CHECKING:
    BytesLike: TypeAlias = Union[
        bytes, bytearray, memoryview, "array.array[Any]", "mmap.mmap", "numpy.ndarray[Any, Any]"
    ]
    Path: TypeAlias = Union[str, "os.PathLike[str]"]
    Source: TypeAlias = Union[BytesLike, Path, _Readable, Iterable[BytesLike]]
    AsyncSource: TypeAlias = Union[Source, AsyncIterable[BytesLike]]
    Destination: TypeAlias = Union[Path, _Writable]
    Progress: TypeAlias = Union[Callable[[int, Optional[int]], object], _Bar]
