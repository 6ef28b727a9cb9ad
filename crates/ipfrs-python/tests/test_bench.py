"""Tests that the benchmarks run and print their results."""

from __future__ import annotations

import json
import re

import pytest

from ipfrs.bench import concurrency
from ipfrs.bench.__main__ import main


def test_the_published_test_is_repeated_for_every_subject(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["concurrency", "3", "2", "--size", "1", "70KiB", "--verbose"]) == 0
    out = capsys.readouterr().out
    for subject in ("Node", "Client", "numpy.copy"):
        for size in ("1 B", "70 KiB"):
            assert f"======= SUMMARY: {subject}, {size} =======\nData Items:      3\nFetch Attempts:  2\n" in out
    assert len(re.findall(r"^Mean Fetch Time \(Sequential\):  \d+\.\d{10} seconds/item$", out, re.M)) >= 4
    assert len(re.findall(r"^Mean Fetch Time \(Threaded\):    \d+\.\d{10} seconds/item$", out, re.M)) >= 4
    assert out.count("======= Threaded Fetch (Attempt #1) =======\nIndex  Start") >= 4


def test_bench_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["concurrency", "2", "3", "--size", "100", "--subject", "node", "--threads", "2", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["subject"], result["size_bytes"], result["items"]) == ("Node", 100, 2)
    one, many = result["sequential_seconds"], result["threaded_seconds"]
    assert len(one["attempts"]) == len(many["attempts"]) == 3
    assert result["ratio"] == many["median"] / one["median"]


def test_compatible_clients_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("aioipfs")
    assert main(["concurrency", "2", "1", "--size", "1KiB", "--subject", "kubo", "--json"]) == 0
    assert "aioipfs" in [result["subject"] for result in json.loads(capsys.readouterr().out)]


def test_one_call_is_compared_with_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", "--blocks", "20", "--rounds", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == {"put", "has", "get"} and all(single > 0 < many for single, many in figures.values())


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("64KiB", 65536), ("10 MiB", 10 << 20), ("2MB", 2_000_000)])
def test_sizes_are_read_with_their_units(text: str, count: int) -> None:
    assert concurrency.size(text) == count


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1 parsec"])
def test_invalid_size_is_rejected(text: str) -> None:
    with pytest.raises(SystemExit):
        main(["concurrency", "1", "1", "--size", text])
