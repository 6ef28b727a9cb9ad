"""Notebooks are stored without output, which would differ between machines. ``cargo xtask test`` runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[3] / "examples" / "notebooks"


@pytest.mark.skipif(not NOTEBOOKS.exists(), reason="a source distribution has no examples")
def test_notebooks_are_kept_without_output() -> None:
    notebooks = [json.loads(file.read_text()) for file in NOTEBOOKS.glob("*.ipynb")]
    cells = [cell for notebook in notebooks for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells and all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
