"""A clean model beside a reference that reads less: what it may never be called."""

import numpy as np
import pytest

from jaxcontam.members.blind import (
    Blind,
    beside_reference,
    blind_baselines,
    conditions,
    cross_validated,
    grouped_folds,
    logistic,
)
from jaxcontam.members.judging import judge, judge_texts
from jaxcontam.members.page import share_sentences
from jaxcontam.members.result import BlindBaseline, MembershipStudy, Scores
from jaxcontam.stats.roc import auc_delong, paired_delong

WORDS = [f"{a}{b}{c}" for a in "bdfglm" for b in "aeiou" for c in "nrst"]


def clean_case(rng, n, n_others, shift, noise):
    """Scores and a reference of texts of which one side is easier to read, for both."""
    labels = np.arange(n + n_others) < n
    ease = rng.normal(size=len(labels)) + shift * labels
    scores = ease + 0.3 * rng.normal(size=len(labels))
    common = rng.normal(size=len(labels))
    reference = [
        ease + noise * (0.9 * common + np.sqrt(1 - 0.81) * rng.normal(size=len(labels)))
        for _ in range(2)
    ]
    return labels, scores[:, None], np.stack(reference, axis=1)


def unmet_of(rng, labels, scores, reference):
    """Conditions with the reference as the only baseline, and not seen above chance."""
    folds = grouped_folds(labels, np.arange(len(labels)), n_folds=5, seed=0)
    held_out = cross_validated(logistic(reference), labels, folds)
    blind = Blind(
        (BlindBaseline(name="reference", auc=0.5, auc_low=0.4, auc_high=0.6),),
        held_out[:, None],
        folds,
        0.45,
        False,
        np.column_stack([reference, held_out]),
    )
    beside = beside_reference(blind, "loss", scores[:, 0], labels)
    return conditions(blind, 0.001, beside)


def test_a_share_of_one_score_is_compared_with_the_whole_of_another():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 120))
    a[:50] += 1
    sides = (a[:50], a[50:], b[:50], b[50:])
    found = paired_delong(*sides, share=0.5)
    first, second = auc_delong(a[:50], a[50:])[0], auc_delong(b[:50], b[50:])[0]
    assert found.difference == pytest.approx(0.5 * (first - 0.5) - (second - 0.5))
    # With nothing of the second the error is half of the first one's.
    flat = paired_delong(a[:50], a[50:], np.zeros(50), np.zeros(70), share=0.5)
    assert flat.se == pytest.approx(auc_delong(a[:50], a[50:])[1] / 2)


def test_texts_that_are_easier_to_read_are_not_called_seen():
    """The reference is at chance by its own interval in most of these files."""
    rng, verdicts, beyond, sentences = np.random.default_rng(1), [], [], []
    for seed in range(10):
        labels, scores, reference = clean_case(rng, 400, 400, 0.27, 1.0)
        texts = [" ".join(rng.choice(WORDS, size=12)) for _ in labels]
        table = Scores(("loss",), scores, reference)
        sides = table.rows(labels), table.rows(~labels)
        found = judge_texts(
            *("x", "d", *sides),
            texts=texts[:400],
            pool_texts=texts[400:],
            n_permutations=999,
            seed=seed,
        )
        row = judge(
            *("x", "d", table, labels), texts=texts, primary="loss", n_boot=2, seed=seed
        ).results[0]
        assert found.set_result is not None and found.seen is not None
        verdicts += [found.set_result.verdict, row.verdict]
        beyond.append(found.seen.beyond_reference)
        # So may be what is discovered text by text.
        n_discoveries = max(row.n_discoveries for row in found.thresholds)
        told = any("may be texts that are easier to read" in w for w in found.warnings)
        assert told == (n_discoveries > 0)
        study = MembershipStudy(
            name="x",
            fingerprint="d",
            primary="loss",
            fprs=(0.05,),
            convention="le",
            n_texts=800,
            n_left_out=0,
            n_unscored=0,
            tokens_scored=0,
            cached_tokens=0,
            seen=found.seen,
        )
        sentences.append((found.seen.low, *share_sentences(study)))
    assert "members rank higher" not in verdicts and not any(beyond)
    assert "may rank higher" in verdicts
    # A bound above zero is not one of texts that were seen.
    said = [words for low, words in sentences if low > 0]
    assert len(said) >= 5
    assert all("may be a difference of kind" in words for words in said)
    assert not any("were seen" in words for words in said)


def test_what_keeps_a_score_from_its_word_is_named_with_what_to_do():
    rng = np.random.default_rng(2)
    labels, scores, reference = clean_case(rng, 400, 400, 0.3, 1.0)
    texts = [" ".join(rng.choice(WORDS, size=12)) for _ in labels]
    table = Scores(("loss",), scores, reference)
    (row,) = judge("x", "d", table, labels, texts=texts, primary="loss").results
    assert row.verdict == "may rank higher" and row.beside_reference is not None
    assert row.beside_reference.half_p_value > 0.05
    half = row.warnings[-1]
    assert half.startswith("the reference model may show half of what loss shows (AUC")
    assert "at most 0.05 is needed" in half and "more texts, of one kind" in half


def test_a_reference_that_ranks_by_either_number_counts():
    """Two numbers that point apart leave nothing to a classifier of both."""
    rng = np.random.default_rng(3)
    labels, scores, reference = clean_case(rng, 300, 300, 0.6, 0.3)
    texts = [" ".join(rng.choice(WORDS, size=12)) for _ in labels]
    for column in (0, 1):
        other = rng.normal(size=reference.shape)
        other[:, column] = reference[:, column]
        blind = blind_baselines(texts, labels, reference_N2=other)
        beside = beside_reference(blind, "loss", scores[:, 0], labels)
        assert beside is not None and beside.p_value > 0.01 < beside.half_p_value
        own = auc_delong(other[labels, column], other[~labels, column])[0]
        assert beside.reference_auc >= own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "n_others", "shift"),
    [(60, 60, 1.0), (150, 300, 0.6), (400, 400, 0.3), (1000, 300, 0.35)],
)
@pytest.mark.parametrize(("noise", "level"), [(0.3, 0.001), (1.0, 0.01), (1.839, 0.05)])
def test_a_clean_model_is_accused_no_more_often_than_said(
    n, n_others, shift, noise, level
):
    """The reference shows all of what the model shows, three quarters, or a half."""
    rng = np.random.default_rng([n, round(100 * noise)])
    n_accused = sum(
        not unmet_of(rng, *clean_case(rng, n, n_others, shift, noise))
        for _ in range(400)
    )
    # 3 standard errors of 400 files.
    assert n_accused / 400 <= level + 3 * np.sqrt(level * (1 - level) / 400)
