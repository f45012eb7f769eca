"""What makes the adjacency test exact: nothing in it depends on the published order."""

import dataclasses

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import CharacterTokenizer, encode_examples
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import plan_test, score_test
from jaxcontam.scoring.cost import pair_cost
from jaxcontam.scoring.identity import ScoreIdentity
from jaxcontam.scoring.local import checkpoint_scorer
from jaxcontam.scoring.pair_plan import PairPlan, plan_pairs
from jaxcontam.scoring.pair_scorer import PairScorer
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.scoring.seam import WHOLE, Seam
from jaxcontam.scoring.store import ScoreStore
from jaxcontam.stats.adjacency import FEWEST_EXAMPLES
from jaxcontam.stats.orders import split_strata

CONTEXT = 64
LETTERS = list("abcdefghij")


def encoded(texts, **kwargs):
    """One id a byte."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return encode_examples(tokenizer, texts, **kwargs)


@pytest.fixture(scope="module")
def model(pulse):
    return load_checkpoint(str(pulse / "model"))


def texts_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(LETTERS, rng.integers(5, 40))) for _ in range(n)]


SEAM = Seam(context_tokens=7, score_tokens=5)


def planned(texts, ids, name, *, context=CONTEXT, seam=WHOLE):
    benchmark = Benchmark("x", tuple(texts), (None,) * len(texts))
    how = {"prefix_id": 0, "context": context, "seed": 0, "seam": seam}
    return plan_test(benchmark, ids, order_method(name), **how)


def pairs_of(model, texts, seam):
    ids = encode_examples(model.tokenizer, texts)
    context = model.config.context
    found = planned(texts, ids, "adjacency", context=context, seam=seam)
    return score_test(found, checkpoint_scorer(model, store=None)).evidence.pairs


def test_no_stratum_is_too_small_to_centre():
    for n in range(FEWEST_EXAMPLES, 60):
        sizes = [len(part) for part in split_strata(n, order_method("adjacency").size)]
        assert FEWEST_EXAMPLES <= min(sizes) <= max(sizes) <= 8


@pytest.mark.parametrize("seam", [WHOLE, SEAM])
def test_pairs_follow_the_examples_wherever_the_file_puts_them(model, seam):
    """To the bit; equal examples have equal rows and columns."""
    texts = texts_of(14)
    texts += [texts[8], texts[8]]
    rng = np.random.default_rng(3)
    order = np.concatenate([rng.permutation(8), 8 + rng.permutation(8)])
    pairs = pairs_of(model, texts, seam)
    moved = pairs_of(model, [texts[i] for i in order], seam)
    for k in range(2):
        local = order[8 * k : 8 * k + 8] - 8 * k
        np.testing.assert_array_equal(moved[k], pairs[k][np.ix_(local, local)])
    assert not np.array_equal(pairs, moved)
    others = [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(pairs[1][0, others], pairs[1][6, others])
    np.testing.assert_array_equal(pairs[1][others, 0], pairs[1][others, 7])


def ids_text(ids):
    """Printable ASCII and a newline, back from ids of `encoded`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return "".join(alphabet[i].replace("\u010a", "\n") for i in ids.tolist())


def test_cut_is_the_same_for_all_examples_of_a_stratum():
    long, short = "x" * 90, "ab"
    ids = encoded([long, short, long, short, short], separator="\n")
    plan = plan_pairs([np.arange(5)], ids, prefix_id=0, context=CONTEXT)
    longest = max(len(g.prefix) + max(map(len, g.continuations)) for g in plan.groups)
    # Two of 31 ids and the prefix id; of 32 they would not fit.
    assert longest == 1 + 31 + 31 <= CONTEXT
    assert plan.cut.tolist() == [91 - 31, 0, 91 - 31, 0, 0]
    # The separator stays, so that what follows begins as it did in training.
    ends = {int(g.prefix[-1]) for g in plan.groups}
    assert ends == {int(ids.separator[-1])}


def test_two_examples_that_fill_the_context_are_not_cut():
    ids = encoded(["x" * 40, "y" * (CONTEXT - 1 - 42)] + ["z"] * 3, separator="\n")
    plan = plan_pairs([np.arange(5)], ids, prefix_id=0, context=CONTEXT)
    assert not plan.cut.any()


def test_a_seam_keeps_what_lies_around_the_boundary():
    """Beside what all examples share at either end: brackets here."""
    texts = [f"<<{text}>" for text in ["abcdef", "ghi", "jklmnopqr", "st", "u"]]
    ids = encoded(texts, separator="\n")
    seam = Seam(context_tokens=2, score_tokens=3)
    plan = plan_pairs([np.arange(5)], ids, prefix_id=0, context=CONTEXT, seam=seam)
    group = next(one for one in plan.groups if one.example == 0)
    assert ids_text(group.prefix[1:]) == "ef>\n"
    own = dict(zip(group.others, map(ids_text, group.continuations), strict=True))
    assert own == {1: "<<ghi", 2: "<<jkl", 3: "<<st>", 4: "<<u>\n"}
    assert not plan.cut.any()


def test_characters_are_four_a_token():
    texts = ["abcdefghijkl", "mnopqrstuvwx", "yz0123456789", "ABCDEFGHIJKL"]
    ids = encode_examples(CharacterTokenizer(), texts)
    seam = Seam(context_tokens=1, score_tokens=2)
    plan = plan_pairs([np.arange(4)], ids, prefix_id=None, context=99, seam=seam)
    (group, *_) = plan.groups
    assert len(group.prefix) == 4 + 1
    assert {len(own) for own in group.continuations} == {8}


def planned_pairs(texts, name="adjacency", *, seam=WHOLE, **kwargs):
    return planned(texts, encoded(texts, **kwargs), name, seam=seam).layout.plan


def scorer_with(folder):
    """A scorer that nobody may ask, with an empty store or none."""

    def unasked(*_):
        raise AssertionError("a dry run asks no model")

    names = [field.name for field in dataclasses.fields(ScoreIdentity)]
    identity = ScoreIdentity(**dict.fromkeys(names, 0))
    shape = {"context": CONTEXT, "batch_tokens": 512}
    store = None if folder is None else ScoreStore(folder, identity)
    return Scorer(unasked, **shape, pairs=PairScorer(unasked, **shape, store=store))


@pytest.mark.parametrize("seam", [WHOLE, SEAM])
@pytest.mark.parametrize("name", ["adjacency", "direction"])
def test_sizes_are_those_of_the_groups(name, seam):
    # Rows of up to 90 ids are cut.
    plan = planned_pairs([*texts_of(37), "x" * 90, "y" * 90], name, seam=seam)
    groups = [[len(ids) for ids in group.continuations] for group in plan.groups]
    found = [
        (len(group.prefix), max(own), len(own), sum(own))
        for group, own in zip(plan.groups, groups, strict=True)
    ]
    sizes = plan.sizes
    columns = (sizes.prefix, sizes.longest, sizes.n_continuations, sizes.n_targets)
    assert sorted(zip(*map(np.ndarray.tolist, columns), strict=True)) == sorted(found)
    assert plan.n_pairs == sum(map(len, groups))
    assert plan.n_targets == sum(map(sum, groups))


@pytest.mark.parametrize("name", ["adjacency", "direction"])
@pytest.mark.parametrize("is_stored", [True, False])
def test_cost_of_new_pairs_lays_none_out(name, is_stored, tmp_path, monkeypatch):
    """And it is the cost that the laid-out groups have, key by key."""
    plan = planned_pairs(texts_of(61), name)
    with monkeypatch.context() as patch:
        patch.setattr(PairPlan, "groups", None)
        counted = pair_cost(scorer_with(tmp_path if is_stored else None), plan, None)
    laid_out = pair_cost(scorer_with(tmp_path), plan, set())
    assert (counted.n_targets, counted.n_cached) == (laid_out.n_targets, 0)
    assert counted.positions == laid_out.positions
    assert counted.store_bytes == (laid_out.store_bytes if is_stored else 0)


def test_pairs_that_are_scored_once_are_counted_once(tmp_path):
    """Two strata of the same examples: the second costs nothing."""
    texts = texts_of(8)
    twice, once = planned_pairs([*texts, *texts]), planned_pairs(texts)
    assert twice.has_repeats and not once.has_repeats
    cost, expected = (pair_cost(scorer_with(tmp_path), p, None) for p in (twice, once))
    assert cost.store_bytes == expected.store_bytes > 0
    # Examples are repeats where they are cut alike.
    texts = ["same begin 1", "same begin 2", *texts_of(6)]
    assert not planned_pairs(texts).has_repeats
    assert planned_pairs(texts, max_example_tokens=6).has_repeats
