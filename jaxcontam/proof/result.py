"""Results of order tests: filled by stats and methods, read by report.

Rows of `report.json` are these fields under these names; None becomes null. Arrays live
in `Evidence`, which becomes `orders.npz`.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.files import Commitment, Provenance
from jaxcontam.reports.report import Report, ResultRow
from jaxcontam.reports.terms import Null, Reason, Validity, Verdict, base_null
from jaxcontam.stats.result import OrderNumbers, Pretest

DESIGNED: Null = "designed randomisation"
"""Null of an order that was drawn from a seed: nothing is assumed of the file."""

RELEASED: Provenance = "released"
"""Provenance of an order that `release` drew, checked against its seed."""

DECLARED: Provenance = "declared"
"""Provenance of an order that the user vouches for as random."""

KNOWN_ORDERS = ("seeded", RELEASED, DECLARED)
"""Provenances of orders that are known to be independent of what the examples say."""


MATRIX = "matrix"
"""`method` of a matrix that any engine filled: no orders are known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceResult:
    """The same test of a model that cannot have seen the file.

    Attributes:
        scale: What the reference's scores were multiplied by for the difference: above
            1 where the context, or the order of options, changes them less than it
            changes the model's.
        difference: By how much more the model prefers the published order than the
            reference does, in the same unit; paired by stratum.
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
    """Numbers of one test, for its plots.

    Attributes:
        null_sums: (n,) float64; the statistic with columns drawn at random.
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
        n_tokens: Tokens of all examples, cut ones as they are cut; None for options.
        n_cut: Examples that lost ids to a length limit.
        null: Null hypothesis.
        validity: `exact`, `asymptotic`, or `heuristic` where nothing vouches for the
            null.
        n_strata: K, strata with more than one distinct order.
        n_dropped: Strata left out because they have one order only.
        n_orders: m, counterfactual orders per stratum.
        group_field: Field within whose values orders move, or None.
        block_field: Field whose runs of equal values take the place of examples.
        context_tokens: Last tokens of an example that are read before another one in a
            test of pairs, beside what all examples share; four characters each without
            a tokenizer. 0 is all.
        score_tokens: First tokens of an example that are scored, likewise.
        tokens_scored: Target tokens that went through the model.
        cached_tokens: Target tokens whose scores were reused.
        numbers: What the test computed.
        p_adjusted: Holm over the benchmarks; None for secondary tests.
        mde_adjusted: Smallest effect found with power 0.8 at level 0.001 divided by the
            number of benchmarks; None for secondary tests, and if no effect can be.
        effect_unit: Unit of `effect`, `effect_se`, `mde` and `mde_adjusted`.
        pretests: All checks of the file, those that the null does not need, too.
        verdict: A word of `jaxcontam.proof.verdict`; None for secondary tests.
        reasons: Why a `suspected` test is no more than that, or why one beside a
            reference that scores alike is `inconclusive`; else empty.
        n_repeats: Examples that repeat an earlier one and were left out.
        reference: The same test of a reference model, if one was given.
        commitments: What is to be compared with what the owner published.
        copies: Planted duplication count, in studies; else None.
        copies_shuffled: True if each planted copy had its own order.
    """

    content_digest: str
    order_provenance: Provenance
    n_examples: int
    n_tokens: int | None = None
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
    context_tokens: int = 0
    score_tokens: int = 0
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
    failed = (test for test in pretests if not test.passed)
    return tuple(test for test in failed if test.directional or not of_direction)


EFFECT_UNIT = "nats per example boundary"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MembershipResult:
    """Separation of a planted set from unseen sets by a membership score.

    A ranking, never a proof: `p_value` and `verdict` are always None.

    Attributes:
        reference: Names of the never-injected sets that it is compared with.
    """

    benchmark: str
    fingerprint: str
    n_examples: int
    method: str
    auc: float
    auc_se: float
    reference: tuple[str, ...]
    tokens_scored: int
    copies: int | None = None
    copies_shuffled: bool | None = None
    primary: bool = False
    p_value: None = None
    verdict: None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """One of several benchmarks among those worth a closer look.

    Listing all whose number is at most q leaves an expected share of at most q of the
    list false, however the benchmarks depend on each other. Verdicts claim more, that
    each one is true, and rest on `p_adjusted` alone.

    Attributes:
        by: Its primary p-value as adjusted by Benjamini and Yekutieli.
        e_bh: Smallest level at which e-BH lists it, from its e-value.
    """

    benchmark: str
    by: float
    e_bh: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderReport(Report):
    """A report of tests."""

    results: tuple[OrderResult | MembershipResult, ...]
    screening: tuple[Screening, ...] = ()
    unscored: tuple[UnscoredFile, ...] = ()
