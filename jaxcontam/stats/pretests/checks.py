"""Checks that a file's texts and fields call for.

Dimension key
    N  examples
    S  neighbours, S = N - 1
    R  orders
"""

import dataclasses
import functools
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.stats.pretests import similarity
from jaxcontam.stats.pretests.attraction import STRATUM
from jaxcontam.stats.pretests.fields import (
    Field,
    first_numbers,
    look_at,
    natural_order,
    numbers,
    shared_heads,
    template_without_ids,
    without,
)
from jaxcontam.stats.pretests.null import Statistic, value_codes


def centred_ranks(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """`ranks_N`: mid-ranks less their mean; 0 where the value is missing (nan)."""
    from scipy.stats import rankdata

    values_N = np.asarray(values, np.float64)
    there_N = ~np.isnan(values_N)
    ranks_N = np.zeros(len(values_N))
    if there_N.any():
        ranks = rankdata(values_N[there_N])
        ranks_N[there_N] = ranks - ranks.mean()
    return ranks_N


def autocorrelation(ranks_N: np.ndarray) -> Statistic:
    """Correlation of centred ranks with those of the next example."""
    total = max(float(ranks_N @ ranks_N), 1e-300)

    def statistic(orders_RN: np.ndarray) -> np.ndarray:
        values_RN = ranks_N[orders_RN]
        return np.einsum("rn,rn->r", values_RN[:, :-1], values_RN[:, 1:]) / total

    return statistic


def trend(ranks_N: np.ndarray) -> Statistic:
    """Spearman's rho of centred ranks with the place in the file."""
    place_N = np.arange(len(ranks_N)) - (len(ranks_N) - 1) / 2
    scale = math.sqrt(max(float(place_N @ place_N) * float(ranks_N @ ranks_N), 1e-300))
    return lambda orders_RN: ranks_N[orders_RN] @ place_N / scale


def steps(values: Sequence[float] | np.ndarray) -> Statistic:
    """Steps up less steps down between neighbours; missing values (nan) take none.

    Unlike a trend it sees an order that starts again and again, such as the turns of
    many dialogues; read backwards it changes its sign.
    """
    from scipy.stats import rankdata

    # Ranks, since float32 is quick to move and large ids would collide in it.
    ranks = rankdata(values, "dense", nan_policy="omit")
    ranks_N = np.asarray(ranks, np.float32)

    def statistic(orders_RN: np.ndarray) -> np.ndarray:
        values_RN = ranks_N[orders_RN]
        left, right = values_RN[:, :-1], values_RN[:, 1:]
        ups = np.count_nonzero(right > left, axis=1)
        return (ups - np.count_nonzero(right < left, axis=1)).astype(np.float64)

    return statistic


def equal_neighbours(codes_N: np.ndarray) -> Statistic:
    """Number of examples whose next one has the same code."""

    def statistic(orders_RN: np.ndarray) -> np.ndarray:
        values_RN = codes_N[orders_RN]
        same_RS = values_RN[:, :-1] == values_RN[:, 1:]
        return np.count_nonzero(same_RS, axis=1).astype(np.float64)

    return statistic


# Neighbours that are alike are alike in both directions, and a file sorted by a label
# with few values has few places that have a direction.
_DIRECTIONAL = frozenset(
    {
        "alphabetical_trend",
        "label_steps",
        "length_steps",
        "length_trend",
        "number_steps",
        "number_trend",
    }
)
"""Kinds of checks with a direction: reading the file backwards changes their sign."""


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One statistic of the battery.

    A check that `counts` sums events, which may be rare. One-sided ones reject large
    values.

    Attributes:
        statistic: Statistic of orders; None where it is looked at within strata.
        matrices: (first, last example of runs) -> likeness within strata of runs, for
            `attraction_of`; or None.
        remedy: Flags that avoid what it looks at; or "".
    """

    name: str
    statistic: Statistic | None
    matrices: Callable[[np.ndarray, np.ndarray], list[np.ndarray]] | None = None
    two_sided: bool = True
    counts: bool = False
    remedy: str = ""
    note: str | None = None

    @property
    def directional(self) -> bool:
        """True if it bears on the reversed order too."""
        return self.name.partition(":")[0] in _DIRECTIONAL


def checks_of(
    texts: Sequence[str],
    fields: Mapping[str, Sequence[object]],
    *,
    read: similarity.ReadWords = similarity.read_words,
) -> list[Check]:
    """Every check of a file; see `pretest_battery`."""
    found = look_at(fields, texts)
    return [*_checks_of_texts(texts, found, read), *_checks_of_fields(found)]


def _checks_of_texts(
    texts: Sequence[str], fields: Sequence[Field], read: similarity.ReadWords
) -> Iterator[Check]:
    lengths = [len(text) for text in texts]
    length_rank_N = centred_ranks(lengths)
    yield Check("length_autocorrelation", autocorrelation(length_rank_N))
    yield Check("length_trend", trend(length_rank_N))
    yield Check("length_steps", steps(lengths))
    yield Check("alphabetical_trend", trend(sorted_ranks(texts)))
    numbers_N = first_numbers(texts)
    if numbers_N is not None and not _stand_in_a_field(numbers_N, fields):
        yield from _checks_of_numbers("", numbers_N)
    # Ids make copies differ and hide what texts have in common.
    ids = [
        field.values
        for field in fields
        if field.is_id and field.is_read and field.n_distinct == len(texts)
    ]
    bare = without(texts, ids)
    found = read(tuple(bare))
    words, vectors_NV = found.words, found.vectors
    if len(texts) <= similarity.MATRIX_EXAMPLES:
        yield Check("tfidf_adjacency", similarity.similar_neighbours(vectors_NV))
    else:
        cosines = functools.partial(
            similarity.stratum_cosines, vectors_NV, size=STRATUM
        )
        yield Check("tfidf_adjacency", None, matrices=cosines)
    same_N = similarity.near_duplicates(words, bare, vectors_NV)
    n, n_distinct = len(texts), len(np.unique(same_N))
    note = f"{n - n_distinct} of {n} examples repeat or nearly repeat another one"
    yield dataclasses.replace(
        _gathered("adjacent_duplicates", same_N),
        note=note if n_distinct < n else None,
    )
    yield _gathered("shared_beginning", shared_heads(bare))


def _checks_of_fields(fields: Sequence[Field]) -> Iterator[Check]:
    less = template_without_ids(fields)
    for field in fields:
        if field.is_label:
            yield from _checks_of_label(field)
            continue
        if field.n_distinct < len(field.values):
            codes_N = value_codes(field.values)
            # Blocks must be whole: their other orders could join parts of one.
            n_runs = 1 + np.count_nonzero(np.diff(codes_N))
            flag = "--block-field" if n_runs == field.n_distinct else "--group-field"
            kept = shlex.join([flag, field.name])
            yield _gathered(f"shared_context:{field.name}", codes_N, remedy=kept)
        # Numbers that a loader gave its rows in file order prove nothing, unless
        # the model reads them.
        if not field.is_read or field.is_text:
            continue
        if field.is_id:
            order_N = natural_order(field.values)
            yield from _checks_of_numbers(f":{field.name}", order_N, remedy=less)
        else:
            ranks_N = sorted_ranks([str(value) for value in field.values])
            yield Check(f"alphabetical_trend:{field.name}", trend(ranks_N))


def _checks_of_label(field: Field) -> Iterator[Check]:
    codes_N = value_codes(field.values)
    order_N = natural_order(field.values)
    rank_N = centred_ranks(order_N)
    found = {
        "equal_neighbours": equal_neighbours(codes_N),
        "label_trend": trend(rank_N),
    }
    if _has_an_order(field):
        found["label_autocorrelation"] = autocorrelation(rank_N)
        found["label_steps"] = steps(order_N)
    strata = shlex.join(["--group-field", field.name])
    for kind, statistic in found.items():
        counts = kind == "equal_neighbours"
        yield Check(f"{kind}:{field.name}", statistic, counts=counts, remedy=strata)


def _checks_of_numbers(
    suffix: str, numbers_N: np.ndarray, remedy: str = ""
) -> Iterator[Check]:
    ranks_N = centred_ranks(numbers_N)
    yield Check(f"number_trend{suffix}", trend(ranks_N), remedy=remedy)
    yield Check(f"number_steps{suffix}", steps(numbers_N), remedy=remedy)


def _gathered(name: str, codes_N: np.ndarray, remedy: str = "") -> Check:
    """More equal neighbours than chance gives; scattered ones are no fault."""
    statistic = equal_neighbours(codes_N)
    return Check(name, statistic, two_sided=False, counts=True, remedy=remedy)


def _has_an_order(label: Field) -> bool:
    """Two values have none: equal neighbours say it all."""
    return label.n_distinct > 2 and numbers(label.values) is not None


def _stand_in_a_field(numbers_N: np.ndarray, fields: Sequence[Field]) -> bool:
    """True if the texts' first numbers are those of a field that is checked itself."""
    for field in fields:
        if not field.is_id or (field.is_label and not _has_an_order(field)):
            continue
        of_field_N = first_numbers([str(value) for value in field.values])
        if of_field_N is not None and np.array_equal(
            of_field_N, numbers_N, equal_nan=True
        ):
            return True
    return False


def sorted_ranks(values: Sequence[Any]) -> np.ndarray:
    """`centred_ranks` of values that can be sorted, such as texts."""
    rank = {value: i for i, value in enumerate(sorted(set(values)))}
    return centred_ranks([rank[value] for value in values])
