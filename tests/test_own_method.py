"""A method of one's own is one file: no list, table or page has to know it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.methods import METHODS
from jaxcontam.methods.method import OrderFile, OrderMethod
from jaxcontam.methods.own import own_methods

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/how_to/own_method.md").read_text(encoding="utf-8")


@pytest.fixture
def checkout(tmp_path):
    """A copy of the library that may be written to; returns its folder of own ones."""
    shutil.copytree(
        ROOT / "jaxcontam",
        tmp_path / "jaxcontam",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return tmp_path / "jaxcontam/methods/own"


def run(checkout, *words):
    return subprocess.run(
        [sys.executable, "-m", "jaxcontam", *words],
        cwd=checkout.parents[2],
        env={"PYTHONPATH": str(checkout.parents[2]), "PATH": "", "HOME": str(checkout)},
        capture_output=True,
        text=True,
    )


def test_file_of_the_how_to_page_is_all_that_a_score_takes(checkout):
    ((name, code),) = re.findall(
        r"`jaxcontam/methods/own/(\w+\.py)`.*?```python\n(.*?)```", PAGE, re.DOTALL
    )
    (checkout / name).write_text(code)
    table = run(checkout, "methods")
    assert table.returncode == 0, table.stderr
    assert re.search(r"^spread .*texts that are read evenly", table.stdout, re.M | re.S)
    texts = checkout / "texts.txt"
    texts.write_text("one\ntwo\n")
    mistyped = run(
        checkout,
        "membership",
        "m",
        "--members",
        texts,
        "--nonmembers",
        texts,
        "--scores",
        "spraed",
    )
    assert "did you mean 'spread'?" in mistyped.stderr


def test_file_without_a_method_is_named(checkout):
    (checkout / "mine.py").write_text("METHOD = 3\n")
    ended = run(checkout, "methods")
    assert "jaxcontam/methods/own/mine.py: METHOD must be a test" in ended.stderr


def test_name_of_another_method_is_refused(checkout):
    (checkout / "mine.py").write_text(
        "from jaxcontam.methods.membership.loss import METHOD as METHOD\n"
    )
    ended = run(checkout, "methods")
    assert "own/mine.py: the name 'loss' is taken" in ended.stderr


def test_orders_of_a_report_are_drawn_again_by_the_method_that_drew_them():
    """`verify` knows no order test by its name."""
    file = OrderFile(
        n_examples=23, n_ids=230, context=64, seed=3, content_digest="c" * 64
    )
    for method in METHODS.values():
        if isinstance(method, OrderMethod):
            m = 1 if method.name == "reversal" else 4
            first = method.design(file, m)
            # All strata of these designs are near-equal runs of the file.
            strata = np.array_split(np.arange(23), len(first.orders) + first.n_dropped)
            again = method.redraw(strata, m, seed=3, content_digest="c" * 64)
            assert np.array_equal(first.orders, again.orders), method.name
            assert np.array_equal(first.place, again.place), method.name


def test_empty_folder_adds_nothing():
    assert "__init__" not in own_methods(())
