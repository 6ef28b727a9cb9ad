"""The encoder of configurations."""

from __future__ import annotations

import datetime
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipfrs._toml import document

tomllib = pytest.importorskip("tomllib") if sys.version_info >= (3, 11) else pytest.importorskip("tomli")


def test_toml_round_trips() -> None:
    sections: dict[str, Any] = {
        "server": {"port": 0, "host": "127.0.0.1", "big": -(2**63), "on": True, "off": False},
        "strings": {"quotes": '"\\', "control": "\0\x01\b\t\n\f\r\x1f\x7f", "unicode": "ünï 🦀 \u2028", "empty": ""},
        "numbers": {"third": 1 / 3, "tiny": 5e-324, "huge": 1e16, "whole": 3.0, "inf": math.inf, "minus": -math.inf},
        "nested": {"list": [1, [2, "x"], []], "tuple": (1, 2), "table": {"a": {"b c": [{}]}}},
        "dates": {"at": datetime.datetime(2024, 1, 2, 3, 4, 5), "day": datetime.date(2024, 1, 2)},
        'odd name.with "dots"': {"": 1, "ü": 2, "a.b": 3},
        "empty": {},
    }
    read = tomllib.loads(document(sections))
    sections["nested"]["tuple"] = [1, 2]
    assert read == sections
    assert math.isnan(tomllib.loads(document({"a": {"b": math.nan}}))["a"]["b"])


def test_paths_and_numbers_of_numpy_are_written() -> None:
    assert document({"store": {"path": Path("/a b")}}) == '[store]\npath = "/a b"\n'
    assert document({"a": {"b": np.float64(0.5)}}) == "[a]\nb = 0.5\n"


@pytest.mark.parametrize(
    ("sections", "error", "named"),
    [
        ({"server": 3}, TypeError, "server is int, not a section"),
        ({"server": {"port": None}}, TypeError, "server.port is None"),
        ({"server": {"port": b"80"}}, TypeError, "server.port is bytes"),
        ({"server": {"port": {1}}}, TypeError, "server.port is set"),
        ({"server": {1: 2}}, TypeError, "keys of server"),
        ({1: {}}, TypeError, "name of a section"),
        ({"server": {"port": 2**63}}, ValueError, "64 bits"),
        ({"server": {"list": [1, None]}}, TypeError, r"server.list\[1\]"),
        ({"server": {"host": "\ud800"}}, ValueError, "Unicode"),
    ],
)
def test_values_without_toml_type_are_named(sections: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        document(sections)
