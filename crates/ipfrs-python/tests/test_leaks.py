"""Tests that memory and open files do not grow: a small version of ``python -m ipfrs.bench leaks``."""

from __future__ import annotations

import sys

import pytest

from ipfrs.bench import leaks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_calls_do_not_leak_memory_or_files() -> None:
    grown, files = leaks.growth(leaks.of_calls(2000))
    assert files <= 0
    # If every call leaked its block and content ID, memory would grow by a few more megabytes.
    assert grown < 8 * leaks.MIB


def test_open_close_cycles_do_not_leak() -> None:
    grown, files = leaks.growth(leaks.of_cycles(50))
    assert files <= 0
    # A leaked store takes more than a megabyte.
    assert grown < 24 * leaks.MIB
