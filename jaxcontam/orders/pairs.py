"""Tests that score pairs: each example after others of its stratum.

Dimension key
    K  strata
    S  examples of the largest stratum
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.orders.order_test import (
    Layout,
    OrderFile,
    TestMethod,
    in_examples,
    strata_of,
)
from jaxcontam.proof.result import Evidence, OrderResult
from jaxcontam.proof.test_row import pair_strata
from jaxcontam.scoring.pair_plan import plan_pairs
from jaxcontam.stats.adjacency import FEWEST_EXAMPLES
from jaxcontam.stats.direction import needed_pairs, run_length, runs_of
from jaxcontam.stats.local import local_evidence
from jaxcontam.stats.orders import published_orders, split_strata
from jaxcontam.stats.pair_test import (
    PairStatistic,
    PairStrata,
    pair_columns,
    sampled_columns,
)
from jaxcontam.stats.randomisation import MODEL_TOLERANCE
from jaxcontam.stats.result import Local, OrderNumbers

# Orders of a stratum besides the published one. A stratum of eight has 40,320, and
# those of a large file do not fit in memory together.
_N_SAMPLED = 999


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PairMethod(TestMethod):
    """An order test that scores examples after others of their stratum.

    Attributes:
        analyse: (strata, seed, content_digest) -> numbers.
    """

    scores_pairs: ClassVar[bool] = True

    size: int
    statistic: PairStatistic  # pyright: ignore[reportGeneralTypeIssues]
    analyse: Callable[..., OrderNumbers]
    whole: bool = True
    fewest_examples: int = FEWEST_EXAMPLES

    def lay_out(self, file: OrderFile, encoded: Encoded) -> Layout:
        """Pairs of each stratum; its orders are columns, whatever n_orders.

        With groups all pairs are scored: a run that keeps to its groups has other
        neighbours when it is reversed.
        """
        # Other than for sequences, a stratum need not fit the context, only two
        # examples, and the floor of p is low however few the strata are.
        design, codes_KS = published_orders(
            split_strata(file.n_examples, self.size), groups=file.groups
        )
        strata = [row[row >= 0] for row in design.orders[:, 0]]
        runs_KS = stratum_runs(design.orders[:, 0], file.n_examples)
        whole = self.whole or file.groups is not None
        plan = plan_pairs(
            strata,
            encoded,
            prefix_id=file.prefix_id,
            context=file.context,
            wanted_KSS=None if whole else _needed_pairs(runs_KS, design.orders[:, 0]),
            seam=file.seam,
        )
        return Layout(
            design=design,
            plan=plan,
            cut=plan.cut,
            statistic=self.statistic,
            codes=codes_KS,
            runs=runs_KS,
        )

    def numbers(
        self, evidence: Evidence, *, grouped: bool, seed: int, content_digest: str
    ) -> OrderNumbers:
        """From pair matrices, published orders and groups."""
        strata, orders = pair_strata(evidence), evidence.orders
        numbers = self.analyse(strata, seed=seed, content_digest=content_digest)
        if not self.locates or orders is None:
            return numbers
        local = where_in_pairs(
            strata, self.statistic, orders, seed=seed, content_digest=content_digest
        )
        return dataclasses.replace(numbers, local=local)

    def counts(self, evidence: Evidence) -> tuple[int, int]:
        """Strata, and the orders that the statistic compares."""
        orders, codes, runs = evidence.orders, evidence.codes, evidence.runs
        if orders is None or codes is None or runs is None:
            raise ValueError("no pair matrices")
        columns = pair_columns(self.statistic, orders[:, 0], codes, runs)
        return len(columns), max(columns) - 1

    def redrawn(
        self, result: OrderResult, evidence: Evidence, *, seed: int
    ) -> Evidence:
        """Runs, published orders and groups; the seed draws none of them."""
        if evidence.orders is None:
            raise ValueError("no orders")
        published_KS = evidence.orders[:, 0]
        runs = stratum_runs(published_KS, result.n_examples)
        _check_pairs(evidence.pairs, published_KS, runs)
        if result.group_field is not None:
            return Evidence(runs=runs)
        design, codes = published_orders(strata_of(result))
        return Evidence(orders=design.orders, codes=codes, runs=runs)


def stratum_runs(published_KS: np.ndarray, n_examples: int) -> np.ndarray:
    """(K, S) int64, the run of each example, which direction reverses; 0 in padding.

    A stratum of `published_KS` ends in -1; small files are cut into shorter runs.
    """
    length = run_length(n_examples)
    runs_KS = np.zeros(published_KS.shape, np.int64)
    sizes_K = (published_KS >= 0).sum(axis=1)
    for size in np.unique(sizes_K).tolist():
        runs_KS[sizes_K == size, :size] = runs_of(size, length)
    return runs_KS


def _needed_pairs(runs_KS: np.ndarray, published_KS: np.ndarray) -> np.ndarray:
    """(K, S, S) bool, see `needed_pairs`; strata of one size have the same runs."""
    K, S = runs_KS.shape
    needed_KSS = np.zeros((K, S, S), bool)
    sizes_K = (published_KS >= 0).sum(axis=1)
    for size, k in zip(*np.unique(sizes_K, return_index=True), strict=True):
        needed_KSS[sizes_K == size, :size, :size] = needed_pairs(runs_KS[k, :size])
    return needed_KSS


def _check_pairs(
    pairs_KSS: np.ndarray | None, published_KS: np.ndarray, runs_KS: np.ndarray
) -> None:
    """Refuse matrices that hold neither all pairs nor those that tell the direction."""
    if pairs_KSS is None or not np.isnan(pairs_KSS).any():
        return
    for k, size in enumerate((published_KS >= 0).sum(axis=1).tolist()):
        needed_SS = needed_pairs(runs_KS[k, :size]) | np.eye(size, dtype=bool)
        if (np.isnan(pairs_KSS[k, :size, :size]) == needed_SS).any():
            raise ValueError("pairs are not those that tell the direction")


def where_in_pairs(
    strata: PairStrata,
    statistic: PairStatistic,
    orders_KMS: np.ndarray,
    *,
    seed: int,
    content_digest: str,
) -> Local:
    """The best run of strata of a pair test."""
    rows = sampled_columns(
        strata, statistic, seed=seed, content_digest=content_digest, n_orders=_N_SAMPLED
    )
    largest_KS = np.nan_to_num(np.abs(strata.pairs)).max(axis=2)
    ties_K = MODEL_TOLERANCE * largest_KS.sum(axis=1)
    return in_examples(local_evidence(rows, ties_K, seed=seed), orders_KMS[:, 0])
