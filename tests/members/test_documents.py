"""Copies of one text and texts of one document are no further evidence anywhere."""

import dataclasses

import numpy as np
import pytest

from jaxcontam.data.documents import document_codes, independent_codes
from jaxcontam.errors import InputError
from jaxcontam.members.blind import blind_baselines
from jaxcontam.members.judging import judge, judge_texts, judged
from jaxcontam.members.known_texts import MEMBER, NONMEMBER, TEXT, RunTexts
from jaxcontam.members.result import MembershipStudy, Scores

WORDS = [f"{a}{b}{c}" for a in "bdfglm" for b in "aeiou" for c in "nrst"]


def drawn(n, seed):
    """Distinct texts of one law."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=15)) for _ in range(n)]


def test_equal_texts_join_the_documents_that_hold_them():
    texts = ["x", "y", "y", "z", "z", "w", " ", " "]
    codes = document_codes(texts, ["a", "a", "b", "b", "c", "d", "e", "f"])
    assert codes.tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
    assert document_codes(["x", "y", "x"], None).tolist() == [0, 1, 0]
    assert document_codes(["x", "y"], ["a", "a"]).tolist() == [0, 0]


def test_texts_that_all_differ_are_their_own_documents():
    assert independent_codes(["x", "y"], None) is None
    assert independent_codes(["x", "y", "x"], None) is not None


def test_five_copies_of_every_text_change_no_number_of_a_comparison():
    rng = np.random.default_rng(0)
    texts, labels = drawn(120, 1), np.arange(120) < 60
    values = rng.normal(size=(120, 2)) + 0.5 * labels[:, None]
    five = np.arange(120).repeat(5)

    def of(rows):
        own = [texts[i] for i in rows]
        return judge(
            "x",
            "d",
            Scores(("a", "b"), values[rows]),
            labels[rows],
            texts=own,
            primary="a",
            fprs=(0.01, 0.05),
        ).results

    once, copied = of(np.arange(120)), of(five)
    first, second, *rest = copied[0].warnings
    assert first == "each text among the members stands 5 times and counts once"
    assert "among the non-members stands 5 times" in second
    assert dataclasses.replace(copied[0], warnings=tuple(rest)) == once[0]
    assert copied[1] == once[1]


def test_the_baselines_of_copies_have_the_errors_of_distinct_texts():
    texts, labels = drawn(60, 2), np.arange(60) < 30
    once = blind_baselines(texts, labels)
    copied = blind_baselines(texts * 5, np.tile(labels, 5))
    for row, other in zip(once.rows, copied.rows, strict=True):
        width, copied_width = (one.auc_high - one.auc_low for one in (row, other))
        # Folds and fits of copies differ, widths near an AUC of 0.5 hardly.
        assert copied_width > 0.8 * width


def test_copies_of_a_pool_and_of_a_set_change_no_p_value():
    rng = np.random.default_rng(3)
    texts, pool = drawn(40, 4), drawn(50, 5)
    values, of_pool = rng.normal(size=(40, 1)), rng.normal(size=(50, 1))
    four, three = np.arange(40).repeat(4), np.arange(50).repeat(3)

    def of(rows, of_rows):
        return judge_texts(
            "x",
            "d",
            Scores(("a",), values[rows]),
            Scores(("a",), of_pool[of_rows]),
            texts=[texts[i] for i in rows],
            pool_texts=[pool[i] for i in of_rows],
            n_permutations=99,
        )

    once, copied = of(range(40), range(50)), of(four, three)
    np.testing.assert_array_equal(copied.p_values, once.p_values[four])
    np.testing.assert_array_equal(copied.adjusted, once.adjusted[four])
    assert copied.thresholds == once.thresholds
    assert copied.seen == once.seen and copied.set_result == once.set_result


def test_a_share_and_a_set_count_texts_that_stand_once_in_both_sets_together():
    """Of two draws from one source the larger holds more of its frequent texts."""
    rng = np.random.default_rng(3)
    frequent, rare = drawn(100, 4), drawn(500, 5)

    def draw(n):
        some = [*rng.choice(frequent, n // 2), *rare[: n - n // 2]]
        del rare[: n - n // 2]
        return some, Scores(
            ("a",), np.array([[rng.normal() + 3 * (t in frequent)] for t in some])
        )

    (texts, scores), (pool, of_pool) = draw(400), draw(100)
    found = judge_texts(
        "x", "d", scores, of_pool, texts=texts, pool_texts=pool, n_permutations=19
    )
    both = [*texts, *pool]
    n_once = sum(both.count(text) == 1 for text in texts)
    assert 200 <= n_once < 250
    assert found.seen is not None
    assert found.seen.n_texts == n_once and found.seen.low == 0
    assert found.set_result is not None and found.set_result.n_members == n_once
    assert any("distinct texts stand more than once" in one for one in found.warnings)


def test_a_text_in_question_that_stands_in_the_pool_has_no_p_value():
    rng = np.random.default_rng(6)
    texts, pool = drawn(30, 7), drawn(40, 8)
    values, of_pool = rng.normal(size=(30, 1)), rng.normal(size=(40, 1))

    def of(extra):
        return judge_texts(
            "x",
            "d",
            Scores(("a",), values),
            Scores(("a",), np.concatenate([of_pool, values[:extra]])),
            texts=texts,
            pool_texts=[*pool, *texts[:extra]],
            n_permutations=19,
        )

    apart, leaked = of(0), of(12)
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


def test_a_pool_of_texts_in_question_is_refused():
    texts, table = drawn(20, 9), Scores(("a",), np.arange(20.0)[:, None])
    with pytest.raises(InputError, match="no text is left in the pool"):
        judge_texts("x", "d", table, table, texts=texts, pool_texts=texts)


def test_a_constant_score_is_inconclusive_however_many_texts():
    texts = drawn(800, 10)
    labels, table = np.arange(800) < 400, Scores(("a",), np.zeros((800, 1)))
    (row,) = judge("x", "d", table, labels, texts=texts, primary="a", n_boot=10).results
    assert row.verdict == "inconclusive"
    assert any("a is the same for every text" in said for said in row.warnings)
    half = Scores(("a",), np.zeros((400, 1)))
    found = judge_texts(
        "x",
        "d",
        half,
        half,
        texts=texts[:400],
        pool_texts=texts[400:],
        n_permutations=9,
    )
    assert found.set_result is not None
    assert found.set_result.verdict == "inconclusive"
    assert "every score is the same for every text" in found.set_result.warnings[-1]


def test_copies_of_one_text_are_too_few_to_compare():
    texts = ["one"] * 40 + drawn(40, 11)
    table = Scores(("a",), np.arange(80.0)[:, None])
    with pytest.raises(InputError, match=r"too few texts of members .* \(0\)"):
        judge("x", "d", table, np.arange(80) < 40, texts=texts, primary="a")


def test_unlabelled_texts_of_another_year_are_named_beside_labelled_ones():
    texts = [
        *(f"{text} in 2015" for text in drawn(80, 12)),
        *(f"{text} in 2024" for text in drawn(40, 13)),
    ]
    roles = (MEMBER,) * 40 + (NONMEMBER,) * 40 + (TEXT,) * 40
    run = RunTexts(
        name="x", texts=tuple(texts), roles=roles, clusters=None, sources=("x",) * 120
    )
    found = judged(
        run,
        Scores(("a",), np.random.default_rng(14).normal(size=(120, 1))),
        np.zeros(120, bool),
        MembershipStudy(
            name="x",
            fingerprint="",
            primary="a",
            fprs=(0.05,),
            convention="le",
            n_texts=120,
            n_left_out=0,
            n_unscored=0,
            tokens_scored=0,
            cached_tokens=0,
        ),
        seed=0,
    )
    assert len(found.results) == 1
    assert any("texts alone tell the suspected set" in said for said in found.warnings)


def test_documents_of_a_pool_are_counted_and_leave_a_rate_without_an_interval():
    rng = np.random.default_rng(15)
    texts, pool = drawn(30, 16), drawn(120, 17)
    found = judge_texts(
        "x",
        "d",
        Scores(("a",), rng.normal(size=(30, 1))),
        Scores(("a",), rng.normal(size=(120, 1))),
        texts=texts,
        pool_texts=pool,
        clusters=[str(i) for i in range(30)],
        pool_clusters=[str(i // 4) for i in range(120)],
        fprs=(0.01, 0.1),
        n_permutations=19,
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
    texts, is_first = drawn(200, 18), np.arange(200) < 100
    values = np.random.default_rng(1).normal(size=(200, 30))
    values[:, 0] += 0.3 * is_first
    names = tuple(map(str, range(30)))
    found = judge_texts(
        "x",
        "d",
        Scores(names, values[:100]),
        Scores(names, values[100:]),
        texts=texts[:100],
        pool_texts=texts[100:],
        n_permutations=99,
    ).set_result
    assert found is not None
    # By itself the classifier would rule out an AUC of 0.6.
    assert found.auc < 0.5 and found.p_value > 0.05
    assert found.verdict == "inconclusive"
