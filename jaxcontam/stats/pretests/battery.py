"""The battery: checks that a file calls for, which reject after Holm, what would help.

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
from jaxcontam.stats.pretests.attraction import (
    OPEN,
    RESOLVED,
    STRATUM,
    attraction_of,
    far_apart,
)
from jaxcontam.stats.pretests.blind import blind_pretests
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
from jaxcontam.stats.pretests.forward import forward_pretests
from jaxcontam.stats.pretests.learned import learned_direction
from jaxcontam.stats.pretests.null import (
    LEVEL,
    Statistic,
    draw_orders,
    gate,
    group_codes,
    null_distributions,
    permutation_p,
    tail_p,
    value_codes,
)
from jaxcontam.stats.pretests.similarity import read_words
from jaxcontam.stats.result import Pretest

__all__ = ["LEVEL", "pretest_battery"]
N_PERMUTATIONS = 9_999
# Settles what is no evidence.
_FIRST_PERMUTATIONS = 499
# Kinds of checks that change their sign if the file is read backwards. Neighbours that
# are alike are so in both directions, and kinds that come one after the other, by the
# alphabet of their names or labels, have few places with a direction.
_DIRECTIONAL = ("alphabetical_steps", "label_steps", "length_steps", "length_trend")
_DIRECTIONAL += ("number_steps", "number_trend")


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One statistic of the battery.

    A check that `counts` sums events, which may be rare. One-sided ones reject large
    values. `matrices`, in place of a statistic: examples in some order -> likeness
    within strata of them, for `attraction_of`.
    """

    name: str
    statistic: Statistic | None
    matrices: Callable[[np.ndarray], list[np.ndarray]] | None = None
    two_sided: bool = True
    counts: bool = False
    remedy: str = ""
    note: str | None = None

    def row(self, statistic: float, p_value: float, applicable: bool) -> Pretest:
        """A row of a report, before `gate`."""
        return Pretest(
            name=self.name,
            statistic=statistic,
            p_value=p_value,
            passed=True,
            directional=self.name.partition(":")[0] in _DIRECTIONAL,
            remedy=self.remedy,
            note=self.note,
            applicable=applicable,
        )


def pretest_battery(
    texts: Sequence[str],
    fields: Mapping[str, Sequence[object]],
    *,
    seed: int,
    groups: Sequence[object] | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> tuple[Pretest, ...]:
    """Tests of the file's order, Holm-corrected at 0.01; no model is asked.

    Looks at lengths, at the alphabet, at likeness of neighbours (TF-IDF), at duplicates
    and shared beginnings that stand side by side, at what in the text points forward,
    at what one part of the file teaches about the others' direction, at every field,
    and at what a copying scorer makes of the order (see `blind_pretests`). All are
    two-sided but those of duplicates and contexts, which may be scattered but not
    gathered, and of the learned rule. A pass does not prove exchangeability. A remedy
    is that of the check, or of another one that fails.

    P-values are permutation p-values. Files above 5,000 rows have fewer permutations,
    and a p-value beyond them comes from a fitted law; likeness of neighbours is
    compared within strata of 8 above 4,000 rows.

    With groups orders keep to them, as those of the order test do. `say` is told what
    is looked at next.
    """
    # Several checks read the same rows.
    read = functools.lru_cache(maxsize=1)(read_words)
    say("words and fields")
    looked_at = look_at(fields, texts)
    checks = [*_checks_of_texts(texts, looked_at, read), *_checks_of_fields(looked_at)]
    say("random orders")
    found = _by_permutation(checks, len(texts), seed, groups)
    for check in checks:
        if check.matrices is not None:
            found[check.name] = _in_strata(check, len(texts), seed, groups)
    tests = [found[check.name] for check in checks]
    say("copying scorers")
    blind = blind_pretests(texts, groups=groups, seed=seed)
    say("what points forward")
    forward = forward_pretests(texts, groups=groups, seed=seed, read=read)
    others = [*tests, *forward, *blind]
    say("learned direction")
    n_checks = 1 + len(others)
    learned = learned_direction(
        texts, groups=groups, n_checks=n_checks, seed=seed, read=read
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
    checks: Sequence[Check], n: int, seed: int, groups: Sequence[object] | None
) -> dict[str, Pretest]:
    published_1N = np.arange(n, dtype=np.int32)[None]
    statistics = {c.name: c.statistic for c in checks if c.statistic is not None}
    two_sided = {c.name: c.two_sided for c in checks}
    observed = {name: float(of(published_1N)[0]) for name, of in statistics.items()}
    drawn = {name: np.empty(0) for name in statistics}
    p_values = dict.fromkeys(statistics, 0.0)
    # The smallest p-value must stay below the level when Holm multiplies it: many
    # fields ask for more permutations, of those statistics that could still reject.
    wanted = max(N_PERMUTATIONS, 400 * len(statistics) - 1)
    # Longer files have fewer: p-values below what these resolve come from a fitted law.
    most = min(wanted, max(_FIRST_PERMUTATIONS, 50_000_000 // max(n, 1)))
    # A p-value above OPEN stays as the first orders gave it; all others count all
    # orders, so that those small enough to reject are ordinary permutation p-values.
    for stage, n_orders in enumerate((_FIRST_PERMUTATIONS, most - _FIRST_PERMUTATIONS)):
        left = {name: of for name, of in statistics.items() if p_values[name] <= OPEN}
        if not n_orders or not left:
            break
        orders = draw_orders(n, n_orders, seed=(seed, stage), groups=groups)
        for name, more_R in null_distributions(left, orders).items():
            drawn[name] = np.concatenate([drawn[name], more_R])
            p_values[name] = permutation_p(
                observed[name], drawn[name], two_sided=two_sided[name]
            )
    found = {}
    for c in checks:
        if c.statistic is None:
            continue
        values_R, p_value, own = drawn[c.name], p_values[c.name], observed[c.name]
        # What no permutation changes cannot fail.
        varies = bool(np.ptp(values_R) > 0)
        if varies and len(values_R) < wanted and p_value <= RESOLVED / len(values_R):
            law = tail_p(own, values_R, two_sided=c.two_sided, counts=c.counts)
            p_value = min(p_value, law)
        found[c.name] = c.row(own, p_value if varies else 1.0, varies)
    return found


def _in_strata(
    check: Check, n: int, seed: int, groups: Sequence[object] | None
) -> Pretest:
    assert check.matrices is not None
    order_N = far_apart(n)
    matrices = check.matrices(order_N)
    ends = np.cumsum([len(matrix_SS) for matrix_SS in matrices])
    codes = np.split(group_codes(n, groups)[order_N], ends[:-1])
    near, _ = attraction_of(matrices, codes, seed=seed)
    return check.row(near.statistic, near.p_value, near.applicable)


def _checks_of_texts(
    texts: Sequence[str], fields: Sequence[Field], read: similarity.ReadWords
) -> Iterator[Check]:
    lengths = [len(text) for text in texts]
    length_rank_N = centred_ranks(lengths)
    yield Check("length_autocorrelation", autocorrelation(length_rank_N))
    yield Check("length_trend", trend(length_rank_N))
    yield Check("length_steps", steps(lengths))
    yield from _alphabetical("", texts)
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
        _gathered("adjacent_duplicates", same_N), note=note if n_distinct < n else None
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
            yield from _alphabetical(f":{field.name}", [*map(str, field.values)])


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


def _alphabetical(suffix: str, texts: Sequence[str]) -> Iterator[Check]:
    ranks_N = sorted_ranks(texts)
    yield Check(f"alphabetical_trend{suffix}", trend(ranks_N))
    yield Check(f"alphabetical_steps{suffix}", steps(ranks_N))


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
        own_N = first_numbers([str(value) for value in field.values])
        if own_N is not None and np.array_equal(own_N, numbers_N, equal_nan=True):
            return True
    return False


def sorted_ranks(values: Sequence[Any]) -> np.ndarray:
    """`centred_ranks` of values that can be sorted, such as texts."""
    rank = {value: i for i, value in enumerate(sorted(set(values)))}
    return centred_ranks([rank[value] for value in values])


def centred_ranks(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """`ranks_N`: mid-ranks less their mean; 0 where the value is missing (nan)."""
    values_N = np.asarray(values, np.float64)
    there_N = ~np.isnan(values_N)
    # Without scipy.stats, whose import takes a second of each audit.
    _, place, count = np.unique(
        values_N[there_N], return_inverse=True, return_counts=True
    )
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    ranks_N = np.zeros(len(values_N))
    ranks_N[there_N] = ranks - (len(ranks) + 1) / 2
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
    values_N = np.asarray(values, np.float64)
    # Ranks, since float32 is quick to move and large ids would collide in it.
    ranks_N = np.unique(values_N, return_inverse=True)[1].astype(np.float32)
    ranks_N[np.isnan(values_N)] = np.nan

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
