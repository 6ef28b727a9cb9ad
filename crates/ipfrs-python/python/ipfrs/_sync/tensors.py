"""Tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from .. import _adding, _arguments, _tensors
from .._steps import finished
from .._values import AddOptions, TensorFile

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Unpack

    from .._native import Backend
    from .._values import Key, Progress


class TensorMethods:
    """Methods for tensors."""

    _native: Backend

    def tensors(self, path: str) -> TensorFile:
        """Returns the tensors of a ``.safetensors`` or ``.npy`` file by name. Only the header of the file is read.

        ``node.tensors(path)["w"][10:20]`` then reads a slice.

        Args:
            path: As for `cat`.

        Raises:
            NotFoundError: The path does not exist.
            InvalidInputError: The file is not of such a format. The message describes the error.

        Example:
            >>> model = node.add_tensors({"weight": numpy.ones((2, 3), "float32")})
            >>> info = node.tensors(model).tensors[0]
            >>> info.name, info.dtype, info.shape, info.nbytes
            ('weight', 'F32', (2, 3), 24)
        """
        return finished(_tensors.tensors(self._native, _arguments.path(path), self))

    def tensor(self, path: str, name: str = "", slice: Key = None) -> numpy.ndarray[Any, Any]:
        """Returns a tensor, or a slice of it. Only the bytes of the slice are read.

        Args:
            path: As for `cat`: a ``.safetensors`` or ``.npy`` file.
            name: Name of the tensor. It may be omitted if the file has only one.
            slice: The slice, as a `numpy` index (``numpy.s_[0:10, ..., ::2]``) or as text (``"0:10,...,::2"``). None
                for the whole tensor. Its first part may be a list, a range or an array of indices
                (``numpy.s_[[3, 17, 900]]``): these rows are read with one request.

        Returns:
            A read-only array. For a `Node`, it is a view of the stored block, without a copy, if one block contains
            all bytes.

        Raises:
            NotFoundError: There is no such tensor.
            InvalidInputError: The slice does not fit the tensor, or the file does not contain tensors.
            MissingPackageError: NumPy does not have the type, and ml_dtypes is not installed.

        Example:
            >>> model = node.add_tensors({"weight": numpy.arange(6, dtype="float32").reshape(2, 3)})
            >>> node.tensor(model, "weight", numpy.s_[1, 1:])
            array([4., 5.], dtype=float32)
        """
        return finished(_tensors.tensor(self._native, _arguments.path(path), name, slice))

    def tensor_many(self, path: str, name: str, slices: Iterable[int | slice]) -> list[numpy.ndarray[Any, Any]]:
        """Returns several rows, or ranges of rows, of a tensor. They are read with one request.

        Args:
            path: As for `cat`: a ``.safetensors`` or ``.npy`` file.
            name: Name of the tensor; empty for the only one.
            slices: Indices and slices of the first dimension.

        Returns:
            A read-only array for each of them.

        Raises:
            NotFoundError: There is no such tensor.
            InvalidInputError: An index is outside of the tensor, or a slice has a step.

        Example:
            >>> model = node.add_tensors({"weight": numpy.arange(8).reshape(4, 2)})
            >>> node.tensor_many(model, "weight", [3, slice(0, 2)])
            [array([6, 7]), array([[0, 1],
                   [2, 3]])]
        """
        return finished(_tensors.tensor_many(self._native, _arguments.path(path), name, slices))

    def load_tensors(
        self, path: str, names: Iterable[str] | None = None, *, framework: str = "numpy"
    ) -> dict[str, Any]:
        """Returns all tensors of a file, or some of them, as ``safetensors.numpy.load_file`` does.

        Args:
            path: As for `cat`: a ``.safetensors`` or ``.npy`` file.
            names: Names of the tensors; None for all.
            framework: ``"np"`` (or ``"numpy"``) or ``"pt"`` (or ``"torch"``).

        Returns:
            Arrays, or torch tensors, by name. They own their memory and are writable.

        Raises:
            NotFoundError: There is no such tensor.
            InvalidInputError: The file does not contain tensors, or there is no such framework.
            MissingPackageError: torch, or ml_dtypes for one of the types, is not installed.

        Example:
            >>> model = node.add_tensors({"bias": numpy.zeros(2), "weight": numpy.ones((2, 3))})
            >>> sorted(node.load_tensors(model))
            ['bias', 'weight']
        """
        return finished(_tensors.load_tensors(self._native, _arguments.path(path), names, framework))

    def add_tensors(
        self,
        tensors: Mapping[str, Any],
        *,
        metadata: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        **options: Unpack[AddOptions],
    ) -> str:
        """Adds tensors as one safetensors file, with the same bytes that the package ``safetensors`` writes.

        Args:
            tensors: NumPy, ml_dtypes or torch arrays by name.
            metadata: Strings by name, for the header of the file.
            progress: As for `add`.
            **options: As for `add`.

        Returns:
            The content ID of the file.

        Raises:
            InvalidInputError: safetensors does not support a name, type or string, which the message names.

        Example:
            >>> model = node.add_tensors({"weight": numpy.ones(3)}, metadata={"by": "me"})
            >>> node.tensors(model).metadata
            {'by': 'me'}
        """
        pieces = _tensors.safetensors_pieces(tensors, metadata)
        return finished(_adding.add(self._native, pieces, options, progress, pieces.nbytes))

    def tensor_stats(self, path: str, name: str = "") -> dict[str, int | float | None]:
        """Returns statistics of a tensor, computed in one pass over its bytes.

        Args:
            path: As for `cat`: a ``.safetensors`` or ``.npy`` file.
            name: Name of the tensor. It may be omitted if the file has only one.

        Returns:
            ``count``, ``nan``, ``inf``, ``zero``, and for the finite elements ``min``, ``max``, ``mean`` and ``std``;
            None for values that are undefined.

        Raises:
            NotFoundError: There is no such tensor.
            InvalidInputError: The file does not contain tensors.

        Example:
            >>> model = node.add_tensors({"weight": numpy.array([1.0, 2.0, 3.0])})
            >>> stats = node.tensor_stats(model, "weight")
            >>> stats["min"], stats["max"], stats["mean"]
            (1.0, 3.0, 2.0)
        """
        stats = self._native.tensor_stats(_arguments.path(path), name)
        return cast("dict[str, int | float | None]", stats)
