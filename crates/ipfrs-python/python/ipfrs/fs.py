"""``ipfrs://`` for fsspec: pandas, pyarrow, dask and zarr read content by its content ID.

If fsspec is installed, the protocol is registered automatically::

    pandas.read_parquet("ipfrs://bafy.../table.parquet")                     # from the daemon at IPFRS_URL
    pandas.read_csv("ipfrs://bafy.../a.csv", storage_options={"path": repo})   # from a store in the process

Content never changes under its content ID, so caches stay valid, and the file system is read-only.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import io
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

from fsspec.config import apply_config  # type: ignore[import-untyped,unused-ignore]
from fsspec.registry import known_implementations, registry  # type: ignore[import-untyped,unused-ignore]
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped,unused-ignore]
from fsspec.utils import tokenize  # type: ignore[import-untyped,unused-ignore]

from . import errors
from ._fs_copy import CopyingFileSystem, check_file
from ._sync import Client, Node
from .errors import ConflictError, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from typing import Optional, Union

    from typing_extensions import TypeAlias

    from ._values import Entry, Kind, Stat

    # Directory of a store, or URL and token of a daemon.
    _Place: TypeAlias = Union[tuple[str], tuple[Optional[str], Optional[str]]]

__all__ = ["IpfrsFileSystem"]

_BLOCK_BYTES = 1024 * 1024
# Maximum length of a path, and so of the target of a symlink.
_MAX_TARGET_BYTES = 4096
# Maximum number of paths that are remembered as files.
_MAX_FILES = 4096
# Maximum number of ranges that are read concurrently.
_READERS = 8
_TYPES: dict[Kind, str] = {"file": "file", "directory": "directory", "symlink": "link", "node": "other"}

_OPTIONS = ("endpoint_url", "token", "path", "client")
# Options that fsspec's base classes, chained URLs and open() pass to all file systems.
_OPTIONS_OF_FSSPEC = frozenset(
    "add_aliases add_docs asynchronous auto_mkdir batch_size block_size cache_options cache_type default_block_size "
    "default_cache_type default_fill_cache fo listings_expiry_time loop max_paths protocol skip_instance_cache "
    "target_options target_protocol use_listings_cache".split()
)
# Entries of which a repo has at least one.
_OF_A_REPO = ("version", "identity.key", "packs", "pins.redb")

# fsspec creates an instance per thread, but a store can be open only once, so instances share open stores.
_shared: dict[_Place, Node | Client] = {}
_sharing = threading.Lock()


def _after_fork_in_child() -> None:
    # Another thread may have held the lock. Clients remain and connect again; nodes belong to the parent.
    global _sharing
    _sharing = threading.Lock()
    for place in [place for place in _shared if len(place) == 1]:
        del _shared[place]


os.register_at_fork(after_in_child=_after_fork_in_child)


class _ByAddress(type(AbstractFileSystem)):  # type: ignore[misc]
    """fsspec keeps instances by their arguments. The resolved place to read from becomes one of them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kwargs = _without_others(apply_config(cls, kwargs))
        client, path = kwargs.get("client"), kwargs.get("path")
        if client is not None:
            # fsspec would tell clients apart by their representations, which equal ones share. It must not keep them
            # open either.
            made = super().__call__(*args, **{**kwargs, "skip_instance_cache": True})
            made._fs_token_ = tokenize(made._fs_token_, id(client))
            return made
        if path is not None:
            # The working directory may change.
            kwargs["path"] = os.path.realpath(os.fsdecode(path))
        elif kwargs.get("endpoint_url") is None and (address := os.environ.get("IPFRS_URL")):
            kwargs["endpoint_url"] = address
        return super().__call__(*args, **kwargs)


class IpfrsFileSystem(CopyingFileSystem, metaclass=_ByAddress):  # type: ignore[misc,unused-ignore]
    """A read-only file system of files and directories by content ID.

    Paths have the form ``CID/a/b``, optionally with the prefix ``ipfrs://``, ``ipfs://`` or ``/ipfs/``. A path
    ``/ipns/NAME/a/b`` is resolved each time that it is used. Symlinks are not followed: they are listed with the type
    ``link``, only a recursive :meth:`get` copies them, and other reads refuse them.

    Args:
        endpoint_url: URL of the daemon. Defaults to the environment variable ``IPFRS_URL``, or else to the default of
            :class:`ipfrs.Client`.
        token: Access token for the daemon.
        path: Directory of an existing store to open in this process instead, as :class:`ipfrs.Node` does.
        client: An open :class:`ipfrs.Node` or :class:`ipfrs.Client` to use instead. The caller remains responsible
            for closing it.
        **storage_options: Options that all fsspec file systems accept. Mappings with the options of other protocols,
            such as the ``hf`` that datasets of Hugging Face adds, are ignored.

    Raises:
        InvalidInputError: More than one of `endpoint_url`, `path` and `client` is given, or `token` without a daemon.
        FileNotFoundError: There is no store at `path`. Use :class:`ipfrs.Node` to create one.
        TypeError: `client` is another object, such as an `AsyncClient`, or there is no such option.

    Example:
        >>> cid = node.add(b"a,b\\n1,2\\n", name="table.csv", wrap=True)
        >>> fs = IpfrsFileSystem(client=node)
        >>> fs.ls(cid, detail=False) == [f"{cid}/table.csv"]
        True
        >>> fs.cat_file(f"ipfrs://{cid}/table.csv", start=4)
        b'1,2\\n'
    """

    protocol = ("ipfrs", "ipfs")
    root_marker = ""
    blocksize = _BLOCK_BYTES

    def __init__(
        self,
        *args: object,
        endpoint_url: str | None = None,
        token: str | None = None,
        path: str | os.PathLike[str] | None = None,
        client: Node | Client | None = None,
        **storage_options: Any,
    ) -> None:
        super().__init__(*args, **storage_options)
        for name in sorted(storage_options.keys() - _OPTIONS_OF_FSSPEC):
            near = difflib.get_close_matches(name, _OPTIONS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_OPTIONS)}"
            raise TypeError(f"ipfrs:// has no option {name!r}: {hint}")
        if sum(option is not None for option in (endpoint_url, path, client)) > 1:
            message = "give one of endpoint_url, path and client: each of them selects where content is read from"
            raise InvalidInputError(message)
        if token is not None and (path is not None or client is not None):
            raise InvalidInputError("token is for a daemon: omit it with path and client")
        if client is not None and not isinstance(client, (Node, Client)):
            kind = type(client).__name__
            raise TypeError(f"client must be an open ipfrs.Node or ipfrs.Client, not {kind}: omit it for a daemon")
        self._given = client
        # Immutable paths that are known to be files.
        self._files: set[str] = set()
        if path is None:
            self._place: _Place = (endpoint_url or None, token)
        else:
            directory = os.path.realpath(path)
            _check_repo(directory)
            self._place = (directory,)

    @property
    def _store(self) -> Node | Client:
        """The store or client to read from. If it was closed, it is opened again."""
        return _opened(self._place) if self._given is None else self._given

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = os.fspath(path)
        for prefix in ("ipfrs://", "ipfs://", "/ipfs/"):
            if text.startswith(prefix):
                text = text[len(prefix) :]
        # dask asks for absolute paths.
        if not text.startswith("/ipns/"):
            text = text.lstrip("/")
        return text.rstrip("/") or cls.root_marker

    @property
    def fsid(self) -> str:
        """Identifier of the file system. It is constant, because content is the same on all servers."""
        return "ipfs"

    # Metadata

    def info(self, path: str, **kwargs: object) -> dict[str, Any]:
        """Returns metadata of a path: ``name``, ``size`` in bytes, ``type``, ``cid``, and ``mode`` and ``mtime`` if
        known.

        Raises:
            FileNotFoundError: The path does not exist, or a block is missing.
        """
        path = self._strip_protocol(path)
        for entry in self._ls_from_cache(path) or ():
            if entry["name"] == path:
                return dict(entry)
        with _missing(path):
            return _described(path, self._store.stat(path))

    def ls(self, path: str, detail: bool = True, refresh: bool = False, **kwargs: object) -> list[Any]:
        """Returns the entries of a directory, or the file itself, as names, or as :meth:`info` returns them if
        `detail`.

        Raises:
            FileNotFoundError: The path does not exist, or a block is missing.
        """
        path = self._strip_protocol(path)
        if not path:
            raise InvalidInputError("ipfrs:// itself has no listing: add a content ID")
        # fsspec's own cache lookup would mistake the metadata of a directory for its entries.
        entries = None if refresh or path not in self.dircache else self.dircache[path]
        if entries is None:
            entries = self._list(path)
        return [dict(entry) for entry in entries] if detail else [entry["name"] for entry in entries]

    def _list(self, path: str) -> list[dict[str, Any]]:
        about = self.info(path)
        if about["type"] != "directory":
            return [about]
        with _missing(path):
            entries = [_described(_inside(path, entry.name), entry) for entry in self._store.ls(path)]
        entries.sort(key=lambda entry: str(entry["name"]))
        if not path.startswith("/ipns/"):
            self.dircache[path] = entries
        return entries

    def exists(self, path: str, **kwargs: object) -> bool:
        """Returns whether a path exists. Unlike in other file systems, an unreachable daemon or a missing store raises
        an error."""
        try:
            self.info(path)
        except errors.LocalFileError:
            raise
        except (FileNotFoundError, InvalidInputError):
            return False
        return True

    def isdir(self, path: str) -> bool:
        """Returns whether a path is a directory. It is not if the path is invalid."""
        try:
            return bool(super().isdir(path))
        except InvalidInputError:
            return False

    def ukey(self, path: str) -> str:
        """Returns the content ID, which identifies the bytes uniquely."""
        return str(self.info(path)["cid"])

    def modified(self, path: str) -> datetime.datetime:
        """Returns the modification time stored with the content, or 1970 if there is none. Callers such as DuckDB use
        it to detect changes, and content under a content ID never changes."""
        path = self._strip_protocol(path)
        with _missing(path):
            seconds = self._store.stat(path).mtime
        return datetime.datetime.fromtimestamp(seconds or 0, datetime.timezone.utc)

    def checksum(self, path: str) -> int:
        """Returns a number derived from the content ID."""
        return int(tokenize(self.ukey(path)), 16)

    # Content

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> IpfrsFile:
        if mode != "rb":
            self._refuse()
        file = IpfrsFile(self, path, mode, block_size, autocommit, cache_options=cache_options, **kwargs)
        check_file(path, file.details["type"])
        return file

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: object) -> bytes:
        """Returns the bytes from `start` to `end`. Negative positions count from the end of the file.

        Raises:
            FileNotFoundError: The path does not exist, or a block is missing.
            IsADirectoryError: The path is a directory.
            InvalidInputError: The path is a symlink, or invalid.
        """
        path = self._strip_protocol(path)
        if (start or 0) < 0 or (end or 0) < 0:
            start, end, _ = slice(start, end).indices(self._file_info(path)["size"])
        try:
            data = self._read(path, start or 0, end)
        except InvalidInputError:
            self._file_info(path)
            raise
        # A store returns the target of a symlink as its content. Larger reads need no second request.
        if len(data) <= _MAX_TARGET_BYTES and path not in self._files:
            self._file_info(path)
        return data

    def _file_info(self, path: str) -> dict[str, Any]:
        """Returns the metadata of a file. Only a name may lead to something else later."""
        about = self.info(path)
        check_file(path, about["type"])
        if not path.startswith("/ipns/"):
            # No lock is needed, as each of these operations is atomic.
            if len(self._files) >= _MAX_FILES:
                self._files.clear()
            self._files.add(path)
        return about

    def _read(self, path: str, start: int, end: int | None) -> bytes:
        length = None if end is None else max(end - start, 0)
        if length == 0:
            return b""
        with _missing(path):
            return self._store.cat(path, offset=start, length=length)

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: object,
    ) -> list[Any]:
        """Returns a range of each path, fetched concurrently. With ``on_error="return"``, a failed range is its
        exception."""
        if max_gap is not None:
            raise NotImplementedError("max_gap is not supported: ranges are not merged")
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * len(paths)
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise InvalidInputError(f"{len(paths)} paths, {len(starts)} starts and {len(ends)} ends: give one for each")

        def one(wanted: tuple[str, int | None, int | None]) -> Any:
            try:
                return self.cat_file(*wanted)
            except Exception as error:
                if on_error == "return":
                    return error
                raise

        with ThreadPoolExecutor(_READERS) as readers:
            return list(readers.map(one, zip(paths, starts, ends)))

    # Unsupported operations

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise io.UnsupportedOperation(
            "ipfrs:// is read-only: content never changes under its ID. Add new content with ipfrs.Node.add or "
            "ipfrs.Client.add, which gives its ID"
        )

    mkdir = makedirs = rmdir = rm = rm_file = _rm = cp_file = mv = put_file = pipe_file = touch = _refuse

    def close(self) -> None:
        """Clears the cache of listings, and closes the shared store of all file systems with the same options.

        A later use opens the store again. An object given as `client` stays open.
        """
        self.dircache.clear()
        if self._given is None:
            with _sharing:
                store = _shared.pop(self._place, None)
            if store is not None:
                store.close()


class IpfrsFile(AbstractBufferedFile):  # type: ignore[misc,unused-ignore]
    """A file that is open for reading. fsspec caches data that is read ahead, according to ``cache_type``."""

    DEFAULT_BLOCK_SIZE = _BLOCK_BYTES

    def _fetch_range(self, start: int, end: int) -> bytes:
        # Read by content ID, because the path might resolve to other content while the file is open.
        data: bytes = self.fs._read(self.details["cid"], start, end)
        return data


def _without_others(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options without those of other protocols, which callers keep in the same dictionary."""
    others = {*known_implementations, *registry}.difference(IpfrsFileSystem.protocol)
    return {name: value for name, value in options.items() if name not in others or not isinstance(value, Mapping)}


def _opened(place: _Place) -> Node | Client:
    """Returns the open store or client for this place, or opens one."""
    with _sharing:
        store = _shared.get(place)
        if store is None or store.closed:
            if len(place) == 1:
                _check_repo(place[0])
                try:
                    store = Node(place[0])
                except ConflictError as error:
                    hint = (
                        'to use a Node that is open in this process, pass it: storage_options={"client": node}; '
                        "other processes, also forked ones, need a daemon"
                    )
                    raise ConflictError(f"{error}; {hint}") from error
            else:
                url, token = place
                store = Client(token=token) if url is None else Client(url, token=token)
            _shared[place] = store
        return store


def _check_repo(directory: str) -> None:
    """Checks that a directory has a repo, because opening a Node would create one."""
    if not any(os.path.lexists(os.path.join(directory, name)) for name in _OF_A_REPO):
        remedy = "create it with ipfrs.Node, or correct the path"
        error = errors.FileNotFoundError(f"there is no ipfrs repo at {directory}: {remedy}")
        error.filename = directory
        raise error


def _inside(path: str, name: str) -> str:
    """Returns the path of an entry. Names are untrusted, and fsspec joins them with local paths."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise InvalidInputError(f"refusing an entry called {name!r} in {path}: that is not a valid file name")
    return f"{path}/{name}"


def _described(name: str, found: Entry | Stat) -> dict[str, Any]:
    about: dict[str, Any] = {
        "name": name,
        "size": 0 if found.kind == "directory" else found.size,
        "type": _TYPES[found.kind],
        "cid": found.cid,
    }
    for key in ("mode", "mtime"):
        value = getattr(found, key, None)
        if value is not None:
            about[key] = value
    return about


@contextlib.contextmanager
def _missing(path: str) -> Iterator[None]:
    """Adds the path to errors about missing content, as file systems do."""
    try:
        yield
    except NotFoundError as error:
        error.filename = path
        raise
