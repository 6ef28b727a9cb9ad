"""Compares tensors with the packages that users read them with: numpy, safetensors, ml_dtypes and pyarrow.

Usage: tensors.py [--url URL] [--mebibytes N] [--slices N] [--seed N]

Creates a model of 241 tensors of every safetensors type, half a gigabyte by default, and uploads it to the gateway at
URL, or to one that it starts (IPFRS_CLI names the binary). Compares the responses with the data in numpy bit for bit:
every complete tensor in every format, random slices, a part of the model as a separate file, and the statistics. Also
compares arrays that numpy.save wrote, of both byte orders and in C and Fortran order. Prints a summary; the first
difference is an error.
"""

import argparse
import http.client
import io
import json
import math
import os
import random
import struct
import tempfile
import urllib.parse

import ml_dtypes
import numpy
import pyarrow
import safetensors
import safetensors.numpy

import harness

# Every type with the numpy type of its elements, or with its number of bits if it is smaller than a byte.
DTYPES = {
    "BOOL": numpy.dtype("bool"),
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": numpy.dtype("u1"),
    "I8": numpy.dtype("i1"),
    "F8_E5M2": numpy.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3": numpy.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E8M0": numpy.dtype(ml_dtypes.float8_e8m0fnu),
    "F8_E4M3FNUZ": numpy.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": numpy.dtype(ml_dtypes.float8_e5m2fnuz),
    "I16": numpy.dtype("<i2"),
    "U16": numpy.dtype("<u2"),
    "F16": numpy.dtype("<f2"),
    "BF16": numpy.dtype(ml_dtypes.bfloat16),
    "I32": numpy.dtype("<i4"),
    "U32": numpy.dtype("<u4"),
    "F32": numpy.dtype("<f4"),
    "C64": numpy.dtype("<c8"),
    "F64": numpy.dtype("<f8"),
    "I64": numpy.dtype("<i8"),
    "U64": numpy.dtype("<u8"),
}
TENSORS = 240

# Types that safetensors.numpy can load.
READ_BY_SAFETENSORS_NUMPY = ["BOOL", "U8", "I8", "I16", "U16", "F16", "I32", "U32", "F32", "F64", "I64", "U64"]


class Gateway:
    """A connection to the gateway."""

    def __init__(self, url):
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)

    def ask(self, method, path, body=None, expected=200):
        self.connection.request(method, path, body)
        response = self.connection.getresponse()
        content = response.read()
        assert response.status == expected, (path, response.status, content[:500])
        return response.headers, content

    def tensor(self, cid, expected=200, **query):
        return self.ask("GET", f"/v1/tensor/{cid}?{urllib.parse.urlencode(query, doseq=True)}", expected=expected)


def bits_of(dtype):
    kind = DTYPES[dtype]
    return kind if isinstance(kind, int) else 8 * kind.itemsize


def make(path, mebibytes, chance):
    """Writes the model and returns {name: (dtype, shape, bytes)}."""
    dtypes = list(DTYPES)
    described = {}
    total = mebibytes << 20
    for index in range(TENSORS):
        dtype = dtypes[index % len(dtypes)]
        rank = [0, 1, 2, 2, 2, 3, 4][index % 7]
        elements = max(total // TENSORS * 8 // bits_of(dtype), 1)
        shape = []
        for dim in range(rank):
            left = round(elements ** (1 / (rank - dim)))
            size = max(1, left + chance.randrange(-left // 8 - 1, left // 8 + 1)) if dim < rank - 1 else max(1, elements)
            shape.append(size)
            elements = max(elements // size, 1)
        if isinstance(DTYPES[dtype], int):
            shape = shape or [8]
            shape[-1] = max(8, shape[-1] // 8 * 8)
        described[f"layers.{index}/{dtype.lower()} é"] = (dtype, shape, math.prod(shape) * bits_of(dtype) // 8)
    # Bytes lost to rounding.
    rest = max(0, total - sum(size for _, _, size in described.values()))
    described["rest"] = ("U8", [rest], rest)
    header, end = {"__metadata__": {"format": "np"}}, 0
    for name, (dtype, shape, size) in described.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    model = {}
    generator = numpy.random.default_rng(chance.randrange(1 << 32))
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (dtype, shape, size) in described.items():
            data = generator.integers(0, 2 if dtype == "BOOL" else 256, size, dtype=numpy.uint8).tobytes()
            file.write(data)
            model[name] = (dtype, shape, data)
    return model


def array_of(dtype, shape, data):
    return numpy.frombuffer(data, DTYPES[dtype]).reshape(shape)


def same(found, expected, what):
    """Compares bit for bit: NaNs are equal to themselves, and zero differs from negative zero."""
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    assert found.tobytes() == expected.tobytes(), (what, "bytes differ")


def from_arrow(content, dtype, shape):
    """Returns the column as a numpy array, in the shape that its metadata states."""
    table = pyarrow.ipc.open_stream(content).read_all()
    field = table.schema.field("tensor")
    assert json.loads(field.metadata[b"shape"]) == list(shape) and field.metadata[b"dtype"].decode() == dtype
    column = table.column("tensor").combine_chunks()
    if isinstance(column, pyarrow.ChunkedArray):
        column = column.chunk(0)
    if isinstance(column, pyarrow.FixedShapeTensorArray):
        values = column.to_numpy_ndarray()
    else:
        values = column.to_numpy(zero_copy_only=True)
    return numpy.ascontiguousarray(values).view(DTYPES[dtype]).reshape(shape)


def compare_formats(gateway, cid, name, tensor, text="", part=None):
    """Compares a tensor, or its `part` for the slice `text`, in every format that supports its type."""
    dtype, shape, data = tensor
    query = {"name": name, **({"slice": text} if text else {})}
    headers, raw = gateway.tensor(cid, **query)
    assert headers["X-Tensor-Dtype"] == dtype
    if isinstance(DTYPES[dtype], int):
        assert raw == data, name
        _, file = gateway.tensor(cid, **query, format="safetensors")
        [(found, read)] = safetensors.deserialize(file)
        assert found == name and read["shape"] == list(shape) and bytes(read["data"]) == data, name
        gateway.tensor(cid, **query, format="npy", expected=501)
        return
    part = array_of(*tensor) if part is None else numpy.array(part, order="C")
    shape = [int(dim) for dim in headers["X-Tensor-Shape"].split(",") if dim]
    what = (name, dtype, text)
    same(numpy.frombuffer(raw, DTYPES[dtype]).reshape(shape), part, what)
    _, npy = gateway.tensor(cid, **query, format="npy")
    loaded = numpy.load(io.BytesIO(npy))
    same(loaded.view(DTYPES[dtype]) if loaded.dtype.kind == "V" else loaded, part, what)
    _, file = gateway.tensor(cid, **query, format="safetensors")
    if dtype in READ_BY_SAFETENSORS_NUMPY:
        same(safetensors.numpy.load(file)[name], part, what)
    else:
        [(_, read)] = safetensors.deserialize(file)
        same(numpy.frombuffer(bytes(read["data"]), DTYPES[dtype]).reshape(read["shape"]), part, what)
        # Arrow has no rows without elements, and pyarrow does not read empty rows.
    if part.size:
        _, arrow = gateway.tensor(cid, **query, format="arrow")
        same(from_arrow(arrow, dtype, shape), part, what)


def random_part(size, chance):
    """Returns one part of a slice as text and as a numpy index."""
    if size and chance.random() < 0.2:
        at = chance.randrange(-size, size)
        return str(at), at
    # Mostly small parts of a dimension, so that half a gigabyte can be sliced many times.
    start = chance.choice([None, chance.randrange(-size - 2, size + 2)])
    stop = chance.choice([None, (start or 0) + chance.randrange(0, 40), chance.randrange(-size - 2, size + 2)])
    step = chance.choice([None, 1, 2, 3, chance.randint(1, size + 1)])
    parts = ["" if part is None else str(part) for part in (start, stop)]
    return ":".join(parts + ([] if step is None else [str(step)])), slice(start, stop, step)


def random_slice(shape, chance):
    """Returns a slice as text and as a numpy index, with parts at both ends and `...` between them."""
    first = chance.randint(0, len(shape))
    parts = [random_part(size, chance) for size in shape[:first]]
    if chance.random() < 0.5:
        last = chance.randint(0, len(shape) - first)
        parts += [("...", ...)] + [random_part(size, chance) for size in shape[len(shape) - last :]]
    return chance.choice([",", ", ", " ,"]).join(text for text, _ in parts), tuple(index for _, index in parts)


def compare_slices(gateway, cid, model, count, chance):
    names = [name for name, (dtype, _, _) in model.items() if not isinstance(DTYPES[dtype], int)]
    for number in range(count):
        name = chance.choice(names)
        tensor = model[name]
        text, index = random_slice(tensor[1], chance)
        part = array_of(*tensor)[index]
        if number % 5 == 0:
            compare_formats(gateway, cid, name, tensor, text, part)
            continue
        headers, raw = gateway.tensor(cid, name=name, slice=text)
        assert headers["X-Tensor-Shape"] == ",".join(map(str, part.shape)), (name, text, part.shape)
        assert raw == part.tobytes(), (name, tensor[0], tensor[1], text)


def compare_stats(gateway, cid, model):
    names = [name for name, (dtype, _, _) in model.items() if not isinstance(DTYPES[dtype], int)][:44]
    _, content = gateway.tensor(cid, name=names, stats="")
    for told in json.loads(content)["tensors"]:
        dtype, shape, data = model[told["name"]]
        array = array_of(dtype, shape, data).reshape(-1)
        if dtype == "C64":
            array = array.view("<f4")
        with numpy.errstate(invalid="ignore"):
            values = array.astype("f8")
        finite = values[numpy.isfinite(values)]
        expected = {
            "count": values.size,
            "nan": numpy.isnan(values).sum(),
            "inf": numpy.isinf(values).sum(),
            "zero": (values == 0).sum(),
        }
        assert {key: told[key] for key in expected} == expected, (told, expected)
        if not finite.size:
            assert all(told[key] is None for key in ("min", "max", "mean", "std")), told
            continue
        # A type with a larger exponent range than binary64, so that neither numpy nor the comparison overflows.
        finite = finite.astype(numpy.longdouble)
        for key, value in [("min", finite.min()), ("max", finite.max()), ("mean", finite.mean()), ("std", finite.std())]:
            assert numpy.isclose(numpy.longdouble(told[key]), value, rtol=1e-6), (told, key, value)
    return len(names)


def compare_arrays(gateway, count, chance):
    """Reads arrays that numpy.save wrote and compares them with the result of numpy.load."""
    generator = numpy.random.default_rng(chance.randrange(1 << 32))
    for number in range(count):
        kind = chance.choice(["b1", "u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16"])
        dtype = numpy.dtype(chance.choice("<>") + kind)
        shape = [chance.randint(0 if chance.random() < 0.1 else 1, 30) for _ in range(chance.randint(0, 4))]
        data = generator.integers(0, 2 if kind == "b1" else 256, math.prod(shape) * dtype.itemsize, dtype=numpy.uint8)
        array = data.view(dtype).reshape(shape, order=chance.choice("CF"))
        file = io.BytesIO()
        numpy.save(file, array)
        _, added = gateway.ask("POST", "/v1/stream/upload", file.getvalue())
        cid = json.loads(added)["cid"]
        little = array.astype(dtype.newbyteorder("<"))
        text, index = random_slice(shape, chance)
        for slice_, part in [("", little), (text, little[index])]:
            query = {"slice": slice_} if slice_ else {}
            _, npy = gateway.tensor(cid, **query, format="npy")
            what = (dtype, shape, slice_, array.flags)
            same(numpy.load(io.BytesIO(npy)), part, what)
            # Fortran order is available in this format only, unless at most one dimension has several elements.
            is_fortran = array.flags.fnc and sum(size > 1 for size in part.shape) > 1 and part.size
            headers, raw = gateway.tensor(cid, **query, expected=501 if is_fortran else 200)
            assert is_fortran or raw == part.tobytes(), what


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--url")
    arguments.add_argument("--mebibytes", type=int, default=512)
    arguments.add_argument("--slices", type=int, default=500)
    arguments.add_argument("--seed", type=int, default=1)
    arguments = arguments.parse_args()
    if arguments.url:
        judge(arguments)
        return
    with harness.Daemon() as daemon:
        arguments.url = daemon.url
        judge(arguments)


def judge(arguments):
    chance = random.Random(arguments.seed)
    gateway = Gateway(arguments.url)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "model.safetensors")
        model = make(path, arguments.mebibytes, chance)
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            _, added = gateway.ask("POST", "/v1/stream/upload", file)
    cid = json.loads(added)["cid"]
    _, content = gateway.ask("GET", f"/v1/tensor/{cid}/info")
    listed = {tensor["name"]: (tensor["dtype"], tensor["shape"], tensor["size_bytes"]) for tensor in json.loads(content)["tensors"]}
    assert listed == {name: (dtype, shape, len(data)) for name, (dtype, shape, data) in model.items()}
    for name, tensor in model.items():
        compare_formats(gateway, cid, name, tensor)
    compare_slices(gateway, cid, model, arguments.slices, chance)
    some = [name for name, (dtype, _, _) in model.items() if dtype in READ_BY_SAFETENSORS_NUMPY][:20]
    _, subset = gateway.tensor(cid, name=some, format="safetensors")
    loaded = safetensors.numpy.load(subset)
    assert sorted(loaded) == sorted(some)
    for name in some:
        same(loaded[name], array_of(*model[name]), name)
    sums = compare_stats(gateway, cid, model)
    compare_arrays(gateway, arguments.slices // 2, chance)
    print(f"{len(model)} tensors of {len(DTYPES)} types, {size} bytes, whole in every format;", end=" ")
    print(f"{arguments.slices} slices; {len(some)} tensors as a file; statistics of {sums};", end=" ")
    print(f"{arguments.slices // 2} arrays")


if __name__ == "__main__":
    main()
