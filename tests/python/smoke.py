"""Smoke test of the wheel: runs under every installed Python version, without other packages.

The versions differ in the buffer protocol, which the stable ABI includes since 3.11, and in asyncio.
"""

import array
import asyncio
import gc
import sys
import tempfile
import threading

import ipfrs

CONTENT = bytes(range(256)) * 2048
"""Half a MiB: two blocks and their parent node."""


def buffers(node):
    block = node.put(b"a block")
    view = node.get(block)
    assert isinstance(view, memoryview) and view.readonly and view.format == "B" and view.tobytes() == b"a block"
    assert view[2:].tobytes() == b"block" and bytes(view[::-1]) == b"kcolb a"
    try:
        view[0] = 0
    except TypeError:
        pass
    else:
        raise AssertionError("a block was written to")

    # Arguments may be any objects with the buffer protocol. Reads fill any writable buffer.
    assert len({node.put(kind(b"a block")) for kind in (bytes, bytearray, memoryview)}) == 1
    cid = node.add(array.array("I", CONTENT))
    assert cid == node.add(CONTENT)
    target = bytearray(300)
    assert node.readinto(cid, target, offset=100) == 300 and target == CONTENT[100:400]
    numbers = array.array("H", bytes(512))
    assert node.readinto(cid, numbers) == 512 and numbers.tobytes() == CONTENT[:512]
    try:
        node.readinto(cid, bytes(10))
    except (BufferError, TypeError, ValueError):
        pass
    else:
        raise AssertionError("bytes were written to")
    return view


def threads(node, cid):
    wrong = []

    def read():
        for _ in range(20):
            if node.cat(cid, offset=1000, length=300_000) != CONTENT[1000:301_000]:
                wrong.append(True)

    workers = [threading.Thread(target=read) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


async def asynchronous(path, cid):
    async with ipfrs.AsyncNode(path) as node:
        parts = await asyncio.gather(*(node.cat(cid, offset=at, length=10) for at in range(20)))
        assert parts == [CONTENT[at : at + 10] for at in range(20)]


def main():
    with tempfile.TemporaryDirectory() as path:
        with ipfrs.Node(path) as node:
            view = buffers(node)
            cid = node.add(CONTENT)
            assert node.cat(cid) == CONTENT
            threads(node, cid)
            try:
                node.cat(cid + "/nothing")
            except ipfrs.IpfrsError as error:
                assert str(error)
            else:
                raise AssertionError("a path that leads nowhere was read")
        # A block remains valid while a view of it exists.
        gc.collect()
        assert view.tobytes() == b"a block"
        del view
        asyncio.run(asynchronous(path, cid))
    print(f"smoke.py: ipfrs {ipfrs.__version__} on Python {sys.version.split()[0]}: ok")


main()
