"""Encodes safetensors files, byte for byte as the package ``safetensors`` does.

https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _dtypes
from .errors import InvalidInputError

if TYPE_CHECKING:
    import numpy
    from typing_extensions import TypeAlias

    Array: TypeAlias = numpy.ndarray[Any, Any]

# Size of a piece, and the maximum that is copied at once of an array that is not contiguous.
_PIECE_BYTES = 1024 * 1024
_ALIGNMENT = 8
_METADATA = "__metadata__"


def safetensors_pieces(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> Pieces:
    """Returns the bytes of a safetensors file in pieces, for use with ``add``.

    All arguments are checked before this function returns. Only arrays that are not contiguous or not little-endian
    are copied, one piece at a time.

    Args:
        tensors: Arrays by name: numpy or ml_dtypes arrays, torch tensors, or anything that numpy converts to an
            array.
        metadata: Strings by name, for the file's header.

    Raises:
        TypeError: `tensors` or `metadata` is not a mapping.
        InvalidInputError: safetensors does not support a name, type or string, which the message names.
    """
    if not isinstance(tensors, Mapping):
        raise TypeError(f"tensors must be a mapping of names to arrays, not {type(tensors).__name__}")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping of str to str, not {type(metadata).__name__}")
    taken = sorted((_Tensor.of(name, value) for name, value in tensors.items()), key=_Tensor.place)
    return Pieces(_head(taken, metadata), taken)


class Pieces:
    """The pieces of a safetensors file.

    Attributes:
        nbytes: Total size in bytes.
    """

    def __init__(self, head: bytes, tensors: list[_Tensor]) -> None:
        self.nbytes = len(head) + sum(tensor.nbytes for tensor in tensors)
        self._head, self._tensors = head, tensors

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield self._head
        for tensor in self._tensors:
            yield from tensor.pieces()


@dataclass(frozen=True)
class _Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    array: Array

    @classmethod
    def of(cls, name: object, value: Any) -> _Tensor:
        import numpy

        if not isinstance(name, str):
            raise InvalidInputError(f"names of tensors must be str, not {type(name).__name__}: {name!r}")
        if name == _METADATA:
            raise InvalidInputError(f"no tensor can be named {name}: safetensors needs it for the metadata")
        _checked(name, "the name of a tensor")
        if type(value).__module__.partition(".")[0] == "torch":
            return cls._of_torch(name, value)
        array = numpy.asarray(value)
        try:
            dtype = _dtypes.name_of(array.dtype)
        except InvalidInputError as error:
            raise InvalidInputError(f"tensor {name!r}: {error}") from None
        bits = _dtypes.known(dtype).bits
        if array.size * bits % 8:
            raise InvalidInputError(
                f"tensor {name!r}: {array.size} elements of {bits} bits are not a whole number of bytes"
            )
        return cls(name, dtype, array.shape, array.size * bits // 8, array)

    @classmethod
    def _of_torch(cls, name: str, value: Any) -> _Tensor:
        """Returns a torch tensor as its bytes, because numpy does not have all types of torch."""
        import torch  # type: ignore[import-not-found,unused-ignore]

        called = str(value.dtype).partition(".")[2]
        dtype = next((known for known, dtype in _dtypes.DTYPES.items() if dtype.torch == called), "C128")
        if dtype == "C128":
            raise InvalidInputError(f"tensor {name!r}: safetensors has no type for {value.dtype}: convert it first")
        shape = tuple(value.shape)
        if dtype == "F4":
            shape = (*shape[:-1], 2 * shape[-1])
        flat = value.detach().cpu().contiguous().reshape(-1)
        array = flat.view(torch.uint8).numpy()
        return cls(name, dtype, shape, array.nbytes, array)

    def place(self) -> tuple[int, str]:
        """Returns the sort key of the tensor. As in the package, types with larger elements come first."""
        return -_dtypes.RANK[self.dtype], self.name

    def pieces(self) -> Iterator[memoryview]:
        """Yields the bytes of the tensor in order."""
        import numpy

        bits = _dtypes.known(self.dtype).bits
        array = self.array
        if array.nbytes == 0:
            return
        if bits < 8 and array.nbytes != self.nbytes:
            array = _dtypes.packed(numpy.ascontiguousarray(array), bits)
        if array.flags.c_contiguous and array.dtype.byteorder != ">":
            whole = array.reshape(-1).view(numpy.uint8).data
            for start in range(0, len(whole), _PIECE_BYTES):
                yield whole[start : start + _PIECE_BYTES]
            return
        if array.dtype.kind == "V" or _dtypes.known(self.dtype).extension:
            # Types of ml_dtypes are copied as integers of the same size.
            array = array.view(f"u{array.itemsize}")
        moved = numpy.nditer(
            array,
            flags=["external_loop", "buffered"],
            op_dtypes=[array.dtype.newbyteorder("<")],
            casting="equiv",
            order="C",
            buffersize=_PIECE_BYTES // array.itemsize,
        )
        for piece in moved:
            # nditer reuses its buffer for the next piece, which is requested after this one was consumed.
            copied: Array = numpy.array(piece)
            yield copied.reshape(-1).view(numpy.uint8).data


def _checked(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidInputError(f"{what} must be a str, not {type(text).__name__}: {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{what} is not valid Unicode: {text!r}") from None
    return text


def _head(tensors: list[_Tensor], metadata: Mapping[str, str] | None) -> bytes:
    members: dict[str, Any] = {}
    if metadata is not None:
        # The package writes metadata in any order. A fixed order makes the content ID depend only on the content.
        named = sorted((_checked(name, "the name of metadata"), text) for name, text in metadata.items())
        members[_METADATA] = {name: _checked(text, f"metadata {name!r}") for name, text in named}
    end = 0
    for tensor in tensors:
        offsets = [end, end + tensor.nbytes]
        members[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        end += tensor.nbytes
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text
