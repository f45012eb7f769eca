"""Pages and terminal of order tests: memory, natural order, and who decides."""

import dataclasses
import io
import re
from html import unescape

import numpy as np
import pytest

from jaxcontam.methods import method_words
from jaxcontam.proof.outcome import print_outcome
from jaxcontam.proof.result import Evidence, ReferenceResult, UnscoredFile
from jaxcontam.proof.sentences import (
    own_order_rows,
    own_order_sentence,
    reference_sentence,
    side_by_side,
)
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.report_files import write_files
from jaxcontam.stats.direction import needed_pairs, runs_of
from jaxcontam.stats.pair_test import PairStrata, adjacency_test, direction_test
from jaxcontam.stats.result import Pretest
from jaxcontam.terminal import Terminal
from tests.support.page_laws import check_page
from tests.support.report_documents import audit_report, order_result

pytestmark = pytest.mark.unoptimised

DIGEST = "sha256:" + "5" * 64
K, S = 16, 8


def evidence_of(matrices, *, sparse=False):
    """Pair matrices as a test leaves them, NaN where nothing was scored."""
    runs_S = runs_of(S, 4)
    scored_SS = needed_pairs(runs_S) | np.eye(S, dtype=bool) | (not sparse)
    return Evidence(
        pairs=np.where(scored_SS, matrices, np.nan),
        orders=np.arange(K * S, dtype=np.int32).reshape(K, 1, S),
        codes=np.zeros((K, S), np.int64),
        runs=np.tile(runs_S, (K, 1)),
        cut=np.zeros(K * S, np.int32),
    )


def planted(*lags, seed=0):
    """Noise, and a gain of 3 nats at each of some lags."""
    rng = np.random.default_rng(seed)
    matrices = rng.normal(size=(K, S, S)) + sum(3 * np.eye(S, k=k) for k in lags)
    return np.where(np.eye(S, dtype=bool), 0.0, matrices)


def row_of(method, evidence, **changes):
    strata = PairStrata(
        pairs=evidence.pairs,
        sizes=np.full(K, S),
        codes=evidence.codes,
        runs=evidence.runs,
        starts=np.arange(K) * S,
    )
    run, null = {
        "direction": (direction_test, "reversibility"),
        "adjacency": (adjacency_test, "exchangeability"),
    }[method]
    numbers = run(strata, seed=0, content_digest=DIGEST)
    row = order_result(
        method=method,
        null=null,
        content_digest=DIGEST,
        n_examples=K * S,
        n_strata=K,
        p_adjusted=numbers.p_value,
        **changes,
    )
    return dataclasses.replace(row, numbers=numbers)


def page_of(rows, evidence, folder, **changes):
    """The page of a report, its tags taken out, and the page itself."""
    report = audit_report(*rows, model="model", **changes)
    _, path = write_files(report, {ARCHIVE_NAME: archive_bytes(evidence)}, folder)
    page = path.read_text(encoding="utf-8")
    check_page(page)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", page))), page


def checks(*failed):
    names = ("blind_attraction", "blind_lags", "blind_direction")
    return tuple(
        Pretest(
            name=f"{name}:{kind}",
            statistic=0.25,
            p_value=1e-4 if name in failed else 0.5,
            passed=name not in failed,
            directional=name == "blind_direction",
        )
        for kind in ("words", "characters")
        for name in names
    )


REFERENCE = ReferenceResult(
    name="old",
    fingerprint="sha256:0",
    p_value=0.4,
    log10_p=-0.398,
    effect=0.125,
    effect_se=0.25,
    difference=1.875,
    difference_se=0.5,
    difference_p=1e-4,
    difference_log10_p=-4.0,
    half_p=1e-3,
    scale=1.3,
    loglik_gap=-0.4,
)


def test_reference_stands_beside_the_model(tmp_path):
    row = order_result(log10_p=-9.0, effect=2.0, effect_se=0.25, reference=REFERENCE)
    assert side_by_side(row, "new") == [
        ["new", "≤ 1.0e-9", "2.00 ± 0.25"],
        ["old (reference)", "≤ 0.400", "0.12 ± 0.25"],
        ["difference", "≤ 1.0e-4", "1.88 ± 0.50"],
    ]
    text, _ = page_of([row], [None], tmp_path)
    assert "Beside a reference model" in text and "old (reference)" in text
    assert "the model prefers the order more than the reference does" in text
    alike = dataclasses.replace(REFERENCE, difference_p=0.3)
    row = dataclasses.replace(row, reference=alike)
    assert "may be chance" in (reference_sentence(row) or "")
    assert "count 1.3 times" in (reference_sentence(row) or "")
    # What is shown as once is no scale.
    hardly = dataclasses.replace(row, reference=dataclasses.replace(alike, scale=1.04))
    assert "times" not in (reference_sentence(hardly) or "")
    assert reference_sentence(order_result()) is None


def test_own_order_that_nothing_could_change_is_not_applicable():
    pretests = [
        dataclasses.replace(test, applicable=False, p_value=1.0) for test in checks()
    ]
    assert own_order_rows(pretests)[0][1:] == ["not applicable"] * 3
    assert "nothing here that an order could change" in (
        own_order_sentence(pretests) or ""
    )
    assert own_order_rows([]) == [] and own_order_sentence([]) is None


def test_file_that_was_not_scored_is_on_the_page(tmp_path):
    file = UnscoredFile(
        benchmark="steps",
        fingerprint="sha256:0",
        order_provenance="published",
        n_examples=30,
        n_repeats=0,
        method="direction",
        null="reversibility",
        pretests=checks("blind_direction")[2:3],
        verdict="invalid design",
    )
    text, page = page_of([order_result()], [None], tmp_path, unscored=(file,))
    assert '<span class="badge invalid-design">invalid design</span>' in page
    assert "steps: invalid design: the file itself points forward (a direction" in text
    assert "It was not scored." in text and "not scored" in text
    assert "1 of 2 benchmarks contaminated" in text
    assert "--reference DIR --score-anyway" in text


def printed(rows, width=80):
    out = io.StringIO()
    console = Terminal(file=out, width=width)
    command = ("audit", "model", "boolq.jsonl")
    print_outcome(list(rows), command, method_words(), console)
    return out.getvalue()


def test_terminal_says_why_and_what_to_do(tmp_path):
    evidence = evidence_of(planted(-1, 1))
    rows = [
        row_of("direction", evidence, verdict="suspected", reasons=("attraction",)),
        row_of("adjacency", evidence, primary=False, verdict=None),
    ]
    rows[1] = dataclasses.replace(rows[1], p_adjusted=None)
    text = printed(rows)
    said = re.sub(r"\s+", " ", text)
    assert "boolq: Who decides: direction, since the order is published" in said
    assert "were the order random), but not clearly forwards more than backwards" in (
        said
    )
    assert "it gains as much in both directions" in said
    assert said.count("remedy: ") == 1
    assert "was shuffled before it was published, say so (--shuffled)" in said
    assert all(len(line) <= 80 for line in text.splitlines())


def test_what_was_detectable_counts_every_benchmark(tmp_path):
    rows = [order_result(name, mde=0.25, mde_adjusted=0.31) for name in ("a", "b")]
    text, _ = page_of(rows, [None, None], tmp_path)
    assert "with probability 0.8 at p <= 0.0005 (0.001 / 2 benchmarks)" in text
    assert text.count("0.31") >= 2 and "0.25" not in text
    text, _ = page_of(rows[:1], [None], tmp_path / "one")
    assert "with probability 0.8 at p <= 0.001." in text
