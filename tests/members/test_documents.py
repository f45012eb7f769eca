"""Copies of one text and texts of one document are no further evidence anywhere."""

import dataclasses

import numpy as np
import pytest

from jaxcontam.data.documents import ASKED, compared, document_codes, independent_codes
from jaxcontam.errors import InputError
from jaxcontam.members.judging import judged
from jaxcontam.members.known_texts import MEMBER, NONMEMBER, TEXT, RunTexts
from jaxcontam.stats.conformal import conformal_p_values
from jaxcontam.stats.relabelling import auc_p_values
from tests.support.two_sides import asked, drawn, ranked, scores_of, study_of

LEVELS = (0.05, 0.01, 0.001)


def test_equal_texts_join_the_documents_that_hold_them():
    texts = ["x", "y", "y", "z", "z", "w", " ", " "]
    codes = document_codes(texts, ["a", "a", "b", "b", "c", "d", "e", "f"])
    assert codes.tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
    assert document_codes(["x", "y", "x"], None).tolist() == [0, 1, 0]
    assert document_codes(["x", "y"], ["a", "a"]).tolist() == [0, 0]
    # Texts that all differ are their own documents.
    assert independent_codes(["x", "y"], None) is None
    assert independent_codes(["x", "y", "x"], None) is not None


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("abcc", "defdb", "aef"),
        # Ten texts that each stand three times are a file that was written so.
        ("abcdefghij" * 3, "aklm", "bcdefghijklm"),
        ("abcdefghi" * 3, "kl", "kl"),
        ("abcdefghij" * 3 + "a", "kl", "kl"),
        ("abcdefghij" * 2, "klmnopqrst" * 3, "abcdefghijklmnopqrst"),
        ("ab", "ab", ""),
    ],
)
def test_a_text_that_stands_once_on_both_sides_together_is_compared(
    first, second, kept
):
    sides = np.arange(len(first + second)) < len(first)
    found = compared([*first, *second], sides, None, ASKED)
    assert "".join(np.array([*first, *second])[found.kept]) == kept
    # A copy of a text that is compared needs no reason.
    has_none = [why is None for why in found.why]
    assert has_none == [text in kept for text in first + second]


def test_a_text_of_two_documents_is_left_out_and_copies_in_one_stay():
    documents = ["a", "a", "a", "b", "b", "c", "b"]
    found = compared([*"xxyzyzw"], np.arange(7) < 5, documents, ASKED)
    assert found.kept.tolist() == [True, True, *[False] * 4, True]
    assert found.why[2:6] == (
        "stands in more than one document",
        "stands among the non-members",
        "stands in more than one document",
        "stands among the texts in question",
    )
    assert [words[:21] for words in found.warnings] == ["1 distinct text stand"] * 2


def test_five_copies_of_every_text_change_no_number_of_a_comparison():
    texts, labels = drawn(120, 1), np.arange(120) < 60
    values = np.random.default_rng(0).normal(size=(120, 2)) + 0.5 * labels[:, None]
    five = np.arange(120).repeat(5)
    once, copied = (
        ranked([texts[i] for i in rows], labels[rows], scores_of(values[rows])).results
        for rows in (np.arange(120), five)
    )
    first, second, *rest = copied[0].warnings
    assert first == "each text among the members stands 5 times and counts once"
    assert "among the non-members stands 5 times" in second
    assert dataclasses.replace(copied[0], warnings=tuple(rest)) == once[0]
    assert copied[1] == once[1]


def test_copies_of_a_pool_and_of_a_set_change_no_p_value():
    texts, sides = drawn(90, 4), np.arange(90) < 40
    values = np.random.default_rng(3).normal(size=90)
    rows = np.concatenate([np.arange(40).repeat(4), np.arange(40, 90).repeat(3)])
    once = asked(texts, sides, scores_of(values))
    copied = asked([texts[i] for i in rows], sides[rows], scores_of(values[rows]))
    four = np.arange(40).repeat(4)
    np.testing.assert_array_equal(copied.p_values, once.p_values[four])
    np.testing.assert_array_equal(copied.adjusted, once.adjusted[four])
    assert copied.thresholds == once.thresholds
    assert copied.seen == once.seen and copied.set_result == once.set_result


def test_a_share_and_a_set_count_texts_that_stand_once_in_both_sets_together():
    """Of two draws from one source the larger holds more of its frequent texts."""
    rng = np.random.default_rng(3)
    frequent, rare = drawn(100, 4), drawn(250, 5)
    texts = [*rng.choice(frequent, 250), *rare]
    sides = np.array([*[True] * 200, *[False] * 50, *[True] * 200, *[False] * 50])
    scores = rng.normal(size=500) + 3.0 * (np.arange(500) < 250)
    # A text has one score.
    scores = np.array([scores[texts.index(text)] for text in texts])
    found = asked(texts, sides, scores_of(scores), n_permutations=19)
    n_once = sum(
        texts.count(t) == 1 for t, own in zip(texts, sides, strict=True) if own
    )
    assert 200 <= n_once < 250
    assert found.seen is not None
    assert found.seen.n_texts == n_once and found.seen.low == 0
    assert found.set_result is not None and found.set_result.n_members == n_once
    assert any("distinct texts stand more than once" in one for one in found.warnings)


def test_a_text_in_question_that_stands_in_the_pool_has_no_p_value():
    texts, sides = drawn(70, 7), np.arange(70) < 30
    values = np.random.default_rng(6).normal(size=70)
    apart = asked(texts, sides, scores_of(values))
    leaked = asked(
        [*texts, *texts[:12]],
        np.append(sides, [False] * 12),
        scores_of(np.append(values, values[:12])),
    )
    np.testing.assert_array_equal(leaked.p_values[12:], apart.p_values[12:])
    assert np.isnan(leaked.p_values[:12]).all() and np.isnan(leaked.adjusted[:12]).all()
    assert leaked.why == ("stands among the non-members",) * 12 + (None,) * 18
    at5 = leaked.thresholds[1]
    assert at5.n_above == np.count_nonzero(leaked.p_values <= 0.05)
    assert at5.threshold == apart.thresholds[1].threshold
    assert "12 distinct texts stand among the texts in question" in leaked.warnings[0]
    # 18 texts are in question alone.
    assert leaked.seen is not None
    assert leaked.seen.n_texts == 18 and leaked.seen.n_pool == 40
    assert apart.set_result is not None and leaked.set_result is None


def test_copies_are_too_few_to_compare():
    texts, sides = drawn(20, 9), np.arange(40) < 20
    scores = scores_of(np.arange(40.0))
    with pytest.raises(InputError, match="no text is left in the pool"):
        asked(texts * 2, sides, scores)
    with pytest.raises(InputError, match=r"too few texts of members .* \(0\)"):
        ranked(["one"] * 20 + texts, sides, scores)


def test_a_constant_score_is_inconclusive_however_many_texts():
    texts, sides = drawn(800, 10), np.arange(800) < 400
    (row,) = ranked(texts, sides, scores_of(np.zeros(800)), n_boot=10).results
    assert row.verdict == "inconclusive"
    assert any("0 is the same for every text" in said for said in row.warnings)
    found = asked(texts, sides, scores_of(np.zeros(800)), n_permutations=9).set_result
    assert found is not None and found.verdict == "inconclusive"
    assert "every score is the same for every text" in found.warnings[-1]


def test_unlabelled_texts_of_another_year_are_named_beside_labelled_ones():
    texts = [f"{t} in {2015 if i < 80 else 2024}" for i, t in enumerate(drawn(120, 12))]
    run = RunTexts(
        name="x",
        texts=tuple(texts),
        roles=(MEMBER,) * 40 + (NONMEMBER,) * 40 + (TEXT,) * 40,
        clusters=None,
        sources=("x",) * 120,
    )
    table = scores_of(np.random.default_rng(14).normal(size=120))
    found = judged(run, table, np.zeros(120, bool), study_of(n_texts=120), seed=0)
    assert len(found.results) == 1
    assert any("texts alone tell the suspected set" in said for said in found.warnings)


def test_documents_of_a_pool_are_counted_and_leave_a_rate_without_an_interval():
    found = asked(
        drawn(150, 16),
        np.arange(150) < 30,
        scores_of(np.random.default_rng(15).normal(size=150)),
        clusters=[str(i) for i in range(30)],
        pool_clusters=[str(i // 4) for i in range(120)],
        fprs=(0.01, 0.1),
    )
    none, at10 = found.thresholds
    assert (none.threshold, none.n_above) == (None, None)
    assert at10.n_above == np.count_nonzero(found.p_values <= 0.1)
    assert at10.threshold is not None and at10.fpr_low is None
    assert found.p_values.min() >= 1 / 31
    said = " ".join(found.warnings)
    assert "at least 99 documents of non-members, there are 30" in said
    assert "the pool comes from 30 documents" in said
    assert found.seen is None and "no share seen is given" in said


def test_a_set_is_not_called_alike_where_one_score_may_rank_well():
    """Thirty scores, one of which sees something: the classifier loses sight of it."""
    sides = np.arange(200) < 100
    values = np.random.default_rng(1).normal(size=(200, 30))
    values[:, 0] += 0.3 * sides
    found = asked(drawn(200, 18), sides, scores_of(values)).set_result
    assert found is not None
    # By itself the classifier would rule out an AUC of 0.6.
    assert found.auc < 0.5 and found.p_value > 0.05
    assert found.verdict == "inconclusive"


def zipf_draws(rng, n, n_others, *, n_source, exponent):
    """Two draws with repeats from one source, whose frequent texts are likelier."""
    weights = np.arange(1.0, n_source + 1) ** -exponent
    weights /= weights.sum()
    ids = np.concatenate([rng.choice(n_source, k, p=weights) for k in (n, n_others)])
    scores = np.log(weights) + rng.normal(size=n_source)
    return [f"text {i}" for i in ids], np.arange(len(ids)) < n, scores_of(scores[ids])


def test_labelled_draws_of_two_sizes_from_one_source_keep_the_level():
    rng = np.random.default_rng(0)
    draws = (zipf_draws(rng, 500, 100, n_source=1500, exponent=0.8) for _ in range(40))
    p_values = [ranked(*draw, n_boot=2).results[0].p_value for draw in draws]
    # 3 standard errors of 40 files; copies that move as one give 0.3.
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + 3 * 0.0345


def test_p_values_of_texts_from_the_source_of_the_pool_keep_the_level():
    rng, shares = np.random.default_rng(1), []
    for _ in range(20):
        draw = zipf_draws(rng, 150, 120, n_source=400, exponent=1.0)
        found = asked(*draw, n_permutations=9)
        (p_values,) = found.p_values.T
        tested = np.isfinite(p_values)
        assert [why is None for why in found.why] == tested.tolist()
        shares.append(np.mean(p_values[tested] <= 0.05))
        assert found.thresholds[1].n_discoveries == 0
    # Texts share their pool: 3 standard errors over 20 files of the mean of a file.
    assert np.mean(shares) <= 0.05 + 3 * np.std(shares) / np.sqrt(20)


def check_levels(p_values):
    """Each level is kept, within 3 standard errors of so many files."""
    p_values = np.array(p_values)
    for level in LEVELS:
        se = np.sqrt(level * (1 - level) / len(p_values))
        assert np.mean(p_values <= level) <= level + 3 * se


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "n_others", "n_source", "exponent"),
    [
        (800, 150, 2500, 0.6),
        (60, 300, 500, 1.0),
        (150, 150, 400, 1.2),
        (1500, 100, 5000, 0.4),
    ],
)
def test_draws_with_repeats_keep_every_level(n, n_others, n_source, exponent):
    rng, of_sets, of_texts = np.random.default_rng(n), [], []
    for seed in range(1000):
        texts, sides, table = zipf_draws(
            rng, n, n_others, n_source=n_source, exponent=exponent
        )
        kept = compared(texts, sides, None, ASKED).kept
        scores, sides = table.values[kept], sides[kept]
        of_sets.append(auc_p_values(scores, sides, n=999, seed=seed)[0])
        p_values = conformal_p_values(scores[sides, 0], scores[~sides, 0])
        of_texts.append([np.mean(p_values <= level) for level in LEVELS])
    check_levels(of_sets)
    for level, shares in zip(LEVELS, np.transpose(of_texts), strict=True):
        assert shares.mean() <= level + 3 * shares.std() / np.sqrt(1000)


@pytest.mark.slow
def test_documents_that_share_texts_keep_every_level():
    """Documents of own texts and of a common stock, whose texts are likelier."""
    rng, of_sets = np.random.default_rng(2), []
    for seed in range(1000):
        documents = np.arange(90).repeat(rng.geometric(0.3, size=90))
        stock = rng.integers(40, size=len(documents))
        is_common = rng.random(len(documents)) < 0.2
        texts = [
            f"common {k}" if common else f"own {i}"
            for i, (k, common) in enumerate(zip(stock, is_common, strict=True))
        ]
        scores = rng.normal(size=90)[documents] + rng.normal(size=len(documents))
        scores[is_common] = 3.0
        sides = documents < 70
        kept = compared(texts, sides, documents.tolist(), ASKED).kept
        own = scores[kept, None], sides[kept], documents[kept]
        of_sets.append(auc_p_values(*own, n=999, seed=seed)[0])
    check_levels(of_sets)
