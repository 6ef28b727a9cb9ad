"""What methods are given, checked before anything happens."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, cast

from ._values import AddOptions
from .errors import InvalidInputError

_REMEDY = "give a content ID, or a path such as CID/name"
_MAX_BYTES = 2**64 - 1
"""Where the native module's numbers end."""


def path(value: object) -> str:
    """A path as it is; what it leads to is for others to say.

    Raises:
        TypeError: It is no str.
        InvalidInputError: It is empty.
    """
    return text(value, "a path", _REMEDY)


def text(value: object, what: str, remedy: str) -> str:
    """``value`` as it is, if it is a str that is not empty; else the error says the remedy.

    Raises:
        TypeError: It is no str.
        InvalidInputError: It is empty.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}: {value!r:.80}")
    if not value:
        raise InvalidInputError(f"{what} is empty: {remedy}")
    return value


def url(value: object) -> str:
    """The URL of a daemon as it is.

    Raises:
        TypeError: It is no str.
        InvalidInputError: It is empty.
    """
    return text(value, "a URL", "give that of a daemon, such as http://127.0.0.1:8080")


def without_user(url: str) -> str:
    """A URL as it may be shown: without a user and a password."""
    return re.sub(r"^([a-zA-Z]+:[/\\]*)[^/\\?#]*@", r"\1", url.strip())


def texts(values: object) -> list[str]:
    """Content IDs as a list.

    Raises:
        TypeError: It is one str, or something in it is none.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"content IDs are an iterable of str, such as [cid], not {type(values).__name__}")
    return [block_cid(value) for value in values]


def block_cid(value: object) -> str:
    """The content ID in ``CID``, ``/ipfs/CID`` or ``ipfs://CID``: a block has no path.

    Raises:
        TypeError: It is no str.
        InvalidInputError: It is empty, or leads further.
    """
    cid = text(value, "a content ID", _REMEDY)
    if "/" not in cid:
        return cid
    for prefix in ("/ipfs/", "ipfs://"):
        if cid.startswith(prefix):
            cid = cid[len(prefix) :]
    if "/" in cid.rstrip("/"):
        raise InvalidInputError(f"{value!r} is a path, and this takes the content ID of a block: give resolve(path)")
    return cid.rstrip("/")


def start(offset: object) -> int:
    """Where a span of bytes begins, as a number that the native module has; what is larger is behind every file.

    Raises:
        TypeError: It is no integer.
        InvalidInputError: It is negative.
    """
    number = _integer(offset, "offset")
    if number < 0:
        raise InvalidInputError(f"offset is {number}: it counts bytes from the beginning, from 0 on")
    return min(number, _MAX_BYTES)


def span(offset: object, length: object) -> tuple[int, int | None]:
    """A span of bytes: as :func:`start`, and the length likewise, or None.

    Raises:
        TypeError: Something is no integer.
        InvalidInputError: A number is negative.
    """
    at = start(offset)
    if length is None:
        return at, None
    number = _integer(length, "length")
    if number < 0:
        raise InvalidInputError(f"length is {number}: give the number of bytes, or None for all there are")
    return at, min(number, _MAX_BYTES)


def _integer(value: object, what: str) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} is an int, not {type(value).__name__}: {value!r:.80}") from None


def native_options(options: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Options of ``add`` as the native module takes them; those that are None are left out.

    Raises:
        TypeError: There is no such option.
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
    if "wrap" in given:
        given["wrap_with_directory"] = given.pop("wrap")
    return given


def buffer(source: object) -> Any | None:
    """``source`` as something with contiguous bytes, copied only if it has none; None if it is no buffer at all.

    Raises:
        TypeError: Its elements are Python objects, whose bytes are addresses.
        ValueError: It was released or closed.
    """
    try:
        view = memoryview(source)  # type: ignore[arg-type]
    except TypeError:
        return None
    except ValueError:
        if not hasattr(source, "tobytes"):
            raise
        # A NumPy array of a type that the buffer protocol has no letter for, such as bfloat16 or datetime64.
        return cast(Any, source).tobytes()
    _no_objects(view, source)
    return source if view.c_contiguous else view.tobytes()


def writable(target: object) -> Any:
    """``target``, if bytes may be put into it. What else is wrong with it, the native module says.

    Raises:
        TypeError: Its elements are Python objects, and would be any address.
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
            " convert it first, as array.astype does"
        )


def bytes_of(source: object, what: str) -> Any:
    """As :func:`buffer`.

    Raises:
        TypeError: It is no buffer.
    """
    data = buffer(source)
    if data is None:
        raise TypeError(f"{what} is bytes-like, such as bytes, memoryview or a NumPy array, not {described(source)}")
    return data


def blocks(sources: object) -> list[Any]:
    """Blocks as a list of buffers.

    Raises:
        TypeError: It is one buffer, or something in it is none.
    """
    if isinstance(sources, (str, bytes, bytearray, memoryview)) or not isinstance(sources, Iterable):
        raise TypeError(f"blocks are an iterable of bytes-like, such as [data], not {type(sources).__name__}")
    return [bytes_of(source, "a block") for source in sources]


def refuse_directory(path: str, kind: str) -> None:
    """Only files can be opened.

    Raises:
        InvalidInputError: It is something else.
    """
    if kind == "directory":
        raise InvalidInputError(f"{path} is a directory: open a file in it, or list it with ls")
    if kind != "file":
        raise InvalidInputError(f"{path} is a {kind} and no file: its block can be had with get")


def described(source: object) -> str:
    """What something is, for messages."""
    return f"{type(source).__name__}: encode it first" if isinstance(source, str) else type(source).__name__


def no_async(source: object) -> None:
    """Refuses what only asyncio can read.

    Raises:
        TypeError: It is an async iterable and nothing else.
    """
    if isinstance(source, AsyncIterable) and not isinstance(source, Iterable):
        raise TypeError("an async iterable is read by AsyncNode and AsyncClient: use one of them, or a plain iterable")
