"""Element types by their names in safetensors, numpy, ml_dtypes and torch, and arrays over bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import InvalidInputError, MissingPackageError, UnsupportedError

if TYPE_CHECKING:
    import numpy
    from typing_extensions import TypeAlias

    Array: TypeAlias = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class Dtype:
    """An element type.

    Attributes:
        bits: Size of an element in bits.
        numpy: Name in numpy; None if only ml_dtypes has the type.
        extension: Name in ml_dtypes; None if numpy has the type.
        torch: Name in torch; None if torch does not have the type.
    """

    bits: int
    numpy: str | None = None
    extension: str | None = None
    torch: str | None = None


# All types of safetensors, in the order of its enumeration. Files store tensors in the reverse order of their types.
# C128 is not a safetensors type, but numpy has it.
DTYPES = {
    "BOOL": Dtype(8, "|b1", torch="bool"),
    "F4": Dtype(4, extension="float4_e2m1fn", torch="float4_e2m1fn_x2"),
    "F6_E2M3": Dtype(6, extension="float6_e2m3fn"),
    "F6_E3M2": Dtype(6, extension="float6_e3m2fn"),
    "U8": Dtype(8, "|u1", torch="uint8"),
    "I8": Dtype(8, "|i1", torch="int8"),
    "F8_E5M2": Dtype(8, extension="float8_e5m2", torch="float8_e5m2"),
    "F8_E4M3": Dtype(8, extension="float8_e4m3fn", torch="float8_e4m3fn"),
    "F8_E8M0": Dtype(8, extension="float8_e8m0fnu", torch="float8_e8m0fnu"),
    "F8_E4M3FNUZ": Dtype(8, extension="float8_e4m3fnuz", torch="float8_e4m3fnuz"),
    "F8_E5M2FNUZ": Dtype(8, extension="float8_e5m2fnuz", torch="float8_e5m2fnuz"),
    "I16": Dtype(16, "<i2", torch="int16"),
    "U16": Dtype(16, "<u2", torch="uint16"),
    "F16": Dtype(16, "<f2", torch="float16"),
    "BF16": Dtype(16, extension="bfloat16", torch="bfloat16"),
    "I32": Dtype(32, "<i4", torch="int32"),
    "U32": Dtype(32, "<u4", torch="uint32"),
    "F32": Dtype(32, "<f4", torch="float32"),
    "C64": Dtype(64, "<c8", torch="complex64"),
    "F64": Dtype(64, "<f8", torch="float64"),
    "I64": Dtype(64, "<i8", torch="int64"),
    "U64": Dtype(64, "<u8", torch="uint64"),
    "C128": Dtype(128, "<c16", torch="complex128"),
}
RANK = {name: rank for rank, name in enumerate(DTYPES)}
_BY_EXTENSION = {dtype.extension: name for name, dtype in DTYPES.items() if dtype.extension}
_BY_NUMPY = {dtype.numpy: name for name, dtype in DTYPES.items() if dtype.numpy}


def known(name: str) -> Dtype:
    """Returns the type with this name. The error for an unknown name lists the known ones."""
    try:
        return DTYPES[name]
    except KeyError:
        raise UnsupportedError(f"unknown dtype {name!r}: known are {', '.join(DTYPES)}") from None


def itemsize(name: str) -> int:
    """Returns the size of an element in bytes, or 1 if it is smaller than a byte."""
    return max(known(name).bits // 8, 1)


def numpy_dtype(name: str) -> numpy.dtype[Any]:
    """Returns the corresponding numpy type, which ml_dtypes provides if numpy does not."""
    import numpy

    dtype = known(name)
    if dtype.extension is None:
        return numpy.dtype(dtype.numpy)
    try:
        import ml_dtypes
    except ImportError:
        raise MissingPackageError(
            f"numpy itself has no type for {name}: install the package ml_dtypes (pip install ml_dtypes)"
        ) from None
    found = getattr(ml_dtypes, dtype.extension, None)
    if found is None:
        raise MissingPackageError(
            f"ml_dtypes {ml_dtypes.__version__} has no type for {name}: install a newer one "
            "(pip install --upgrade ml_dtypes)"
        )
    wrapped: numpy.dtype[Any] = numpy.dtype(found)
    return wrapped


def name_of(dtype: numpy.dtype[Any]) -> str:
    """Returns the safetensors name of a type of numpy or ml_dtypes.

    Raises:
        InvalidInputError: safetensors has no such type.
    """
    # Types of ml_dtypes have the kind V or f, and names that numpy does not use.
    found = _BY_EXTENSION.get(dtype.name)
    if found is None:
        found = _BY_NUMPY.get(dtype.newbyteorder("<").str)
    if found is None or found == "C128":
        raise InvalidInputError(f"safetensors has no type for arrays of {dtype}: convert it with astype")
    return found


def array(name: str, shape: tuple[int, ...], data: memoryview | Array) -> Array:
    """Returns an array over ``data``, writable if ``data`` is. For elements smaller than a byte, the array has its
    own memory."""
    import numpy

    dtype, bits = numpy_dtype(name), known(name).bits
    if data.nbytes and bits >= 8:
        return numpy.frombuffer(data, dtype).reshape(shape)
    raw = numpy.frombuffer(data, numpy.uint8) if data.nbytes else numpy.empty(0, numpy.uint8)
    found = (_unpacked(raw, bits) if bits < 8 else raw).view(dtype).reshape(shape)
    found.flags.writeable = found.flags.writeable and not (isinstance(data, memoryview) and data.readonly)
    return found


def _unpacked(packed: Array, bits: int) -> Array:
    """Unpacks elements smaller than a byte, lowest bits first, into one byte each."""
    import numpy

    if bits == 4:
        return numpy.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)
    # Three bytes hold four elements of 6 bits.
    low, middle, high = packed.reshape(-1, 3).T
    four = [low & 63, (low >> 6 | middle << 2) & 63, (middle >> 4 | high << 4) & 63, high >> 2]
    return numpy.stack(four, axis=-1).reshape(-1)


def packed(elements: Array, bits: int) -> Array:
    """Packs elements smaller than a byte. The inverse of :func:`array`."""
    import numpy

    codes = elements.reshape(-1).view(numpy.uint8)
    if bits == 4:
        low, high = codes.reshape(-1, 2).T
        joined: Array = low & 15 | high << 4
        return joined
    a, b, c, d = (codes.reshape(-1, 4) & 63).T
    return numpy.stack([a | b << 6, b >> 2 | c << 4, c >> 4 | d << 2], axis=-1).reshape(-1)


def integers(name: str, data: Array) -> Array:
    """Returns the elements as integers of the same size, in one dimension. Every DLPack consumer accepts these."""
    size = min(itemsize(name), 8)
    return data.view({1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8"}[size])


def torch_tensor(name: str, shape: tuple[int, ...], data: Array) -> Any:
    """Returns a torch tensor over ``data``, through DLPack. F4 remains packed, with two elements in each torch
    element."""
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise MissingPackageError(
            "tensors of torch need the package torch: install it (pip install torch), or give framework='numpy'"
        ) from None
    dtype = known(name).torch
    found: Any = dtype and getattr(torch, dtype, None)
    if found is None:
        raise UnsupportedError(f"torch {torch.__version__} has no type for {name}: load it with framework='numpy'")
    if name == "F4" and shape and shape[-1] % 2 == 0:
        shape = (*shape[:-1], shape[-1] // 2)
    elif name == "F4":
        raise UnsupportedError(f"torch packs F4 along the last dimension, which is odd in {shape}: load it with numpy")
    if not data.size:
        return torch.empty(shape, dtype=found)
    package: Any = torch
    return package.from_dlpack(integers(name, data)).view(found).reshape(shape)
