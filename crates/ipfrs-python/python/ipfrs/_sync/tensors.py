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
    from .._tensors import Key


class TensorMethods:
    """Methods of tensors."""

    _native: Backend

    def tensors(self, path: str) -> TensorFile:
        """The tensors of a ``.safetensors`` or ``.npy`` file: of its bytes, only the header is read.

        Args:
            path: As for `cat`.

        Raises:
            NotFoundError: The path leads nowhere.
            InvalidInputError: It is no such file; the message says what is wrong with it.

        Example:
            >>> model = node.add_tensors({"weight": numpy.ones((2, 3), "float32")})
            >>> info = node.tensors(model).tensors[0]
            >>> info.name, info.dtype, info.shape, info.nbytes
            ('weight', 'F32', (2, 3), 24)
        """
        return finished(_tensors.tensors(self._native, _arguments.path(path)))

    def tensor(self, path: str, name: str = "", slice: Key = None) -> numpy.ndarray[Any, Any]:
        """A tensor, or a slice of it: only the bytes of the slice are read.

        Args:
            path: As for `cat`: a ``.safetensors`` or ``.npy`` file.
            name: The tensor's name; may be left out where there is only one.
            slice: What is taken of it: as `numpy` indexes (``numpy.s_[0:10, ..., ::2]``), or as text
                (``"0:10,...,::2"``). None for all of it.

        Returns:
            A read-only array. In the process it lies over the stored block where one has all its
            bytes, without a copy.

        Raises:
            NotFoundError: There is no such tensor.
            InvalidInputError: The slice does not fit; or it is no file of tensors.
            MissingPackageError: NumPy has no such type, and ml_dtypes is not installed.

        Example:
            >>> model = node.add_tensors({"weight": numpy.arange(6, dtype="float32").reshape(2, 3)})
            >>> node.tensor(model, "weight", numpy.s_[1, 1:])
            array([4., 5.], dtype=float32)
        """
        return finished(_tensors.tensor(self._native, _arguments.path(path), name, slice))

    def load_tensors(
        self, path: str, names: Iterable[str] | None = None, *, framework: str = "numpy"
    ) -> dict[str, Any]:
        """All tensors of a file, or some, as ``safetensors.numpy.load_file`` gives them.

        Args:
            path: As for `cat`: a ``.safetensors`` or ``.npy`` file.
            names: Which tensors; None for all.
            framework: ``"numpy"`` or ``"torch"``.

        Returns:
            Arrays, or torch tensors, by name. They may be written to: their memory is their own.

        Raises:
            NotFoundError: A tensor is not there.
            InvalidInputError: It is no file of tensors, or there is no such framework.
            MissingPackageError: torch, or ml_dtypes for a type, is not installed.

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
        **options: Unpack[AddOptions],
    ) -> str:
        """Adds tensors as one safetensors file, the bytes of which are those of ``safetensors``.

        Args:
            tensors: Arrays by name: of NumPy, ml_dtypes or torch.
            metadata: Texts by name, for the file's header.
            **options: As for `add`.

        Returns:
            The content ID of the file.

        Raises:
            InvalidInputError: A name, a type or a text that safetensors does not have; it is named.

        Example:
            >>> model = node.add_tensors({"weight": numpy.ones(3)}, metadata={"by": "me"})
            >>> node.tensors(model).metadata
            {'by': 'me'}
        """
        pieces = _tensors.safetensors_pieces(tensors, metadata)
        return finished(_adding.add(self._native, pieces, options, None))

    def tensor_stats(self, path: str, name: str = "") -> dict[str, int | float | None]:
        """Statistics of a tensor, in one pass over its bytes.

        Args:
            path: As for `cat`: a ``.safetensors`` or ``.npy`` file.
            name: The tensor's name; may be left out where there is only one.

        Returns:
            ``count``, ``nan``, ``inf``, ``zero``, and of finite elements ``min``, ``max``, ``mean``,
            ``std``; None for what cannot be said.

        Raises:
            NotFoundError: There is no such tensor.
            InvalidInputError: It is no file of tensors.

        Example:
            >>> model = node.add_tensors({"weight": numpy.array([1.0, 2.0, 3.0])})
            >>> stats = node.tensor_stats(model, "weight")
            >>> stats["min"], stats["max"], stats["mean"]
            (1.0, 3.0, 2.0)
        """
        stats = self._native.tensor_stats(_arguments.path(path), name)
        return cast("dict[str, int | float | None]", stats)
