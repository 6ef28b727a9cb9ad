"""The native module. ``Backend`` has two modes. If it is blocking, its methods return values. If it is asynchronous,
the same methods return awaitables of these values. A return type of ``Any`` stands for either."""

from typing import Any, Callable, Final, TypedDict, final

# Anything with the buffer protocol and contiguous bytes (C-contiguous). Others raise an InvalidInputError.
Buffer = Any
WritableBuffer = Any

__version__: Final[str]

class AddOptions(TypedDict, total=False):
    """Options of an import, as in Kubo's ``add``."""

    profile: str | None
    cid_version: int | None
    raw_leaves: bool | None
    chunker: str | None
    hash: str | None
    inline: bool
    inline_limit: int | None
    trickle: bool | None
    mode: int | None
    mtime: int | float | None
    preserve_mode: bool
    preserve_mtime: bool
    max_file_links: int | None
    max_directory_links: int | None
    max_hamt_fanout: int | None
    nocopy: bool
    fscache: bool
    only_hash: bool
    wrap_with_directory: bool
    pin: bool
    pin_name: str
    name: str
    hidden: bool
    dereference_symlinks: bool

@final
class Backend:
    @staticmethod
    def node(path: str | None, config: str | None, asynchronous: bool) -> Backend: ...
    @staticmethod
    def client(url: str, token: str | None, timeout: float | None, asynchronous: bool) -> Backend: ...
    @property
    def is_inherited(self) -> bool: ...  # made by the parent, and not used in this forked process
    @property
    def closed(self) -> bool: ...
    def open(self) -> Any: ...  # None
    def close(self) -> Any: ...  # None
    def version(self) -> Any: ...  # str
    def stats(self) -> Any: ...  # dict[str, int | str]
    def put(self, data: Buffer, codec: str, mhtype: str, pin: bool) -> Any: ...  # str
    def put_many(self, blocks: list[Buffer], codec: str, mhtype: str, pin: bool) -> Any: ...  # list[str]
    def get(self, cid: str) -> Any: ...  # memoryview
    def get_many(self, cids: list[str]) -> Any: ...  # list[memoryview | None]
    def has_many(self, cids: list[str]) -> Any: ...  # list[bool]
    def size(self, cid: str) -> Any: ...  # int
    def remove(self, cids: list[str], force: bool) -> Any: ...  # None
    def add(self, data: Buffer, options: AddOptions) -> Any: ...  # tuple[str, int]
    def add_path(
        self, path: str, options: AddOptions, progress: Callable[[int, int | None], object] | None
    ) -> Any: ...  # tuple[str, int]
    def begin_add(self, options: AddOptions) -> Any: ...  # Writer
    def read(self, path: str, offset: int, length: int | None) -> Any: ...  # bytes
    def readinto(self, path: str, buffer: WritableBuffer, offset: int) -> Any: ...  # int
    def chunks(self, path: str, offset: int, length: int | None) -> Any: ...  # Chunks
    def list(self, path: str) -> Any: ...  # list[tuple[str, str, str, int]]: name, cid, kind, size
    def stat(self, path: str) -> Any: ...  # tuple[str, str, int, int | None, int | None, float | None]
    def resolve(self, path: str) -> Any: ...  # str
    def pin(self, path: str, recursive: bool, name: str | None) -> Any: ...  # str
    def unpin(self, path: str, recursive: bool) -> Any: ...  # None
    def pins(self) -> Any: ...  # list[tuple[str, str, str]]: cid, kind, name
    def export_car(self, path: str) -> Any: ...  # Chunks
    def begin_import_car(self, pin_roots: bool) -> Any: ...  # Writer
    def collect(self, force: bool) -> Any: ...  # tuple[int, int]: blocks, bytes
    def tensors(
        self, path: str
    ) -> Any: ...  # tuple[str, str, dict[str, str], list[tuple[str, str, tuple[int, ...], int, int]]]
    def tensor(self, path: str, name: str, slice: str) -> Any: ...  # tuple[str, tuple[int, ...], memoryview]
    def tensor_into(
        self, path: str, name: str, slice: str, buffer: WritableBuffer
    ) -> Any: ...  # tuple[str, tuple[int, ...]]
    def tensor_stats(self, path: str, name: str) -> Any: ...  # dict[str, int | float | None]

@final
class Writer:
    """A sink for the bytes of a file or a CAR. If it is dropped or aborted before ``finish``, nothing is kept."""

    def write(self, data: Buffer) -> Any: ...  # None; waits until there is room
    def finish(self) -> Any: ...  # tuple[str, int] of a file, list[str] of a CAR
    def abort(self) -> None: ...

@final
class Chunks:
    """A stream of bytes, in pieces of at most a few megabytes."""

    @property
    def size(self) -> int | None: ...  # bytes in all, where that is known
    def next(self) -> Any: ...  # memoryview | None
    def close(self) -> None: ...

@final
class Gateway:
    @staticmethod
    def check(repo: str | None, file: str | None, config: str | None) -> None: ...
    @staticmethod
    def start(repo: str | None, file: str | None, config: str | None) -> Gateway: ...
    @property
    def urls(self) -> list[str]: ...
    @property
    def grpc_addresses(self) -> list[str]: ...
    @property
    def repo(self) -> str: ...
    @property
    def running(self) -> bool: ...
    def stop(self) -> None: ...

def after_fork_in_child() -> None: ...
