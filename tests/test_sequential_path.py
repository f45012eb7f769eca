# ruff: noqa: F811  (a fixture of another file is an argument here)
"""Sequential tests through the whole path, with a stub in place of a model."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.methods import order_method, sequential
from jaxcontam.methods.order_test import plan_test, score_test
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.stats.sequential import (
    fewest_draws,
    looks,
    strata_turns,
    whole_file_orders,
)
from tests.test_order_path import (
    CONTEXT,
    PREFIX,
    memoriser,
    random_bigrams,
    tokenizer,  # noqa: F401
    write_lines,
)

TESTS = ["sequential", "permutation_sequential", "permutation_besag_clifford"]
DIGEST = "sha256:" + "ab" * 32


def run(path, tokenizer, scorer, name, seed=0, separator="\n", **kwargs):
    benchmark = load_benchmark(path)
    planned = plan_test(
        benchmark,
        encode_examples(tokenizer, benchmark.texts, separator=separator),
        order_method(name),
        prefix_id=PREFIX,
        context=CONTEXT,
        seed=seed,
        **kwargs,
    )
    scored = score_test(planned, scorer)
    result = planned.result(scored, primary=True, pretests=())
    return result, scored.evidence, planned


def memorised_file(path, tokenizer, seed=0):
    """Write a file, and return a stub model that knows nothing but its neighbours."""
    letters = [chr(33 + i) for i in range(88)]
    order = np.random.default_rng(seed).permutation(88)
    path.write_text("".join(f"{letters[i]}~{letters[i]}\n" for i in order))
    ids = encode_examples(tokenizer, load_benchmark(path).texts, separator="|").ids
    return memoriser([x[:-1] for x in ids])


@pytest.fixture
def memorised(tmp_path, tokenizer):
    path = tmp_path / "x.txt"
    return path, memorised_file(path, tokenizer)


def test_sequential_test_stops_before_all_strata_are_scored(memorised, tokenizer):
    path, scorer = memorised
    result, evidence, planned = run(path, tokenizer, scorer, "sequential", separator="")
    numbers = result.numbers
    assert numbers.stop == "rejected"
    assert numbers.p_value <= 0.001
    assert numbers.e_value >= 1000
    assert numbers.n_used == len(evidence.scores) < result.n_strata
    assert result.tokens_scored < planned.n_targets


def test_strata_are_scored_in_the_order_of_the_seed(memorised, tokenizer):
    path, scorer = memorised
    result, evidence, planned = run(path, tokenizer, scorer, "sequential", separator="")
    turn = strata_turns(result.n_strata, seed=0, content_digest=result.content_digest)
    rows = turn[: len(evidence.scores)]
    np.testing.assert_array_equal(evidence.orders, planned.layout.design.orders[rows])
    drawn = order_method("sequential").redraw(result, evidence.scores.shape, 0)
    np.testing.assert_array_equal(evidence.orders, drawn.orders)
    np.testing.assert_array_equal(evidence.place, drawn.place)


def test_sequential_scores_are_those_of_stratified(tmp_path, tokenizer):
    path = write_lines(tmp_path / "x.txt", np.random.default_rng(1))
    model = random_bigrams(3)
    result, evidence, _ = run(path, tokenizer, model, "sequential")
    _, fixed, _ = run(path, tokenizer, model, "stratified")
    rows = np.argsort(evidence.orders[:, 0, 0])
    assert result.numbers.stop == "exhausted"
    np.testing.assert_array_equal(evidence.scores[rows], fixed.scores)


def test_bet_over_orders_rejects_in_the_fewest_draws(memorised, tokenizer):
    path, scorer = memorised
    name = "permutation_sequential"
    result, evidence, _ = run(path, tokenizer, scorer, name, separator="", level=0.05)
    assert result.numbers.stop == "rejected"
    assert result.numbers.n_used == fewest_draws(0.05)
    assert result.numbers.n_used < evidence.scores.shape[1] <= fewest_draws(0.05) + 17
    assert 0.045 <= result.numbers.p_value <= 0.05


def test_count_of_losses_goes_to_the_last_draw_where_none_is_lost(memorised, tokenizer):
    path, scorer = memorised
    name = "permutation_besag_clifford"
    result, evidence, planned = run(
        path, tokenizer, scorer, name, separator="", n_orders=99
    )
    assert evidence.scores.shape == (1, 100)
    assert result.numbers.p_value == 1 / 100
    assert (result.numbers.stop, result.numbers.n_used) == ("exhausted", 99)
    assert result.tokens_scored == planned.n_targets


@pytest.mark.parametrize("name", TESTS)
def test_indifferent_model_gives_pvalue_one(tmp_path, tokenizer, name):
    path = write_lines(tmp_path / "x.txt", np.random.default_rng(0))
    scorer = Scorer(
        lambda inputs, targets: (np.full(inputs.shape, -2.5, np.float32), None, None),
        context=CONTEXT,
        batch_tokens=512,
    )
    result, evidence, planned = run(path, tokenizer, scorer, name)
    assert result.numbers.p_value == 1.0
    if name != "sequential":
        # Every draw is a loss, so the first few settle it.
        assert evidence.scores.shape[1] == 16
        assert result.tokens_scored < planned.n_targets / 50


@pytest.mark.parametrize("name", TESTS)
def test_numbers_follow_from_the_evidence_alone(tmp_path, tokenizer, name):
    path = write_lines(tmp_path / "x.txt", np.random.default_rng(2))
    result, evidence, _ = run(path, tokenizer, random_bigrams(1), name)
    method = order_method(name)
    again = method.numbers(
        evidence, grouped=False, seed=0, content_digest=result.content_digest
    )
    assert again == result.numbers
    drawn = method.redraw(result, evidence.scores.shape, 0)
    np.testing.assert_array_equal(drawn.orders, evidence.orders)
    np.testing.assert_array_equal(drawn.place, evidence.place)
    with pytest.raises(ValueError, match="rule"):
        method.numbers(
            dataclasses.replace(evidence, rule=None),
            grouped=False,
            seed=0,
            content_digest=result.content_digest,
        )


@pytest.mark.parametrize("name", TESTS)
def test_size_through_the_whole_path_is_at_most_nominal(tmp_path, tokenizer, name):
    n, p = 150, []
    for i in range(n):
        path = write_lines(tmp_path / "x.txt", np.random.default_rng([7, i]), n=20)
        result, _, _ = run(path, tokenizer, random_bigrams(i), name, seed=i, level=0.05)
        p.append(result.numbers.p_value)
    # 3.3 standard errors of 150 files.
    slack = 3.3 * math.sqrt(0.05 * 0.95 / n)
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + slack


@pytest.mark.parametrize("n_strata", [20, 100])
def test_detectable_effect_of_the_bet_is_found_four_times_in_five(n_strata):
    rng = np.random.default_rng(n_strata)
    rule, ones = np.array([0.001, n_strata]), np.ones(n_strata)
    found = []
    for _ in range(200):
        matrix = rng.normal(size=(n_strata, 10))
        matrix[:, 0] += sequential.analyse(matrix, ones, rule).mde
        found.append(sequential.analyse(matrix, ones, rule).p_value <= 0.001)
    # 3.3 standard errors of 200 files, on both sides of 0.80 and of 0.88, since the
    # factor is that of 20 strata and a little more than others need.
    assert 0.80 - 0.094 < np.mean(found) < 0.88 + 0.076


def test_groups_hold_in_all_chunks(tmp_path, tokenizer):
    path = tmp_path / "x.jsonl"
    path.write_text(
        "".join(f'{{"t": "{i}", "subject": "{i // 3 % 2}"}}\n' for i in range(20))
    )
    _, evidence, _ = run(
        path,
        tokenizer,
        random_bigrams(0),
        "permutation_besag_clifford",
        group_field="subject",
        n_orders=40,
    )
    subject = np.arange(20) // 3 % 2
    assert (subject[evidence.orders] == subject[evidence.orders[:, :1]]).all()


def test_chunks_of_orders_are_different_draws():
    design = whole_file_orders(60, 60, n_examples=12, seed=0, content_digest=DIGEST)
    assert design.orders.shape == (1, 61, 12)
    np.testing.assert_array_equal(design.orders[0, 0], np.arange(12))
    # 12! orders: none comes twice by chance.
    assert len(np.unique(design.orders[0], axis=0)) == 61
    fewer = whole_file_orders(9, 60, n_examples=12, seed=0, content_digest=DIGEST)
    np.testing.assert_array_equal(fewer.orders, design.orders[:, :10])


@pytest.mark.parametrize("n_strata", [1, 5, 8, 9, 50, 2500])
def test_looks_end_with_all_strata_and_never_add_more_than_a_quarter(n_strata):
    found = list(looks(n_strata))
    assert found[-1] == n_strata
    assert all(a < b <= math.ceil(1.25 * a) for a, b in itertools.pairwise(found))
    assert found[0] <= 8


def test_turns_differ_by_seed_and_by_content():
    turns = [
        strata_turns(40, seed=seed, content_digest=digest).tolist()
        for seed, digest in ((0, DIGEST), (0, DIGEST), (1, DIGEST), (0, "sha256:1"))
    ]
    assert turns[0] == turns[1]
    assert turns[0] != turns[2]
    assert turns[0] != turns[3]
    assert sorted(turns[0]) == list(range(40))
