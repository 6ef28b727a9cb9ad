"""How things end: what was forgotten open is told, and a forked process that nothing works in it.

What is still open when the interpreter ends is closed by the native module.
"""

from __future__ import annotations

import os
import warnings

from . import _native
from .errors import ForkedError

os.register_at_fork(after_in_child=_native.refuse_forked)


def forgotten(thing: object, remedy: str) -> None:
    """Warns that ``thing`` was collected without having been closed, as files do. In a forked process nothing is to be
    closed: it is the parent's."""
    try:
        _native.check_fork()
    except ForkedError:
        return
    warnings.warn(f"unclosed {thing!r}: {remedy}", ResourceWarning, 3, source=thing)
