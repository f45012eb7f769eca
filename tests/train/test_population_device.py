"""A population scored in one call: the numbers of its models scored one by one."""

import jax
import numpy as np
import pytest
from flax import nnx

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import plan_test, score_test
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.run_batches import NonFiniteScoreError
from train.population_device import score_population, score_population_tests, stacked

pytestmark = pytest.mark.unoptimised

CONTEXT, VOCABULARY = 64, 61
SHAPE = llama_shape(
    vocab_size=VOCABULARY, d_model=16, n_layers=1, n_heads=2, d_ff=24, context=CONTEXT
)
# Float32 sums in another order, weights four times as large as usual; as for a shared
# prefix beside scoring from scratch.
CLOSE = {"rtol": 0, "atol": 5e-5}


def sharp(seed):
    """A decoder whose scores depend strongly on what it reads."""
    decoder = Decoder(SHAPE, rngs=nnx.Rngs(seed))
    nnx.update(decoder, jax.tree.map(lambda x: 4 * x, nnx.state(decoder)))
    return decoder


def draw_groups(n, seed, longest=12):
    """Prefixes of up to so many ids, one to four continuations of up to 12."""
    rng = np.random.default_rng(seed)

    def ids(most):
        return rng.integers(0, VOCABULARY, rng.integers(1, most + 1)).astype(np.int32)

    # The first has four, so that all calls have one shape and compile once.
    sizes = [4, *rng.integers(1, 5, n - 1).tolist()]
    groups = []
    for i, k in enumerate(sizes):
        after = tuple(ids(12) for _ in range(k))
        groups.append(PairGroup(ids(longest), after, i, tuple(range(1, k + 1))))
    return groups


def population(seeds):
    decoders = [sharp(seed) for seed in seeds]
    graphdef, _ = nnx.split(decoders[0])
    return decoders, graphdef, stacked([nnx.state(one) for one in decoders])


def assert_as_single(decoders, groups, scored):
    for decoder, of_model, scores in zip(decoders, groups, scored, strict=True):
        expected = local_scorer(decoder).pairs.logprobs(of_model)
        for own, other in zip(scores.logprobs, expected.logprobs, strict=True):
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, **CLOSE), own, other
            )


# Two padded lengths, and with 200 tokens more groups than one call takes; or groups
# that all models share.
OWN = [draw_groups(n, seed, 24) for seed, n in enumerate((30, 5, 41))]
SHARED = [draw_groups(12, 3)] * 2


@pytest.mark.parametrize(
    ("groups", "how"),
    [
        (OWN, {"side_by_side": True, "batch_tokens": 200}),
        (SHARED, {"side_by_side": True}),
        (SHARED, {"side_by_side": False}),
    ],
)
def test_every_model_gets_the_scores_of_its_own_scorer(groups, how):
    decoders, graphdef, states = population(range(len(groups)))
    scored = score_population(graphdef, states, groups, context=CONTEXT, **how)
    assert_as_single(decoders, groups, scored)


def plan(name, n, seed, method="adjacency"):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 13, n)
    ids = tuple(rng.integers(2, VOCABULARY, k).astype(np.int32) for k in sizes)
    return plan_test(
        Benchmark(name, tuple(f"{name} {i}" for i in range(n)), (None,) * n),
        Encoded(ids, np.array([1], np.int32), np.zeros(n, np.int32)),
        order_method(method),
        prefix_id=0,
        context=CONTEXT,
        seed=0,
    )


def test_what_does_not_fit_is_refused():
    _, graphdef, states = population((0,))
    long = PairGroup(np.zeros(60, np.int32), (np.zeros(6, np.int32),), 0, (1,))
    with pytest.raises(ValueError, match=r"group 0: 60 \+ 6 ids exceed"):
        score_population(graphdef, states, [[long]], context=CONTEXT)
    whole = [[plan("a", 12, 1, "reversal")]]
    with pytest.raises(ValueError, match="reversal scores no pairs"):
        score_population_tests(whole, graphdef, states, context=CONTEXT)


def test_tests_of_a_population_have_the_evidence_of_single_tests():
    decoders, graphdef, states = population((0, 1))
    planned = [[plan("a", 8, 1), plan("b", 16, 2)], [plan("c", 8, 3)]]
    found = score_population_tests(planned, graphdef, states, context=CONTEXT)
    for decoder, tests, scored in zip(decoders, planned, found, strict=True):
        for test, one in zip(tests, scored, strict=True):
            alone = score_test(test, local_scorer(decoder)).evidence
            # Sums of up to 20 log-probabilities.
            np.testing.assert_allclose(one.evidence.pairs, alone.pairs, atol=1e-3)
            np.testing.assert_array_equal(one.evidence.orders, alone.orders)


def test_model_that_diverged_costs_the_others_nothing():
    decoders, graphdef, _ = population((0, 1, 2))
    own = [nnx.state(one) for one in decoders]
    own[1] = jax.tree.map(lambda x: x * np.nan, own[1])
    planned = [[plan(f"{m}a", 8, m), plan(f"{m}b", 8, m + 9)] for m in range(3)]
    first, failed, last = score_population_tests(
        planned, graphdef, stacked(own), context=CONTEXT
    )
    assert len(first) == len(last) == 2
    assert isinstance(failed, InputError)
    assert str(failed).startswith("1a: example ")
    groups = [draw_groups(3, m) for m in range(3)]
    scored = score_population(graphdef, stacked(own), groups, context=CONTEXT)
    assert isinstance(scored[1], NonFiniteScoreError)
