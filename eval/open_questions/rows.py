"""What questions measure of one set, and how cells of many sets are summed up."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from eval.open_questions.scores import SetScores
from eval.study import Grid


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Where a number was measured; each question adds its own.

    Attributes:
        population: What the model is one of.
        seed: Of the model.
        name: Of the set.
        copies: How often it was planted.
    """

    population: str
    seed: int
    name: str
    copies: int


_R = TypeVar("_R", bound=Row)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a question's rows come to.

    Attributes:
        grids: Tables.
        figures: Name -> text of an SVG.
    """

    grids: tuple[Grid, ...]
    figures: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        name: As typed after `--questions`.
        row: Its kind of row.
        measure: Scores of a set -> rows.
        answer: Rows of all sets -> tables and figures.
    """

    name: str
    row: type[Row]
    measure: Callable[[SetScores], list[Any]]
    answer: Callable[[Sequence[Any]], Answer]


def where(scores: SetScores) -> dict[str, Any]:
    """The fields of `Row` of a set."""
    subject = scores.subject
    return {
        "population": subject.population,
        "seed": subject.seed,
        "name": subject.benchmark.name,
        "copies": subject.copies,
    }


def cells(rows: Iterable[_R], key: Callable[[_R], Any]) -> dict[Any, list[_R]]:
    """Rows by a key, in ascending order of keys."""
    found: dict[Any, list[_R]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return dict(sorted(found.items(), key=lambda item: item[0]))


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % interval by Student's t; of a single value, that alone.

    Args:
        values: One a model (or a set of the one model that there is).
    """
    from scipy import stats

    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return mean, mean, mean
    half = float(stats.t.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) / n**0.5
    return mean, mean - half, mean + half


def ratio_interval(
    above: Sequence[float], below: Sequence[float]
) -> tuple[float, float, float] | None:
    """Ratio of two means of the same models, its 95 % interval; None near 0 / 0.

    The interval is that of a linear approximation and says nothing where the lower
    mean may be 0, so none is given unless it is three standard errors from there.
    """
    from scipy import stats

    top, bottom = np.asarray(above, np.float64), np.asarray(below, np.float64)
    n, mean = len(bottom), float(bottom.mean())
    if n < 2 or abs(mean) < 3 * float(bottom.std(ddof=1)) / n**0.5 or mean == 0:
        return None
    ratio = float(top.mean()) / mean
    se = float((top - ratio * bottom).std(ddof=1)) / n**0.5 / abs(mean)
    half = float(stats.t.ppf(0.975, n - 1)) * se
    return ratio, ratio - half, ratio + half


def words(interval: tuple[float, float, float] | None, digits: int = 2) -> str:
    """An estimate with half of its interval's width: `0.31 ± 0.06`.

    A lone one stands without. Intervals here are symmetric.
    """
    if interval is None:
        return ""
    mean, low, high = interval
    if low == high:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {(high - low) / 2:.{digits}f}"
