"""Arguments and results of methods: frozen dataclasses, and types of arguments."""

from __future__ import annotations

import bisect
import difflib
import functools
import html
import inspect
import os
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Literal, NoReturn, Optional, Protocol, TypedDict, Union

from .errors import NotFoundError

if TYPE_CHECKING:
    import array
    import mmap
    from types import EllipsisType

    import numpy
    from typing_extensions import TypeAlias

_SHOWN_ROWS = 50
"""Number of tensors in the table of a notebook."""

_COMPARED = 500
"""Number of names that are compared with an unknown one: so many around it, and so many from the start."""

Kind = Literal["file", "directory", "symlink", "node"]
"""Kind of the content at a path. ``"node"`` is a node that is not UnixFS, such as dag-cbor."""


@dataclass(frozen=True)
class Entry:
    """An entry of a directory, as returned by :meth:`Node.ls`.

    Attributes:
        name: Name within the directory.
        cid: Content ID.
        kind: ``"file"``, ``"directory"``, ``"symlink"``, or ``"node"`` for a node that is not UnixFS or not stored
            here. A remote node raises an error for one that is not stored.
        size: Size of a file in bytes; 0 for a directory or a symlink.

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
    """Metadata of the content at a path, as returned by :meth:`Node.stat`.

    Attributes:
        cid: Content ID that the path resolves to.
        kind: ``"file"``, ``"directory"``, ``"symlink"``, or ``"node"`` for a node that is not UnixFS.
        size: Size of a file, or of the target of a symlink, in bytes; 0 for a directory; otherwise the size of the
            block.
        links: Number of links of the root block; None if unknown.
        mode: Unix permissions, such as ``0o644``; None if none are stored.
        mtime: Modification time in seconds since 1970; None if none is stored.

    Example:
        >>> node.stat(node.add(b"hello")).size
        5
    """

    cid: str
    kind: Kind
    size: int
    links: int | None = None
    mode: int | None = None
    mtime: float | None = None


@dataclass(frozen=True)
class Pin:
    """A pin, as returned by :meth:`Node.pins`.

    Attributes:
        cid: Content ID of the pinned block.
        kind: ``"recursive"`` for the block and everything below it, or ``"direct"`` for the block only.
        name: Name of the pin; empty if it has none.

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
    """Result of a garbage collection, as returned by :meth:`Node.gc`.

    Attributes:
        blocks: Number of removed blocks.
        bytes: Size of the removed blocks in bytes.

    Example:
        >>> node.gc().blocks >= 0
        True
    """

    blocks: int
    bytes: int


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a file.

    Attributes:
        name: Name of the tensor; empty for the only tensor of an ``.npy`` file.
        dtype: Type of the elements, by its safetensors name: ``"F32"``, ``"BF16"``, ``"I64"`` ...
        shape: Dimensions, outermost first.
        nbytes: Size of the elements in bytes.
        offset: Position of the first byte in the file.

    Example:
        >>> model = node.add_tensors({"weight": numpy.arange(6.0).reshape(2, 3)})
        >>> weight = node.tensors(model)["weight"]
        >>> weight.shape
        (2, 3)
        >>> weight[1, :2]
        array([3., 4.])
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int
    _source: ClassVar[tuple[Any, str] | None] = None
    """The node or client to read from, and the content ID of the file. Not a field, because it is no part of the
    description."""

    def __getitem__(self, key: Key) -> Any:
        """Reads the tensor or a slice of it, as :meth:`Node.tensor` does. Only the bytes of the slice are read. With
        an `AsyncNode` or `AsyncClient`, the result is awaitable. A tensor of a `Client` can be read in other processes
        too.

        Raises:
            TypeError: The description was not returned by ``tensors()``, or by that of a `Node` of another process.
        """
        if self._source is None:
            raise TypeError(
                "this description of a tensor has no file to read: get it from tensors(), of a Client if it is sent to "
                "another process"
            )
        owner, cid = self._source
        # As an index, None is a new dimension.
        return owner.tensor(cid, self.name, (None,) if key is None else key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        """Reads the whole tensor for ``numpy.asarray``, which would otherwise wrap the description as an object."""
        array = self[...]
        if inspect.iscoroutine(array):
            array.close()
            raise TypeError(f"reading {self.name!r} is asynchronous: use `await tensor[...]`")
        converted: numpy.ndarray[Any, Any] = array if dtype is None else array.astype(dtype, copy=False)
        if copy is False and converted is not array:
            raise ValueError(f"{self.name!r} cannot be converted from {self.dtype} without a copy")
        return converted.copy() if copy else converted

    def __iter__(self) -> NoReturn:
        raise TypeError(f"iterating over {self.name!r} would read it row by row: read it first, with [...]")

    def __copy__(self) -> TensorInfo:
        return self

    def __deepcopy__(self, memo: Any) -> TensorInfo:
        return self

    def __reduce__(self) -> Any:
        # A Node belongs to its process.
        source = self._source if self._source and hasattr(self._source[0], "url") else None
        return _tensor_info, ((self.name, self.dtype, self.shape, self.nbytes, self.offset), source)


def _tensor_info(fields: tuple[Any, ...], source: tuple[Any, str] | None) -> TensorInfo:
    """Returns a description that reads its tensor from ``source``."""
    info = TensorInfo(*fields)
    object.__setattr__(info, "_source", source)
    return info


@dataclass(frozen=True, repr=False)
class TensorFile(Mapping[str, TensorInfo]):
    """The tensors of a ``.safetensors`` or ``.npy`` file by name, as returned by :meth:`Node.tensors`.

    Attributes:
        cid: Content ID of the file.
        format: ``"safetensors"`` or ``"npy"``.
        metadata: Metadata in the header of the file.
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
            similar = difflib.get_close_matches(str(name)[:256], self._compared(str(name)), 1)
            hint = f": did you mean {similar[0]!r}?" if similar else ""
            raise NotFoundError(f"no tensor named {name!r} among the {len(self.tensors)} of {self.cid}{hint}") from None

    def _compared(self, name: str) -> list[str]:
        """Returns the names to compare with an unknown one: those around it in sorted order, which begin like it, and
        the first ones."""
        ordered = sorted(self)
        at = bisect.bisect(ordered, name)
        return ordered[max(at - _COMPARED // 2, 0) : at + _COMPARED // 2] + list(self)[:_COMPARED]

    # The methods of Mapping would search for similar names.
    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the tensor with this name, or the default.

        Example:
            >>> file = TensorFile("Qm", "safetensors", {}, (TensorInfo("w", "F32", (2,), 8, 128),))
            >>> file.get("w").nbytes, file.get("bias")
            (8, None)
        """
        return self._by_name.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return (info.name for info in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __repr__(self) -> str:
        return f"<TensorFile {self.cid}: {self.format}, {len(self)} tensors, {_readable_size(self._nbytes)}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(info.name)}</td><td>{info.dtype}</td><td>{list(info.shape)}</td>"
            f"<td>{_readable_size(info.nbytes)}</td></tr>"
            for info in self.tensors[:_SHOWN_ROWS]
        )
        more = len(self) - _SHOWN_ROWS
        rest = f"<p>and {more} more</p>" if more > 0 else ""
        head = "<tr><th>name</th><th>dtype</th><th>shape</th><th>size</th></tr>"
        return f"<p>{html.escape(repr(self))}</p><table>{head}{rows}</table>{rest}"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    @property
    def _nbytes(self) -> int:
        return sum(info.nbytes for info in self.tensors)

    @functools.cached_property
    def _by_name(self) -> dict[str, TensorInfo]:
        return {info.name: info for info in self.tensors}


def _readable_size(count: int) -> str:
    """Returns a number of bytes for people, such as ``1.5 GB``."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


class AddOptions(TypedDict, total=False):
    """Options of :meth:`Node.add` and :meth:`Node.add_dir`. They correspond to those of ``ipfs add``.

    Omitted options take their value from the profile, and an omitted profile from ``import.profile`` of the
    configuration. Without options, content IDs are the same as those of ``ipfs add``.

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
    """Chunking of files: ``"size-262144"`` (bytes), ``"rabin-MIN-AVG-MAX"``, ``"buzhash"``."""
    hash: str
    """Hash function: ``"sha2-256"``, ``"sha2-512"``, ``"sha3-256"``, ``"blake2b-256"``, ``"blake3"`` ..."""
    trickle: bool
    """Use the trickle layout, in which the beginning of a file is near the root."""
    inline: bool
    """Store small blocks inside the content IDs that refer to them, instead of in the store."""
    inline_limit: int
    """Maximum size of such a block in bytes, up to 128; 32 by default. Setting it implies ``inline``."""
    max_file_links: int
    """Maximum number of links of a file's inner nodes."""
    max_directory_links: int
    """Maximum number of entries of a directory that is not sharded."""
    max_hamt_fanout: int
    """Fan-out of the shards of large directories: a power of two, 8 to 1024."""
    mode: int
    """Unix permissions to store for every file and directory, such as ``0o644``."""
    mtime: float
    """Modification time to store for every file and directory, in seconds since 1970."""
    preserve_mode: bool
    """Store the permissions that files have on disk."""
    preserve_mtime: bool
    """Store the modification times that files have on disk."""
    name: str
    """Name of the entry in the directory created by ``wrap``, without ``/``, and not ``.`` or ``..``. Defaults to the
    last component of a path, and to the content ID of content that has no path."""
    wrap: bool
    """Wrap the content in a directory, which preserves its name, and return the content ID of the directory."""
    dereference_symlinks: bool
    """Add the targets of all symlinks in a directory, which may be outside of it, instead of the symlinks."""
    nocopy: bool
    """Leave the content of files where it is, below ``store.filestore_root``, and store references to it. The files
    must not change."""
    fscache: bool
    """Do not store blocks that such references already lead to."""
    only_hash: bool
    """Compute the content ID and store nothing."""
    pin: bool
    """Pin the content, so that garbage collection keeps it. True by default."""
    pin_name: str
    """Name of the pin."""


class _Bar(Protocol):
    """The part of tqdm's interface that progress bars need."""

    total: Any

    def update(self, n: int, /) -> object: ...


class _Readable(Protocol):
    """A binary file, or another object with its ``read`` method."""

    def read(self, size: int, /) -> bytes: ...


class _Writable(Protocol):
    """A binary file, or another object with its ``write`` method."""

    def write(self, data: memoryview, /) -> object: ...


if TYPE_CHECKING:
    BytesLike: TypeAlias = Union[
        bytes, bytearray, memoryview, "array.array[Any]", "mmap.mmap", "numpy.ndarray[Any, Any]"
    ]
    Path: TypeAlias = Union[str, "os.PathLike[str]"]
    Source: TypeAlias = Union[BytesLike, Path, _Readable, Iterable[BytesLike]]
    AsyncSource: TypeAlias = Union[Source, AsyncIterable[BytesLike]]
    Destination: TypeAlias = Union[Path, _Writable]
    Progress: TypeAlias = Union[Callable[[int, Optional[int]], object], _Bar, bool]
    Part: TypeAlias = Union[int, slice, EllipsisType, None, list[int], range, numpy.ndarray[Any, Any]]
    Index: TypeAlias = Union[Part, tuple[Part, ...]]
    Key: TypeAlias = Union[str, Index]
