"""The battery: which checks of a file reject after Holm, and what would help.

Dimension key
    N  examples
"""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence

import numpy as np

from jaxcontam.results import Pretest
from jaxcontam.stats.multiple import holm
from jaxcontam.stats.pretests.checks import Check, checks_of
from jaxcontam.stats.pretests.null import (
    draw_orders,
    null_distributions,
    permutation_p,
)

N_PERMUTATIONS = 9_999
# The smallest p-value must stay below the level when Holm multiplies it: many fields
# ask for more permutations, of those statistics that could still reject.
_PERMUTATIONS_A_TEST = 400
_OPEN = 0.05
LEVEL = 0.01
"""Familywise level of the battery."""

# Remedies that are tried on the file before one is named.
_REMEDIES = 3
_TRIED = ("--group-field", "--block-field")


def pretest_battery(
    texts: Sequence[str],
    fields: Mapping[str, Sequence[object]],
    *,
    seed: int,
    groups: Sequence[object] | None = None,
    blocks: Sequence[object] | None = None,
) -> tuple[Pretest, ...]:
    """Permutation tests of the file's order, Holm-corrected at 0.01.

    Looks at lengths, at the alphabet, at likeness of neighbours (TF-IDF), at
    duplicates and shared beginnings that stand side by side, at numbers in the text,
    and at every field: labels that are blocked or sorted, contexts that repeat in
    runs, ids that the model can read. All are two-sided but those of duplicates and
    contexts, which may be scattered but not gathered. A pass does not prove
    exchangeability. Groups and blocks are named as a remedy only if the whole battery
    passes with them.

    Args:
        texts: Examples in published order.
        fields: Values of each field, one an example; see `columns`.
        seed: Seeds the permutations.
        groups: With `--group-field`: permute only among equal values, the null
            that the order test then assumes.
        blocks: With `--block-field`: permute runs of equal value as wholes.
    """
    checks = checks_of(texts, fields)
    tests = _run(checks, len(texts), seed=seed, groups=groups, blocks=blocks)
    if groups is not None or blocks is not None:
        return tests
    works: dict[str, bool] = {}
    # Of several fields the one with the most equal neighbours explains the most.
    for test in sorted(tests, key=lambda test: -test.statistic):
        if test.passed or not test.remedy or test.remedy in works:
            continue
        if len(works) == _REMEDIES:
            break
        flag, value = shlex.split(test.remedy)
        again: tuple[Pretest, ...] = ()
        if flag == "--group-field":
            again = _run(checks, len(texts), seed=seed, groups=fields[value])
        elif flag == "--block-field":
            again = _run(checks, len(texts), seed=seed, blocks=fields[value])
        works[test.remedy] = all(other.passed for other in again)
    # What cures the whole battery cures each of its checks.
    of_all = [r for r in works if works[r] and r.startswith(_TRIED)]
    return tuple(
        dataclasses.replace(test, remedy=_first_that_works(test, works, of_all))
        for test in tests
    )


def directional(pretests: Sequence[Pretest]) -> tuple[Pretest, ...]:
    """Those that a reversible order must pass: grouping reads the same backwards."""
    return tuple(test for test in pretests if test.directional)


def _first_that_works(
    test: Pretest, works: Mapping[str, bool], of_all: Sequence[str]
) -> str:
    if test.passed:
        return ""
    if works.get(test.remedy):
        return test.remedy
    return of_all[0] if of_all else ""


def _run(
    checks: Sequence[Check],
    n: int,
    *,
    seed: int,
    groups: Sequence[object] | None = None,
    blocks: Sequence[object] | None = None,
) -> tuple[Pretest, ...]:
    """The checks against orders that keep to groups or blocks."""
    published_1N = np.arange(n, dtype=np.int32)[None]
    observed = {c.name: float(c.statistic(published_1N)[0]) for c in checks}
    drawn = {c.name: np.empty(0) for c in checks}
    p_values: dict[str, float] = {}
    n_more = _PERMUTATIONS_A_TEST * len(checks) - 1 - N_PERMUTATIONS
    # A p-value above _OPEN stays as the first orders gave it; all others count all
    # orders, so that those small enough to reject are ordinary permutation p-values.
    for stage, n_orders in enumerate((N_PERMUTATIONS, max(0, n_more))):
        left = [c for c in checks if p_values.get(c.name, 0.0) <= _OPEN]
        if not n_orders or not left:
            break
        more = null_distributions(
            {c.name: c.statistic for c in left},
            draw_orders(n, n_orders, seed=(seed, stage), groups=groups, blocks=blocks),
        )
        for c in left:
            drawn[c.name] = np.concatenate([drawn[c.name], more[c.name]])
            p_values[c.name] = permutation_p(
                observed[c.name], drawn[c.name], two_sided=c.two_sided
            )
    # What no permutation changes cannot fail, and is no test to correct for.
    names = [name for name in p_values if np.ptp(drawn[name]) > 0]
    adjusted = dict(
        zip(names, holm(np.array([p_values[name] for name in names])), strict=True)
    )
    return tuple(
        Pretest(
            name=c.name,
            statistic=observed[c.name],
            p_value=p_values[c.name],
            passed=bool(adjusted.get(c.name, 1.0) > LEVEL),
            directional=c.directional,
            remedy=c.remedy,
            note=c.note,
        )
        for c in checks
    )
