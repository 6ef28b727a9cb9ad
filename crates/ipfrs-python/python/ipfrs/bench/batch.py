"""Benchmark of one call for many blocks against many calls, with a client."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from .._sync import Client
from .concurrency import shown, size
from .subjects import gateway

_DESCRIPTION = """\
Puts, looks for and gets BLOCKS blocks through a Client: each by a call of its own, one after the other, and all in one
call. Wall time, medians of the rounds, in which both ways take turns; what is put is new each time. One round is not
timed."""


def add_parser(commands: Any) -> None:
    """Adds the command ``batch``."""
    parser = commands.add_parser("batch", help="one call for many blocks against many calls", description=_DESCRIPTION)
    parser.add_argument("--blocks", type=int, default=1000, help="how many blocks (default: 1000)")
    parser.add_argument("--size", type=size, default=1024, help="bytes of each (default: 1KiB)")
    parser.add_argument("--rounds", type=int, default=5, help="how often (default: 5)")
    parser.add_argument("--url", help="the daemon (default: one in this process)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        url = options.url or stack.enter_context(gateway()).url
        client = stack.enter_context(Client(url))
        figures = measure(client, options.blocks, options.size, options.rounds)
    if options.json:
        print(json.dumps(figures, indent=2))
        return 0
    print(f"{options.blocks} blocks of {shown(options.size)}, milliseconds, medians of {options.rounds} rounds")
    print(f"{'':<6}{'single calls':>14}{'one call':>12}{'times':>8}")
    for name, (single, many) in figures.items():
        print(f"{name:<6}{single * 1e3:>14.2f}{many * 1e3:>12.2f}{single / many:>8.1f}")
    return 0


def measure(client: Client, blocks: int, each: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Returns the seconds of single calls and of one call, by operation."""
    taken: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ("put", "has", "get")}
    for number in range(rounds + 1):
        for name, ways in _round(client, blocks, each).items():
            # The single puts run first, because they provide the content IDs for the other operations.
            for which in (0, 1) if name == "put" or number % 2 else (1, 0):
                begin = time.perf_counter()
                ways[which]()
                if number:
                    taken[name][which].append(time.perf_counter() - begin)
    return {name: (statistics.median(single), statistics.median(many)) for name, (single, many) in taken.items()}


def _round(client: Client, blocks: int, each: int) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Returns single calls and one call for each operation, with new content."""
    some, others = ([os.urandom(each) for _ in range(blocks)] for _ in range(2))
    cids: list[str] = []
    return {
        "put": (lambda: cids.extend([client.put(data) for data in some]), lambda: client.put_many(others)),
        "has": (lambda: [client.has(cid) for cid in cids], lambda: client.has_many(cids)),
        "get": (lambda: [client.get(cid) for cid in cids], lambda: client.get_many(cids)),
    }
