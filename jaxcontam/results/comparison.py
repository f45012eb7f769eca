"""What `jaxcontam compare` puts side by side; read by report."""

import dataclasses

from jaxcontam.results.terms import RankingVerdict, Validity, Verdict


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTest:
    """The deciding test of one benchmark in one report.

    Attributes:
        benchmark: Its name.
        model: The model's name, with its report's folder where two have one name, and
            with the test where it took several.
        report: Folder of the report.
        model_fingerprint: Fingerprint of the model.
        benchmark_fingerprint: Fingerprint of the examples in their order.
        method: The deciding test.
        verdict: As in its report.
        p_value: Before any correction.
        log10_p: log10 of it.
        p_floor: Smallest p-value that the test can have, or None.
        p_adjusted: Holm over the benchmarks of its own report.
        p_adjusted_all: Holm over all tests that are compared.
        p_adjusted_floor: Smallest that `p_adjusted_all` can be, by all `p_floor`.
        effect: As in `OrderNumbers` for an order test; AUC for a ranking.
        effect_se: Standard error of `effect`.
        effect_low: Lower end of its 95 % interval.
        effect_high: Upper end.
        mde: Smallest detectable effect; None for a ranking.
        effect_unit: Unit of them all.
        validity: `exact`, `asymptotic` or `heuristic`; None for a ranking, whose
            p-value supposes that labels were assigned by chance.
        n_examples: Examples of the benchmark, or texts on both sides.
        n_strata: Strata; None for a ranking.
        n_orders: Orders per stratum; None for a ranking.
        comparable: False if other models were tested otherwise on this benchmark.
    """

    benchmark: str
    model: str
    report: str
    model_fingerprint: str
    benchmark_fingerprint: str
    method: str
    verdict: Verdict | RankingVerdict
    p_value: float
    log10_p: float
    p_floor: float | None
    p_adjusted: float
    p_adjusted_all: float
    p_adjusted_floor: float
    effect: float | None
    effect_se: float | None
    effect_low: float | None
    effect_high: float | None
    mde: float | None
    effect_unit: str
    validity: Validity | None
    n_examples: int
    n_strata: int | None
    n_orders: int | None
    comparable: bool
