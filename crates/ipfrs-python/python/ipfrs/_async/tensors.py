"""Tensors, for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from .. import _adding, _arguments, _tensors
from .._steps import awaited
from .._values import AddOptions, TensorFile

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Unpack

    from .._native import Backend
    from .._values import Key, Progress


class AsyncTensorMethods:
    """Methods for tensors."""

    _native: Backend

    async def tensors(self, path: str) -> TensorFile:
        """Returns the tensors of a ``.safetensors`` or ``.npy`` file, as :meth:`Node.tensors` does. Their slices are
        awaitable.

        Example:
            >>> model = await anode.add_tensors({"weight": numpy.ones((2, 3), "float32")})
            >>> file = await anode.tensors(model)
            >>> list(file)
            ['weight']
            >>> await file["weight"][1, 1:]
            array([1., 1.], dtype=float32)
        """
        return await awaited(_tensors.tensors(self._native, _arguments.path(path), self))

    async def tensor(self, path: str, name: str = "", slice: Key = None) -> numpy.ndarray[Any, Any]:
        """Returns a tensor, or a slice of it, as :meth:`Node.tensor` does.

        Example:
            >>> model = await anode.add_tensors({"weight": numpy.arange(6, dtype="float32")})
            >>> await anode.tensor(model, "weight", numpy.s_[4:])
            array([4., 5.], dtype=float32)
        """
        return await awaited(_tensors.tensor(self._native, _arguments.path(path), name, slice))

    async def tensor_many(self, path: str, name: str, slices: Iterable[int | slice]) -> list[numpy.ndarray[Any, Any]]:
        """Returns several rows, or ranges of rows, of a tensor, as :meth:`Node.tensor_many` does.

        Example:
            >>> model = await anode.add_tensors({"weight": numpy.arange(8).reshape(4, 2)})
            >>> (await anode.tensor_many(model, "weight", [3]))[0]
            array([6, 7])
        """
        return await awaited(_tensors.tensor_many(self._native, _arguments.path(path), name, slices))

    async def load_tensors(
        self, path: str, names: Iterable[str] | None = None, *, framework: str = "numpy"
    ) -> dict[str, Any]:
        """Returns all tensors of a file, or some of them, as :meth:`Node.load_tensors` does.

        Example:
            >>> model = await anode.add_tensors({"bias": numpy.zeros(2), "weight": numpy.ones(3)})
            >>> sorted(await anode.load_tensors(model))
            ['bias', 'weight']
        """
        return await awaited(_tensors.load_tensors(self._native, _arguments.path(path), names, framework))

    async def add_tensors(
        self,
        tensors: Mapping[str, Any],
        *,
        metadata: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        **options: Unpack[AddOptions],
    ) -> str:
        """Adds tensors as one safetensors file, as :meth:`Node.add_tensors` does.

        Example:
            >>> model = await anode.add_tensors({"weight": numpy.ones(3)}, metadata={"by": "me"})
            >>> (await anode.tensors(model)).metadata
            {'by': 'me'}
        """
        pieces = _tensors.safetensors_pieces(tensors, metadata)
        return await awaited(_adding.add(self._native, pieces, options, progress, pieces.nbytes))

    async def tensor_stats(self, path: str, name: str = "") -> dict[str, int | float | None]:
        """Returns statistics of a tensor, as :meth:`Node.tensor_stats` does.

        Example:
            >>> model = await anode.add_tensors({"weight": numpy.array([1.0, 2.0, 3.0])})
            >>> (await anode.tensor_stats(model, "weight"))["mean"]
            2.0
        """
        stats = await self._native.tensor_stats(_arguments.path(path), name)
        return cast("dict[str, int | float | None]", stats)
