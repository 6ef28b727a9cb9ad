"""Encodes configurations as TOML. ``tomllib`` can only read it, and this module has no dependencies."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ._arguments import local_path
from .errors import InvalidInputError, local_error

if TYPE_CHECKING:
    from ._values import Path

_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1


def configuration(config: Path | Mapping[str, object] | None) -> str | None:
    """Returns a configuration as TOML, from a mapping of sections or from the file at a path.

    Raises:
        TypeError: ``config`` is of another type.
        LocalFileError: The file cannot be read.
        InvalidInputError: The file is not UTF-8, or its path contains a NUL character.
    """
    if config is None or isinstance(config, Mapping):
        return None if config is None else document(config)
    if not isinstance(config, (str, os.PathLike)):
        raise TypeError(
            'config must be the path of a TOML file, or a mapping of sections such as {"store": {...}},'
            f" not {type(config).__name__}"
        )
    path = local_path(config, "the path of the configuration")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise local_error(f"cannot read the configuration {path}", error, path) from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"the configuration {path} is not UTF-8: {error}") from error


def document(sections: Mapping[str, object]) -> str:
    """Returns the TOML text of a mapping of sections, each a mapping of keys.

    Args:
        sections: For example ``{"server": {"port": 0}}``. Values may be of the TOML types: str, bool, int, float,
            dates and times, and lists and mappings of these. Paths are written as strings.

    Returns:
        Text that parses to the same values.

    Raises:
        TypeError: A value has no TOML representation, or a section is not a mapping. The message names it.
        ValueError: An integer has more than 64 bits, or a string is not valid Unicode.
    """
    return "".join(_section(name, keys) for name, keys in sections.items())


def _section(name: str, keys: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a section must be a str, not {type(name).__name__}: {name!r}")
    if not isinstance(keys, Mapping):
        raise TypeError(
            f"{name} is {type(keys).__name__}, not a section: pass sections as mappings of their keys, such as "
            'server={"port": 8080}'
        )
    lines = [f"{_key(key, name)} = {_value(value, f'{name}.{key}')}\n" for key, value in keys.items()]
    return f"[{_key(name, name)}]\n{''.join(lines)}"


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"keys of {where} must be str, not {type(key).__name__}: {key!r}")
    return key if key and _BARE.issuperset(key) else _string(key)


def _string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r} cannot be written as TOML: it is not valid Unicode") from error
    return f'"{"".join(_escaped(text))}"'


def _escaped(text: str) -> Iterator[str]:
    for char in text:
        if char in _ESCAPES:
            yield _ESCAPES[char]
        elif ord(char) < 0x20 or ord(char) == 0x7F:
            yield f"\\u{ord(char):04x}"
        else:
            yield char


def _value(value: object, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not _MIN_INT <= value <= _MAX_INT:
            raise ValueError(f"{where} is {value}: integers of TOML have 64 bits")
        return str(int(value))
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, os.PathLike):
        return _value(os.fsdecode(value), where)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, Mapping):
        pairs = (f"{_key(k, where)} = {_value(v, f'{where}.{k}')}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        items = (_value(item, f"{where}[{at}]") for at, item in enumerate(value))
        return f"[{', '.join(items)}]"
    if value is None:
        raise TypeError(f"{where} is None, which TOML does not have: leave it out for its default")
    raise TypeError(f"{where} is {type(value).__name__}: TOML has str, bool, int, float, dates, lists and mappings")


def _float(value: float) -> str:
    if math.isfinite(value):
        # Subclasses such as those of NumPy override repr().
        return float.__repr__(value)
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
