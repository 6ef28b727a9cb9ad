"""Operations of several steps, written once for classes that block and for those of asyncio.

A step is what a generator yields: a call of the native module, which is its value already or an awaitable of it, or a
``functools.partial`` of work on local files, which asyncio hands to a thread. ``finished`` and ``awaited`` drive them.
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
    """Takes all steps, and gives what they lead to."""
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
    """Takes all steps on the event loop, and gives what they lead to. Being cancelled is an error of the step."""
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
    """A step that may take for ever and leaves nothing behind, such as reading from a pipe."""


async def in_thread(step: partial[Any]) -> Any:
    """Does what blocks in a thread. Cancelled, it waits until that is over, unless it is :class:`Reading`."""
    work = asyncio.get_running_loop().run_in_executor(None, step)
    if isinstance(step, Reading):
        return await work
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        # It cannot be stopped, and has to be over before it can be undone. A file that it opened reaches nobody.
        await asyncio.wait([work])
        if not work.cancelled() and work.exception() is None and hasattr(work.result(), "close"):
            work.result().close()
        raise
