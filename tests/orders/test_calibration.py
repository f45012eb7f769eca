"""Rates of rejection where nothing is to be found, and the command that prints them."""

import json

import numpy as np
import pytest
import scipy.stats

from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.orders.calibrate import calibrate_test, fresh_order
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.methods import t_numbers as t_test
from jaxcontam.orders.order_test import plan_test
from jaxcontam.reports.report_files import sealed_text
from jaxcontam.stats.proportions import randomised, rejection, relabelled_p_values
from tests.orders.test_order_path import (
    CONTEXT,
    PREFIX,
    random_bigrams,
    tokenizer,  # noqa: F401, a fixture
    write_lines,
)
from tests.support.page_laws import check_page

pytestmark = pytest.mark.unoptimised


@pytest.fixture
def file(tmp_path, tokenizer):  # noqa: F811
    path = write_lines(tmp_path / "x.txt", np.random.default_rng(0))
    benchmark = load_benchmark(path)
    # A stub that looks at two ids sees neighbours only if nothing stands between them.
    return benchmark, encode_examples(tokenizer, benchmark.texts, separator="")


def calibrated(file, method, scorer, **kwargs):
    return calibrate_test(
        *file, method, scorer, prefix_id=PREFIX, context=CONTEXT, seed=0, **kwargs
    )


def test_interval_of_a_rate_is_that_of_clopper_and_pearson():
    p = np.array([0.01] * 3 + [0.5] * 37)
    found = rejection(p, 0.05)
    expected = scipy.stats.binomtest(3, 40).proportion_ci(method="exact")
    assert (found.n_rejected, found.rate) == (3, 3 / 40)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert rejection(p, 0.001).low == 0
    assert rejection(p, 0.9).high == 1


def test_randomised_p_values_of_a_rank_fill_the_unit_interval_evenly():
    # The published order is r-th best of M: P(T* >= T) = r / M, and no ties.
    M = 20
    for r in range(1, M + 1):
        ends = [randomised(r / M, (M - r + 1) / M, u) for u in (0.0, 1.0)]
        assert ends == pytest.approx([(r - 1) / M, r / M])
    assert randomised(1.0, 1.0, 0.3) == 0.3


def test_relabelled_t_test_of_few_skewed_shards_is_too_liberal():
    rng = np.random.default_rng(0)
    n_draws = 2_000
    skewed_KM = -rng.gamma(0.5, size=(10, 40))
    normal_KM = rng.standard_normal((50, 40))

    def p_value(loglik_KM):
        return t_test(loglik_KM, np.ones(len(loglik_KM)), 0).p_value

    def rate(loglik_KM):
        p_R = relabelled_p_values(loglik_KM, p_value, n_draws=n_draws, seed=0)
        return rejection(p_R, 0.05)

    assert rate(skewed_KM).low > 0.07
    # 3.3 standard errors of 2,000 draws.
    assert abs(rate(normal_KM).rate - 0.05) < 3.3 * np.sqrt(0.05 * 0.95 / n_draws)


def test_fresh_orders_permute_the_file_and_keep_to_groups(file):
    benchmark, encoded = file
    drawn = [fresh_order(benchmark, encoded, seed=0, draw=d) for d in (0, 0, 1)]
    assert drawn[0].benchmark.texts == drawn[1].benchmark.texts
    assert drawn[0].benchmark.texts != drawn[2].benchmark.texts
    assert drawn[0].seed != drawn[2].seed
    for one in drawn:
        assert one.benchmark.content_digest == benchmark.content_digest
        for text, ids in zip(one.benchmark.texts, one.encoded.ids, strict=True):
            np.testing.assert_array_equal(ids, encoded.ids[benchmark.texts.index(text)])
    groups = [i % 3 for i in range(len(benchmark))]
    kept = fresh_order(benchmark, encoded, seed=0, draw=0, groups=groups)
    assert kept.benchmark.texts != benchmark.texts
    for i, text in enumerate(kept.benchmark.texts):
        assert groups[benchmark.texts.index(text)] == groups[i]


def test_pairs_have_fresh_orders_and_approximate_tests_relabel_a_scored_one(file):
    method = order_method("adjacency")
    result, drawn = calibrated(file, method, random_bigrams(0), n_draws=8)
    assert (result.drawn, result.n_draws) == ("fresh orders", 8)
    assert len(np.unique(drawn.p_value)) == 8
    assert result.tokens_scored > 0
    method = order_method("sharded_t")
    result, drawn = calibrated(file, method, random_bigrams(0), n_relabelled=500)
    assert (result.drawn, result.n_draws) == ("relabelled columns", 500)
    assert drawn.p_randomised is None
    published = plan_test(*file, method, prefix_id=PREFIX, context=CONTEXT, seed=0)
    # As much as the published order costs, give or take equal sequences.
    assert result.tokens_scored == pytest.approx(published.n_targets, rel=0.1)


def test_calibration_of_a_model_is_verified(pulse, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = (pulse / "sets" / "pydocs-1.txt").read_text()
    (tmp_path / "docs.txt").write_text(f"\n{lines}")
    words = ["calibrate", str(pulse / "model"), "docs.txt"]
    words += ["--tests", "reversal,sharded_t", "--draws", "4", "--limit", "20"]
    assert main([*words, "--out", "out"]) == 0
    err = capsys.readouterr().err
    assert "docs: 1 blank line left out\n" in err
    assert "reversal: 4 fresh orders of 20 examples, about " in err
    first = json.loads((tmp_path / "out" / "report.json").read_text())
    assert first["min_effect"] is None
    assert [row["drawn"] for row in first["results"]] == [
        "fresh orders",
        "relabelled columns",
    ]
    assert [row["n_draws"] for row in first["results"]] == [4, 10_000]
    assert all("verdict" not in row for row in first["results"])
    page = (tmp_path / "out" / "report.html").read_bytes()
    check_page(page.decode())
    assert b"does not show that the published order" in page

    assert main(["report", "out"]) == 0
    assert (tmp_path / "out" / "report.html").read_bytes() == page
    capsys.readouterr()
    assert main(["verify", "out"]) == 0
    assert "out: verified, 2 results recomputed" in capsys.readouterr().out
    first["results"][1]["ks_p_value"] /= 2
    (tmp_path / "out" / "report.json").write_text(sealed_text(first))
    assert main(["verify", "out"]) == 3
    assert "differs: results[1].ks_p_value is " in capsys.readouterr().out
