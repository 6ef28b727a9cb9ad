"""The command line of ``python -m ipfrs.bench``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import IpfrsError
from . import batch, concurrency, leaks


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one of the benchmarks. Returns 1 if a result misses its target."""
    parser = argparse.ArgumentParser(prog="python -m ipfrs.bench", description="Measurements of ipfrs.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for benchmark in (concurrency, batch, leaks):
        benchmark.add_parser(commands)
    chosen = parser.parse_args(arguments)
    try:
        code: int = chosen.run(chosen)
    except IpfrsError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
