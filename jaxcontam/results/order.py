"""Results of order tests: filled by stats and methods, read by report.

Rows of `report.json` are these fields under these names; None becomes null. Arrays live
in `Evidence`, which becomes `orders.npz`.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.results.row import ResultRow
from jaxcontam.results.terms import (
    Null,
    Provenance,
    Reason,
    Validity,
    Verdict,
    base_null,
)

DESIGNED: Null = "designed randomisation"
"""Null of an order that was drawn from a seed: nothing is assumed of the file."""

RELEASED: Provenance = "released"
"""Provenance of an order that `release` drew, checked against its seed."""

DECLARED: Provenance = "declared"
"""Provenance of an order that the user vouches for as random."""

KNOWN_ORDERS = ("seeded", RELEASED, "recovered", DECLARED, "tfds-hash")
"""Provenances of orders that are known to be independent of what the examples say."""


MATRIX = "matrix"
"""`method` of a matrix that any engine filled: no orders are known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """A file whose digest its owner published before models could be trained.

    Attributes:
        file: The seed file, secrets or held-out sequences, as the command named it.
        sha256: Digest of its bytes, `sha256:...`: the commitment.
        made: Time that the file states; None where it states none.
        bits: log2 of the orders, or values, that a seed chooses from; None where what
            is committed is itself.
    """

    file: str
    sha256: str
    made: str | None = None
    bits: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Pretest:
    """A check of the null's own assumption, made on the file without a model.

    Attributes:
        name: What was looked at, such as `length_autocorrelation`.
        p_value: From seeded permutations of the file; one-sided for what may be
            scattered but not gathered, such as duplicates, else two-sided.
        passed: False when Holm's correction over the battery rejects at 0.01.
        directional: Whether it bears on the reversed order too.
        remedy: Flags that avoid what it looks at, quoted as in a shell; or "".
        note: What the reader should know even if it passed; or None.
        applicable: False where no order of this file changes the statistic: it
            certifies nothing, `p_value` is 1, and Holm leaves it out.
    """

    name: str
    statistic: float
    p_value: float
    passed: bool
    directional: bool = False
    remedy: str = ""
    note: str | None = None
    applicable: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceResult:
    """The same test of a model that cannot have seen the file.

    Attributes:
        effect: Effect on the reference, in the row's `effect_unit`.
        scale: What the reference's scores were multiplied by for the difference: above
            1 where the context, or the order of options, changes them less than it
            changes the model's.
        difference: By how much more the model prefers the published order than the
            reference does, in the same unit; paired by stratum.
        difference_p: p-value of the difference, by the same test.
        half_p: p-value, by the same test, of `REFERENCE_SHARE` of the model's scores
            less the reference's: small where the reference gains less than that share
            of what the model gains.
        loglik_gap: Mean log-likelihood of an example, less the model's, in nats: below
            0 where the reference reads the file less well, or the model remembers it.
            It enters no verdict.
    """

    name: str
    fingerprint: str
    p_value: float
    log10_p: float
    effect: float | None
    effect_se: float | None
    scale: float
    difference: float | None
    difference_se: float | None
    difference_p: float
    difference_log10_p: float
    half_p: float
    loglik_gap: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """The run of neighbouring strata whose published order scores best.

    Attributes:
        first_example: Its first example, counted from 1.
        statistic: Its sum of standardised scores over the root of its length.
        p_value: That the best run of a model that never saw the file is as good.
    """

    first_example: int
    last_example: int
    statistic: float
    p_value: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """How much more likely an example is beside its published neighbour.

    Attributes:
        forward: Nats that an example gains after the one published before it.
        backward: Nats that an example gains after the one published behind it, which
            is what natural order gives; memory of a file has little part in it.
        excess: `forward` less `backward`.
    """

    forward: float
    forward_se: float
    backward: float
    backward_se: float
    excess: float
    excess_se: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderNumbers:
    """What a test computes from a (K, m + 1) matrix, column 0 the published version.

    Attributes:
        statistic: The test's own statistic; large is evidence of contamination.
        p_value: One-sided; for exact tests a rigorous upper bound, not below 1e-300.
        log10_p: log10 of the same p-value, with no such limit.
        p_lower: Rigorous lower bound on the p-value whose ties count against detection,
            P(T* >= T - tolerance), of which `p_value` is the upper bound; None if there
            is none. It bounds no p-value without ties, P(T* >= T), which may be
            smaller: the tolerance is relative to the log-likelihoods, not to their
            spread within a stratum, since that is how far rounding reaches.
        p_monte_carlo: Cross-check by re-drawing columns; None if there is none.
        p_floor: Smallest p-value that the design can give; None if it has no floor.
        e_value: Soft-rank e-value; None where the method has none.
        effect: Nats per example boundary (or score units), with `effect_se`; None if
            the drawn orders keep every boundary.
        effect_se: Standard error of `effect`; None when one stratum and one order
            leave nothing to estimate it from.
        mde: Smallest effect found with power 0.8 at level 0.001; None if no effect
            can be: `p_floor` exceeds 0.001, or every order scores the same.
        scores: How log-likelihoods became scores: `centred`, `studentised` or
            `double-centred`; `smaller p` where two tests became one.
        symmetry: Chance correlation of [i, j] with [j, i], in pair tests.
        lag_profile: Mean centred entry [i, i + h] in standard deviations, for h =
            -5..-1 and 1..5, where a pair test scored all pairs.
        exposure: log2(candidates) - log2(rank) of one secret among held-out ones, in
            bits.
        local: Where in the file the evidence lies; None where nothing was looked for.
        neighbours: What an example gains in a pair test after the one published before
            it, which memory and natural order give, and after the one behind it, which
            natural order alone gives.
        log10_p_all_orders: log10 of the p-value that direction's sum would have, had
            the order been drawn at random, where all pairs were scored.
    """

    statistic: float
    p_value: float
    log10_p: float
    p_lower: float | None = None
    p_monte_carlo: float | None = None
    p_floor: float | None = None
    e_value: float | None = None
    effect: float | None
    effect_se: float | None
    mde: float | None
    scores: str
    symmetry: float | None = None
    lag_profile: tuple[float | None, ...] | None = None
    exposure: float | None = None
    local: Local | None = None
    neighbours: Neighbours | None = None
    log10_p_all_orders: float | None = None

    @property
    def all_alike(self) -> bool:
        """Whether every order scores the same, up to rounding."""
        # Else a low floor and a known spread give `mde`, which is of level 0.001.
        is_low = (self.p_floor or 0.0) <= 0.001
        return self.mde is None and self.effect_se is not None and is_low


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Everything that a p-value was computed from.

    Attributes:
        scores: (K, m + 1) float64; log-likelihoods in nats, column 0 published; rows
            with fewer versions end in NaN; None for pair tests.
        orders: (K, m + 1, s_max) int32 example indices, -1 padding; None for `prove`.
            Pair tests hold the published order alone.
        place: (K,) where the published order stood while it was scored; or None.
        cut: (n_examples,) int32, ids removed from each example; or None.
        boundaries: (K,) float64, given by the user of `prove`; None elsewhere.
        reference_pairs: The same of a reference model, or None.
        reference_scores: (K, m + 1) float64, of a reference model; or None.
        pairs: (K, s_max, s_max) float64 pair matrices of a pair test, nats; NaN where a
            pair was not scored.
        codes: (K, s_max) int64, the group of each example, numbered within its stratum.
        runs: (K, s_max) int64, the run of each example, which direction reverses.
    """

    scores: np.ndarray | None = None
    orders: np.ndarray | None = None
    place: np.ndarray | None = None
    cut: np.ndarray | None = None
    boundaries: np.ndarray | None = None
    pairs: np.ndarray | None = None
    codes: np.ndarray | None = None
    runs: np.ndarray | None = None
    reference_pairs: np.ndarray | None = None
    reference_scores: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NullPicture:
    """What one test saw, for its plots.

    Attributes:
        null_sums: (n,) float64; the statistic with columns drawn at random.
        observed: The statistic of the published order.
        contributions: (K,) float64; the published score of each stratum, in file order.
    """

    null_sums: np.ndarray
    observed: float
    contributions: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderResult(ResultRow):
    """One order test of one benchmark: a row of `report.json`.

    Attributes:
        content_digest: Digest of the examples without their order; seeds the draws.
        order_provenance: Where the order comes from: `published` (the file's own),
            `seeded` or `RELEASED` (drawn, and the seed is known), `declared` (random by
            the user's word) or `unknown` (maybe not the one that a model would have
            read).
        n_examples: Examples in the file as loaded.
        n_cut: Examples that lost ids to a length limit.
        null: Null hypothesis.
        validity: `exact`, `asymptotic`, or `heuristic` where nothing vouches for the
            null.
        n_strata: K, strata with more than one distinct order.
        n_dropped: Strata left out because they have one order only.
        n_orders: m, counterfactual orders per stratum.
        group_field: Field within whose values orders move, or None.
        block_field: Field whose runs of equal values take the place of examples.
        tokens_scored: Target tokens that went through the model.
        cached_tokens: Target tokens whose scores were reused.
        numbers: What the test computed.
        p_adjusted: Holm over the benchmarks; None for secondary tests.
        mde_adjusted: Smallest effect found with power 0.8 at level 0.001 divided by the
            number of benchmarks; None for secondary tests, and if no effect can be.
        effect_unit: Unit of `effect`, `effect_se`, `mde` and `mde_adjusted`.
        pretests: All checks of the file, those that the null does not need, too.
        verdict: One of the words of `jaxcontam.verdict`; None for secondary tests.
        reasons: Why a `suspected` test is no more than that; else empty.
        n_repeats: Examples that repeat an earlier one and were left out.
        reference: The same test of a reference model, if one was given.
        commitments: What is to be compared with what the owner published.
        copies: Planted duplication count, in studies; else None.
        copies_shuffled: True if each planted copy had its own order.
    """

    content_digest: str
    order_provenance: Provenance
    n_examples: int
    n_cut: int = 0
    null: Null
    validity: Validity
    n_strata: int
    n_dropped: int = 0
    n_orders: int
    group_field: str | None = None
    tokens_scored: int = 0
    cached_tokens: int = 0
    numbers: OrderNumbers
    block_field: str | None = None
    p_adjusted: float | None = None
    mde_adjusted: float | None = None
    effect_unit: str
    pretests: tuple[Pretest, ...] = ()
    verdict: Verdict | None = None
    reasons: tuple[Reason, ...] = ()
    n_repeats: int = 0
    reference: ReferenceResult | None = None
    commitments: tuple[Commitment, ...] = ()
    copies: int | None = None
    copies_shuffled: bool | None = None

    @property
    def p_value(self) -> float:
        """One-sided p-value, before any correction."""
        return self.numbers.p_value

    @property
    def effect(self) -> float | None:
        """Effect in `effect_unit`; None where the test has none."""
        return self.numbers.effect

    @property
    def refusals(self) -> tuple[Pretest, ...]:
        """Failed checks that rule the null out."""
        return refusals(self.null, self.pretests)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnscoredFile:
    """A file whose own order failed the checks of its deciding test.

    Attributes:
        fingerprint: Digest of the examples in their order.
        n_repeats: Examples that repeat an earlier one and were left out.
        method: The test that would have decided.
        null: What it assumes.
    """

    benchmark: str
    fingerprint: str
    order_provenance: Provenance
    n_examples: int
    n_repeats: int
    method: str
    null: Null
    pretests: tuple[Pretest, ...]
    verdict: Verdict

    @property
    def refusals(self) -> tuple[Pretest, ...]:
        """Failed checks that rule the null out."""
        return refusals(self.null, self.pretests)


def refusals(null: Null, pretests: Sequence[Pretest]) -> tuple[Pretest, ...]:
    """Failed checks of a file that rule a null hypothesis out.

    What is alike stands side by side read backwards, too: only what points forward
    rules a reversible order out.
    """
    of_direction = base_null(null) == "reversibility"
    return tuple(
        test
        for test in pretests
        if not test.passed and (test.directional or not of_direction)
    )
