"""Opening and closing, with threads, forks, signals and the exit of the interpreter."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ipfrs
from conftest import Store, url_of


def run(script: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a script in another interpreter until it exits."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def test_closing_twice_is_allowed_and_later_use_raises(fresh: Store) -> None:
    cid = fresh.add(b"hello")
    assert not fresh.closed
    fresh.close()
    fresh.close()
    assert fresh.closed and "closed" in repr(fresh)
    for call in (
        lambda: fresh.cat(cid),
        lambda: fresh.add(b"more"),
        lambda: fresh.add([b"pieces"]),
        lambda: list(fresh.chunks(cid)),
        lambda: fresh.version(),
        lambda: fresh.__enter__(),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert isinstance(caught.value, ipfrs.ClosedError)


def test_a_context_manager_closes_also_after_an_error(fresh: Store) -> None:
    with pytest.raises(ZeroDivisionError), fresh:
        fresh.add(b"hello")
        raise ZeroDivisionError
    assert fresh.closed


def test_node_content_survives_reopening(tmp_path: Path) -> None:
    with ipfrs.Node(tmp_path) as node:
        cid = node.add(b"kept")
    with ipfrs.Node(str(tmp_path)) as node:
        assert node.cat(cid) == b"kept"


def test_repo_can_be_open_only_once(tmp_path: Path) -> None:
    with ipfrs.Node(tmp_path), pytest.raises(ipfrs.ConflictError, match=f"{tmp_path} is already open in this process"):
        ipfrs.Node(tmp_path)


def test_configurations_are_checked_by_name(tmp_path: Path) -> None:
    with ipfrs.Node(tmp_path / "a", config={"store": {"engine": "memory"}}) as node:
        assert node.cat(node.add(b"hello")) == b"hello"
    (tmp_path / "c.toml").write_text('[import]\nprofile = "unixfs-v1-2025"\n')
    with ipfrs.Node(tmp_path / "b", config=tmp_path / "c.toml") as node:
        assert node.add(b"hello world") == "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"
    with pytest.raises(ipfrs.InvalidInputError, match="engin"):
        ipfrs.Node(tmp_path / "d", config={"store": {"engin": "memory"}})
    with pytest.raises(TypeError, match="mapping of sections"):
        ipfrs.Node(tmp_path / "d", config=3)  # type: ignore[arg-type]
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    for make in (ipfrs.Node, ipfrs.AsyncNode):
        with pytest.raises(ipfrs.FileNotFoundError, match=r"configuration no-such-file\.toml"):
            make(tmp_path / "d", config="no-such-file.toml")
        with pytest.raises(ipfrs.IsADirectoryError, match="cannot read the configuration"):
            make(tmp_path / "d", config=tmp_path)
        with pytest.raises(ipfrs.InvalidInputError, match="not UTF-8"):
            make(tmp_path / "d", config=tmp_path / "latin.toml")
    assert not (tmp_path / "d").exists()


def test_eight_threads_share_one_store(blocking: Store) -> None:
    def work(thread: int) -> None:
        for at in range(20):
            data = f"{thread} {at} ".encode() * (at * 1000 + 1)
            cid = blocking.add(data)
            assert blocking.cat(cid) == data
            assert b"".join(blocking.chunks(cid)) == data
            assert blocking.stat(cid).size == len(data)
        blocks = [f"block {thread} {at}".encode() for at in range(200)]
        assert [bytes(found or b"") for found in blocking.get_many(blocking.put_many(blocks))] == blocks

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_other_threads_run_while_one_waits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = ipfrs.Client(url_of(silent))
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                client.version()
            except ipfrs.IpfrsError as error:
                failed.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        # `accept` needs the GIL, so the other thread must not hold it.
        connection, _ = silent.accept()
        assert connection.recv(1) != b""
        silent.close()
        connection.close()
        waiting.join(30)
        assert len(failed) == 1 and isinstance(failed[0], ConnectionError)
        client.close()


def test_an_interrupt_ends_a_call_that_waits() -> None:
    # A shell starts background jobs with SIGINT ignored, and so do the tests then.
    script = """
import signal, sys, ipfrs
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with ipfrs.Client(sys.argv[1]) as client:
        client.cat("QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH")
except KeyboardInterrupt:
    sys.exit(42)
"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = url_of(silent)
        process = subprocess.Popen([sys.executable, "-c", script, url])
        try:
            connection, _ = silent.accept()
            assert connection.recv(1) != b""
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 42
            connection.close()
        finally:
            process.kill()
            process.wait()


def test_an_interrupted_add_pins_nothing_and_says_what_gc_does(tmp_path: Path) -> None:
    script = """
import os, signal, sys, ipfrs
signal.signal(signal.SIGINT, signal.default_int_handler)
def pieces():
    for number in range(100):
        yield os.urandom(1_000_000)
        if number == 50:
            os.kill(os.getpid(), signal.SIGINT)
with ipfrs.Node(sys.argv[1]) as node:
    try:
        node.add(pieces())
    except KeyboardInterrupt as error:
        print(error)
    assert node.pins() == []
    # Blocks that were being written when the import ended may arrive after the first gc.
    while node.stats()["blocks"]:
        node.gc()
"""
    done = run(script, tmp_path / "repo")
    assert "gc frees its blocks" in done.stdout, done.stderr
    assert done.returncode == 0, done.stderr


FORKING = """
import asyncio, os, sys, warnings, ipfrs
warnings.simplefilter("ignore")
warnings.simplefilter("always", ResourceWarning)
node, anode = ipfrs.Node(sys.argv[1]), ipfrs.AsyncNode(sys.argv[1] + "3")
gateway = ipfrs.Gateway(repo=sys.argv[1] + "4")
client = ipfrs.Client(sys.argv[2])
cid = node.add(b"hello")
client.add(b"hello")
unused, chunks, view = ipfrs.Client(sys.argv[2]), client.chunks(cid), node.get(cid)
# As if another thread was just starting it.
gateway._turn.acquire()
child = os.fork()
if child == 0:
    for call in (lambda: node.cat(cid), node.close, lambda: next(chunks), gateway.start, gateway.stop):
        try:
            call()
        except ipfrs.ForkedError as error:
            assert "fork" in str(error), error
        else:
            os._exit(1)
    assert client.cat(cid) == b"hello"
    async def other():
        async with ipfrs.AsyncClient(sys.argv[2]) as aclient:
            return await aclient.cat(cid)
    assert asyncio.run(other()) == b"hello"
    with ipfrs.Node(sys.argv[1] + "2") as own:
        assert own.add(b"hello") == cid
    # A child of the child.
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(client.cat(cid) != b"hello")
    assert os.waitpid(grandchild, 0)[1] == 0
    client.close()
    try:
        client.cat(cid)
    except ipfrs.ClosedError:
        pass
    assert bytes(view).endswith(b"hello" + bytes(view)[-2:])
    del call, node, anode, client, unused, chunks, view
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert node.cat(cid) == b"hello" and client.cat(cid) == b"hello"
node.close()
client.close()
unused.close()
chunks.close()
asyncio.run(anode.close())
"""


def test_forked_child_uses_clients_and_leaves_parent_intact(tmp_path: Path, url: str) -> None:
    done = run(FORKING, tmp_path / "repo", url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_client_works_in_a_spawned_process(url: str) -> None:
    script = """
import multiprocessing, sys, ipfrs
def cat(client, cid):
    return client.cat(cid)
if __name__ == "__main__":
    with ipfrs.Client(sys.argv[1]) as client:
        cid = client.add(b"hello from another process")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(ipfrs.Client.cat, (client, cid)).decode())
"""
    assert run(script, url).stdout == "hello from another process\n"


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_pools_share_a_client_and_a_file_system(method: str, tmp_path: Path, url: str) -> None:
    script = """
import multiprocessing, sys, ipfrs
from ipfrs.fs import IpfrsFileSystem
client = fs = None
def prepare(given_client, given_fs):
    global client, fs
    client, fs = given_client, given_fs
def read(cid):
    return client.cat(cid) + fs.cat_file(cid) + ipfrs.Client(sys.argv[1]).cat(cid)
if __name__ == "__main__":
    with ipfrs.Client(sys.argv[1]) as first:
        files = IpfrsFileSystem(endpoint_url=sys.argv[1])
        cids = [first.add(bytes([n])) for n in range(50)]
        assert files.cat_file(cids[0]) == b"\\0"
        with multiprocessing.get_context(sys.argv[2]).Pool(4, prepare, (first, files)) as pool:
            assert pool.map(read, cids) == [bytes([n, n, n]) for n in range(50)]
        assert read.__name__ and first.cat(cids[1]) == b"\\1"
        print("done")
"""
    # The other processes import the script, so it must be a file.
    program = tmp_path / "pool.py"
    program.write_text(script)
    done = subprocess.run([sys.executable, program, url, method], capture_output=True, text=True, timeout=60)
    assert done.stdout == "done\n", done.stderr


def test_open_objects_are_closed_at_exit(tmp_path: Path, url: str) -> None:
    script = """
import asyncio, sys, ipfrs
path, url = sys.argv[1:]
node, client, gateway = ipfrs.Node(path + "/node"), ipfrs.Client(url), ipfrs.Gateway(
    repo=path + "/gateway", server={"port": 0}, grpc={"enabled": False}).start()
async def main():
    global anode
    anode = ipfrs.AsyncNode(path + "/anode")
    return await anode.add(b"left open")
print(node.add(b"left open"), client.add(b"left open"), asyncio.run(main()), gateway.client().add(b"left open"))
"""
    done = run(script, tmp_path, url)
    assert done.returncode == 0, done.stderr
    cids = set(done.stdout.split())
    assert len(cids) == 1
    for repo in ("node", "anode", "gateway"):
        with ipfrs.Node(tmp_path / repo) as node:
            assert node.cat(cids.copy().pop()) == b"left open"


def test_unclosed_object_warns_and_is_closed(tmp_path: Path) -> None:
    node = ipfrs.Node(tmp_path)
    cid = node.add(b"hello")
    with pytest.warns(ResourceWarning, match="unclosed <ipfrs.Node"):
        del node
        gc.collect()
    with ipfrs.Node(tmp_path) as again:
        assert again.cat(cid) == b"hello"


def test_failed_constructor_gives_no_resource_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(ipfrs.InvalidInputError):
        ipfrs.Node(tmp_path, config={"no": {}})
    with pytest.raises(ipfrs.InvalidInputError):
        ipfrs.Client("no url")
    gc.collect()
    assert not [warning for warning in recwarn if issubclass(warning.category, ResourceWarning)]


def test_client_pickles_and_node_refuses_pickling(node: ipfrs.Node, url: str) -> None:
    with ipfrs.Client(url, "secret", timeout=7) as client, pickle.loads(pickle.dumps(client)) as again:
        assert again.version() == client.version()
        assert (again.url, again._token, again._timeout) == (url, "secret", 7)
        assert "secret" not in repr(client)
    with pytest.raises(TypeError, match="Client"):
        pickle.dumps(node)
    with pytest.raises(TypeError, match="client"):
        copy.copy(ipfrs.Gateway())


def test_the_asynchronous_classes_have_the_same_methods() -> None:
    for blocking, asynchronous in ((ipfrs.Node, ipfrs.AsyncNode), (ipfrs.Client, ipfrs.AsyncClient)):
        names = {name for name in dir(blocking) if not name.startswith("_")}
        assert names == {name for name in dir(asynchronous) if not name.startswith("_")}
        for name in names | {"__init__"}:
            if not callable(getattr(blocking, name)):
                continue
            parameters = dict(inspect.signature(getattr(blocking, name)).parameters)
            parameters.pop("buffering", None)
            others = inspect.signature(getattr(asynchronous, name)).parameters
            assert [(one.name, one.kind, one.default) for one in parameters.values()] == [
                (one.name, one.kind, one.default) for one in others.values()
            ], name


STREAMING = """
import resource, sys, ipfrs
store = ipfrs.Client(sys.argv[1]) if "://" in sys.argv[1] else ipfrs.Node(sys.argv[1])
piece = bytearray(1024 * 1024)
def pieces(count):
    for at in range(count):
        piece[:8] = at.to_bytes(8, "little")
        yield piece
with store:
    store.add(pieces(4))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cid = store.add(pieces(100), raw_leaves=True)
    print(cid, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("kind", ["Node", "Client"])
def test_a_hundred_megabytes_are_added_in_bounded_memory(kind: str, tmp_path: Path, url: str) -> None:
    done = run(STREAMING, url if kind == "Client" else tmp_path)
    assert done.returncode == 0, done.stderr
    _, grown_mib = done.stdout.split()
    assert int(grown_mib) < 64


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    script = (
        "import sys, ipfrs; print(*(name for name in ('numpy', 'torch', 'fsspec', 'ml_dtypes') if name in sys.modules))"
    )
    assert run(script).stdout.strip() == ""


def test_fork_before_import_is_supported(tmp_path: Path) -> None:
    """Forking before `import ipfrs` is supported."""
    script = """
import os, sys
child = os.fork()
import ipfrs
with ipfrs.Node(sys.argv[1] + str(child == 0)) as node:
    assert node.cat(node.add(b"hello")) == b"hello"
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    assert run(script, tmp_path / "repo", env={**os.environ}).returncode == 0
