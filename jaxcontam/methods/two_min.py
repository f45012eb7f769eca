"""Two tests of one order in a single p-value: the smaller one, doubled."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.methods import adjacency, stratified
from jaxcontam.methods.method import TestMethod, TestRow
from jaxcontam.results import OrderNumbers, OrderResult
from jaxcontam.results.terms import ProofWords
from jaxcontam.stats.effect import LEVEL, mde_factor
from jaxcontam.stats.multiple import mean_e, two_min
from jaxcontam.stats.randomisation import power_of_ten

# Longer strata than adjacency has alone: more neighbours are compared.
_STRATUM_SIZE = 12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CombinedMethod(TestRow):
    """A test that is made of others, which stand beside it in a report.

    Attributes:
        parts: Tests of the same order; the first one's effect is quoted.
    """

    parts: tuple[TestMethod, ...]

    @property
    def scored_as(self) -> tuple[TestRow, ...]:
        """Its parts."""
        return self.parts


METHOD = CombinedMethod(
    name="two_min",
    parts=(
        dataclasses.replace(adjacency.METHOD, size=_STRATUM_SIZE),
        stratified.METHOD,
    ),
    null="exchangeability",
    validity="exact",
    cost="22 passes: adjacency over strata of 12, stratified",
    finds="the published order by neighbours or by longer context; not shuffled copies",
    source="Bonferroni; Fisher's rule is not valid for two tests of one order",
    words=ProofWords(
        chance="the smaller p-value of adjacency and stratified, doubled for having "
        "looked at two, would be as small with probability {p}. Effect and plots are "
        "those of adjacency",
        takes_reference=True,
    ),
)


def combined_numbers(parts: Sequence[OrderNumbers]) -> OrderNumbers:
    """Numbers of two exact tests of the same published order, however dependent.

    The p-value is twice the smaller one (Bonferroni); the e-value is the mean, which
    is an e-value under any dependence. The effect is that of the first part, and so is
    the detectable one, unless only the second part can reach half the level.
    """
    first, second = parts
    log10_p = two_min(first.log10_p, second.log10_p)
    mdes = [
        part.mde
        for part in parts
        if part.mde is not None and (part.p_floor or 0.0) <= LEVEL / 2
    ]
    e_values = [part.e_value for part in parts if part.e_value is not None]
    return OrderNumbers(
        statistic=-log10_p,
        p_value=power_of_ten(log10_p),
        log10_p=log10_p,
        p_lower=_twice_the_least([part.p_lower for part in parts]),
        p_monte_carlo=_twice_the_least([part.p_monte_carlo for part in parts]),
        p_floor=_twice_the_least([part.p_floor for part in parts]),
        e_value=None if len(e_values) < len(parts) else mean_e(np.array(e_values)),
        effect=first.effect,
        effect_se=first.effect_se,
        # Each part must reach half the level.
        mde=mdes[0] * mde_factor(2) / mde_factor(1) if mdes else None,
        scores="smaller p",
        local=first.local,
    )


def combined_results(
    results: Sequence[OrderResult], *, primary: bool
) -> list[OrderResult]:
    """A row for each benchmark, whose parts among the results cost all there is."""
    found = {(result.benchmark, result.method): result for result in results}
    rows = []
    for benchmark in dict.fromkeys(result.benchmark for result in results):
        parts = [found[benchmark, part.name] for part in METHOD.parts]
        warnings = dict.fromkeys(line for part in parts for line in part.warnings)
        rows.append(
            dataclasses.replace(
                parts[0],
                method=METHOD.name,
                primary=primary,
                numbers=combined_numbers([part.numbers for part in parts]),
                tokens_scored=0,
                cached_tokens=0,
                warnings=tuple(warnings),
                reference=None,
            )
        )
    return rows


def _twice_the_least(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(1.0, 2 * min(known)) if len(known) == len(values) else None
