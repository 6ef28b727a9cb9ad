"""How things end: what is still open at exit is closed, and a forked process is told that nothing works in it."""

from __future__ import annotations

import atexit
import os
import warnings

from . import _native

atexit.register(_native.close_all)
os.register_at_fork(after_in_child=_native.refuse_forked)


def forgotten(thing: object, remedy: str) -> None:
    """Warns that ``thing`` was collected without having been closed, as files do."""
    warnings.warn(f"unclosed {thing!r}: {remedy}", ResourceWarning, 3, source=thing)
