"""Result dataclasses: filled by stats and methods, read by report.

Rows of `report.json` are these fields under these names; None becomes null.
Arrays live in `Evidence`, which becomes `orders.npz`.
"""

import dataclasses

import numpy as np

from jaxcontam.calibrated import CalibrationResult
from jaxcontam.membership_results import (
    BlindBaseline,
    ScoreResult,
    SetResult,
    TextThreshold,
)

DESIGNED = "designed randomisation"
"""Null of an order that was drawn from a seed: nothing is assumed of the file."""

RELEASED = "released"
"""Provenance of an order that `release` drew, checked against its seed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pretest:
    """A check of the null's own assumption, made on the file without a model.

    Attributes:
        name: What was looked at, such as `length_autocorrelation`.
        statistic: Its value in the published order.
        p_value: From seeded permutations of the file; one-sided for what may be
            scattered but not gathered, such as duplicates, else two-sided.
        passed: False when Holm's correction over the battery rejects at 0.01.
        directional: Whether it bears on the reversed order too.
        remedy: Flags that avoid what it looks at, quoted as in a shell; or "".
        note: What the reader should know even if it passed; or None.
        applicable: False where no order of this file changes the statistic, or where it
            is no test: it certifies nothing, `p_value` is 1, and Holm leaves it out.
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
class Local:
    """The run of neighbouring strata whose published order scores best.

    Attributes:
        first_example: Its first example, counted from 1.
        last_example: Its last example.
        statistic: Its sum of standardised scores over the root of its length.
        p_value: That the best run of a model that never saw the file is as good.
    """

    first_example: int
    last_example: int
    statistic: float
    p_value: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderNumbers:
    """What a test computes from a (K, m + 1) matrix, column 0 the published version.

    Attributes:
        statistic: The test's own statistic; large is evidence of contamination.
        p_value: One-sided; for exact tests a rigorous upper bound, not below 1e-300.
        log10_p: log10 of the same p-value, with no such limit.
        p_lower: Lower end of the bracket of the exact p-value; None if there is none.
        p_monte_carlo: Cross-check by re-drawing columns; None if there is none.
        p_floor: Smallest p-value that the design can give; None if it has no floor.
        e_value: Soft-rank e-value; None where the method has none.
        effect: Nats per example boundary (or score units), with `effect_se`; None if
            the drawn orders keep every boundary.
        effect_se: Standard error of `effect`; None when one stratum and one order
            leave nothing to estimate it from.
        mde: Smallest effect found with power 0.8 at level 0.001; None if no effect
            can be, because `p_floor` exceeds 0.001.
        scores: How log-likelihoods became scores: `centred`, `studentised` or
            `double-centred`; `smaller p` where two tests became one.
        first_tokens: Of pair tests: tokens of each example that count after those that
            all examples share; -1 is all.
        symmetry: Of pair tests: correlation of [i, j] with [j, i] by chance.
        lag_profile: Of pair tests: mean centred entry [i, i + h] in standard
            deviations, for h = -5..-1 and 1..5.
        exposure: Of one secret among held-out ones: log2(candidates) - log2(rank),
            in bits.
        n_used: Of sequential tests: strata, or random orders, until the test stopped.
        stop: Of sequential tests: why it did; see `jaxcontam.stats.sequential.Stop`.
        local: Where in the file the evidence lies; None where nothing was looked for.
    """

    statistic: float
    p_value: float
    log10_p: float
    p_lower: float | None
    p_monte_carlo: float | None
    p_floor: float | None
    e_value: float | None
    effect: float | None
    effect_se: float | None
    mde: float | None
    scores: str
    first_tokens: int | None = None
    symmetry: float | None = None
    lag_profile: tuple[float | None, ...] | None = None
    exposure: float | None = None
    n_used: int | None = None
    stop: str | None = None
    local: Local | None = None


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
        pairs: (Q, K, s_max, s_max) float64 pair matrices of a pair test, nats.
        first_tokens: (Q,) int64, tokens that count in each of the Q; -1 is all.
        codes: (K, s_max) int64, the group of each example, numbered within its stratum.
        rule: (2,) float64, of a sequential test: the p-value at which it stops, and how
            many strata, or random orders of the whole file, it may score. Its strata
            or orders stand in the order in which they were scored.
    """

    scores: np.ndarray | None = None
    orders: np.ndarray | None = None
    place: np.ndarray | None = None
    cut: np.ndarray | None = None
    boundaries: np.ndarray | None = None
    pairs: np.ndarray | None = None
    first_tokens: np.ndarray | None = None
    codes: np.ndarray | None = None
    rule: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderResult:
    """One order test of one benchmark: a row of `report.json`.

    Attributes:
        benchmark: Name of the file or set.
        fingerprint: Digest of the examples in their order.
        content_digest: Digest of the examples without their order; seeds the draws.
        order_provenance: Where the order comes from: `published` (the file's own),
            `seeded` or `RELEASED` (drawn, and the seed is known), `declared` (by the
            user) or `unknown` (maybe not the one that a model would have read).
        n_examples: Examples in the file as loaded.
        n_cut: Examples that lost ids to a length limit.
        method: A row of METHODS.
        primary: True for the one test that decides.
        null: Null hypothesis.
        validity: `exact`, `asymptotic`, or `heuristic` where nothing vouches for the
            null.
        n_strata: K, strata with more than one distinct order.
        n_dropped: Strata left out because they have one order only.
        n_orders: m, counterfactual orders a stratum.
        group_field: Field within whose values orders move, or None.
        block_field: Field whose runs of equal values take the place of examples.
        tokens_scored: Target tokens that went through the model.
        cached_tokens: Target tokens whose scores were reused.
        numbers: What the test computed.
        p_adjusted: Holm over the benchmarks; None for secondary tests.
        effect_unit: Unit of `effect`, `effect_se` and `mde`.
        pretests: Checks of the null's assumption.
        verdict: One of the words of `jaxcontam.verdict`; None for secondary tests.
        warnings: What the reader should know, one sentence each.
        copies: Planted duplication count, in studies; else None.
        copies_shuffled: True if each planted copy had an order of its own.
    """

    benchmark: str
    fingerprint: str
    content_digest: str
    order_provenance: str
    n_examples: int
    n_cut: int
    method: str
    primary: bool
    null: str
    validity: str
    n_strata: int
    n_dropped: int
    n_orders: int
    group_field: str | None
    tokens_scored: int
    cached_tokens: int
    numbers: OrderNumbers
    block_field: str | None = None
    p_adjusted: float | None = None
    effect_unit: str
    pretests: tuple[Pretest, ...] = ()
    verdict: str | None = None
    warnings: tuple[str, ...] = ()
    copies: int | None = None
    copies_shuffled: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MembershipResult:
    """How well a membership score separates a planted set from unseen sets.

    A ranking, never a proof: `p_value` and `verdict` are always None.

    Attributes:
        auc: Probability that a text of the set outscores a text of the reference.
        auc_se: DeLong standard error.
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
class ServedInfo:
    """What a few requests showed of a server, before anything was scored.

    Attributes:
        way: How it gives log-probabilities, and what is sent.
        has_bos: Of texts: whether it puts a token before them; None where ids are sent.
        read_write_difference: Nats by which a token's log-probability when it is read
            differs from that when the model wrote it, on average.
        repeat_difference: Largest difference between two answers to one request.
        n_probe_requests: Requests that it took.
    """

    way: str
    has_bos: bool | None
    read_write_difference: float
    repeat_difference: float
    n_probe_requests: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The model that was scored.

    Attributes:
        name: A directory's name, or the word that names a served model.
        fingerprint: Digest of what decides the scores, as far as it is known.
        n_parameters: None where the weights are not here.
        dtype: `unknown` where others run the model, like `precision`.
        precision: Of matrix products.
        context: Ids that are read at once.
        attention: Kernel of a library that computed attention, if one did.
        served: What a server was found to do; None where the model runs here.
    """

    name: str
    fingerprint: str
    n_parameters: int | None
    dtype: str
    precision: str
    context: int | None
    attention: str | None = None
    served: ServedInfo | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """The device that scored; results are to the bit on the same one only.

    Attributes:
        platform: Such as cpu or gpu.
        kind: As its maker calls it.
        n: Devices.
        cpu_cores: Of the host, as far as this process may use them.
        n_model: Devices that one copy of the weights is divided among.
    """

    platform: str
    kind: str
    n: int
    cpu_cores: int
    n_model: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """One of several benchmarks among those worth a closer look.

    Listing all whose number is at most q leaves an expected share of at most q of the
    list false, however the benchmarks depend on each other. Verdicts claim more, that
    each one is true, and rest on `p_adjusted` alone.

    Attributes:
        benchmark: Its name.
        by: Its primary p-value as adjusted by Benjamini and Yekutieli.
        e_bh: Smallest level at which e-BH lists it, from its e-value.
    """

    benchmark: str
    by: float
    e_bh: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that `report.json` holds.

    Attributes:
        command: The words that made it.
        seed: Seeds every random choice of the run.
        started: ISO 8601, UTC.
        wall_seconds: Of the whole run.
        model: None where no model was scored.
        device: None where no model was scored.
        versions: Of the libraries that computed the numbers.
        min_effect: Effect above which `mde` makes a verdict `inconclusive`; None where
            no verdict is given.
        results: One row a test.
        screening: One a benchmark where there are several; else empty.
        blind: What tells members from non-members without a model; of membership.
        thresholds: Scores above which a text counts as a member; of membership.
        study: What a study planted; None for audits.
    """

    command: tuple[str, ...]
    seed: int
    started: str
    wall_seconds: float
    model: ModelInfo | None
    device: DeviceInfo | None
    versions: dict[str, str]
    min_effect: float | None
    results: tuple[
        OrderResult | MembershipResult | CalibrationResult | ScoreResult | SetResult,
        ...,
    ]
    screening: tuple[Screening, ...] = ()
    blind: tuple[BlindBaseline, ...] = ()
    thresholds: tuple[TextThreshold, ...] = ()
    study: dict[str, object] | None = None
