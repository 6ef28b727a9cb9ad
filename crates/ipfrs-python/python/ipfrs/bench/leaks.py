"""Benchmark that detects growth of memory or open files with the number of calls, or of stores opened and closed."""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from typing import Any

from .._sync import Node

_DESCRIPTION = """\
Calls get and add of a Node, and opens and closes one, many times; prints the resident memory and the open files of the
process at the start (after a tenth of the calls, by which caches and pools have their size), on the way, and at the
end. What is added repeats, so that the store itself does not grow. Linux only."""
_CONTENTS = 500
_POINTS = 5
MIB = 1 << 20


@dataclass(frozen=True)
class Point:
    """Resources of the process after a number of repetitions.

    Attributes:
        done: Number of repetitions so far.
        rss_bytes: Resident memory.
        fds: Number of open files.
    """

    done: int
    rss_bytes: int
    fds: int

    @classmethod
    def now(cls, done: int) -> Point:
        """Returns the current resources of the process, after garbage collection in Python."""
        gc.collect()
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[1])
        return cls(done, pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd")))


def add_parser(commands: Any) -> None:
    """Adds the command ``leaks``."""
    parser = commands.add_parser("leaks", help="look for growing memory and files", description=_DESCRIPTION)
    parser.add_argument("--calls", type=int, default=100_000, help="calls of get and add (default: 100000)")
    parser.add_argument(
        "--cycles", type=int, default=1000, help="times that a Node is opened and closed (default: 1000)"
    )
    parser.add_argument(
        "--allow-mib", type=float, default=16, help="growth of memory that does not count as a leak (default: 16)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    measured = {"calls": of_calls(options.calls), "cycles": of_cycles(options.cycles)}
    if options.json:
        print(json.dumps({name: [asdict(point) for point in points] for name, points in measured.items()}, indent=2))
    code = 0
    for name, points in measured.items():
        grown, files = growth(points)
        is_flat = grown <= options.allow_mib * MIB and files <= 0
        code = code if is_flat else 1
        if not options.json:
            print(f"{name:<12}{'RSS, MiB':>10}{'files':>8}")
            for point in points:
                print(f"{point.done:<12}{point.rss_bytes / MIB:>10.1f}{point.fds:>8}")
            print(f"{'flat' if is_flat else 'MISSED'}: {grown / MIB:+.1f} MiB, {files:+d} files\n")
    return code


def growth(points: list[Point]) -> tuple[int, int]:
    """Returns the growth of memory in bytes, and of open files, from the first to the last point."""
    return points[-1].rss_bytes - points[0].rss_bytes, points[-1].fds - points[0].fds


def of_calls(calls: int) -> list[Point]:
    """Measures calls of which half add content and half get it."""
    with tempfile.TemporaryDirectory(prefix="ipfrs-bench-") as repo, Node(repo) as node:
        contents = [os.urandom(16_000 + number) for number in range(_CONTENTS)]
        points = []
        for done in range(calls // 2 + 1):
            if done in _checkpoints(calls // 2):
                points.append(Point.now(2 * done))
            data = contents[done % _CONTENTS]
            if bytes(node.get(node.add(data, raw_leaves=True, cid_version=1))) != data:
                raise RuntimeError("get returns different bytes than were added")
        return points


def of_cycles(cycles: int) -> list[Point]:
    """Measures cycles in which a store is opened, used and closed."""
    with tempfile.TemporaryDirectory(prefix="ipfrs-bench-") as repo:
        with Node(repo) as node:
            cid = node.add(b"still here")
        points = []
        for done in range(cycles + 1):
            if done in _checkpoints(cycles):
                points.append(Point.now(done))
            with Node(repo) as node:
                if node.cat(cid) != b"still here":
                    raise RuntimeError("a reopened store returns different bytes")
        return points


def _checkpoints(count: int) -> list[int]:
    """Returns the repetitions to measure: after a tenth of them, and in equal steps from there to the end."""
    first = count // 10
    return [first + (count - first) * step // _POINTS for step in range(_POINTS + 1)]
