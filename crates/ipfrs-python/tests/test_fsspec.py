"""``ipfrs://`` in pandas, pyarrow, zarr and dask, with a store in the process and with a daemon."""

from __future__ import annotations

import io
import os
import pickle
import random
import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ipfrs
from content import directory_block, symlink_block

fsspec: Any = pytest.importorskip("fsspec")

CONTENT = random.Random(1).randbytes(3_000_000)
FILES = {"a.csv": b"n,square\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(5000)), "sub/b.bin": CONTENT}
NAMES = {"sub/deep/c d#?%20é.txt": b"odd name", "sub/empty": b""}


@pytest.fixture(scope="module", params=["node", "client"])
def options(request: pytest.FixtureRequest, gateway: Any, node: Any) -> dict[str, Any]:
    """Storage options for a store in the process, and for a daemon."""
    return {"client": node} if request.param == "node" else {"endpoint_url": gateway.url}


@pytest.fixture(scope="module")
def fs(options: dict[str, Any]) -> Any:
    return fsspec.filesystem("ipfrs", **options)


def add(options: dict[str, Any], source: Any, **more: Any) -> str:
    """Adds a file or a directory."""
    if "client" in options:
        return added(options["client"], source, **more)
    with ipfrs.Client(options["endpoint_url"]) as client:
        return added(client, source, **more)


def added(store: Any, source: Any, **more: Any) -> str:
    is_directory = isinstance(source, Path) and source.is_dir()
    return str(store.add_dir(source, **more) if is_directory else store.add(source, **more))


@pytest.fixture(scope="module")
def folder(options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("folder")
    for name, content in {**FILES, **NAMES}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return add(options, directory)


def sent(gateway: Any) -> float:
    """Returns the number of bytes of content that the daemon has sent."""
    with urllib.request.urlopen(f"{gateway.url}/metrics") as response:
        lines = response.read().decode().splitlines()
    sums = [line for line in lines if line.startswith("ipfrs_http_response_size_bytes_sum") and "/metrics" not in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in sums)


def test_the_protocol_is_known_without_an_import() -> None:
    assert fsspec.get_filesystem_class("ipfrs").__name__ == "IpfrsFileSystem"


def test_directories_are_listed_walked_and_searched(fs: Any, folder: str) -> None:
    assert fs.ls(folder, detail=False) == [f"{folder}/a.csv", f"{folder}/sub"]
    assert {entry["name"]: (entry["type"], entry["size"]) for entry in fs.ls(f"ipfrs://{folder}")} == {
        f"{folder}/a.csv": ("file", len(FILES["a.csv"])),
        f"{folder}/sub": ("directory", 0),
    }
    files = sorted(f"{folder}/{name}" for name in {**FILES, **NAMES})
    assert fs.find(folder) == files
    assert fs.glob(f"ipfrs://{folder}/**/*.bin") == [f"{folder}/sub/b.bin"]
    assert [(at.count("/"), sorted(names)) for at, _, names in fs.walk(folder)] == [
        (0, ["a.csv"]),
        (1, ["b.bin", "empty"]),
        (2, ["c d#?%20é.txt"]),
    ]
    assert (
        fs.isdir(f"{folder}/sub")
        and fs.isfile(f"{folder}/a.csv")
        and fs.du(folder) == sum(len(content) for content in {**FILES, **NAMES}.values())
    )
    for name, content in NAMES.items():
        assert fs.cat_file(f"{folder}/{name}") == content
    assert fs.ls(f"{folder}/a.csv", detail=False) == [f"{folder}/a.csv"]


def test_absolute_paths_are_those_of_the_root(fs: Any, folder: str) -> None:
    assert fs.ls(f"/{folder}", detail=False) == fs.ls(folder, detail=False)
    assert fs.cat_file(f"/{folder}/a.csv") == FILES["a.csv"]


def test_missing_path_does_not_exist(fs: Any, folder: str) -> None:
    path = f"{folder}/none"
    assert not fs.exists(path) and not fs.exists("ipfrs://nonsense") and fs.exists(folder)
    for asked in (fs.info, fs.ls, fs.cat_file, fs.open):
        with pytest.raises(FileNotFoundError):
            asked(path)


def test_modified_without_stored_time_is_epoch(fs: Any, blocking: Any) -> None:
    cid = blocking.add(b"dated", mtime=1_700_000_000, name="a", wrap=True)
    fs = type(fs)(client=blocking)
    for _ in range(2):
        assert fs.modified(f"ipfrs://{cid}/a").timestamp() == 1_700_000_000
        fs.ls(cid)
    assert fs.modified(blocking.add(b"undated")).timestamp() == 0
    with pytest.raises(FileNotFoundError):
        fs.modified(f"{cid}/none")


def test_fsspec_ranges_match_bytes(fs: Any, folder: str) -> None:
    path = f"{folder}/sub/b.bin"
    for start, end in [(None, None), (0, 10), (5, 5), (9, 3), (1_000_000, 2_500_000), (-10, None), (0, -2_999_990)]:
        assert fs.cat_file(path, start, end) == CONTENT[start:end]
    assert fs.cat_file(path, 2_999_990, 9_000_000) == CONTENT[2_999_990:]
    wanted = [(n * 7001, n * 7001 + 300) for n in range(40)]
    starts, ends = [start for start, _ in wanted], [end for _, end in wanted]
    assert fs.cat_ranges([path] * 40, starts, ends) == [CONTENT[start:end] for start, end in wanted]
    good, bad = fs.cat_ranges([path, f"{folder}/none"], 0, 3)
    assert good == CONTENT[:3] and isinstance(bad, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{folder}/none"], 0, 3, on_error="raise")
    assert fs.cat([f"{folder}/sub/empty", path]) == {f"{folder}/sub/empty": b"", path: CONTENT}
    with fs.open(path) as file:
        assert file.seek(-5, io.SEEK_END) and file.read() == CONTENT[-5:]
        file.seek(2_000_000)
        assert file.read(10) == CONTENT[2_000_000:2_000_010]
    with fs.open(f"{folder}/a.csv", "r", encoding="utf-8") as text:
        assert text.readline() == "n,square\n"


def test_range_transfers_only_its_bytes(gateway: Any) -> None:
    with ipfrs.Client(gateway.url) as client:
        cid = client.add(CONTENT[::-1])
    fs = fsspec.filesystem("ipfrs", endpoint_url=gateway.url)
    before = sent(gateway)
    assert fs.cat_file(cid, 1_000_000, 1_000_100) == CONTENT[::-1][1_000_000:1_000_100]
    with fs.open(cid, block_size=4096, cache_type="bytes") as file:
        file.seek(2_000_000)
        file.read(1000)
    assert sent(gateway) - before < 50_000


def test_small_reads_of_an_immutable_path_look_it_up_once(blocking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsspec.filesystem("ipfrs", client=blocking)
    cid, info = blocking.add(b"0123456789"), fs.info
    lookups: list[str] = []

    def counted(path: str) -> Any:
        lookups.append(path)
        return info(path)

    monkeypatch.setattr(fs, "info", counted)
    assert fs.cat_file(cid) == b"0123456789"
    assert fs.cat_ranges([cid] * 10, list(range(10)), list(range(1, 11))) == [b"%d" % digit for digit in range(10)]
    assert lookups == [cid]


def test_content_is_copied_to_disk_with_progress(fs: Any, folder: str, tmp_path: Path) -> None:
    done = fsspec.callbacks.Callback()
    fs.get_file(f"{folder}/sub/b.bin", str(tmp_path / "new" / "b.bin"), callback=done)
    assert (tmp_path / "new" / "b.bin").read_bytes() == CONTENT
    assert done.value == done.size == len(CONTENT)
    fs.get(folder, str(tmp_path / "all"), recursive=True)
    for name, content in {**FILES, **NAMES}.items():
        assert (tmp_path / "all" / name).read_bytes() == content


def test_directories_are_not_read_as_files(fs: Any, folder: str) -> None:
    for read in (fs.cat_file, fs.open, lambda path: fs.cat_file(path, 0, 0), lambda path: fs.cat(path, recursive=True)):
        with pytest.raises(IsADirectoryError):
            read(f"{folder}/sub")
    assert fs.get_mapper(folder).get("sub") is None
    files = fs.cat(folder, recursive=True, on_error="omit")
    assert files == {f"{folder}/{name}": content for name, content in {**FILES, **NAMES}.items()}
    assert not fs.isdir("nope") and not fs.isdir(f"{folder}/none")


def test_symlinks_are_copied_with_their_directory_and_otherwise_refused(
    fs: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(b"content")
    os.symlink("../blobs/abc", source / "model.bin")
    os.symlink("file", source / "near")
    cid = add(options, source)
    path = f"{cid}/near"
    reads: list[Callable[[], object]] = [
        lambda: fs.open(path),
        lambda: fs.cat_file(path),
        lambda: fs.cat_file(path, 1, 3),
        lambda: fs.get_file(path, str(tmp_path / "got")),
        lambda: fs.get(path, str(tmp_path / "got")),
        # The cache would open the target of a symlink that is created in it.
        lambda: fsspec.open(f"simplecache::ipfrs://{path}", ipfrs=options).open(),
    ]
    for read in reads:
        with pytest.raises(ipfrs.InvalidInputError, match=f"{path} is a symlink"):
            read()
    assert not os.path.lexists(tmp_path / "got")
    for _ in range(2):
        fs.get(cid, f"{tmp_path}/out/", recursive=True)
        assert os.readlink(tmp_path / "out" / "model.bin") == "../blobs/abc"
        assert os.readlink(tmp_path / "out" / "near") == "file"
        assert (tmp_path / "out" / "file").read_bytes() == b"content"
    fs.get(cid, tmp_path / "path", recursive=True)
    assert os.readlink(tmp_path / "path" / "near") == "file"


def test_copying_never_follows_symlinks(blocking: Any, tmp_path: Path) -> None:
    fs = fsspec.filesystem("ipfrs", client=blocking)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_bytes(b"mine")

    def directory(*entries: tuple[str, str]) -> str:
        return str(blocking.put(directory_block(list(entries)), codec="dag-pb"))

    def link(target: Path) -> str:
        return str(blocking.put(symlink_block(str(target)), codec="dag-pb"))

    evil = blocking.put(b"evil")
    linked = directory(("d", link(victim)), ("f", link(victim / "file")))
    fs.get(linked, f"{tmp_path}/out/", recursive=True)
    inner = directory(("evil", evil))
    for wrong in (directory(("d", inner)), directory(("f", evil)), directory(("d", directory()), ("f", evil))):
        with pytest.raises(FileExistsError, match="is a symlink"):
            fs.get(wrong, f"{tmp_path}/out/", recursive=True)
        with pytest.raises(FileExistsError, match="is a symlink"):
            fs.get(wrong, tmp_path / "out", recursive=True)
    for entries in ([("d", link(victim)), ("d", inner)], [("d", inner), ("d", link(victim))]):
        fs.get(directory(*entries), f"{tmp_path}/new/", recursive=True)
        shutil.rmtree(tmp_path / "new")
    assert {path.name: path.read_bytes() for path in victim.iterdir()} == {"file": b"mine"}


def test_nothing_is_written(fs: Any, folder: str, tmp_path: Path) -> None:
    path = f"{folder}/new"
    (tmp_path / "file").write_bytes(b"x")
    writes: list[Callable[[], object]] = [
        lambda: fs.open(path, "wb"),
        lambda: fs.pipe_file(path, b"x"),
        lambda: fs.put_file(str(tmp_path / "file"), path),
        lambda: fs.mkdir(path),
        lambda: fs.makedirs(path),
        lambda: fs.rm(folder, recursive=True),
        lambda: fs.rm_file(path),
        lambda: fs.touch(path),
        lambda: fs.mv(f"{folder}/a.csv", path),
        lambda: fs.cp_file(f"{folder}/a.csv", path),
    ]
    for write in writes:
        with pytest.raises(io.UnsupportedOperation, match="read-only"):
            write()


def test_caches_know_content_by_its_id(fs: Any, options: dict[str, Any], folder: str, tmp_path: Path) -> None:
    path = f"{folder}/sub/b.bin"
    alone = fs.ukey(path)
    assert fs.ukey(alone) == alone and fs.checksum(path) == fs.checksum(alone) != fs.checksum(f"{folder}/a.csv")
    for cache in ("simplecache", "filecache", "blockcache"):
        where = {cache: {"cache_storage": str(tmp_path / cache)}, "ipfrs": options}
        for _ in range(2):
            with fsspec.open(f"{cache}::ipfrs://{path}", **where) as file:
                file.seek(1_000_000)
                assert file.read(1000) == CONTENT[1_000_000:1_001_000]


def test_pandas_reads_tables(options: dict[str, Any], folder: str, gateway: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.read_csv(f"ipfrs://{folder}/a.csv", storage_options=options)
    assert table["square"].tolist() == [n * n for n in range(5000)]
    chance = random.Random(2)
    columns = {name: [chance.random() for _ in range(100_000)] for name in "abcdefgh"}
    written = pandas.DataFrame(columns)
    written.to_parquet(tmp_path / "t.parquet")
    cid = add(options, tmp_path / "t.parquet")
    before = sent(gateway)
    read = pandas.read_parquet(f"ipfrs://{cid}", columns=["c"], storage_options=options)
    assert read["c"].tolist() == columns["c"]
    if "endpoint_url" in options:
        size = (tmp_path / "t.parquet").stat().st_size
        assert 0 < sent(gateway) - before < size * 0.6
    assert pandas.read_parquet(f"ipfrs://{cid}", storage_options=options).equals(written)


def test_dask_and_zarr_open_directories(options: dict[str, Any], folder: str, tmp_path: Path) -> None:
    dask_bytes = pytest.importorskip("dask.bytes")
    _, blocks = dask_bytes.read_bytes(f"ipfrs://{folder}/sub/b*", blocksize=1_000_000, sample=False, **options)
    dask: Any = pytest.importorskip("dask")
    assert b"".join(dask.compute(*blocks[0], scheduler="threads")) == CONTENT
    zarr = pytest.importorskip("zarr")
    import numpy

    array = numpy.arange(10_000).reshape(100, 100)
    zarr.save_array(str(tmp_path / "array.zarr"), array)
    cid = add(options, tmp_path / "array.zarr", hidden=True)
    opened = zarr.open_array(f"ipfrs://{cid}", mode="r", storage_options=options)
    assert (opened[10:20, 5] == array[10:20, 5]).all()


def test_instances_of_many_threads_share_one_store(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ipfrs.Node(tmp_path) as node:
        cid = node.add(CONTENT)
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda n: fsspec.filesystem("ipfrs", path=tmp_path).cat_file(cid, n, n + 10), range(20))
        assert list(found) == [CONTENT[n : n + 10] for n in range(20)]
    fs = fsspec.filesystem("ipfrs", path=tmp_path)
    for _ in range(2):
        fs.close()
        # `close` released the store, and the next use opens it again.
        with ipfrs.Node(tmp_path) as node:
            assert node.has(cid)
        assert fs.cat_file(cid, 0, 3) == CONTENT[:3]
    fs.close()


def test_daemon_url_comes_from_environment_and_pickles(
    gateway: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cid = client.add(b"of the daemon")
    monkeypatch.setenv("IPFRS_URL", gateway.url)
    assert fsspec.filesystem("ipfrs", skip_instance_cache=True).cat_file(cid) == b"of the daemon"
    monkeypatch.delenv("IPFRS_URL")
    fs = fsspec.filesystem("ipfrs", endpoint_url=gateway.url)
    assert pickle.loads(pickle.dumps(fs)).cat_file(cid) == b"of the daemon"
    with pytest.raises(ConnectionError):
        fsspec.filesystem("ipfrs", endpoint_url="http://127.0.0.1:1").exists(cid)


def test_each_address_in_the_environment_has_its_own_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        sections: dict[str, Any] = {"server": {"port": 0}, "grpc": {"enabled": False}}
        with ipfrs.Gateway(sections, repo=tmp_path / str(number)) as gateway:
            monkeypatch.setenv("IPFRS_URL", gateway.url)
            with gateway.client() as client:
                cid = client.add(b"content of %d" % number)
            for protocol in ("ipfrs", "ipfs"):
                with fsspec.open(f"{protocol}://{cid}") as file:
                    assert file.read() == b"content of %d" % number


def test_the_configuration_of_fsspec_precedes_the_environment(
    tmp_path: Path, url: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPFRS_URL", "http://127.0.0.1:1")
    cid = client.add(b"hello")
    monkeypatch.setitem(fsspec.config.conf, "ipfs", {"endpoint_url": url})
    assert fsspec.filesystem("ipfrs").cat_file(cid) == b"hello"
    ipfrs.Node(tmp_path).close()
    monkeypatch.setitem(fsspec.config.conf, "ipfs", {"path": str(tmp_path)})
    files = fsspec.filesystem("ipfrs")
    assert not files.exists(cid)
    files.close()


def test_each_client_has_its_own_file_system(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def filesystem(client: Any) -> Any:
        return fsspec.filesystem("ipfrs", client=client)

    systems = []
    # Nodes and clients that look alike.
    for directory in ("one", "other"):
        (tmp_path / directory).mkdir()
        monkeypatch.chdir(tmp_path / directory)
        with ipfrs.Node("repo") as node:
            cid = node.add(directory.encode())
            systems.append(filesystem(node))
            assert systems[-1].cat_file(cid) == directory.encode()
        with ipfrs.Node("repo") as node:
            systems.append(filesystem(node))
            assert systems[-1].cat_file(cid) == directory.encode()
    with ipfrs.Client(url, "first") as first, ipfrs.Client(url, "second") as second:
        systems += [filesystem(first), filesystem(second)]
        assert systems[-1]._store is second
    assert len(set(systems)) == len(systems)


def test_each_directory_has_its_own_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for directory in ("one", "other"):
        (tmp_path / directory).mkdir()
        monkeypatch.chdir(tmp_path / directory)
        with ipfrs.Node("repo") as node:
            cid = node.add(directory.encode())
        files = fsspec.filesystem("ipfrs", path="repo")
        assert files.cat_file(cid) == directory.encode()
        files.close()


def test_only_blocking_clients_are_accepted(aclient: Any, gateway: Any) -> None:
    for other in (aclient, gateway, "client"):
        with pytest.raises(TypeError, match="ipfrs.Node or ipfrs.Client"):
            fsspec.filesystem("ipfrs", client=other)


def test_a_node_in_use_is_named_as_the_remedy(tmp_path: Path) -> None:
    with ipfrs.Node(tmp_path) as node:
        cid = node.add(b"hello")
        with pytest.raises(ipfrs.ConflictError, match='storage_options={"client": node}'):
            fsspec.filesystem("ipfrs", path=tmp_path).cat_file(cid)
        assert fsspec.filesystem("ipfrs", client=node).cat_file(cid) == b"hello"


def test_missing_content_is_an_error_of_both_kinds(fs: Any, folder: str) -> None:
    with pytest.raises(ipfrs.NotFoundError) as caught:
        fs.cat_file(f"{folder}/missing")
    assert isinstance(caught.value, FileNotFoundError) and caught.value.filename.endswith("missing")


def test_only_one_storage_location_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one of endpoint_url, path and client"):
        fsspec.filesystem("ipfrs", endpoint_url="http://127.0.0.1:1", path=tmp_path)


def test_path_without_repo_is_named_and_none_is_created(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for directory in (tmp_path / "missing", tmp_path / "folder"):
        for open_it, argument in ((fsspec.filesystem, "ipfrs"), (fsspec.open, "ipfrs://bafkqaaa")):
            with pytest.raises(ipfrs.FileNotFoundError, match=f"no ipfrs repo at {directory}") as caught:
                open_it(argument, path=directory)
            assert caught.value.filename == str(directory)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_repo_that_is_removed_is_not_created_again(tmp_path: Path) -> None:
    ipfrs.Node(tmp_path / "repo").close()
    fs = fsspec.filesystem("ipfrs", path=tmp_path / "repo")
    assert fs.cat_file("bafkqaaa") == b""
    fs.close()
    shutil.rmtree(tmp_path / "repo")
    for call in (fs.exists, fs.cat_file):
        with pytest.raises(ipfrs.FileNotFoundError, match="no ipfrs repo"):
            call("bafkqaaa")
    assert list(tmp_path.iterdir()) == []


def test_unknown_options_are_rejected(url: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no option 'endpoint'.*'endpoint_url'"):
        fsspec.filesystem("ipfrs", endpoint=url)
    with pytest.raises(TypeError, match="no option 'verbose'.*endpoint_url, token, path, client"):
        fsspec.filesystem("ipfrs", verbose=True)
    shared: dict[str, Any] = {"use_listings_cache": False, "listings_expiry_time": 1, "max_paths": 9}
    for options in (shared, {"asynchronous": False, "loop": None, "skip_instance_cache": True}, {"block_size": 9}):
        assert fsspec.filesystem("ipfrs", endpoint_url=url, **options).exists("bafkqaaa")
    with fsspec.open("simplecache::ipfrs://bafkqaaa", ipfrs={"endpoint_url": url}) as file:
        assert file.read() == b""


def test_options_of_other_protocols_are_ignored(url: str) -> None:
    # datasets adds those of Hugging Face to the dictionary of the caller.
    options = {"endpoint_url": url, "hf": {"token": "secret", "endpoint": "https://huggingface.co"}}
    fs = fsspec.filesystem("ipfrs", **options)
    assert fs.cat_file("bafkqaaa") == b"" and "secret" not in fs.to_json()
    assert fs is fsspec.filesystem("ipfrs", endpoint_url=url)
    wrongs: list[dict[str, Any]] = [{"hf": True}, {"ipfs": {}}, {"unknown": {}}]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="no option"):
            fsspec.filesystem("ipfrs", **wrong)


def test_token_needs_a_daemon(client: Any, tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [{"path": tmp_path}, {"client": client}]
    for place in options:
        with pytest.raises(ipfrs.InvalidInputError, match="token is for a daemon"):
            fsspec.filesystem("ipfrs", token="secret", **place)
