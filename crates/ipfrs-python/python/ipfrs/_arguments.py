"""Checks of arguments, before a method has any effect."""

from __future__ import annotations

import difflib
import operator
import os
import re
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, cast

from ._values import AddOptions
from .errors import InvalidInputError

_REMEDY = "give a content ID, or a path such as CID/name"
_MAX_BYTES = 2**64 - 1
"""The largest integer that the native module accepts."""


def path(value: object) -> str:
    """Checks that a path is a str that is not empty, and returns it unchanged. Does not resolve it.

    Raises:
        TypeError: The path is not a str.
        InvalidInputError: The path is empty.
    """
    return text(value, "a path", _REMEDY)


def text(value: object, what: str, remedy: str) -> str:
    """Checks that ``value`` is a str that is not empty, and returns it unchanged. The error message includes
    ``remedy``.

    Raises:
        TypeError: ``value`` is not a str.
        InvalidInputError: ``value`` is empty.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}: {value!r:.80}")
    if not value:
        raise InvalidInputError(f"{what} is empty: {remedy}")
    return value


def local_path(value: Any, what: str, remedy: str = "") -> str:
    """Returns the path of a local file or directory as a str. The error message includes ``remedy``.

    Raises:
        TypeError: ``value`` is not a path.
        InvalidInputError: The path contains a NUL character.
    """
    name = os.fsdecode(value)
    if "\0" in name:
        shown = name if len(name) <= 80 else f"{name[:80]}..."
        raise InvalidInputError(f"{what} {shown!r} is not valid: a path contains no NUL character{remedy}")
    return name


def block_format(codec: object, hash: object) -> tuple[str, str]:
    """Checks the codec and the hash function of a block. A daemon would take an empty name as its default.

    Raises:
        TypeError: A name is not a str.
        InvalidInputError: A name is empty.
    """
    return text(codec, "a codec", "give one such as raw"), text(hash, "a hash function", "give one such as sha2-256")


def url(value: object) -> str:
    """Checks the URL of a daemon, and returns it unchanged.

    Raises:
        TypeError: The URL is not a str.
        InvalidInputError: The URL is empty.
    """
    return text(value, "a URL", "give that of a daemon, such as http://127.0.0.1:8080")


def without_user(url: str) -> str:
    """Returns a URL without user and password, so that it may be shown."""
    return re.sub(r"^([a-zA-Z]+:[/\\]*)[^/\\?#]*@", r"\1", url.strip())


def texts(values: object) -> list[str]:
    """Returns content IDs as a list.

    Raises:
        TypeError: ``values`` is a single str, or an element is not a str.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"content IDs must be an iterable of str, such as [cid], not {type(values).__name__}")
    return [block_cid(value) for value in values]


def block_cid(value: object) -> str:
    """Returns the content ID in ``CID``, ``/ipfs/CID``, ``ipfs://CID`` or ``ipfs:CID``. A block has no path.

    Raises:
        TypeError: ``value`` is not a str.
        InvalidInputError: ``value`` is empty, or has a path after the content ID.
    """
    cid = text(value, "a content ID", _REMEDY)
    scheme, colon, rest = cid.partition(":")
    cid = rest.lstrip("/") if colon and scheme.lower() == "ipfs" else cid.removeprefix("/ipfs/")
    if "/" in cid.rstrip("/"):
        raise InvalidInputError(f"{value!r} is a path, but the content ID of a block is required: pass resolve(path)")
    return cid.rstrip("/")


def start(offset: object) -> int:
    """Returns the start of a range of bytes, limited to the integers of the native module. Larger values are past the
    end of every file.

    Raises:
        TypeError: ``offset`` is not an integer.
        InvalidInputError: ``offset`` is negative.
    """
    number = _integer(offset, "offset")
    if number < 0:
        raise InvalidInputError(f"offset is {number}: it must be 0 or more")
    return min(number, _MAX_BYTES)


def span(offset: object, length: object) -> tuple[int, int | None]:
    """Returns a range of bytes: the offset as in :func:`start`, and the length limited likewise, or None.

    Raises:
        TypeError: An argument is not an integer.
        InvalidInputError: An argument is negative.
    """
    at = start(offset)
    if length is None:
        return at, None
    number = _integer(length, "length")
    if number < 0:
        raise InvalidInputError(f"length is {number}: pass the number of bytes, or None for all of them")
    return at, min(number, _MAX_BYTES)


def _integer(value: object, what: str) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}: {value!r:.80}") from None


def native_options(options: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Returns the options of ``add`` for the native module, without those that are None.

    Raises:
        TypeError: There is no such option.
        InvalidInputError: The hash function is empty, or an entry of a directory cannot have the name.
    """
    known = AddOptions.__annotations__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f": did you mean {near[0]!r}?" if near else f": there are {', '.join(known)}"
            raise TypeError(f"{method}() has no option {name!r}{hint}")
    given = {name: value for name, value in options.items() if value is not None}
    if "inline_limit" in given:
        given.setdefault("inline", True)
    if given.get("hash") == "":
        # A daemon would take it as its default.
        raise InvalidInputError("option hash is empty: give a hash function such as sha2-256, or omit it")
    if given.get("wrap") and isinstance(given.get("name"), str):
        _check_entry_name(given["name"])
    if "wrap" in given:
        given["wrap_with_directory"] = given.pop("wrap")
    return given


def _check_entry_name(name: str) -> None:
    """Rejects names that the import would read as a path: it would ignore ``.`` and ``..``, and create directories."""
    if not name:
        raise InvalidInputError("option name is empty: omit it for the default name")
    if name in (".", "..") or "/" in name:
        raise InvalidInputError(f"option name={name!r:.80}: give the name of one entry, without / and not . or ..")


def buffer(source: object) -> Any | None:
    """Returns ``source`` as an object with contiguous bytes. It is copied only if its bytes are not contiguous.
    Returns None if it does not support the buffer protocol.

    Raises:
        TypeError: The elements are Python objects, whose bytes are addresses.
        ValueError: ``source`` was released or closed.
    """
    try:
        view = memoryview(source)  # type: ignore[arg-type]
    except TypeError:
        return None
    except ValueError:
        if not hasattr(source, "tobytes"):
            raise
        # A NumPy array of a type that the buffer protocol cannot describe, such as bfloat16 or datetime64.
        return cast(Any, source).tobytes()
    _no_objects(view, source)
    return source if view.c_contiguous else view.tobytes()


def writable(target: object) -> Any:
    """Checks that bytes may be written into ``target``, and returns it. The native module reports all other errors.

    Raises:
        TypeError: The elements are Python objects, and the bytes would be arbitrary addresses.
    """
    try:
        view = memoryview(target)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return target
    _no_objects(view, target)
    return target


def _no_objects(view: memoryview, owner: object) -> None:
    if "O" in view.format:
        raise TypeError(
            f"the elements of this {type(owner).__name__} are Python objects, which have no bytes of their own:"
            " convert it first, for example with array.astype"
        )


def bytes_of(source: object, what: str) -> Any:
    """Returns ``source`` as :func:`buffer` does.

    Raises:
        TypeError: ``source`` does not support the buffer protocol.
    """
    data = buffer(source)
    if data is None:
        kinds = "such as bytes, memoryview or a NumPy array"
        raise TypeError(f"{what} must be bytes-like, {kinds}, not {described(source)}")
    return data


def blocks(sources: object) -> list[Any]:
    """Returns blocks as a list of buffers.

    Raises:
        TypeError: ``sources`` is a single buffer, or an element is not a buffer.
    """
    if isinstance(sources, (str, bytes, bytearray, memoryview)) or not isinstance(sources, Iterable):
        kind = type(sources).__name__
        raise TypeError(f"blocks must be an iterable of bytes-like objects, such as [data], not {kind}")
    return [bytes_of(source, "a block") for source in sources]


def refuse_directory(path: str, kind: str) -> None:
    """Checks that a path refers to a file, because only files can be opened.

    Raises:
        InvalidInputError: The path refers to something else.
    """
    if kind == "directory":
        raise InvalidInputError(f"{path} is a directory: open a file in it, or list it with ls")
    if kind != "file":
        raise InvalidInputError(f"{path} is a {kind}, not a file: read its block with get")


def described(source: object) -> str:
    """Returns a description of ``source`` for error messages."""
    return f"{type(source).__name__}: encode it first" if isinstance(source, str) else type(source).__name__


def no_async(source: object) -> None:
    """Rejects sources that only asyncio can read.

    Raises:
        TypeError: ``source`` is an async iterable and not also an iterable.
    """
    if isinstance(source, AsyncIterable) and not isinstance(source, Iterable):
        raise TypeError("an async iterable needs AsyncNode or AsyncClient: use one of them, or a plain iterable")
