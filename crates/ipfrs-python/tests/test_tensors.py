"""Tensors: slices as in numpy, all types, whole models, and files as the package safetensors writes them."""

from __future__ import annotations

import copy
import math
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import ipfrs
from ipfrs import _dtypes

ml_dtypes = pytest.importorskip("ml_dtypes")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

PACKED = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
WHOLE = [name for name in _dtypes.DTYPES if name not in PACKED and name != "C128"]


def arrays(seed: int) -> dict[str, Any]:
    """Returns arrays of every type and many shapes, with random bits."""
    chance = numpy.random.default_rng(seed)
    shapes = [(), (1,), (7,), (0, 3), (5, 4), (3, 2, 5), (2, 3, 1, 4), (40, 700)]
    made = {}
    for number, name in enumerate(WHOLE * 2):
        dtype, shape = _dtypes.numpy_dtype(name), shapes[(number * 5) % len(shapes)]
        count = int(numpy.prod(shape, dtype=int)) * dtype.itemsize
        bits = chance.integers(0, 2 if name == "BOOL" else 256, count, dtype=numpy.uint8)
        made[f"layer.{number}/{name} é"] = bits.view(dtype).reshape(shape)
    return made


def same(found: Any, expected: Any) -> None:
    """Asserts that two arrays are equal bit for bit. NaNs are equal to themselves."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def random_key(chance: random.Random, shape: tuple[int, ...]) -> Any:
    key: list[Any] = []
    for size in shape[: chance.randrange(len(shape) + 1)]:
        if size and chance.random() < 0.3:
            key.append(chance.randrange(-size, size))
        else:
            start, stop = (chance.choice([None, chance.randrange(-size - 3, size + 4)]) for _ in range(2))
            key.append(slice(start, stop, chance.choice([None, 1, 2, 3, -1, -2, -3])))
    if chance.random() < 0.3:
        key.append(Ellipsis)
    if chance.random() < 0.2:
        key.insert(chance.randrange(len(key) + 1), None)
    return key[0] if len(key) == 1 and key[0] is not None else tuple(key)


def test_tensor_slice_matches_numpy_slice(store: Any) -> None:
    model = arrays(1)
    cid = store.add(b"".join(ipfrs._tensors.safetensors_pieces(model)), chunker="size-4096")
    chance = random.Random(7)
    names = list(model)
    for _ in range(300):
        name = chance.choice(names)
        key = random_key(chance, model[name].shape)
        same(store.tensor(cid, name, key), numpy.asarray(model[name][key]))
    same(store.tensor(cid, names[0]), model[names[0]])
    large = next(name for name, array in model.items() if array.shape == (40, 700))
    same(store.tensor(cid, large, "3:30:4, -5:"), model[large][3:30:4, -5:])
    same(store.tensor(cid, large, "..., ::-7"), model[large][..., ::-7])
    same(store.tensor(cid, large, ""), model[large])


@pytest.mark.parametrize(
    "key",
    [
        True,
        [True, False],
        [0.5],
        [[0]],
        [2],
        (0, [1]),
        (None, [0]),
        numpy.array([[0]]),
        1.5,
        slice(0, 2, 0),
        (0, 0, 0),
        9,
        slice("a", None),
        "x",
        "1:2:3:4",
        "::0",
        ",",
        "0,0,0",
    ],
)
def test_invalid_slice_is_rejected(store: Any, key: Any) -> None:
    cid = store.add_tensors({"a": numpy.zeros((2, 3))})
    with pytest.raises(ValueError):
        store.tensor(cid, "a", key)


def test_listed_rows_are_those_of_numpy(store: Any) -> None:
    array = numpy.arange(300 * 7 * 3, dtype="int32").reshape(300, 7, 3)
    cid = store.add_tensors({"a": array}, chunker="size-1000")
    chance = random.Random(3)
    keys: list[Any] = [[], [3], [2, 2, -1, 0], numpy.array([5, 4, 3], "uint8"), list(range(300)), ([1, 9], 2)]
    keys += [([4, 0], slice(None, None, 2), -1), ([7], ...), ([3, 1], slice(None), slice(None, None, -1))]
    keys += [[chance.randrange(-300, 300) for _ in range(5_000)], numpy.int64(4), range(9, 3, -2), (range(4), 1)]
    same(store.tensor(cid, "a", "[3, 0:2], 1"), array[[3, 0, 1], 1])
    for key in keys:
        found = store.tensor(cid, "a", key)
        same(found, array[key])
        assert not found.flags.writeable


def test_many_slices_are_those_of_numpy(store: Any) -> None:
    array = numpy.arange(60.0).reshape(30, 2)
    cid = store.add_tensors({"a": array})
    cases: list[list[Any]] = [
        [],
        [3, -1, slice(0, 5)],
        [slice(2, 4), slice(28, 99), 0],
        [slice(None), slice(-3, None), slice(5, 2), slice(99, 100)],
        [n % 30 for n in range(4_100)],
    ]
    for keys in cases:
        found = store.tensor_many(cid, "a", keys)
        assert len(found) == len(keys)
        for key, one in zip(keys, found):
            same(one, numpy.asarray(array[key]))
    wrongs: list[list[Any]] = [[slice(0, 4, 2)], ["a"], [30], [True]]
    for wrong in wrongs:
        with pytest.raises(ValueError):
            store.tensor_many(cid, "a", wrong)


def test_listed_rows_of_column_major_arrays_are_in_order(store: Any, tmp_path: Path) -> None:
    for shape in ((30, 4), (6, 5, 3), (9,)):
        array = numpy.asfortranarray(numpy.arange(math.prod(shape), dtype="int32").reshape(shape))
        numpy.save(tmp_path / "a.npy", array)
        cid = store.add(tmp_path / "a.npy")
        for key in ([0, 1], [1, 0, 1], [2, 3, 4, 0], list(range(5))):
            found = store.tensor(cid, "", key)
            same(found, array[key])
            assert not found.flags.writeable
            for one, row in zip(store.tensor_many(cid, "", key), key):
                same(numpy.asarray(one), numpy.asarray(array[row]))
        same(store.tensor_many(cid, "", [slice(0, 4)])[0], array[:4])
        texts: dict[str, Any] = {"[1,0]": [1, 0], "[5:99]": slice(5, 99), "[]": []}
        texts[" [ 3, -2:, :1 ] , ... "] = [3, -2, -1, 0]
        for text, rows in texts.items():
            found = store.tensor(cid, "", text)
            same(found, array[rows])
            assert not found.flags.writeable
        for text in ("[99]", "[0],0,0,0", "[::2]"):
            with pytest.raises(ipfrs.InvalidInputError):
                store.tensor(cid, "", text)


def test_rows_take_one_request(tmp_path: Path) -> None:
    array = numpy.zeros((2_000, 4), "float32")
    with ipfrs.Gateway(repo=tmp_path, server={"port": 0}, grpc={"enabled": False}) as gateway:
        with ipfrs.Client(gateway.url) as client:
            cid = client.add_tensors({"a": array})
            before = requests(gateway)
            client.tensor(cid, "a", list(range(1_999, 0, -2)))
            client.tensor_many(cid, "a", [0, slice(5, 9)] * 100)
            assert requests(gateway) - before == 2


def requests(gateway: Any) -> float:
    """Returns the number of requests for tensors that the daemon has served."""
    import urllib.request

    with urllib.request.urlopen(f"{gateway.url}/metrics") as response:
        text = response.read().decode()
    lines = (line for line in text.splitlines() if line.startswith("ipfrs_http_requests_total"))
    counts = [line for line in lines if "/v1/tensor" in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in counts)


def test_a_tensor_of_a_file_is_read_by_slices(blocking: Any) -> None:
    array = numpy.arange(40.0).reshape(20, 2)
    file = blocking.tensors(blocking.add_tensors({"model.weight": array, "bias": array[0]}))
    same(file["model.weight"][10:20], array[10:20])
    same(file["model.weight"][[3, 1], 1], array[[3, 1], 1])
    with pytest.raises(ipfrs.NotFoundError, match="did you mean 'model.weight'?"):
        file["model.weigth"]
    with pytest.raises(ipfrs.NotFoundError, match='did you mean "model.weight"?'):
        blocking.tensor(file.cid, "model.weigth")
    with pytest.raises(TypeError, match="read it first"):
        list(file["bias"])
    same(file["bias"][None], array[0][None])
    same(numpy.asarray(file["model.weight"]), array)
    same(numpy.array(file["model.weight"], "float32", copy=True), array.astype("float32"))
    with pytest.raises(ipfrs.InvalidInputError, match="only the first part"):
        file["model.weight"][:, [0, 1]]
    assert "model.weight" in file._repr_html_() and file._ipython_key_completions_() == list(file)
    assert len(repr(file)) < 200
    same(blocking.load_tensors(file.cid, ["bias"], framework="np")["bias"], array[0])


def test_an_asynchronous_tensor_is_not_an_array(anode: Any, wait: Any) -> None:
    file = wait(anode.tensors(wait(anode.add_tensors({"a": numpy.ones(3)}))))
    with pytest.raises(TypeError, match="await"):
        numpy.asarray(file["a"])


def test_a_pickled_tensor_of_a_client_can_be_read(client: Any, node: Any) -> None:
    file = pickle.loads(pickle.dumps(client.tensors(client.add_tensors({"a": numpy.arange(9)}))))
    same(file["a"][2:4], numpy.arange(2, 4))
    # A Node belongs to its process.
    info = pickle.loads(pickle.dumps(node.tensors(node.add_tensors({"a": numpy.arange(9)}))["a"]))
    assert info.shape == (9,)
    with pytest.raises(TypeError, match="of a Client"):
        info[2:4]


def test_a_copied_tensor_can_be_read(blocking: Any) -> None:
    file = blocking.tensors(blocking.add_tensors({"a": numpy.arange(9)}))
    for copied in (copy.copy, copy.deepcopy):
        same(copied(file["a"])[2:4], numpy.arange(2, 4))
        same(copied(file)["a"][2:4], numpy.arange(2, 4))
        assert copied(file) == file


def test_the_closest_of_many_names_is_suggested(blocking: Any) -> None:
    names = [f"layers.{layer}.{part}.weight" for layer in range(800) for part in ("norm", "mlp")]
    file = blocking.tensors(blocking.add_tensors({name: numpy.zeros(1, "u1") for name in names}))
    for get in (file.__getitem__, lambda name: blocking.tensor(file.cid, name)):
        with pytest.raises(ipfrs.NotFoundError, match="layers.7.norm.weight"):
            get("layers.7.norm.wieght")


def test_progress_of_tensors_has_a_total(store: Any) -> None:
    calls: list[tuple[int, object]] = []
    model = {"a": numpy.zeros(1_000_000, "u1"), "f": numpy.asfortranarray(numpy.zeros((3, 50_000)))}
    cid = store.add_tensors(model, progress=lambda done, total: calls.append((done, total)))
    size = store.stat(cid).size
    assert calls[-1] == (size, size)


def test_node_tensors_are_read_only_views_of_blocks(tmp_path: Path) -> None:
    with ipfrs.Node(tmp_path) as node:
        cid = node.add_tensors({"a": numpy.arange(1000.0)}, raw_leaves=True, cid_version=1)
        one, other = node.tensor(cid, "a"), node.tensor(cid, "a", numpy.s_[::-1])
        assert numpy.shares_memory(one, node.tensor(cid, "a"))
        assert not one.flags.writeable and not other.flags.writeable
        assert other.tolist() == list(range(999, -1, -1))
    # Returned arrays stay valid after the node is closed.
    assert one.sum() == 499500


def test_tensors_of_a_file_are_a_mapping(store: Any) -> None:
    cid = store.add_tensors({"w": numpy.ones((2, 3), "f4"), "b": numpy.zeros(2, "i8")}, metadata={"format": "np"})
    file = store.tensors(cid)
    assert (file.format, dict(file.metadata), set(file)) == ("safetensors", {"format": "np"}, {"w", "b"})
    w = file["w"]
    assert (w.name, w.dtype, w.shape, w.nbytes) == ("w", "F32", (2, 3), 24)
    assert store.cat(cid, offset=w.offset, length=w.nbytes) == numpy.ones((2, 3), "f4").tobytes()
    assert "x" not in file
    with pytest.raises(KeyError, match="'x' among the 2"):
        file["x"]


def test_files_match_safetensors_byte_for_byte(store: Any) -> None:
    pytest.importorskip("safetensors", minversion="0.8", reason="older ones do not write all types")
    model = arrays(2)
    # Arrays that are not contiguous or are big-endian are converted while they are sent.
    model["transposed"] = numpy.arange(600_000, dtype="f8").reshape(600, 1000).T
    model["every other"] = numpy.arange(1_000_000, dtype="i2")[::2].astype(ml_dtypes.bfloat16)[::-1]
    expected = {name: numpy.ascontiguousarray(array).reshape(array.shape) for name, array in model.items()}
    model["big-endian"] = numpy.arange(5, dtype=">i4").reshape(5, 1)
    expected["big-endian"] = model["big-endian"].astype("<i4")
    for metadata in ({"format": "pt é"}, None):
        written = safetensors_numpy.save(expected, metadata)
        assert store.add_tensors(model, metadata=metadata) == store.add(written)
    assert store.add_tensors({}) == store.add(safetensors_numpy.save({}))


@pytest.mark.parametrize(
    ("tensors", "metadata"),
    [
        ({"__metadata__": numpy.zeros(1)}, None),
        ({1: numpy.zeros(1)}, None),
        ({"\ud800": numpy.zeros(1)}, None),
        ({"text": numpy.array(["a"])}, None),
        ({"object": numpy.array([None])}, None),
        ({"complex": numpy.zeros(1, "c16")}, None),
        ({"odd": numpy.zeros(3, ml_dtypes.float4_e2m1fn)}, None),
        ({"a": numpy.zeros(1)}, {"number": 1}),
    ],
)
def test_types_unknown_to_safetensors_are_rejected(store: Any, tensors: Any, metadata: Any) -> None:
    with pytest.raises(ValueError, match="__metadata__|str|Unicode|text|object|complex|odd"):
        store.add_tensors(tensors, metadata=metadata)


def test_loading_gives_what_safetensors_loads(store: Any, tmp_path: Path) -> None:
    model = arrays(3)
    model["wide"] = numpy.random.default_rng(0).random((1300, 1001))
    cid = store.add_tensors(model)
    file = tmp_path / "model.safetensors"
    # The package writes some types that its numpy module cannot read.
    read = {
        name: array for name, array in model.items() if array.dtype.kind != "V" and "float8" not in array.dtype.name
    }
    safetensors_numpy.save_file(read, file)
    expected, found = safetensors_numpy.load_file(file), store.load_tensors(cid)
    assert set(found) == set(model) and set(expected) < set(model)
    for name, array in found.items():
        same(array, expected.get(name, model[name]))
        assert array.flags.aligned
        if array.size:
            array.reshape(-1)[0] = 1
    assert store.add(b"".join(ipfrs._tensors.safetensors_pieces(model))) == cid


def test_loading_some_tensors_reads_only_their_bytes(tmp_path: Path) -> None:
    model = {name: numpy.full(3_000_000, number, "u1") for number, name in enumerate("abcdef")}
    with ipfrs.Gateway(repo=tmp_path, server={"port": 0}, grpc={"enabled": False}) as gateway:
        with ipfrs.Client(gateway.url) as client:
            cid = client.add_tensors(model)
            before = client_bytes(gateway)
            found = client.load_tensors(cid, ["e", "b"])
            assert list(found) == ["e", "b"]
            assert found["b"][0] == 1 and found["e"][-1] == 4
            assert 6_000_000 <= client_bytes(gateway) - before < 6_100_000
            with pytest.raises(KeyError, match="'z' among the 6"):
                client.load_tensors(cid, ["a", "z"])
            with pytest.raises(ValueError, match="pass \\['a'\\]"):
                client.load_tensors(cid, "a")
            with pytest.raises(ValueError, match="use 'np' or 'pt'"):
                client.load_tensors(cid, framework="jax")


def client_bytes(gateway: Any) -> float:
    """Returns the number of bytes of content that the daemon has sent."""
    import urllib.request

    with urllib.request.urlopen(f"{gateway.url}/metrics") as response:
        text = response.read().decode()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("ipfrs_http_response_size_bytes_sum") and "/metrics" not in line
    )


def test_elements_of_less_than_a_byte_are_unpacked(store: Any) -> None:
    chance = numpy.random.default_rng(4)
    model = {}
    for name, bits in PACKED.items():
        codes = chance.integers(0, 1 << bits, (6, 4), dtype=numpy.uint8)
        model[name] = codes.view(_dtypes.numpy_dtype(name))
    cid = store.add_tensors(model)
    for name, bits in PACKED.items():
        assert store.tensors(cid)[name].nbytes == 24 * bits // 8
        same(store.tensor(cid, name), model[name])
        same(store.tensor(cid, name, numpy.s_[1:3, ::-1]), model[name][1:3, ::-1])
        same(store.load_tensors(cid)[name], model[name])
    # The daemon locates the elements correctly: its statistics match the values.
    for name, array in model.items():
        assert store.tensor_stats(cid, name)["max"] == array.astype("f8").max()


def test_statistics_count_nan_and_infinity(store: Any) -> None:
    cid = store.add_tensors({"w": numpy.array([1.0, 0.0, 3.0, numpy.nan, -numpy.inf])})
    stats = store.tensor_stats(cid)
    assert list(stats) == ["count", "nan", "inf", "zero", "min", "max", "mean", "std"]
    assert list(stats.values())[:7] == [5, 1, 1, 1, 0, 3, pytest.approx(4 / 3)]


def test_types_that_numpy_lacks_need_ml_dtypes_and_say_so(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cid = store.add_tensors({"a": numpy.zeros(2, ml_dtypes.bfloat16), "b": numpy.zeros(2)})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert store.tensor(cid, "b").tolist() == [0, 0]
    with pytest.raises(ImportError, match="pip install ml_dtypes") as caught:
        store.tensor(cid, "a")
    assert isinstance(caught.value, ipfrs.IpfrsError)


def test_arrays_of_numpy_files_are_tensors(store: Any, tmp_path: Path) -> None:
    array = numpy.arange(60, dtype="c16").reshape(3, 4, 5)
    numpy.save(tmp_path / "a.npy", array)
    cid = store.add(tmp_path / "a.npy")
    same(store.tensor(cid, slice=numpy.s_[1, ::2, -1]), array[1, ::2, -1])
    same(store.load_tensors(cid)[""], array)


@pytest.mark.parametrize("dtype", [">f4", ">c8", "<i2", ">u8"])
def test_arrays_are_read_in_whatever_order_they_were_saved(store: Any, tmp_path: Path, dtype: str) -> None:
    array = numpy.arange(60).astype(dtype).reshape(3, 4, 5)
    expected = array.astype(array.dtype.newbyteorder("<"))
    for saved in (array, numpy.asfortranarray(array)):
        numpy.save(tmp_path / "a.npy", saved)
        cid = store.add(tmp_path / "a.npy")
        same(store.tensor(cid), expected)
        same(store.tensor(cid, slice=numpy.s_[1, ::-2, None, 2:]), expected[1, ::-2, None, 2:])
        same(store.tensor(cid, slice="2, 1:, -1"), expected[2, 1:, -1])
        same(store.tensor(cid, slice=(1, 2, 3)), numpy.asarray(expected[1, 2, 3]))
        same(store.load_tensors(cid)[""], expected)


def test_dlpack_shares_writable_integer_memory(store: Any) -> None:
    model = arrays(6)
    model = {name: array for name, array in model.items() if array.size}
    found = store.load_tensors(store.add_tensors(model))
    for name, array in found.items():
        dtype = _dtypes.name_of(array.dtype)
        flat = array.reshape(-1).view(numpy.uint8)
        taken = numpy.from_dlpack(_dtypes.integers(dtype, flat))
        # numpy before 2.1 makes all arrays from DLPack read-only.
        assert numpy.shares_memory(taken, array) and array.flags.writeable
        assert taken.tobytes() == model[name].tobytes()


def test_torch_gets_its_own_tensors_over_the_same_memory(store: Any) -> None:
    torch = pytest.importorskip("torch")
    safetensors_torch = pytest.importorskip("safetensors.torch")
    chance = torch.Generator().manual_seed(1)
    model = {}
    for name, dtype in _dtypes.DTYPES.items():
        if dtype.torch and name != "C128":
            raw = torch.randint(0, 2 if name == "BOOL" else 256, (6 * 8 * 4,), dtype=torch.uint8, generator=chance)
            model[name] = raw.view(getattr(torch, dtype.torch)).reshape(2, 3, -1)
    model["scalar"], model["empty"] = torch.tensor(1.5, dtype=torch.bfloat16), torch.zeros(0, 3)
    cid = store.add_tensors({**model, "transposed": torch.arange(12.0).reshape(3, 4).T})
    model["transposed"] = torch.arange(12.0).reshape(3, 4).T.contiguous()
    assert cid == store.add(safetensors_torch.save(model))
    for name, tensor in store.load_tensors(cid, framework="torch").items():
        assert (tensor.dtype, tensor.shape) == (model[name].dtype, model[name].shape)
        assert tensor.numel() == 0 or bytes(tensor.reshape(-1).view(torch.uint8).numpy()) == bytes(
            model[name].reshape(-1).view(torch.uint8).numpy()
        )
        tensor.zero_()


def test_empty_name_is_that_of_a_tensor_or_the_only_one(store: Any) -> None:
    model = store.add_tensors({"": numpy.arange(3.0), "other": numpy.zeros(2)})
    same(store.tensor(model, ""), numpy.arange(3.0))
    same(store.tensor(model, "", numpy.s_[1:]), numpy.arange(3.0)[1:])
    same(store.tensor_many(model, "", [slice(1, 3)])[0], numpy.arange(3.0)[1:])
    assert store.tensor_stats(model, "")["count"] == 3
    with pytest.raises(ipfrs.InvalidInputError, match="outside of a dimension"):
        store.tensor(model, "", 3)
    for only in ("", "weight"):
        assert store.tensor(store.add_tensors({only: numpy.ones(2)})).shape == (2,)
    several = store.add_tensors({"a": numpy.ones(2), "b": numpy.ones(3)})
    for call in (store.tensor, store.tensor_stats):
        with pytest.raises(ipfrs.InvalidInputError, match="select one by name"):
            call(several)


def test_client_reads_empty_named_tensor_by_index(blocking: Any) -> None:
    model = blocking.add_tensors({"": numpy.arange(3.0), "other": numpy.zeros(2)})
    same(blocking.tensors(model)[""][...], numpy.arange(3.0))


def test_huge_index_is_named_in_error(store: Any) -> None:
    model = store.add_tensors({"weight": numpy.ones(2)})
    huge = 2**70
    for number in (huge, -huge):
        for key in (number, (number,), [number], str(number)):
            with pytest.raises(ipfrs.InvalidInputError, match=f"index {number} "):
                store.tensor(model, "weight", key)
        with pytest.raises(ipfrs.InvalidInputError, match=f"index {number} "):
            store.tensor_many(model, "weight", [number])
    with pytest.raises(ipfrs.InvalidInputError, match=f"index {2**64 - 1} "):
        store.tensor(model, "weight", numpy.array([2**64 - 1], "uint64"))
    # As in numpy, the ends of ranges may be anywhere.
    assert store.tensor(model, "weight", numpy.s_[-huge:huge]).shape == (2,)


def test_metadata_that_is_no_mapping_raises_type_error(store: Any) -> None:
    for metadata in ("x", "", [("a", "b")]):
        with pytest.raises(TypeError, match="metadata must be a mapping of str to str, not"):
            store.add_tensors({"weight": numpy.ones(2)}, metadata=metadata)
