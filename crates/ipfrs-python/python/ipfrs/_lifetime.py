"""End of life of objects: warnings about unclosed ones, and errors in forked processes.

When the interpreter exits, the native module closes all objects that are still open.
"""

from __future__ import annotations

import os
import warnings

from . import _native
from .errors import ForkedError

os.register_at_fork(after_in_child=_native.refuse_forked)


def forgotten(thing: object, remedy: str) -> None:
    """Warns that ``thing`` was garbage-collected without being closed, as Python does for files. Does nothing in a
    forked process, where the object belongs to the parent."""
    try:
        _native.check_fork()
    except ForkedError:
        return
    warnings.warn(f"unclosed {thing!r}: {remedy}", ResourceWarning, 3, source=thing)
