"""Telling how far something is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ._values import Progress


class Told:
    """Tells a callable, or a bar as tqdm has it, how far something is.

    Args:
        progress: Called with the bytes that are done and the bytes that there are (None where that is not known), or a
            bar whose ``update`` is called with the bytes since the last time.

    Raises:
        TypeError: It is neither.
    """

    def __init__(self, progress: Progress | None) -> None:
        update = getattr(progress, "update", None)
        if progress is not None and not callable(update) and not callable(progress):
            raise TypeError(
                "progress is a callable that takes (bytes done, bytes total or None), or has an update method as tqdm"
                f" bars do, not {type(progress).__name__}"
            )
        self._bar: Any = progress if callable(update) else None
        self._call: Any = None if callable(update) else progress
        self._done = 0

    @property
    def callback(self) -> Callable[[int, int | None], None] | None:
        """What the native module calls; None where nobody is told."""
        return self.tell if self._bar is not None or self._call is not None else None

    def tell(self, done: int, total: int | None = None) -> None:
        """So many bytes are done, of so many."""
        if self._call is not None:
            self._call(done, total)
        elif self._bar is not None:
            if total is not None and getattr(self._bar, "total", total) is None:
                self._bar.total = total
            self._bar.update(done - self._done)
        self._done = done

    def advance(self, count: int, total: int | None = None) -> None:
        """So many bytes more are done."""
        self.tell(self._done + count, total)
