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
    """Methods of files and directories."""

    _native: Backend

    def add(self, source: Source, *, progress: Progress | None = None, **options: Unpack[AddOptions]) -> str:
        """Adds one file, and pins it. Once this returns, it is durable.

        Without options its content ID is the one of ``ipfs add``.

        Args:
            source: One of

                * anything with the buffer protocol: bytes, bytearray, memoryview, mmap, a NumPy
                  array (its elements in row-major order);
                * the path of a file, or of a symlink to one, as str or ``os.PathLike``;
                * a binary file object, which is read to its end;
                * an iterable of bytes-like pieces.

                Files and pieces are streamed: they may be larger than memory.
            progress: Called with the bytes that are done and the bytes that there are (None where
                that is not known); or a bar with ``update(n)``, such as tqdm's.
            **options: As `AddOptions` says them:

                * profile (str): set of defaults, ``"unixfs-v0-2015"`` or ``"unixfs-v1-2025"``;
                * cid_version (0 or 1), raw_leaves (bool), hash (str, such as ``"blake3"``);
                * chunker (str): ``"size-BYTES"``, ``"rabin-MIN-AVG-MAX"`` or ``"buzhash"``;
                * trickle (bool), max_file_links (int), max_directory_links (int),
                  max_hamt_fanout (int): how nodes are laid out;
                * inline (bool), inline_limit (int): small blocks go into their content IDs;
                * mode (int), mtime (float, seconds since 1970), preserve_mode, preserve_mtime (bool);
                * wrap (bool), name (str): into a directory of its own, under this name;
                * only_hash (bool): make the content ID and store nothing;
                * pin (bool), pin_name (str): whether garbage collection keeps it; True if left out.

        Returns:
            The content ID of the file; with ``wrap`` that of the directory.

        Raises:
            TypeError: `source` is none of these, is open in text mode, or there is no such option.
            FileNotFoundError: There is no file of this name. A text is added by its bytes.
            IsADirectoryError: It is a directory: use `add_dir`.
            InvalidInputError, UnsupportedError: An option has a value that is not possible; or the path is
                that of a pipe, a socket or a device: open it, and add the file object.
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
        """Adds a directory with everything in it, and pins it. Symlinks in it are kept as such.

        Args:
            path: The directory, or a symlink to one.
            hidden: Take files along whose names begin with a dot.
            progress: As for `add`: a callable, or a bar such as tqdm's.
            **options: As for `add`.

        Returns:
            The content ID of the directory.

        Raises:
            NotADirectoryError: It is something else: use `add`.
            FileNotFoundError: There is nothing of this name.
            TypeError: There is no such option.
            InvalidInputError: An option is not possible, or something in it is no file, directory or symlink.

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
        """The content of a file, or a range of it.

        Args:
            path: ``CID``, ``CID/name``, ``/ipfs/CID/name``, ``/ipns/name``, ``ipfs://CID/name``.
            offset: Bytes to leave out at the beginning.
            length: Most bytes to give; None for all there are.

        Returns:
            Fewer bytes than ``length`` only where the file ends.

        Raises:
            NotFoundError: The path leads nowhere, or a block is not here.
            InvalidInputError: It is no path, or leads to a directory; or a number is negative.

        Example:
            >>> node.cat(node.add(b"hello world"), offset=6, length=3)
            b'wor'
        """
        start, count = _arguments.span(offset, length)
        return cast(bytes, self._native.read(_arguments.path(path), start, count))

    def readinto(self, path: str, buffer: Any, offset: int = 0) -> int:
        """Reads a range of a file into memory that is there already.

        Args:
            path: As for `cat`.
            buffer: Anything writable with contiguous bytes: bytearray, memoryview, a NumPy array.
            offset: Bytes of the file to leave out at the beginning.

        Returns:
            How many bytes were written: fewer than the buffer has only where the file ends.

        Raises:
            NotFoundError, InvalidInputError: As for `cat`.
            BufferError, ValueError: The buffer is read-only, in the words of its owner.

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
        """The content of a file, or a range of it, piece by piece as it is read, in bounded memory.

        Args:
            path: As for `cat`.
            offset: Bytes to leave out at the beginning.
            length: Most bytes to give; None for all there are.

        Returns:
            An iterator of read-only memoryviews, of some megabytes at most. In the process they lie
            over the stored blocks, without a copy.

        Raises:
            NotFoundError, InvalidInputError: As for `cat`; before the first piece where it can be told.

        Example:
            >>> sum(piece.nbytes for piece in node.chunks(node.add(bytes(1_000_000))))
            1000000
        """
        start, count = _arguments.span(offset, length)
        return pieces(self._native.chunks(_arguments.path(path), start, count))

    def open(self, path: str, *, buffering: int = BUFFER_BYTES) -> io.BufferedReader:
        """Opens a file for reading, as the built-in ``open(path, "rb")`` does.

        What it gives is a binary file that can seek, for ``json.load``, ``zipfile``, PIL, pandas ...
        It holds nothing open, and reads what it opened even if the name leads elsewhere meanwhile.

        Args:
            path: As for `cat`.
            buffering: Bytes that are read at least, for programs that read little at a time.

        Returns:
            A buffered file; its ``raw`` is the unbuffered one.

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
        """The entries of a directory, or the links of what is no UnixFS.

        Args:
            path: As for `cat`.

        Returns:
            Entries in the order of the directory, which is that of names unless it is sharded.

        Raises:
            NotFoundError: The path leads nowhere, or a block is not here.
            InvalidInputError: It is no path, or leads to a file.

        Example:
            >>> folder = node.add(b"hello", name="a.txt", wrap=True)
            >>> [(entry.name, entry.kind, entry.size) for entry in node.ls(folder)]
            [('a.txt', 'file', 5)]
        """
        return [Entry(*entry) for entry in self._native.list(_arguments.path(path))]

    def stat(self, path: str) -> Stat:
        """What a path leads to, and how large it is.

        Args:
            path: As for `cat`.

        Raises:
            NotFoundError: The path leads nowhere, or a block is not here.
            InvalidInputError: It is no path.

        Example:
            >>> stat = node.stat(node.add(b"hello"))
            >>> stat.kind, stat.size
            ('file', 5)
        """
        return Stat(*self._native.stat(_arguments.path(path)))

    def save(self, path: str, dest: Path, *, progress: Progress | None = None) -> str:
        """Saves a file, or a directory with everything in it, on this machine.

        It is built beside the target and moved there once it is whole. Nothing is ever written
        elsewhere, whatever entries are called; symlinks are made as they are, and not followed.

        Args:
            path: As for `cat`.
            dest: Where to save it. In a directory that is there it gets the last part of the path as
                its name; a file that is there is replaced by a file.
            progress: As for `add`.

        Returns:
            Where it was saved.

        Raises:
            NotFoundError: The path leads nowhere, or a block is not here.
            FileExistsError: Something is in the way.
            InvalidInputError: A name of an entry is none, is there twice, or it is too deep.
            OSError: It cannot be written there.

        Example:
            >>> folder = node.add(b"hello", name="a.txt", wrap=True)
            >>> saved = node.save(folder, "copy")
            >>> Path("copy/a.txt").read_bytes()
            b'hello'
        """
        return finished(_saving.save(self._native, _arguments.path(path), dest, progress))

    def resolve(self, path: str) -> str:
        """The content ID that a path leads to.

        Args:
            path: As for `cat`; of names under ``/ipns`` this asks where they lead.

        Raises:
            NotFoundError: The path leads nowhere, or a block is not here.
            UnresolvableError: The name has no valid record and no DNSLink.
            InvalidInputError: It is no path.

        Example:
            >>> folder = node.add(b"hello", name="a.txt", wrap=True)
            >>> node.resolve(f"/ipfs/{folder}/a.txt") == node.add(b"hello")
            True
        """
        return cast(str, self._native.resolve(_arguments.path(path)))


def pieces(chunks: Any) -> Generator[memoryview, None, None]:
    """What the native module gives piece by piece, as an iterator that can be closed."""
    try:
        while (piece := chunks.next()) is not None:
            yield piece
    finally:
        chunks.close()
