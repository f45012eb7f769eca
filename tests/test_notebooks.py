"""The notebooks of the documentation run, and find what they planted."""

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def run(path):
    """Every cell in order; returns what each said."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": ROOT}}
    ).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_what_they_said(path):
    cells = nbformat.read(path, as_version=4).cells
    assert all(not cell.get("outputs") for cell in cells)


# The kernel's own warnings are not ours.
# Thirty seconds.
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_what_was_planted_is_found():
    cells = run(ROOT / "docs/notebooks/plant_and_detect.ipynb")
    (said,) = (out for out in cells[-1].outputs if out.output_type == "execute_result")
    verdicts = {
        name: row[0] for name, row in ast.literal_eval(said.data["text/plain"]).items()
    }
    assert verdicts["often"] == "contaminated"
    assert verdicts["never"] != "contaminated"
