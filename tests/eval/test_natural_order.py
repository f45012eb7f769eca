"""The study of natural order: files have what their names say, scorers are clean."""

import itertools
import math
import random

import numpy as np
import pytest

from eval.natural_order.__main__ import cases_of
from eval.natural_order.audited import Case, audited_case, inputs_of, maker, record_from
from eval.natural_order.kinds import GOES_ON, KINDS
from eval.natural_order.readers import (
    AFTER_ONE,
    AFTER_TWO,
    BACKGROUND,
    PREFIX_ID,
    WORD,
    CopyingPairs,
    Parts,
    WordEncoder,
    fit_bigrams,
    know,
)
from eval.population import made_records
from eval.study import Records
from jaxcontam.scoring.pair_plan import PairGroup

# A row and its sequel, then another pair; rows of all other kinds go on for ever.
IN_PAIRS = ("answers_unshared", "causes", "one_off_causes")


def case(kind, *, nats=0.0, knows=0.0, n=96):
    strength = KINDS[kind].strengths[-1]
    return Case(kind=kind, strength=strength, n=n, seed=0, nats=nats, knows=knows)


@pytest.fixture(scope="module")
def records():
    kinds = ("labels_text", "running_names")
    asked = [case(kind, nats=nats) for kind in kinds for nats in (0.0, 1.0)]
    return {(one.kind, one.nats): audited_case(one) for one in asked}


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_gives_the_same_file_again_and_another_for_another_seed(name):
    kind = KINDS[name]
    first, again, other = (
        kind.file(n=40, strength=kind.strengths[-1], seed=seed) for seed in (0, 0, 1)
    )
    assert (first.texts, first.rows) == (again.texts, again.rows)
    assert len(first.texts) == len(first.rows) == 40
    assert first.texts != other.texts
    assert not any("\n" in text for text in first.texts)


def test_there_are_kinds_of_each_law_and_every_one_is_audited():
    cases = cases_of(0)
    for planted in (False, True):
        assert {one.kind for one in cases if (one.nats > 0) == planted} == set(KINDS)
    known = {one.kind for one in cases if one.knows and not one.nats}
    assert known == set(GOES_ON) <= set(KINDS)


@pytest.mark.parametrize("name", GOES_ON)
def test_rows_go_on_by_their_texts_as_published_and_not_shuffled(name):
    kind = KINDS[name]
    texts = kind.file(n=200, strength=1.0, seed=0).texts
    shuffled = random.Random(0).sample(texts, len(texts))
    step = 2 if kind.name in IN_PAIRS else 1
    published, drawn = (
        np.mean([kind.goes_on(*pair) for pair in [*itertools.pairwise(rows)][::step]])
        for rows in (texts, shuffled)
    )
    # Four roles or labels in a random order go on by chance at every fourth boundary.
    assert published >= 0.9 and drawn <= 0.4


def test_a_knowing_scorer_is_the_same_whatever_the_order_of_the_file():
    kind = KINDS["chronology"]
    texts = list(kind.file(n=20, strength=1.0, seed=0).texts)
    background = fit_bigrams(["the cat sat"])
    encoder = WordEncoder(background.words)
    ids = [np.array(encoder.encode(f"{text}\n").ids, np.int32) for text in texts]
    rows = range(len(texts))

    groups = [
        PairGroup(np.array([PREFIX_ID, *ids[i]], np.int32), (ids[j],), i, (j,))
        for i, j in itertools.permutations(rows, 2)
    ]

    def logprobs(order, nats):
        texts_in, ids_in = ([of[i] for i in order] for of in (texts, ids))
        parts = Parts(*[dict(enumerate(ids_in))] * 2)
        known = know(texts_in, parts, kind.goes_on, nats)
        found = CopyingPairs(background, [known]).logprobs(groups).logprobs
        return np.array([own[0].sum() for own in found])

    published = logprobs(rows, 2.0)
    drawn = logprobs(random.Random(0).sample(rows, 20), 2.0)
    np.testing.assert_array_equal(published, drawn)
    follows = [kind.goes_on(*pair) for pair in itertools.permutations(texts, 2)]
    # float32 sums of some 15 ids.
    gained = published - logprobs(rows, 0.0)
    np.testing.assert_allclose(gained, 2.0 * np.array(follows), atol=1e-4)


def test_the_copying_scorer_is_its_formula_word_by_word():
    background = fit_bigrams(["the cat sat on the mat", "the dog sat"])
    encoder = WordEncoder(background.words)
    prefix = [PREFIX_ID, *encoder.encode("a new cat sat on a new mat\n").ids]
    ids = encoder.encode("the new cat sat\n").ids
    group = PairGroup(np.array(prefix, np.int32), (np.array(ids, np.int32),), 0, (1,))
    (found,) = CopyingPairs(background).logprobs([group]).logprobs[0]
    for t, word in enumerate(ids):
        read = prefix + ids[:t]
        after = {
            n: [w for i, w in enumerate(read[n:], n) if read[i - n : i] == read[-n:]]
            for n in (1, 2)
        }
        followers = {WORD: read, AFTER_ONE: after[1], AFTER_TWO: after[2]}
        known = background.probability(np.array([read[-1]]), np.array([word]))[0]
        missing = sum(share for share, there in followers.items() if not there)
        p = (BACKGROUND + missing) * float(known)
        for share, there in followers.items():
            p += share * there.count(word) / len(there) if there else 0
        assert found[t] == pytest.approx(math.log(p), abs=1e-5)


def test_a_clean_scorer_is_not_accused_and_one_that_remembers_is(records):
    """Labels in runs: a test of random orders sees them, direction does not."""
    clean, planted = records["labels_text", 0.0], records["labels_text", 1.0]
    assert clean.adjacency_log10_p < -3 < clean.log10_p
    assert clean.verdict != "contaminated" and planted.verdict == "contaminated"
    # A file that points forward is refused, whoever read it.
    for nats in (0.0, 1.0):
        found = records["running_names", nats]
        assert found.refused and found.verdict == "invalid design"


def test_what_a_scorer_knows_and_what_it_remembers_add_up():
    """Answers without a shared word: nothing else is in the order of the file."""
    blind, knows, both = (
        audited_case(case("answers_unshared", n=60, **gains))
        for gains in ({}, {"knows": 2.0}, {"knows": 2.0, "nats": 1.0})
    )
    assert both.log10_p < knows.log10_p < blind.log10_p


def test_a_record_is_read_again_for_its_case_alone(records, tmp_path, monkeypatch):
    asked, by_case = [], {record.case: record for record in records.values()}
    monkeypatch.setattr(
        "eval.natural_order.audited.audited_case",
        lambda case: asked.append(case) or by_case[case],
    )
    for _ in range(2):
        kept = Records(tmp_path, code="a commit")
        found, failures = made_records(
            kept, [*by_case], inputs_of, maker, n_processes=1, of="files"
        )
        assert not failures and asked == [*by_case]
        read = {case: record_from(one["record"]) for case, one in found.items()}
        assert read == by_case
    other = case("labels_text", knows=1.0)
    assert kept.read(*inputs_of(other)) is None
    cost = sum(fields["cpu_seconds"] for fields in found.values())
    assert kept.earlier_seconds == pytest.approx(cost)
