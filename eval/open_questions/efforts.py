"""Which tests should `audit --effort` run? Defaults and others at equal passes.

Every set is tested by each test; a default is compared with the others of its effort
on the same sets: the mean difference of log10 p, each cut at 1e-12, first within a
model, then over models. Power is the share of sets found at a level.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from eval.intervals import mean_interval, plus_minus, share_rejected
from eval.open_questions.scores import Answer, Question, Row, SetScores, cells, where
from eval.study import Grid
from jaxcontam.methods import reversal, stratified
from jaxcontam.methods.method import OrderFile, OrderMethod
from jaxcontam.scoring.pair_plan import ALL_TOKENS
from jaxcontam.stats.adjacency import path_sums
from jaxcontam.stats.all_orders import stratum_orders
from jaxcontam.stats.lattice import lattice_tail
from jaxcontam.stats.multiple import two_min
from jaxcontam.stats.orders import OrderDesign, reversed_orders
from jaxcontam.stats.pair_statistic import PairStrata
from jaxcontam.stats.pair_test import adjacency_test
from jaxcontam.stats.randomisation import MODEL_TOLERANCE
from jaxcontam.stats.strata import split_strata

LEVELS = (0.001, 0.05)
LOG10_CUT = -12.0
"""Deeper p-values are not compared: assumptions do not carry so far."""

MOST_COPIES = 4
"""Sets that were planted more often are found by every test."""

Tested = tuple[float, float]
"""log10 of p, and passes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EffortRow(Row):
    """One test of one set."""

    test: str
    log10_p: float
    passes: float


def reversal_of(size: int) -> OrderMethod:
    """`reversal` over strata of `size` examples, or as many as the context holds.

    The library's own rule takes shorter strata where the file is short, too.
    """

    def design(file: OrderFile, n_orders: int) -> OrderDesign:
        fits = (file.context - 1) * file.n_examples // file.n_ids
        return reversed_orders(
            split_strata(file.n_examples, max(2, min(size, fits))),
            seed=file.seed,
            content_digest=file.content_digest,
            groups=file.groups,
        )

    return dataclasses.replace(reversal.METHOD, name=f"reversal {size}", design=design)


def _adjacency(size: int, *first_tokens: int) -> Callable[[SetScores], Tested]:
    def test(scores: SetScores) -> Tested:
        pairs, subject = scores.pairs(size), scores.subject
        strata = pairs.strata(*first_tokens)
        if len(first_tokens) > 1:
            digest = subject.benchmark.content_digest
            numbers = adjacency_test(strata, seed=subject.seed, content_digest=digest)
            return numbers.log10_p, pairs.passes
        return exact_log10_p(strata, seed=subject.seed), pairs.passes

    return test


def exact_log10_p(strata: PairStrata, *, seed: int) -> float:
    """log10 of the p-value of `adjacency_test`, without all else that it computes.

    Equal to it where all orders of a stratum are listed; where they are drawn, the
    draws are others.
    """
    tolerance = MODEL_TOLERANCE * float(np.abs(strata.pairs[0]).max(axis=2).sum())
    floor = 0.0
    columns = []
    for k, centred in enumerate(strata.centred(0)):
        rng = np.random.default_rng([seed, 29, k])
        orders_MS = stratum_orders(strata.codes[k, : len(centred)], rng)
        sums_M = path_sums(centred, orders_MS)
        columns.append(sums_M - sums_M[0])
        floor -= math.log10(len(sums_M))
    return min(0.0, max(lattice_tail(columns, tolerance).log10_upper, floor))


def _stratified(m: int) -> Callable[[SetScores], Tested]:
    def test(scores: SetScores) -> Tested:
        orders = scores.orders(stratified.METHOD, m)
        return orders.numbers.log10_p, orders.passes

    return test


def _reversal(method: OrderMethod) -> Callable[[SetScores], Tested]:
    def test(scores: SetScores) -> Tested:
        orders = scores.orders(method, None)
        return orders.numbers.log10_p, orders.passes

    return test


TESTS: dict[str, Callable[[SetScores], Tested]] = {
    "reversal": _reversal(reversal.METHOD),
    "reversal s=4": _reversal(reversal_of(4)),
    "reversal s=6": _reversal(reversal_of(6)),
    "stratified m=1": _stratified(1),
    "stratified m=2": _stratified(2),
    "stratified m=4": _stratified(4),
    "stratified m=9": _stratified(9),
    "stratified m=21": _stratified(21),
    "adjacency s=4": _adjacency(4),
    "adjacency s=6": _adjacency(6),
    "adjacency s=8": _adjacency(8),
    "adjacency s=8, first 8": _adjacency(8, 8),
    "adjacency s=8, first 16": _adjacency(8, 16),
    "adjacency s=8, best of 8, 16, all": _adjacency(8, 8, 16, ALL_TOKENS),
    "adjacency s=12": _adjacency(12),
    "adjacency s=12, first 16": _adjacency(12, 16),
    "adjacency s=24": _adjacency(24),
}
COMBINED = {
    # What `--effort thorough` decides by.
    "two_min": ("adjacency s=12", "stratified m=9"),
    "adjacency s=8 or reversal": ("adjacency s=8", "reversal"),
    "adjacency s=8 or stratified": ("adjacency s=8", "stratified m=9"),
}
"""Twice the smaller p of two tests."""

EFFORTS = {
    "quick": (
        "reversal",
        "reversal s=4",
        "reversal s=6",
        "stratified m=1",
        "stratified m=2",
    ),
    "standard": (
        "adjacency s=8",
        "adjacency s=4",
        "adjacency s=6",
        "adjacency s=8, first 8",
        "adjacency s=8, first 16",
        "adjacency s=8, best of 8, 16, all",
        "adjacency s=8 or reversal",
        "adjacency s=12",
        "stratified m=4",
        "stratified m=9",
    ),
    "thorough": (
        "two_min",
        "adjacency s=8",
        "adjacency s=8 or stratified",
        "adjacency s=12",
        "adjacency s=12, first 16",
        "adjacency s=24",
        "stratified m=21",
    ),
}
"""The default of each effort, then what could stand in its place."""


def measure(scores: SetScores) -> list[EffortRow]:
    """One row per test; none for a set that every test finds."""
    if scores.subject.copies > MOST_COPIES:
        return []
    found = {name: test(scores) for name, test in TESTS.items()}
    for name, (one, other) in COMBINED.items():
        (log10_p, passes), (other_log10_p, other_passes) = found[one], found[other]
        found[name] = two_min(log10_p, other_log10_p), passes + other_passes
    return [
        EffortRow(**where(scores), test=test, log10_p=log10_p, passes=passes)
        for test, (log10_p, passes) in found.items()
    ]


def answer(rows: Sequence[EffortRow]) -> Answer:
    """For each effort: the default against the others, and everybody's power."""
    grids = []
    for population, found in cells(rows, lambda row: row.population).items():
        for effort, tests in EFFORTS.items():
            grids.append(_against_default(population, effort, tests, found))
        grids += [_power(population, level, found) for level in LEVELS]
    return Answer(tuple(grids))


def gains(rows: Sequence[EffortRow], test: str, default: str) -> list[float]:
    """Decades that a test gains on another one: one number per model, mean of its sets.

    Sets that were never planted are left out.
    """
    by_test = {
        (row.test, row.seed, row.name): max(row.log10_p, LOG10_CUT)
        for row in rows
        if row.copies > 0
    }
    by_seed: dict[int, list[float]] = {}
    for (name, seed, set_name), log10_p in by_test.items():
        if name == test:
            gain = by_test[default, seed, set_name] - log10_p
            by_seed.setdefault(seed, []).append(gain)
    return [float(np.mean(found)) for found in by_seed.values()]


def _against_default(
    population: str, effort: str, tests: Sequence[str], rows: Sequence[EffortRow]
) -> Grid:
    copies = sorted({row.copies for row in rows if row.copies > 0})
    lines = []
    for test in tests:
        own = [row for row in rows if row.test == test]
        cut = cells(own, lambda row: row.copies)
        gained = gains(rows, test, tests[0])
        lines.append(
            (
                test,
                f"{np.mean([row.passes for row in own]):.1f}",
                *(
                    plus_minus(
                        mean_interval([-max(r.log10_p, LOG10_CUT) for r in cut[n]]), 1
                    )
                    for n in copies
                ),
                "default" if test == tests[0] else plus_minus(mean_interval(gained)),
            )
        )
    return Grid(
        f"{population}, {effort}, {_n_models(rows)}: mean -log10 p (cut at "
        f"{-LOG10_CUT:g}) by copies, and decades gained on the default over all "
        "planted sets; 95 % intervals over models",
        ("test", "passes", *(f"{n} copies" for n in copies), "gained"),
        tuple(lines),
    )


def _power(population: str, level: float, rows: Sequence[EffortRow]) -> Grid:
    copies = sorted({row.copies for row in rows})
    lines = []
    for test in dict.fromkeys(row.test for row in rows):
        cut = cells([r for r in rows if r.test == test], lambda row: row.copies)
        lines.append((test, *(_share(cut[n], level) for n in copies)))
    return Grid(
        f"{population}, {_n_models(rows)}: share of sets with p at most {level:g}, "
        "95 % Wilson intervals over models",
        ("test", *(f"{n} copies" for n in copies)),
        tuple(lines),
    )


def _n_models(rows: Sequence[EffortRow]) -> str:
    return f"{len({row.seed for row in rows})} models"


def _share(rows: Sequence[EffortRow], level: float) -> str:
    return share_rejected([row.log10_p for row in rows], level).words()


QUESTIONS = (Question("efforts", EffortRow, measure, answer),)
