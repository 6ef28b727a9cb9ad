"""Exit of the interpreter while calls are in progress."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

AWAITING = """
import asyncio, sys
import ipfrs

async def main():
    node = ipfrs.AsyncNode(sys.argv[1])
    cid = await node.put(b"data")
    kept = [asyncio.ensure_future(node.get(cid)) for _ in range(200)]
    await kept[0]
    return kept

asyncio.run(main())
print("done")
"""

DAEMON = """
import sys, threading
import ipfrs

node = ipfrs.Node(sys.argv[1])
cid = node.add(bytes(3_000_000))
begun = threading.Event()

def read():
    while True:
        node.cat(cid)
        begun.set()

for _ in range(4):
    threading.Thread(target=read, daemon=True).start()
begun.wait()
print("done")
"""

GENERATOR = """
import sys
import ipfrs

node = ipfrs.Node(sys.argv[1])
pieces = node.chunks(node.add(bytes(3_000_000)))
view = next(iter(pieces))
print("done")
"""


IMPORT = """
import sys, threading
import ipfrs

node = ipfrs.Node(sys.argv[1])
begun = threading.Event()

def pieces():
    yield bytes(300_000)
    begun.set()
    threading.Event().wait()

threading.Thread(target=node.add, args=(pieces(),), daemon=True).start()
begun.wait()
print("done")
"""

SCRIPTS = {"awaitables": AWAITING, "threads": DAEMON, "pieces": GENERATOR, "import": IMPORT}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_interpreter_exits_cleanly_with_running_calls(script: str, tmp_path: Path) -> None:
    for _ in range(3):
        command = [sys.executable, "-c", script, str(tmp_path / "repo")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        # A daemon thread may still print that the object it uses was closed.
        assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
