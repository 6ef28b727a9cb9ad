"""Memory and open files stay what they are: a small version of ``python -m ipfrs.bench leaks``."""

from __future__ import annotations

import sys

import pytest

from ipfrs.bench import leaks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_calls_leave_memory_and_files_as_they_were() -> None:
    grown, files = leaks.growth(leaks.of_calls(2000))
    assert files <= 0
    # A leak of every call's block and content ID would be some megabytes more.
    assert grown < 8 * leaks.MIB


def test_opening_and_closing_leaves_memory_and_files_as_they_were() -> None:
    grown, files = leaks.growth(leaks.of_cycles(50))
    assert files <= 0
    # A store that was not let go of has more than a megabyte.
    assert grown < 24 * leaks.MIB
