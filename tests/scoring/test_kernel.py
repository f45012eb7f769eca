"""The scoring kernel against SciPy in float64, closed forms and laws."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from flax import nnx

from jaxcontam.models.config import llama_shape
from jaxcontam.scoring import kernel
from jaxcontam.scoring.kernel import target_scores, vocab_block
from tests.support.decoders import spread

score_tokens = jax.jit(kernel.score_tokens, static_argnames=("graphdef", "moments"))

BLOCK = 1024  # the kernel's vocabulary block

# A float32 dot of 8 terms of size 5 and a log-sum-exp of numbers near 20 are each
# good to a few units of 2e-6.
KERNEL = {"rtol": 1e-5, "atol": 1e-5}


def problem(V, *, N=23, D=8, scale=2.0, seed=0):
    """(hidden_ND, head_VD, targets_N), float32 and int32; edges of blocks first."""
    rng = np.random.default_rng(seed)
    hidden_ND = rng.normal(scale=scale, size=(N, D)).astype(np.float32)
    head_VD = rng.normal(size=(V, D)).astype(np.float32)
    targets_N = rng.integers(0, V, size=N, dtype=np.int32)
    edges = [0, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, V - 1]
    some = [edge for edge in edges if edge < V][:N]
    targets_N[: len(some)] = some
    return hidden_ND, head_VD, targets_N


def scores(hidden_ND, head_VD, targets_N, **how):
    arrays = map(jnp.asarray, (hidden_ND, head_VD, targets_N))
    return target_scores(*arrays, **{"moments": True} | how)


def float64_scores(hidden_ND, head_VD, targets_N):
    """Log-probabilities, means, variances and tops by direct sums over [N, V]."""
    logits_NV = hidden_ND.astype(np.float64) @ head_VD.astype(np.float64).T
    logprobs_NV = scipy.special.log_softmax(logits_NV, axis=-1)
    probs_NV = np.exp(logprobs_NV)
    means_N = (probs_NV * logprobs_NV).sum(axis=-1)
    centred_NV = logprobs_NV - means_N[:, None]
    return (
        logprobs_NV[np.arange(len(targets_N)), targets_N],
        means_N,
        (probs_NV * centred_NV**2).sum(axis=-1),
        logprobs_NV.max(axis=-1),
    )


@pytest.mark.parametrize(
    ("V", "platform"),
    [
        # Below, at, and beside a block; the last block may hold a single new column.
        *((V, "cpu") for V in (1, 7, BLOCK, BLOCK + 1, 2 * BLOCK + 5, 3 * BLOCK + 421)),
        *((V, "cuda") for V in (4097, 9001)),
    ],
)
def test_scores_match_scipy_float64(V, platform):
    arrays = problem(V)
    found = jax.jit(functools.partial(scores, platform=platform))(*arrays)
    for part, expected_N in zip(found, float64_scores(*arrays), strict=True):
        np.testing.assert_allclose(part, expected_N, **KERNEL)


def test_logprobs_are_the_same_with_and_without_moments():
    arrays = problem(2 * BLOCK + 100)
    (logprobs_N, *others), joint = (scores(*arrays, moments=how) for how in (0, 1))
    assert others == [None] * 3
    np.testing.assert_array_equal(logprobs_N, joint.logprobs)


@pytest.mark.parametrize("V", [1, 300, 4096, 4097, 32_000, 50_257, 256_000])
def test_blocks_of_an_accelerator_are_few_and_hardly_overlap(V):
    width = vocab_block(V, "cuda")
    assert width == V or width % 128 == 0
    n_blocks = -(-V // width)
    assert n_blocks == -(-V // 4096)
    assert n_blocks * width - V < 128 * n_blocks


def shifted_scores(hidden_ND, head_VD, targets_N, shift):
    """Of logits that are all larger by a number."""
    hidden_ND = np.pad(hidden_ND, ((0, 0), (0, 1)), constant_values=1.0)
    head_VD = np.pad(head_VD, ((0, 0), (0, 1)), constant_values=shift)
    return scores(hidden_ND, head_VD, targets_N)


@pytest.mark.parametrize("shift", [-200.0, 3.5, 100.0])
def test_a_constant_shift_of_the_logits_changes_nothing(shift):
    arrays = problem(BLOCK + 300)
    # A logit near 200 is stored to 2e-5, and a log-probability takes two of them.
    # A variance moves by that times twice a deviation of up to 10.
    parts = shifted_scores(*arrays, shift), float64_scores(*arrays)
    for found, expected_N, atol in zip(*parts, (5e-5, 5e-5, 4e-4, 5e-5), strict=True):
        np.testing.assert_allclose(found, expected_N, rtol=1e-5, atol=atol)


def test_variance_of_nearly_constant_logits_is_tiny_and_not_negative():
    """Means of squares minus squared means would be off by 1e-3 at a logit of 100."""
    arrays = problem(BLOCK + 300, scale=1e-3)
    found_N = np.asarray(shifted_scores(*arrays, 100.0).variances)
    assert (found_N >= 0).all()
    # Logits near 100 are stored to 4e-6, beside a deviation of 2e-3 that is squared.
    np.testing.assert_allclose(found_N, float64_scores(*arrays)[2], rtol=4e-3)


@pytest.mark.parametrize("peak", [0, BLOCK - 1, BLOCK + 250])
def test_variance_of_a_peaked_distribution_is_zero_and_not_negative(peak):
    V = BLOCK + 300
    head_VD = np.random.default_rng(0).normal(size=(V, 4)).astype(np.float32)
    head_VD[peak] = 500.0
    found = scores(np.ones((2, 4), np.float32), head_VD, np.array([peak, 1]))
    # exp(-1990) is 0 in float32: all mass is on the peak.
    np.testing.assert_array_equal(found.variances, [0.0, 0.0])
    np.testing.assert_array_equal(found.means, [0.0, 0.0])
    np.testing.assert_allclose(
        found.logprobs, [0.0, head_VD[1].sum() - 2000.0], rtol=1e-6
    )


@pytest.mark.parametrize(("V", "scale"), [(2 * BLOCK + 9, 2.0), (5, 20.0)])
def test_the_likeliest_token_is_the_top_and_has_no_positive_logarithm(V, scale):
    """With one token of all the mass, rounding alone decides the sign."""
    hidden_ND, head_VD, _ = problem(V, N=300, scale=scale)
    targets_N = (hidden_ND @ head_VD.T).argmax(axis=-1)
    found = scores(hidden_ND, head_VD, targets_N)
    assert (np.asarray(found.logprobs) <= 0).all()
    # Never below the target, so that a gap has one sign.
    assert (found.tops >= found.logprobs).all()
    if scale == 2.0:
        np.testing.assert_allclose(found.tops, found.logprobs, **KERNEL)


def largest_array(jaxpr):
    """Elements of the largest array that any equation makes, nested ones included."""
    largest = 0
    for equation in jaxpr.eqns:
        largest = max([largest, *(var.aval.size for var in equation.outvars)])
        for value in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                largest = max(largest, largest_array(inner))
    return largest


@pytest.mark.parametrize("moments", [False, True])
def test_no_array_of_all_positions_by_the_vocabulary_exists(moments):
    N, V = 64, 5 * BLOCK + 77
    arrays = problem(V, N=N)
    # The walk does find such an array where there is one, inside a jit.
    dense = jax.jit(lambda hidden_ND, head_VD, _: jnp.exp(hidden_ND @ head_VD.T))
    ours, other = (
        largest_array(jax.make_jaxpr(made)(*arrays).jaxpr)
        for made in (functools.partial(scores, moments=moments), dense)
    )
    assert ours < N * V == other


# One shape for all tests of whole decoders: one compilation.
B, S = 5, 16


@pytest.fixture(scope="module")
def decoder():
    """(graphdef, state) of a two-layer model whose scores spread over nats."""
    shape = {"d_model": 24, "n_layers": 2, "n_heads": 4, "d_ff": 20, "context": 16}
    config = llama_shape(vocab_size=BLOCK + 76, **shape)
    config = dataclasses.replace(config, n_kv_heads=2)
    return nnx.split(spread(config, loc=0.0, scale=0.2))


def rows(seed=0):
    """(inputs_BS, targets_BS) of random texts."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, BLOCK + 76, size=(B, S + 1), dtype=np.int32)
    return jnp.asarray(ids[:, :-1]), jnp.asarray(ids[:, 1:])


def test_a_row_is_bit_equal_under_any_batch_mates(decoder):
    own = [part_BS[0] for part_BS in rows()]
    alike = []
    for seed, at in enumerate((0, 0, 0, 2, 4, 4)):
        batch = [
            part_BS.at[at].set(row_S)
            for part_BS, row_S in zip(rows(seed=1 + seed), own, strict=True)
        ]
        found = score_tokens(*decoder, *batch, moments=True)
        alike.append(np.stack([part_BS[at] for part_BS in found]))
    for other in alike[1:]:
        np.testing.assert_array_equal(alike[0], other)


def test_an_input_changes_what_follows_and_a_target_its_own_place_alone(decoder):
    inputs_BS, targets_BS = rows()
    before = score_tokens(*decoder, inputs_BS, targets_BS, moments=True)
    changed_BS = inputs_BS.at[:, 9:].set((inputs_BS[:, 9:] + 1) % BLOCK)
    after = score_tokens(*decoder, changed_BS, targets_BS, moments=True)
    for before_BS, after_BS in zip(before, after, strict=True):
        np.testing.assert_array_equal(before_BS[:, :9], after_BS[:, :9])
        assert (before_BS[:, 9:] != after_BS[:, 9:]).all()
    changed_BS = targets_BS.at[1, 4].set((targets_BS[1, 4] + 1) % BLOCK)
    after = score_tokens(*decoder, inputs_BS, changed_BS, moments=True)
    differs_BS = np.asarray(before.logprobs != after.logprobs)
    np.testing.assert_array_equal(np.argwhere(differs_BS), [[1, 4]])
    np.testing.assert_array_equal(before.means, after.means)
    np.testing.assert_array_equal(before.variances, after.variances)
    # At that place alone it may be lifted to a target's own logarithm, by a rounding.
    np.testing.assert_allclose(before.tops, after.tops, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("moments", [False, True])
def test_nothing_is_promoted_in_silence(decoder, moments):
    """Tracing is where a promotion of dtypes or ranks would raise."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        found = jax.eval_shape(
            lambda *batch: score_tokens(*decoder, *batch, moments=moments), *rows()
        )
    kept = [part for part in found if part is not None]
    assert len(kept) == (4 if moments else 1)
    assert all(part.dtype == np.float32 and part.shape == (B, S) for part in kept)
    inputs_BS, targets_BS = rows()
    with pytest.raises(ValueError, match=r"shape \(5, 16\), got \(5, 15\)"):
        score_tokens(*decoder, inputs_BS, targets_BS[:, :-1], moments=False)
