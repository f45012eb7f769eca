"""Malformed inputs by the thousand: one clear line or a result, and nothing changed.

Hypothesis draws them without chance, so that every run has the same ones, or by the
number in FUZZ_SEED, which a failure names: the nightly run has another one each day. A
few of each kind are tried by default; with `pytest -m slow` 20,000, each of which may
take 1 GiB of memory and 20 s.
"""

import contextlib
import functools
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings

from jaxcontam.cli.main import main
from tests.faults.folders import confined
from tests.faults.fuzzed import CHUNKS, RECORDED, report_targets, table, targets

pytestmark = pytest.mark.unoptimised

FEW, MANY = 3, 187
"""Inputs for each hundredth of a target's share."""
MOST_BYTES, MOST_SECONDS = 1 << 30, 20
TARGETS = targets()
SEED = "FUZZ_SEED"
"""Environment variable: a whole number."""


def fuzz(target, a_hundredth, *, is_confined=False):
    """Run a target on new inputs; returns how many there were."""
    n_inputs, limits = 0, contextlib.nullcontext
    if is_confined:
        limits = functools.partial(confined, n_bytes=MOST_BYTES, seconds=MOST_SECONDS)

    @settings(
        max_examples=target.share * a_hundredth,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(target.cases)
    def law(case):
        nonlocal n_inputs
        n_inputs += 1
        with tempfile.TemporaryDirectory() as folder, limits():
            target.run(Path(folder), case)

    if SEED in os.environ:
        law = seed(int(os.environ[SEED]))(law)
    law()
    return n_inputs


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Folders of finished runs that no model was needed for."""
    folder = tmp_path_factory.mktemp("reports")
    (folder / "m.csv").write_text("3,1,2\n5,4,1\n2,2,0\n1,0,3\n")
    (folder / "r.csv").write_bytes(table([RECORDED] * 4))
    words = {
        "prove": ["prove", str(folder / "m.csv")],
        "replicate": ["replicate", "--recorded", str(folder / "r.csv")],
    }
    for name, typed in words.items():
        assert main([*typed, "--out", str(folder / name)]) == 0
    return {name: folder / name for name in words}


@pytest.mark.parametrize("name", TARGETS)
def test_a_malformed_input_is_refused_or_read_and_changes_no_file(name):
    assert fuzz(TARGETS[name], FEW) >= 1


@pytest.mark.parametrize("name", [n for n in TARGETS if "words" not in n])
def test_a_file_that_is_nothing_but_a_fault_is_refused_or_read(name, tmp_path):
    chunks = (*CHUNKS, b"[" * 10**6, b"{" * 10**6, b'[{"a":' * 10**5, bytes(999))
    for i, chunk in enumerate(chunks):
        TARGETS[name].run(tmp_path, chunk)
        # The input stands alone, and as it was given.
        left = [path.read_bytes() for path in tmp_path.iterdir()]
        assert left in ([chunk], []), i


def test_a_malformed_report_is_refused_or_differs_and_changes_no_file(reports):
    for name, target in report_targets(reports).items():
        assert fuzz(target, FEW) >= 1, name


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_of_20_000_malformed_inputs_none_takes_memory_or_time_or_a_traceback(name):
    n_inputs = fuzz(TARGETS[name], MANY, is_confined=True)
    assert n_inputs >= TARGETS[name].share * MANY


@pytest.mark.slow
def test_of_many_malformed_reports_none_ends_in_a_traceback(reports, pulse):
    for target in report_targets({**reports, "audit": pulse}).values():
        assert fuzz(target, MANY, is_confined=True) >= MANY
