"""Copies from ``ipfrs://`` to the local file system, for :mod:`ipfrs.fs`."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any

from fsspec.callbacks import NoOpCallback  # type: ignore[import-untyped,unused-ignore]
from fsspec.implementations.local import make_path_posix  # type: ignore[import-untyped,unused-ignore]
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped,unused-ignore]

from ._saving import symlink_target
from .errors import InvalidInputError

if TYPE_CHECKING:
    from ._sync import Client, Node

# fsspec has such an instance, but its name differs between versions.
_NO_CALLBACK = NoOpCallback()


class CopyingFileSystem(AbstractFileSystem):  # type: ignore[misc,unused-ignore]
    """A file system whose copies create symlinks and never follow them."""

    @property
    def _store(self) -> Node | Client:
        """The store or client to read from."""
        raise NotImplementedError

    def get(self, rpath: Any, lpath: Any, recursive: bool = False, *args: Any, **kwargs: Any) -> None:
        """Writes files, or with `recursive` a directory with all its contents, to the local file system.

        As with ``cp -r``, a recursive copy creates symlinks as they are, and files replace files. Nothing is written
        through a symlink below `lpath`.

        Raises:
            FileNotFoundError: The path does not exist, or a block is missing.
            FileExistsError: There is a symlink in the way, or something in the way of a symlink.
            InvalidInputError: A path is a symlink, without `recursive`.
        """
        if isinstance(lpath, (str, os.PathLike)):
            lpath = make_path_posix(os.fspath(lpath))
            if recursive:
                kwargs["tree"] = os.path.abspath(lpath)
        super().get(rpath, lpath, recursive, *args, **kwargs)

    def get_file(
        self,
        rpath: str,
        lpath: Any,
        callback: Any = _NO_CALLBACK,
        outfile: Any = None,
        tree: str | None = None,
        **kwargs: object,
    ) -> None:
        """Writes a file to `lpath` in pieces, or creates a directory there.

        `tree` is the root of a recursive copy. Only there are symlinks created, because callers such as fsspec's
        caches open `lpath` afterwards, and would read a local file of the content's choice.

        Raises:
            FileNotFoundError: The path does not exist, or a block is missing.
            FileExistsError: A symlink below `tree` is in the way.
            InvalidInputError: The path is a symlink, and there is no `tree`.
        """
        about = self.info(rpath)
        if tree is not None:
            is_link = about["type"] == "link"
            check_way(tree, os.path.dirname(lpath) if is_link else lpath)
            if is_link:
                self._get_link(about["cid"], lpath)
                return
        if about["type"] == "directory":
            os.makedirs(lpath, exist_ok=True)
            return
        check_file(rpath, about["type"])
        callback.set_size(about["size"])
        with contextlib.ExitStack() as stack:
            if outfile is None:
                os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
                outfile = stack.enter_context(open(lpath, "wb"))
            for piece in self._store.chunks(about["cid"]):
                outfile.write(piece)
                callback.relative_update(len(piece))

    def _get_link(self, cid: str, lpath: str) -> None:
        target = symlink_target(bytes(self._store.get(cid)))
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        # A copy may be repeated.
        if not (os.path.islink(lpath) and os.readlink(os.fsencode(lpath)) == target):
            os.symlink(target, os.fsencode(lpath))


def check_file(path: str, kind: str) -> None:
    """Checks that a path has the type of a file."""
    if kind == "directory":
        raise IsADirectoryError(errno.EISDIR, "is a directory: open a file in it, or list it with ls", path)
    if kind == "link":
        remedy = "get its directory with recursive=True, or add that with dereference_symlinks=True"
        raise InvalidInputError(f"{path} is a symlink, not a file: {remedy}")
    if kind != "file":
        raise InvalidInputError(f"{path} is a node, not a file: read its block with get of ipfrs.Node or ipfrs.Client")


def check_way(root: str, path: str) -> None:
    """Checks that no part of a path below `root` is a symlink. Content may have created it."""
    path = os.path.abspath(path)
    while path != root and path.startswith(root.rstrip("/") + "/"):
        if os.path.islink(path):
            raise FileExistsError(errno.EEXIST, "is a symlink, which is not followed: remove it", path)
        path = os.path.dirname(path)
