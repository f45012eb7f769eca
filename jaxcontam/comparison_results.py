"""What `jaxcontam compare` puts side by side; read by report."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTest:
    """The deciding test of one benchmark in one report.

    Attributes:
        benchmark: Its name.
        model: The model's name, with its report's folder where two have one name.
        report: Folder of the report.
        model_fingerprint: Of the model.
        benchmark_fingerprint: Of the examples in their order.
        method: The deciding test.
        verdict: As in its report.
        p_value: Before any correction.
        log10_p: log10 of it.
        p_adjusted: Holm over the benchmarks of its own report.
        p_adjusted_all: Holm over all tests that are compared.
        effect: See `OrderNumbers`, like all that follow.
        effect_se: Standard error of `effect`.
        mde: Smallest detectable effect.
        effect_unit: Unit of the three.
        validity: `exact`, `asymptotic` or `heuristic`.
        n_examples: Examples of the benchmark.
        n_strata: Strata.
        n_orders: Orders a stratum.
        comparable: False if other models were tested otherwise on this benchmark.
    """

    benchmark: str
    model: str
    report: str
    model_fingerprint: str
    benchmark_fingerprint: str
    method: str
    verdict: str
    p_value: float
    log10_p: float
    p_adjusted: float
    p_adjusted_all: float
    effect: float | None
    effect_se: float | None
    mde: float | None
    effect_unit: str
    validity: str
    n_examples: int
    n_strata: int
    n_orders: int
    comparable: bool
