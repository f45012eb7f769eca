"""The battery: which checks of a file reject after Holm, and what would help.

Dimension key
    N  examples
    B  runs of examples that move as wholes
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jaxcontam.stats.pretests.attraction import OPEN, RESOLVED, attraction_of, far_apart
from jaxcontam.stats.pretests.blind import blind_pretests
from jaxcontam.stats.pretests.checks import Check, checks_of
from jaxcontam.stats.pretests.forward import forward_pretests
from jaxcontam.stats.pretests.learned import learned_direction
from jaxcontam.stats.pretests.null import (
    LEVEL,
    draw_orders,
    gate,
    null_distributions,
    permutation_p,
    run_starts,
    tail_p,
    value_codes,
)
from jaxcontam.stats.pretests.similarity import read_words
from jaxcontam.stats.result import Pretest

__all__ = ["LEVEL", "pretest_battery"]

N_PERMUTATIONS = 9_999
# Settles what is no evidence.
_FIRST_PERMUTATIONS = 499
# The smallest p-value must stay below the level when Holm multiplies it: many fields
# ask for more permutations, of those statistics that could still reject.
_PERMUTATIONS_A_TEST = 400
# Indices that are permuted at most: longer files have fewer permutations, and p-values
# below what these resolve come from a law that is fitted to them.
_MOST_INDICES = 50_000_000


def pretest_battery(
    texts: Sequence[str],
    fields: Mapping[str, Sequence[object]],
    *,
    seed: int,
    groups: Sequence[object] | None = None,
    blocks: Sequence[object] | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> tuple[Pretest, ...]:
    """Tests of the file's order, Holm-corrected at 0.01; no model is asked.

    Looks at lengths, at the alphabet, at likeness of neighbours (TF-IDF), at
    duplicates and shared beginnings that stand side by side, at what in the text
    points forward, at what one part of the file teaches about the others' direction,
    at every field (labels that are blocked or sorted, contexts that
    repeat in runs, ids that the model can read), and at what a copying scorer that
    never saw the file makes of its order (see `blind_pretests`). All are two-sided but
    those of duplicates and contexts, which may be scattered but not gathered, and of
    the learned rule. A pass
    does not prove exchangeability. A remedy is that of the check, or
    of another one that fails; whether the battery passes with it, the next run says.

    P-values are permutation p-values. Files above 5,000 rows have fewer permutations,
    and a p-value beyond them comes from a fitted law; likeness of neighbours is
    compared within strata of 8 above 4,000 rows. So the work grows no faster than the
    file.

    Args:
        texts: Examples in published order.
        fields: Values of each field, one per example; see `columns`.
        seed: Seeds the permutations.
        groups: With `--group-field`: permute only among equal values, the null
            that the order test then assumes.
        blocks: With `--block-field`: permute runs of equal value as wholes.
        say: Told what is looked at next.
    """
    # Several checks read the same rows.
    read = functools.lru_cache(maxsize=1)(read_words)
    say("words and fields")
    checks = checks_of(texts, fields, read=read)
    say("random orders")
    found = _by_permutation(checks, len(texts), seed, groups, blocks)
    for check in checks:
        if check.matrices is not None:
            found[check.name] = _in_strata(check, len(texts), seed, groups, blocks)
    tests = [found[check.name] for check in checks]
    say("copying scorers")
    blind = blind_pretests(texts, groups=groups, blocks=blocks, seed=seed)
    say("what points forward")
    forward = forward_pretests(
        texts, groups=groups, blocks=blocks, seed=seed, read=read
    )
    others = [*tests, *forward, *blind]
    say("learned direction")
    learned = learned_direction(
        texts,
        groups=groups,
        blocks=blocks,
        n_checks=1 + len(others),
        seed=seed,
        read=read,
    )
    found = gate([*others, learned])
    # The field with the most equal neighbours explains the most.
    failed = sorted((t for t in found if not t.passed), key=lambda t: -t.statistic)
    first = next((test.remedy for test in failed if test.remedy), "")
    return tuple(
        dataclasses.replace(test, remedy="" if test.passed else test.remedy or first)
        for test in found
    )


def _by_permutation(
    checks: Sequence[Check],
    n: int,
    seed: int,
    groups: Sequence[object] | None,
    blocks: Sequence[object] | None,
) -> dict[str, Pretest]:
    published_1N = np.arange(n, dtype=np.int32)[None]
    statistics = {c.name: c.statistic for c in checks if c.statistic is not None}
    looked_at = [c for c in checks if c.statistic is not None]
    observed = {name: float(of(published_1N)[0]) for name, of in statistics.items()}
    drawn = {name: np.empty(0) for name in statistics}
    p_values: dict[str, float] = {}
    wanted = max(N_PERMUTATIONS, _PERMUTATIONS_A_TEST * len(looked_at) - 1)
    most = min(wanted, max(_FIRST_PERMUTATIONS, _MOST_INDICES // max(n, 1)))
    # A p-value above OPEN stays as the first orders gave it; all others count all
    # orders, so that those small enough to reject are ordinary permutation p-values.
    for stage, n_orders in enumerate((_FIRST_PERMUTATIONS, most - _FIRST_PERMUTATIONS)):
        left = [c for c in looked_at if p_values.get(c.name, 0.0) <= OPEN]
        if not n_orders or not left:
            break
        more = null_distributions(
            {c.name: statistics[c.name] for c in left},
            draw_orders(n, n_orders, seed=(seed, stage), groups=groups, blocks=blocks),
        )
        for c in left:
            drawn[c.name] = np.concatenate([drawn[c.name], more[c.name]])
            p_values[c.name] = permutation_p(
                observed[c.name], drawn[c.name], two_sided=c.two_sided
            )
    found = {}
    for c in looked_at:
        values_R, p_value = drawn[c.name], p_values[c.name]
        # What no permutation changes cannot fail.
        varies = bool(np.ptp(values_R) > 0)
        if varies and len(values_R) < wanted and p_value <= RESOLVED / len(values_R):
            law = tail_p(
                observed[c.name], values_R, two_sided=c.two_sided, counts=c.counts
            )
            p_value = min(p_value, law)
        found[c.name] = _row(c, observed[c.name], p_value if varies else 1.0, varies)
    return found


def _in_strata(
    check: Check,
    n: int,
    seed: int,
    groups: Sequence[object] | None,
    blocks: Sequence[object] | None,
) -> Pretest:
    assert check.matrices is not None
    starts_B = np.arange(n) if blocks is None else run_starts(blocks)
    lasts_B = np.append(starts_B[1:], n) - 1
    codes_B = value_codes([None] * len(starts_B) if groups is None else groups)
    order_B = far_apart(len(starts_B))
    matrices = check.matrices(starts_B[order_B], lasts_B[order_B])
    ends = np.cumsum([len(matrix_SS) for matrix_SS in matrices])
    codes = np.split(codes_B[order_B], ends[:-1])
    near, _ = attraction_of(matrices, codes, seed=seed)
    return _row(check, near.statistic, near.p_value, near.applicable)


def _row(check: Check, statistic: float, p_value: float, applicable: bool) -> Pretest:
    return Pretest(
        name=check.name,
        statistic=statistic,
        p_value=p_value,
        passed=True,
        directional=check.directional,
        remedy=check.remedy,
        note=check.note,
        applicable=applicable,
    )
