"""What a row of METHODS is made of."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from jaxcontam.results import OrderNumbers
from jaxcontam.stats.orders import OrderDesign


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderFile:
    """What a design may depend on: the file without its order.

    Attributes:
        n_examples: At least 2.
        n_ids: Ids of all examples, separators included.
        context: Tokens that the model reads at once.
        seed: The run's seed.
        content_digest: Digest of the sorted example digests.
        groups: One value an example, or None.
    """

    n_examples: int
    n_ids: int
    context: int
    seed: int
    content_digest: str
    groups: Sequence[object] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderMethod:
    """An order test.

    Attributes:
        name: As typed after `--tests`.
        design: (file, m) -> orders to score.
        analyse: (loglik_KM, boundaries_K, seed) -> numbers.
        default_orders: m unless `--n-orders` says otherwise.
        windowed: Strata may exceed the context and are scored in windows.
        counted_boundaries: The effect counts the neighbours that its orders keep.
        fewest_strata: Strata with more than one order that the analysis needs.
        null: What is assumed of a model that never saw the file.
        validity: `exact` or `asymptotic`.
        needs: What the model must expose.
        cost: Passes over the data.
        finds: What it can and cannot see.
        source: Paper.
    """

    name: str
    design: Callable[[OrderFile, int], OrderDesign]
    analyse: Callable[[np.ndarray, np.ndarray, int], OrderNumbers]
    default_orders: int
    windowed: bool = False
    counted_boundaries: bool = False
    fewest_strata: int = 1
    null: str
    validity: str
    needs: str = "log-probabilities"
    cost: str
    finds: str
    source: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMethod:
    """A membership score: a ranking, not a test.

    Attributes:
        name: As it stands in reports.
        score: (n_scores, n_tokens) float32 of a text -> score, higher = member.
        needs: What the model must expose.
        cost: Passes over the data.
        finds: What it can and cannot see.
        source: Paper.
    """

    name: str
    score: Callable[[np.ndarray], float]
    needs: str = "log-probabilities"
    cost: str
    finds: str
    source: str
