"""What tests and checks compute, as rows of `report.json` hold it."""

import dataclasses


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
class Neighbours:
    """How much more likely an example is beside its published neighbour.

    Attributes:
        forward: Nats that an example gains after the one published before it.
        forward_se: Its standard error.
        backward: Nats that an example gains after the one published behind it, which
            is what natural order gives; memory of a file has little part in it.
        backward_se: Its standard error.
        excess: `forward` less `backward`.
        excess_se: Its standard error.
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """How often p was at or below a level.

    Attributes:
        level: The level.
        n_rejected: Draws with p at or below it.
        rate: Their share.
        low: Lower end of the 95 % Clopper-Pearson interval of that share.
        high: Upper end.
    """

    level: float
    n_rejected: int
    rate: float
    low: float
    high: float
