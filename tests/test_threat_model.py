"""docs/threat_model.md: each promise has a test, its limits are the code's own."""

import ast
from pathlib import Path

import pytest

from jaxcontam.data import benchmark, encoding, files
from jaxcontam.models.families import family
from jaxcontam.reports import report_files
from jaxcontam.scoring import remote
from jaxcontam.scoring.api import answers, budget, retries, trust
from tests.faults import test_fuzz

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/threat_model.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.replace(r"\|", "/").strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
][2:]
KNOWN = {
    node.name
    for path in (ROOT / "tests").rglob("test_*.py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef)
}
WORDS = {2: "two", 3: "three", 4: "four", 6: "six", 10: "ten"}
_LARGEST = len(f"{family._LARGEST:.0f}") - 1
LIMITS = {
    f"{budget._BYTES_PER_ANSWER_TOKEN} bytes per token and value": 1,
    f"{budget._VALUES_PER_ANSWER_TOKEN} per token and value": 1,
    f"{budget._LEAST_BYTES >> 10} KiB, and 512 per token of the request": 1,
    f"waits of {WORDS[int(retries._LONGEST_ASKED / 60)]} minutes": 1,
    f"from {WORDS[answers._SHORTEST_END]} characters on": 1,
    f"{WORDS[budget._BYTES_PER_TOKEN]} bytes per token": 1,
    f"{WORDS[trust._FIRST_TEXTS].title()} texts of the rows' tokens first": 1,
    f"one per block of {remote._AT_ONCE}": trust._LATER_TEXTS,
    f"{100 / trust._EVERY:g}% of requests repeated": 1,
    f"at most {4 * benchmark._MOST_CHARACTERS / 1e6:g} MB": 1,
    f"{benchmark._MOST_CHARACTERS / 1e6:g} million characters": 1,
    f"a file {benchmark._MOST_BYTES >> 20} MiB": 1,
    f"MiB; reading it takes at most {files._MEMORY >> 30} GiB and "
    f"{files._MEMORY_A_BYTE} times its size": 1,
    f"2^{family._MOST.bit_length() - 1} (counts) or 10^{_LARGEST}": 1,
    f"{encoding._MOST_MEMORY >> 30} GiB and {encoding._MOST_SECONDS:g} s for a MiB": (
        encoding._PART_BYTES >> 20
    ),
    f"another host after {WORDS[int(report_files._LEFT_SECONDS / 60)]} minutes": 1,
    f"{test_fuzz.MOST_BYTES >> 30} GiB and {test_fuzz.MOST_SECONDS} s per input": 1,
}
"""Words of the table, made of constants, and how often they stand there."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_each_promise_names_a_test_that_exists(row):
    _, promise, tests = row
    named = [name.strip().strip("`") for name in tests.split(",") if name]
    assert named or promise.startswith("No promise")
    assert not set(named) - KNOWN


@pytest.mark.parametrize(("words", "n"), LIMITS.items())
def test_limits_are_those_of_the_code(words, n):
    assert n == 1
    assert " ".join(PAGE.split()).count(words) == n
