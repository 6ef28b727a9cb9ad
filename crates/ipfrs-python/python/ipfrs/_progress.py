"""Reporting of progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from .errors import MissingPackageError

if TYPE_CHECKING:
    from ._values import Progress


def _tqdm_bar() -> Any:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingPackageError(
            "progress=True shows a bar of the package tqdm: install it (pip install tqdm), or pass a callable"
        ) from None
    return tqdm(unit="B", unit_scale=True)


class Told:
    """Reports progress to a callable, or to a progress bar such as tqdm's.

    Args:
        progress: A callable that receives the number of bytes done and the total number of bytes (None if unknown);
            or a bar, whose ``update`` receives the number of bytes since the last call; or True for a bar of tqdm.

    Raises:
        TypeError: ``progress`` is neither a callable nor a bar.
        MissingPackageError: ``progress`` is True, and tqdm is not installed.
    """

    def __init__(self, progress: Progress | bool | None) -> None:
        self._own: Any = None
        if progress is False:
            progress = None
        if progress is True:
            progress = self._own = _tqdm_bar()
        update = getattr(progress, "update", None)
        if progress is not None and not callable(update) and not callable(progress):
            raise TypeError(
                "progress must be a callable that takes (bytes done, bytes total or None), or has an update method "
                f"as tqdm bars do, or is True for a bar of tqdm, not {type(progress).__name__}"
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

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the bar that was made for True."""
        if self._own is not None:
            self._own.close()

    def advance(self, count: int, total: int | None = None) -> None:
        """Reports that ``count`` more bytes are done."""
        self.tell(self._done + count, total)
