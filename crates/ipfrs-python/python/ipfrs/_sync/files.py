"""Files and directories."""

from __future__ import annotations

import io
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

from .. import _adding, _arguments, _saving
from .._files import BUFFER_BYTES, RawFile
from .._steps import finished
from .._values import AddOptions, Entry, Stat

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._native import Backend
    from .._values import Path, Progress, Source


class FileMethods:
    """Methods for files and directories."""

    _native: Backend

    def add(self, source: Source, *, progress: Progress | None = None, **options: Unpack[AddOptions]) -> str:
        """Adds one file and pins it. The content is durable when this returns.

        Without options, the content ID is the same as that of ``ipfs add``.

        Args:
            source: One of the following:

                * anything with the buffer protocol: bytes, bytearray, memoryview, mmap, a NumPy
                  array (its elements in row-major order);
                * the path of a file, or of a symlink to one, as str or ``os.PathLike``;
                * a binary file object, which is read to its end;
                * an iterable of bytes-like pieces.

                Files and pieces are streamed, so they may be larger than memory.
            progress: A callable that receives the number of bytes done and the total number of bytes (None if
                unknown); a bar with ``update(n)``, such as tqdm's; or True for a bar of tqdm, which must be installed.
            **options: See `AddOptions` for details:

                * profile (str): set of defaults, ``"unixfs-v0-2015"`` or ``"unixfs-v1-2025"``;
                * cid_version (0 or 1), raw_leaves (bool), hash (str, such as ``"blake3"``);
                * chunker (str): ``"size-BYTES"``, ``"rabin-MIN-AVG-MAX"`` or ``"buzhash"``;
                * trickle (bool), max_file_links (int), max_directory_links (int),
                  max_hamt_fanout (int): layout of the nodes;
                * inline (bool), inline_limit (int): store small blocks inside their content IDs;
                * mode (int), mtime (float, seconds since 1970), preserve_mode, preserve_mtime (bool);
                * dereference_symlinks (bool): in `add_dir`, add the targets of symlinks instead of the symlinks;
                * nocopy (bool), fscache (bool): leave the content in its file, below ``store.filestore_root``;
                * wrap (bool), name (str): wrap the file in a directory, under this name;
                * only_hash (bool): compute the content ID and store nothing;
                * pin (bool), pin_name (str): whether to pin the content, by default True.

        Returns:
            The content ID of the file, or of the directory with ``wrap``.

        Raises:
            TypeError: `source` is of another type or open in text mode, or there is no such option.
            FileNotFoundError: The file does not exist. To add a string as content, encode it.
            IsADirectoryError: The path is a directory. Use `add_dir`.
            InvalidInputError, UnsupportedError: The value of an option is invalid, or the path is a pipe, a socket or
                a device. Open it, and add the file object.
            NoSpaceError: The disk is full.

        Example:
            >>> node.add(b"hello world")
            'Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD'
            >>> node.add((b"hello", b" ", b"world"), cid_version=1)
            'bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e'
            >>> import numpy
            >>> cid = node.add(numpy.arange(10, dtype="int32"))
            >>> node.stat(cid).size
            40
        """
        _arguments.no_async(source)
        return finished(_adding.add(self._native, source, options, progress))

    def add_dir(
        self,
        path: Path,
        *,
        hidden: bool = False,
        progress: Progress | None = None,
        **options: Unpack[AddOptions],
    ) -> str:
        """Adds a directory with all its contents and pins it. Symlinks in it are kept as symlinks, unless
        ``dereference_symlinks=True`` replaces them with their targets.

        Args:
            path: The directory, or a symlink to one.
            hidden: Include files whose names begin with a dot.
            progress: As for `add`: a callable, a bar such as tqdm's, or True.
            **options: As for `add`.

        Returns:
            The content ID of the directory.

        Raises:
            NotADirectoryError: The path is not a directory. Use `add`.
            FileNotFoundError: The path, or the target of a symlink to add, does not exist.
            TypeError: There is no such option.
            InvalidInputError: The value of an option is invalid, the directory contains something other than files,
                directories and symlinks, or a symlink to add leads back to a directory that contains it.

        Example:
            >>> Path("photos").mkdir()
            >>> _ = Path("photos/a.txt").write_bytes(b"hello")
            >>> folder = node.add_dir("photos")
            >>> node.cat(folder + "/a.txt")
            b'hello'

            With a bar: ``with tqdm(unit="B", unit_scale=True) as bar: node.add_dir(path, progress=bar)``.
        """
        return finished(_adding.add_dir(self._native, path, hidden, options, progress))

    def cat(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Returns the content of a file, or a range of it.

        Args:
            path: ``CID``, ``CID/name``, ``/ipfs/CID/name``, ``/ipns/name``, ``ipfs://CID/name``.
            offset: Number of bytes to skip at the beginning.
            length: Maximum number of bytes to return; None for all remaining ones.

        Returns:
            The bytes. They are fewer than ``length`` only if the file ends earlier.

        Raises:
            NotFoundError: The path does not exist, or a block is missing.
            InvalidInputError: `path` is not a valid path, or is a directory; or a number is negative.

        Example:
            >>> node.cat(node.add(b"hello world"), offset=6, length=3)
            b'wor'
        """
        start, count = _arguments.span(offset, length)
        return cast(bytes, self._native.read(_arguments.path(path), start, count))

    def readinto(self, path: str, buffer: Any, offset: int = 0) -> int:
        """Reads a range of a file into an existing buffer.

        Args:
            path: As for `cat`.
            buffer: A writable object with contiguous bytes, such as a bytearray, a memoryview or a NumPy array.
            offset: Number of bytes of the file to skip at the beginning.

        Returns:
            The number of bytes written. It is less than the size of the buffer only if the file ends earlier.

        Raises:
            NotFoundError, InvalidInputError: As for `cat`.
            BufferError, ValueError: The buffer is read-only. The message is that of the object that owns it.

        Example:
            >>> numbers = numpy.empty(4, dtype="int32")
            >>> node.readinto(node.add(numpy.arange(10, dtype="int32")), numbers, offset=8)
            16
            >>> numbers.tolist()
            [2, 3, 4, 5]
        """
        start = _arguments.start(offset)
        return cast(int, self._native.readinto(_arguments.path(path), _arguments.writable(buffer), start))

    def chunks(self, path: str, offset: int = 0, length: int | None = None) -> Generator[memoryview, None, None]:
        """Returns an iterator over the content of a file, or a range of it, that reads the file in bounded memory.

        Args:
            path: As for `cat`.
            offset: Number of bytes to skip at the beginning.
            length: Maximum number of bytes to return; None for all remaining ones.

        Returns:
            An iterator of read-only memoryviews of at most a few megabytes. For a `Node`, they are views of the
            stored blocks, without a copy.

        Raises:
            NotFoundError, InvalidInputError: As for `cat`. They are raised before the first piece if possible.

        Example:
            >>> sum(piece.nbytes for piece in node.chunks(node.add(bytes(1_000_000))))
            1000000
        """
        start, count = _arguments.span(offset, length)
        return pieces(self._native.chunks(_arguments.path(path), start, count))

    def open(self, path: str, *, buffering: int = BUFFER_BYTES) -> io.BufferedReader:
        """Opens a file for reading, like the built-in ``open(path, "rb")``.

        Returns a seekable binary file, suitable for ``json.load``, ``zipfile``, PIL, pandas ... It holds no
        resources, and keeps reading the content that it opened even if the path later resolves to other content.

        Args:
            path: As for `cat`.
            buffering: Minimum number of bytes per read, for programs that read little at a time.

        Returns:
            A buffered file, whose ``raw`` attribute is the unbuffered file.

        Raises:
            NotFoundError, InvalidInputError: As for `cat`.

        Example:
            >>> import json
            >>> with node.open(node.add(b'{"answer": 42}')) as file:
            ...     json.load(file)
            {'answer': 42}
        """
        cid, kind, size, *_ = self._native.stat(_arguments.path(path))
        _arguments.refuse_directory(path, kind)
        return io.BufferedReader(RawFile(self._native, cid, size, path), buffering)

    def ls(self, path: str) -> list[Entry]:
        """Returns the entries of a directory, or the links of a node that is not UnixFS.

        Args:
            path: As for `cat`.

        Returns:
            Entries in the order of the directory, which is the order of their names unless the directory is sharded.

        Raises:
            NotFoundError: The path does not exist, or a block is missing.
            InvalidInputError: `path` is not a valid path, or is a file.

        Example:
            >>> folder = node.add(b"hello", name="a.txt", wrap=True)
            >>> [(entry.name, entry.kind, entry.size) for entry in node.ls(folder)]
            [('a.txt', 'file', 5)]
        """
        return [Entry(*entry) for entry in self._native.list(_arguments.path(path))]

    def stat(self, path: str) -> Stat:
        """Returns the kind and size of the content at a path.

        Args:
            path: As for `cat`.

        Raises:
            NotFoundError: The path does not exist, or a block is missing.
            InvalidInputError: `path` is not a valid path.

        Example:
            >>> stat = node.stat(node.add(b"hello"))
            >>> stat.kind, stat.size
            ('file', 5)
        """
        return Stat(*self._native.stat(_arguments.path(path)))

    def save(self, path: str, dest: Path, *, progress: Progress | None = None) -> str:
        """Saves a file, or a directory with all its contents, to the local file system.

        The content is built beside the target and moved there when it is complete. Nothing is written elsewhere,
        whatever the entries are called. Symlinks are created as they are, and not followed. Permissions and
        modification times that are stored with the content are not restored: `stat` returns them.

        Args:
            path: As for `cat`.
            dest: Path of the target. In an existing directory, the target is named after the last component of
                `path`. An existing file may be replaced by a file.
            progress: As for `add`.

        Returns:
            The path of the saved content.

        Raises:
            NotFoundError: The path does not exist, or a block is missing.
            FileExistsError: The target exists and cannot be replaced.
            InvalidInputError: The name of an entry is invalid or not unique, or the directories are nested too
                deeply.
            OSError: The target cannot be written.

        Example:
            >>> folder = node.add(b"hello", name="a.txt", wrap=True)
            >>> saved = node.save(folder, "copy")
            >>> Path("copy/a.txt").read_bytes()
            b'hello'
        """
        return finished(_saving.save(self._native, _arguments.path(path), dest, progress))

    def resolve(self, path: str) -> str:
        """Returns the content ID that a path resolves to.

        A `Node` also loads the block with this content ID. A `Client` does not, so the block need not be stored: use
        `has`.

        Args:
            path: As for `cat`. Names under ``/ipns`` are resolved first.

        Raises:
            NotFoundError: The path does not exist, or a block is missing.
            UnresolvableError: The name has no valid record and no DNSLink.
            InvalidInputError: `path` is not a valid path.

        Example:
            >>> folder = node.add(b"hello", name="a.txt", wrap=True)
            >>> node.resolve(f"/ipfs/{folder}/a.txt") == node.add(b"hello")
            True
        """
        return cast(str, self._native.resolve(_arguments.path(path)))


def pieces(chunks: Any) -> Generator[memoryview, None, None]:
    """Yields the pieces from the native module, and closes the stream when the generator is closed."""
    try:
        while (piece := chunks.next()) is not None:
            yield piece
    finally:
        chunks.close()
