"""Reporting of progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ._values import Progress


class Told:
    """Reports progress to a callable, or to a progress bar such as tqdm's.

    Args:
        progress: A callable that receives the number of bytes done and the total number of bytes (None if unknown);
            or a bar, whose ``update`` receives the number of bytes since the last call.

    Raises:
        TypeError: ``progress`` is neither a callable nor a bar.
    """

    def __init__(self, progress: Progress | None) -> None:
        update = getattr(progress, "update", None)
        if progress is not None and not callable(update) and not callable(progress):
            raise TypeError(
                "progress must be a callable that takes (bytes done, bytes total or None), or has an update method "
                f"as tqdm bars do, not {type(progress).__name__}"
            )
        self._bar: Any = progress if callable(update) else None
        self._call: Any = None if callable(update) else progress
        self._done = 0

    @property
    def callback(self) -> Callable[[int, int | None], None] | None:
        """The function that the native module calls, or None if progress is not wanted."""
        return self.tell if self._bar is not None or self._call is not None else None

    def tell(self, done: int, total: int | None = None) -> None:
        """Reports that ``done`` bytes of ``total`` are done."""
        if self._call is not None:
            self._call(done, total)
        elif self._bar is not None:
            if total is not None and getattr(self._bar, "total", total) is None:
                self._bar.total = total
            self._bar.update(done - self._done)
        self._done = done

    def advance(self, count: int, total: int | None = None) -> None:
        """Reports that ``count`` more bytes are done."""
        self.tell(self._done + count, total)
