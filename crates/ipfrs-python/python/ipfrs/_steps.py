"""Operations of several steps, written once for the blocking classes and those of asyncio.

Such an operation is a generator that yields steps. A step is a call of the native module, whose result is the value
itself or an awaitable of it, or a ``functools.partial`` of work on local files, which asyncio runs in a thread.
``finished`` and ``awaited`` run the steps.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

_T = TypeVar("_T")

if TYPE_CHECKING:
    Steps: TypeAlias = Generator[Any, Any, _T]


def finished(steps: Steps[_T]) -> _T:
    """Runs all steps, and returns the result of the generator."""
    try:
        step = next(steps)
        while True:
            try:
                value = step() if isinstance(step, partial) else step
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as end:
        return cast(_T, end.value)


async def awaited(steps: Steps[_T]) -> _T:
    """Runs all steps on the event loop, and returns the result of the generator. A cancellation is raised in the
    current step."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, partial):
                    value = await in_thread(step)
                else:
                    value = await step if inspect.isawaitable(step) else step
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as end:
        return cast(_T, end.value)


class Reading(partial):  # type: ignore[type-arg]
    """A step that may block forever and has no effects to undo, such as reading from a pipe."""


async def in_thread(step: partial[Any]) -> Any:
    """Runs a blocking step in a thread. If cancelled, waits until the step has finished, unless it is
    :class:`Reading`."""
    work = asyncio.get_running_loop().run_in_executor(None, step)
    if isinstance(step, Reading):
        return await work
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        # The step cannot be stopped, and must finish before it can be undone. A file that it opened would otherwise
        # stay open.
        await asyncio.wait([work])
        if not work.cancelled() and work.exception() is None and hasattr(work.result(), "close"):
            work.result().close()
        raise
