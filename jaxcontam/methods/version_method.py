"""Rows of METHODS that test published versions, not the order of a file."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from jaxcontam.results import Evidence, OrderNumbers
from jaxcontam.results.terms import MethodRow, ProofWords
from jaxcontam.stats.randomisation import randomisation_test
from jaxcontam.stats.rows import unpadded


def version_numbers(rows: Sequence[np.ndarray], seed: int) -> OrderNumbers:
    """`randomisation_test` of rows of versions; the effect is the mean gain a row.

    Args:
        rows: One float64 array a row, the published version first.
        seed: Seeds the Monte Carlo cross-check alone.
    """
    return randomisation_test(list(rows), np.ones(len(rows)), seed=seed)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VersionMethod(MethodRow):
    """A test of published versions: texts, secrets or options, not orders of a file.

    Attributes:
        command: That runs it; `audit` where it is named after `--tests`.
        analyse: (rows, seed) -> numbers; rows are float64 arrays, published first.
        default_orders: m unless `--n-orders` says otherwise; None where the user gives
            the versions.
        null: What is assumed of a model that never saw the versions.
        validity: `exact`, or when it is.
        words: What a report says of it.
    """

    command: str
    analyse: Callable[[Sequence[np.ndarray], int], OrderNumbers] = version_numbers
    default_orders: int | None = None
    null: str
    validity: str
    words: ProofWords

    def numbers(
        self, evidence: Evidence, *, grouped: bool, seed: int, content_digest: str
    ) -> OrderNumbers:
        """What the test says of stored evidence.

        Args:
            evidence: Scores of each version, short rows ending in NaN.
            grouped: Unused: there are no groups.
            seed: The run's seed.
            content_digest: Unused: the versions are scored already.

        Raises:
            ValueError: If there are no scores, or a row has a hole.
        """
        if evidence.scores is None:
            raise ValueError("no scores")
        return self.analyse(unpadded(evidence.scores), seed)
