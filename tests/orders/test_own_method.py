"""A method of one's own is an entry point of one's own package."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how_to/own_method.md").read_text(encoding="utf-8")
CODE, PROJECT = (
    re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[1]
    for kind in ("python", "toml")
)


@pytest.fixture
def package(tmp_path):
    """A folder that holds `mine.py` of the how-to page as if it were installed."""
    dist = tmp_path / "mine-1.0.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (point,) = re.findall(r"^\w+ = \"\w+:\w+\"$", PROJECT, re.M)
    group = re.search(r'entry-points."(.*?)"', PROJECT)[1]
    (dist / "entry_points.txt").write_text(f"[{group}]\n" + point.replace('"', ""))
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path


def run(package, *commands):
    """Commands of one process that finds the package."""
    code = f"from jaxcontam.cli.main import main; print([main(c) for c in {commands}])"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=package,
        env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )


def test_score_of_the_how_to_page_is_known_everywhere(package):
    texts = package / "texts.txt"
    texts.write_text("one\ntwo\n")
    others = package / "others.txt"
    others.write_text("three\nfour\n")
    files = ["--members", str(texts), "--nonmembers", str(others)]
    asked = ["membership", "m", *files, "--scores", "spraed"]
    said = run(package, ["methods"], asked)
    assert said.stdout.endswith("[0, 2]\n"), said.stderr
    assert re.search(r"^spread .*texts that are read evenly", said.stdout, re.M | re.S)
    assert "did you mean 'spread'?" in said.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("METHOD = 3", "mine: jaxcontam.methods: mine:METHOD must be a test"),
        (
            "from jaxcontam.members.scores import LOSS as METHOD",
            "the name 'loss' is taken",
        ),
    ],
)
def test_package_whose_method_is_none_is_named(package, code, words):
    (package / "mine.py").write_text(code)
    assert words in run(package, ["methods"]).stderr
