"""End of life of objects: warnings about unclosed ones, and forked processes.

When the interpreter exits, the native module closes all objects that are still open.
"""

from __future__ import annotations

import os
import warnings

from . import _native

os.register_at_fork(after_in_child=_native.after_fork_in_child)


def forgotten(thing: object, remedy: str) -> None:
    """Warns that ``thing`` was garbage-collected without being closed, as Python does for files."""
    warnings.warn(f"unclosed {thing!r}: {remedy}", ResourceWarning, 3, source=thing)
