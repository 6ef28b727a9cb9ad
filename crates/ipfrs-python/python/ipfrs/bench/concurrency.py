"""Reproduction of the published concurrency test of the IPFS API, which compares threads with sequential calls.

https://github.com/ibnesayeed/ipfsapi-concurrency-test
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .subjects import CONTROL, Attempt, Subject, subjects

_DESCRIPTION = """\
Repeats https://github.com/ibnesayeed/ipfsapi-concurrency-test: ITEMS are pushed one after the other; then, ATTEMPTS
times, they are fetched one after the other, and fetched by threads. Its published figures for go-ipfs 0.4.15 are 0.0049
s/item sequential and 0.0067 s/item threaded: a ratio of 1.38.

What is timed is the wall time of fetching all items as bytes with cat; per item it is that, divided by their number. As
in the published script there is one thread for each item, and starting the threads is part of the time, which for items
of some KiB in this process is most of it; with --threads there is a pool of so many, started before the clock, each of
which takes the next item when it is free. Every item is fetched once and compared before anything is timed.
Subjects take turns in every attempt, and sequential and threaded fetches take turns in being first. The table has
medians of the attempts; the ratio is threaded / sequential, and what is above 1.0 is named at the end.

Subjects: Node, the store in this process; Client, which asks a daemon over HTTP; kubo, the packages ipfshttpclient
(threads) and aioipfs (tasks instead of threads) over /api/v0, as far as they are installed. Without --url a daemon is
started in this process, and shares its processors. control, numpy.copy of the item in memory, shows what threads gain
on this machine at best: where its ratio is near 1.0, the others cannot be far below."""
_SUBJECTS = ("node", "client", "kubo", "control")
_SIZES = ("1", "1KiB", "64KiB", "1MiB", "10MiB")
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "KB": 1000, "KIB": 1 << 10, "M": 1 << 20, "MB": 1000**2, "MIB": 1 << 20}


@dataclass
class Result:
    """All attempts with one subject and items of one size."""

    subject: str
    size: int
    push_seconds: float
    sequential: list[Attempt] = field(default_factory=list)
    concurrent: list[Attempt] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Ratio of the median times of concurrent and sequential attempts."""
        return _median(self.concurrent) / _median(self.sequential)


def add_parser(commands: Any) -> None:
    """Adds the command ``concurrency ITEMS ATTEMPTS``."""
    parser = commands.add_parser(
        "concurrency",
        help="repeat the published concurrency test",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "items", metavar="ITEMS", nargs="?", type=_count, default=5, help="number of items (default: 5)"
    )
    parser.add_argument(
        "attempts", metavar="ATTEMPTS", nargs="?", type=_count, default=3, help="fetches of all items (default: 3)"
    )
    parser.add_argument(
        "--size",
        metavar="SIZE",
        type=size,
        nargs="+",
        default=[size(text) for text in _SIZES],
        help=f"sizes of the items, each a round of its own: 1, 64KiB, 10MiB (default: {' '.join(_SIZES)})",
    )
    parser.add_argument(
        "--subject",
        choices=_SUBJECTS,
        nargs="+",
        default=list(_SUBJECTS),
        help="what is measured (default: all)",
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=_count,
        help="a pool of N threads, started before the clock, instead of one per item",
    )
    parser.add_argument("--url", help="the daemon of the Client (default: one in this process)")
    parser.add_argument(
        "--kubo-url", help="the RPC of the Kubo-compatible client, such as http://127.0.0.1:5001 (default: the daemon)"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print when each item was fetched, as the published script does"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    parser.set_defaults(run=_run)


def size(text: str) -> int:
    """Parses a size such as ``1``, ``64KiB`` or ``10M`` into bytes."""
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text.strip())
    unit = _UNITS.get(found[2].upper()) if found else None
    if not found or unit is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: use a number, or one with KiB or MiB behind it")
    return int(found[1]) * unit


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    with subjects(options.subject, options.url, options.kubo_url, options.threads) as found:
        results = [result for each in options.size for result in measure(found, each, options.items, options.attempts)]
    if options.json:
        print(json.dumps([_as_json(result) for result in results], indent=2))
    else:
        for result in results:
            print("\n".join(_details(result) if options.verbose else []))
            print("\n".join(summary(result)))
        print("\n".join(_table(results)))
    slower = [result for result in results if result.ratio > 1 and result.subject != CONTROL]
    for result in slower:
        where = f"{result.subject} at {shown(result.size)}"
        print(f"MISSED: {where}: threaded takes {result.ratio:.2f} of sequential, more than 1.0", file=sys.stderr)
    return 0


def measure(found: Sequence[Subject], each: int, items: int, attempts: int) -> list[Result]:
    """Pushes and fetches items of `each` bytes with every subject, in rotation."""
    contents = [os.urandom(each) for _ in range(items)]
    results, cids = [], []
    for subject in found:
        begin = time.perf_counter()
        pushed = [subject.push(data) for data in contents]
        results.append(Result(subject.name, each, time.perf_counter() - begin))
        cids.append(pushed)
        for data, cid in zip(contents, pushed):
            if bytes(subject.fetch(cid)) != data:
                raise RuntimeError(f"{subject.name} returns different bytes for {cid} than were pushed")
        subject.concurrent(pushed)
    for attempt in range(attempts):
        for subject, result, pushed in zip(found, results, cids):
            ways = [(subject.sequential, result.sequential), (subject.concurrent, result.concurrent)]
            for fetch, taken in ways if attempt % 2 == 0 else reversed(ways):
                taken.append(fetch(pushed))
    return results


def summary(result: Result) -> list[str]:
    """Returns the summary in the format of the published script."""
    items, attempts = len(result.sequential[0].items), len(result.sequential)
    return [
        f"======= SUMMARY: {result.subject}, {shown(result.size)} =======",
        f"Data Items:      {items}",
        f"Fetch Attempts:  {attempts}",
        f"Mean Fetch Time (Sequential):  {_mean(result.sequential) / items:.10f} seconds/item",
        f"Mean Fetch Time (Threaded):    {_mean(result.concurrent) / items:.10f} seconds/item",
    ]


def _details(result: Result) -> Iterator[str]:
    items = len(result.sequential[0].items)
    yield f"\n======= Sequential Push (Just Once): {result.subject}, {shown(result.size)} ======="
    yield f"Total {items} items pushed to IPFS sequentially in {result.push_seconds:.12f} seconds"
    for number, pair in enumerate(zip(result.sequential, result.concurrent)):
        for way, how, attempt in zip(("Sequential", "Threaded"), ("sequentially", "concurrently"), pair):
            yield f"\n======= {way} Fetch (Attempt #{number}) ======="
            yield "Index  Start         End           Elapsed"
            for item in attempt.items:
                yield f"{item.index:<5}  {item.start:.10f}  {item.end:.10f}  {item.end - item.start:.10f}"
            yield f"Total {items} items fetched from IPFS {how} in {attempt.seconds:.12f} seconds"
    yield ""


def _table(results: Sequence[Result]) -> list[str]:
    lines = [f"\n{'':<16}{'size':>9}{'sequential':>15}{'threaded':>15}{'ratio':>8}   (medians, microseconds/item)"]
    for result in results:
        items = len(result.sequential[0].items)
        one, many = (_median(taken) / items * 1e6 for taken in (result.sequential, result.concurrent))
        lines.append(f"{result.subject:<16}{shown(result.size):>9}{one:>15.1f}{many:>15.1f}{result.ratio:>8.2f}")
    return lines


def _as_json(result: Result) -> dict[str, Any]:
    def figures(taken: Sequence[Attempt]) -> dict[str, Any]:
        seconds = [attempt.seconds for attempt in taken]
        return {"mean": _mean(taken), "median": _median(taken), "attempts": seconds}

    return {
        "subject": result.subject,
        "size_bytes": result.size,
        "items": len(result.sequential[0].items),
        "push_seconds": result.push_seconds,
        "sequential_seconds": figures(result.sequential),
        "threaded_seconds": figures(result.concurrent),
        "ratio": result.ratio,
    }


def _mean(taken: Sequence[Attempt]) -> float:
    return statistics.fmean(attempt.seconds for attempt in taken)


def _median(taken: Sequence[Attempt]) -> float:
    return statistics.median(attempt.seconds for attempt in taken)


def shown(count: int) -> str:
    """Formats a number of bytes with a unit."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"
