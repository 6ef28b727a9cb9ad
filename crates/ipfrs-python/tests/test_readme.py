"""Tests that the programs in the README run and print the documented output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ipfrs

README = Path(__file__).parent.parent / "README.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)
DAEMON = "http://127.0.0.1:8080"


@pytest.mark.parametrize("program", PROGRAMS, ids=range(1, len(PROGRAMS) + 1))
def test_a_program_of_the_readme_prints_what_it_says(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "pandas" in program:
        pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    with ipfrs.Gateway(repo=tmp_path / "daemon", server={"port": 0}, grpc={"enabled": False}) as gateway:
        exec(compile(program.replace(DAEMON, gateway.url), str(README), "exec"), {"__name__": "__main__"})
    promised = re.findall(r"print\(.*\) +# (.*)$", program, re.M)
    assert promised
    assert capsys.readouterr().out.splitlines() == promised
