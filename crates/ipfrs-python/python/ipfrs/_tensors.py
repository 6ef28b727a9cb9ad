"""Tensors as arrays, their slices, and whole models, as operations of several steps (see ``_steps``)."""

from __future__ import annotations

import io
import math
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _dtypes
from ._safetensors import safetensors_pieces
from ._values import TensorFile, TensorInfo, _tensor_info
from .errors import CorruptError, InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from types import EllipsisType

    import numpy
    from typing_extensions import TypeAlias

    from ._native import Backend
    from ._steps import Steps
    from ._values import Index, Key, Part

    Array: TypeAlias = numpy.ndarray[Any, Any]

__all__ = ["load_tensors", "safetensors_pieces", "tensor", "tensor_many", "tensors"]

# Adjacent tensors are read together, up to this many bytes. A model of a thousand small tensors then takes a few
# reads, and an array that is kept alive keeps at most this much memory alive.
_GROUP_BYTES = 4 * 1024 * 1024
_MAX_INT64 = 2**63 - 1
# Number of listed rows per request. As text they must fit into the head of a request.
_MAX_LISTED = 2_000
# Short names, as in safetensors.safe_open.
_FRAMEWORKS = {"np": "numpy", "pt": "torch", "pytorch": "torch"}


def tensors(backend: Backend, path: str, owner: Any = None) -> Steps[TensorFile]:
    """Returns all tensors of a file, and its metadata. Their slices are read with ``owner.tensor``."""
    cid, form, metadata, infos = yield backend.tensors(path)
    source = None if owner is None else (owner, cid)
    found = (_tensor_info((name, dtype, tuple(shape), *rest), source) for name, dtype, shape, *rest in infos)
    return TensorFile(cid, form, metadata, tuple(found))


def tensor(backend: Backend, path: str, name: str, key: Key = None) -> Steps[Array]:
    """Returns a tensor, or a slice of it, as a read-only array.

    The array is a view of the received bytes. In the process, it is a view of the mapped block if one block contains
    all of them. Nothing is copied in that case, and elements may be at addresses that are not multiples of their
    size, which numpy supports.
    """
    if isinstance(key, str):
        if key.lstrip().startswith("["):
            # A list of rows. Everything in it is as the daemon takes it.
            try:
                return (yield from _fetched(backend, path, name, key))
            except UnsupportedError as error:
                return (yield from _of_whole(backend, path, key, error))
        key = _parsed(key)
    wanted = Selection.of(key)
    if wanted.more:
        # A name may resolve differently from one request to the next.
        path = yield backend.resolve(path)
    try:
        array = yield from _fetched(backend, path, name, wanted.text)
        if wanted.more:
            import numpy

            arrays = [array]
            for text in wanted.more:
                arrays.append((yield from _fetched(backend, path, name, text)))
            array = numpy.concatenate(arrays)
            array.flags.writeable = False
    except UnsupportedError as error:
        return (yield from _of_whole(backend, path, key, error))
    return array if wanted.view is None else array[wanted.view]


def _of_whole(backend: Backend, path: str, key: Key, error: UnsupportedError) -> Steps[Array]:
    """Returns a slice of an array in column-major order, which can only be read as a whole.

    Raises:
        UnsupportedError: `error`, if it has another cause.
    """
    import numpy

    file = yield from tensors(backend, path)
    if file.format != "npy":
        raise error
    whole: Array = yield from _numpy_file(backend, file)
    whole.flags.writeable = False
    if isinstance(key, str):
        key = _listed(key, len(whole))
    part: Array = whole if key is None else numpy.asarray(whole[key])
    part.flags.writeable = False
    return part


def _fetched(backend: Backend, path: str, name: str, text: str) -> Steps[Array]:
    """Returns the array that a slice in the syntax of the RPC selects."""
    dtype, shape, data = yield backend.tensor(path, name, text)
    expected = -(-math.prod(shape) * _dtypes.known(dtype).bits // 8)
    if data.nbytes != expected:
        raise CorruptError(
            f"received {data.nbytes} bytes of tensor {name!r}, which has {expected}: is it an ipfrs gateway?"
        )
    return _dtypes.array(dtype, tuple(shape), data)


def tensor_many(backend: Backend, path: str, name: str, keys: Iterable[int | slice]) -> Steps[list[Array]]:
    """Returns one read-only array for each key. They are views of the arrays that are fetched."""
    wanted = [_row_key(key) for key in keys]
    starts = [(key.start or 0, key.stop) if isinstance(key, slice) else (key, key) for key in wanted]
    is_known = all(stop is not None and start >= 0 and stop >= 0 for start, stop in starts)
    if not is_known:
        wanted = yield from _within(backend, path, name, wanted)
    try:
        rows = yield from _rows(backend, path, name, wanted)
    except UnsupportedError:
        # As in `tensor`: an array in column-major order that is read as a whole.
        array = yield from tensor(backend, path, name)
        return [array[key] for key in wanted]
    if sum(map(_count, wanted)) != len(rows):
        # Ranges end beyond the tensor.
        wanted = yield from _within(backend, path, name, wanted)
    if sum(map(_count, wanted)) != len(rows):
        raise CorruptError(f"received {len(rows)} rows of tensor {name!r}: is it an ipfrs gateway?")
    found: list[Array] = []
    start = 0
    for key in wanted:
        end = start + _count(key)
        found.append(rows[start:end] if isinstance(key, slice) else rows[start])
        start = end
    return found


def _row_key(key: object) -> int | slice:
    if not isinstance(key, slice):
        if isinstance(key, bool):
            raise InvalidInputError("tensor_many takes rows and ranges of rows, not booleans: index the result")
        return _position(key)
    if key.step not in (None, 1):
        raise InvalidInputError("tensor_many takes rows and ranges of rows without a step: index the result")
    start = None if key.start is None else _integer(key.start)
    return slice(start, None if key.stop is None else _integer(key.stop))


def _count(key: int | slice) -> int:
    return max(key.stop - (key.start or 0), 0) if isinstance(key, slice) else 1


def _within(backend: Backend, path: str, name: str, keys: list[int | slice]) -> Steps[list[int | slice]]:
    """Returns the same keys, counted from the start of the tensor and limited to it."""
    file = yield from tensors(backend, path)
    info = file[name] if name or len(file) != 1 else file.tensors[0]
    size = info.shape[0] if info.shape else 0
    return [slice(*key.indices(size)[:2]) if isinstance(key, slice) else key for key in keys]


def _rows(backend: Backend, path: str, name: str, keys: list[int | slice]) -> Steps[Array]:
    texts = [_range(key.start, key.stop, 1) if isinstance(key, slice) else str(key) for key in keys]
    groups = [texts[start : start + _MAX_LISTED] for start in range(0, len(texts), _MAX_LISTED)]
    if len(groups) > 1:
        # A name may resolve differently from one request to the next.
        path = yield backend.resolve(path)
    arrays = []
    for group in groups or [[]]:
        arrays.append((yield from _fetched(backend, path, name, f"[{','.join(group)}]")))
    if len(arrays) == 1:
        return arrays[0]
    import numpy

    array = numpy.concatenate(arrays)
    array.flags.writeable = False
    return array


@dataclass(frozen=True)
class Selection:
    """The requested part of a tensor.

    Attributes:
        text: The slice to fetch.
        view: The index to apply to the fetched array; None if it already is the result.
        more: Slices whose arrays follow that of `text`, because a list of rows is too long for one request.
    """

    text: str
    view: tuple[slice | EllipsisType | None, ...] | None
    more: tuple[str, ...] = ()

    @classmethod
    def of(cls, key: Index) -> Selection:
        """Returns the selection for ``array[key]``. None selects everything.

        Raises:
            InvalidInputError: An element of `key` is not an integer, a slice, ``...`` or None, and it is not a list or
                array of integers in the first place.
        """
        if key is None:
            return cls("", None)
        first = key[0] if isinstance(key, tuple) and key else key
        if _is_list(first):
            return cls._of_rows(first, key[1:] if isinstance(key, tuple) else ())
        parts = [_part(part) for part in (key if isinstance(key, tuple) else (key,))]
        text = ",".join(part.text for part in parts if part.text)
        view = tuple(part.view for part in parts if part.stays)
        is_as_fetched = all(part is Ellipsis or part == slice(None) for part in view)
        return cls(text, None if is_as_fetched else view)

    @classmethod
    def _of_rows(cls, rows: Any, rest: tuple[Any, ...]) -> Selection:
        """Returns the selection for listed rows and an index of each of them."""
        import numpy

        listed = numpy.asarray(rows) if len(rows) else numpy.empty(0, int)
        if listed.dtype.kind == "O":
            # Integers of more than 64 bits are objects to numpy.
            for row in listed.flat:
                _position(row)
        if listed.ndim != 1 or listed.dtype.kind not in "iu":
            raise InvalidInputError(
                "a list in a slice of a tensor must contain integers, in one dimension: index the result with others"
            )
        if any(part is None for part in rest):
            raise InvalidInputError("a slice cannot contain both a list and None: index the result with None")
        below = cls.of((slice(None), *rest))
        text = below.text[1:]
        numbers = [_position(number) for number in listed.tolist()]
        groups = [numbers[start : start + _MAX_LISTED] for start in range(0, len(numbers), _MAX_LISTED)]
        texts = [f"[{','.join(map(str, group))}]{text}" for group in groups or [[]]]
        return cls(texts[0], below.view, tuple(texts[1:]))


@dataclass(frozen=True)
class _Part:
    """One part of a key: the range to fetch, and the index of the fetched dimension unless the dimension is dropped."""

    text: str
    view: slice | EllipsisType | None = None
    stays: bool = True


def _parsed(text: str) -> Index:
    """Parses an index such as ``0:10, ..., ::2``."""
    if not text.strip():
        return None
    parts = [part.strip() for part in text.split(",")]
    try:
        return tuple(Ellipsis if part == "..." else _parsed_part(part) for part in parts)
    except ValueError:
        raise InvalidInputError(
            f"malformed slice {text!r:.200}: write start:stop:step, an index or ... for each dimension, e.g. 0:10,5,::2"
        ) from None


def _listed(text: str, size: int) -> tuple[Part, ...]:
    """Parses a list of rows such as ``[3, 0:2], 1``, which the store has found valid for a dimension of this size."""
    items, _, rest = text.strip()[1:].partition("]")
    parts = [_parsed_part(item) for item in items.split(",")] if items.strip() else []
    rows = [row for part in parts for row in (range(size)[part] if isinstance(part, slice) else (part,))]
    below = _parsed(rest.strip()[1:])
    return (rows, *(below if isinstance(below, tuple) else ()))


def _parsed_part(text: str) -> int | slice:
    numbers = [int(number) if number.strip() else None for number in text.split(":")]
    if len(numbers) > 3:
        raise ValueError(text)
    return slice(*numbers) if len(numbers) > 1 else int(text)


def _part(part: object) -> _Part:
    if part is None:
        return _Part("", None)
    if part is Ellipsis:
        return _Part("...", Ellipsis)
    if isinstance(part, slice):
        step = 1 if part.step is None else _integer(part.step)
        start = None if part.start is None else _integer(part.start)
        stop = None if part.stop is None else _integer(part.stop)
        if step == 0:
            raise InvalidInputError("a slice has a step of 0: steps are not 0")
        if step < 0:
            return _backwards(start, stop, step)
        return _Part(_range(start, stop, step), slice(None))
    if isinstance(part, bool):
        raise InvalidInputError("a slice of a tensor cannot contain booleans: index the result")
    if _is_list(part):
        raise InvalidInputError("only the first part of a slice may be a list of indices: index the result with others")
    return _Part(str(_position(part)), stays=False)


def _is_list(part: object) -> bool:
    return isinstance(part, (list, range)) or getattr(part, "ndim", 0) > 0


def _backwards(start: int | None, stop: int | None, step: int) -> _Part:
    """Returns a range with a negative step. It is fetched forwards and viewed backwards.

    The last fetched element is the first one of the result, so the length of the dimension need not be known.
    """
    if stop == -1:
        # A range that stops after the last element is empty.
        return _Part("0:0", slice(None))
    first = None if stop is None else stop + 1
    end = None if start is None or start == -1 else start + 1
    return _Part(_range(first, end, 1), slice(None, None, step))


def _range(start: int | None, stop: int | None, step: int) -> str:
    text = f"{'' if start is None else start}:{'' if stop is None else stop}"
    return text if step == 1 else f"{text}:{step}"


def _position(number: object) -> int:
    """Returns an index. Unlike the ends of a range, it is not limited, because the error must name it.

    Raises:
        InvalidInputError: It is not an integer, or exceeds all tensors.
    """
    value = _exact(number)
    if value != _integer(value):
        raise InvalidInputError(f"index {value} of the slice is outside of every tensor: sizes have at most 63 bits")
    return value


def _integer(number: object) -> int:
    """Returns the number, limited to a range that exceeds all tensors."""
    return max(-_MAX_INT64, min(_exact(number), _MAX_INT64 - 1))


def _exact(number: object) -> int:
    try:
        return operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidInputError(
            f"{type(number).__name__} is not valid in a slice: use integers, slices, ... or None for the "
            "dimensions, and index the result with arrays"
        ) from None


def load_tensors(
    backend: Backend, path: str, names: Iterable[str] | None = None, framework: str = "numpy"
) -> Steps[dict[str, Any]]:
    """Returns all or the named tensors of a file. Each has its own memory, or shares memory with its neighbours.

    The bytes are read directly into their final memory, so there is never a second copy.
    """
    framework = _FRAMEWORKS.get(framework, framework)
    if framework not in ("numpy", "torch"):
        raise InvalidInputError(f"unknown framework {framework!r}: use 'np' or 'pt' (or 'numpy', 'torch')")
    finished = _dtypes.array if framework == "numpy" else _dtypes.torch_tensor
    file = yield from tensors(backend, path)
    wanted = _named(file, names)
    if file.format == "npy":
        array = yield from _numpy_file(backend, file)
        return {name: array if framework == "numpy" else _of_array(info, array) for name, info in wanted.items()}
    loaded: dict[str, Any] = {}
    for group in _groups(wanted.values()):
        data = yield from _read(backend, file.cid, group)
        for info in group:
            start = info.offset - group[0].offset
            loaded[info.name] = finished(info.dtype, info.shape, data[start : start + info.nbytes])
    return {name: loaded[name] for name in wanted}


def _named(file: TensorFile, names: Iterable[str] | None) -> dict[str, TensorInfo]:
    if names is None:
        return dict(file)
    if isinstance(names, str):
        raise InvalidInputError(f"names must be a list: pass [{names!r}]")
    return {name: file[name] for name in names}


def _groups(wanted: Iterable[TensorInfo]) -> Iterator[list[TensorInfo]]:
    """Yields groups of tensors that are read together: neighbours whose elements are aligned to their size."""
    group: list[TensorInfo] = []
    end = 0
    for info in sorted(wanted, key=lambda info: (info.offset, info.nbytes)):
        if group:
            start = group[0].offset
            is_aligned = (info.offset - start) % _dtypes.itemsize(info.dtype) == 0
            if info.offset != end or not is_aligned or info.offset + info.nbytes - start > _GROUP_BYTES:
                yield group
                group = []
        group.append(info)
        end = info.offset + info.nbytes
    if group:
        yield group


def _read(backend: Backend, cid: str, group: list[TensorInfo]) -> Steps[Array]:
    import numpy

    start = group[0].offset
    data = numpy.empty(group[-1].offset + group[-1].nbytes - start, numpy.uint8)
    rest = data.data
    while rest.nbytes:
        count = yield backend.readinto(cid, rest, start)
        if count == 0:
            raise CorruptError(f"{cid} ends at byte {start}, before tensor {group[-1].name!r} does")
        rest, start = rest[count:], start + count
    return data


def _numpy_file(backend: Backend, file: TensorFile) -> Steps[Array]:
    """Returns the array of an ``.npy`` file, which may be big-endian or in column-major order."""
    import numpy
    from numpy.lib import format as npy

    (info,) = file.tensors
    head = io.BytesIO((yield backend.read(file.cid, 0, info.offset)))
    version = npy.read_magic(head)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read_header(head)
    data = (yield from _read(backend, file.cid, [info])).view(dtype)
    if dtype.byteorder == ">":
        data = data.byteswap(inplace=True).view(dtype.newbyteorder("<"))
    array: Array = numpy.reshape(data, shape, order="F" if is_fortran else "C")
    return array


def _of_array(info: TensorInfo, array: Array) -> Any:
    import numpy

    in_order: Array = numpy.ascontiguousarray(array).reshape(-1)
    return _dtypes.torch_tensor(info.dtype, info.shape, in_order.view(numpy.uint8))
