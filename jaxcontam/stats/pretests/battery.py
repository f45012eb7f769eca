"""The battery: what is looked at, and which checks reject after Holm.

Dimension key
    N  examples
    R  random orders
"""

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jaxcontam.results import Pretest
from jaxcontam.stats.multiple import holm
from jaxcontam.stats.pretests import fields as columns_of
from jaxcontam.stats.pretests import series, similarity
from jaxcontam.stats.pretests.null import (
    Statistic,
    draw_orders,
    null_distributions,
    permutation_p,
    value_codes,
)

N_PERMUTATIONS = 9_999
# The smallest p-value must stay below the level when Holm multiplies it: many fields
# ask for more permutations, of those statistics that could still reject.
_PERMUTATIONS_A_TEST = 400
_OPEN = 0.05
LEVEL = 0.01
"""Familywise level of the battery."""

# Checks of something that points forwards: read backwards it would be the other way
# round. Neighbours that are alike are alike in both directions, and a file sorted by
# a label with few values has few places that have a direction.
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Check:
    """One statistic of the battery; one-sided checks reject large values."""

    name: str
    statistic: Statistic
    two_sided: bool = True
    remedy: str = ""
    note: str | None = None


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
    exchangeability.

    Args:
        texts: Examples in published order.
        fields: Values of each field, one an example; see `columns`.
        seed: Seeds the permutations.
        groups: With `--group-field`: permute only among equal values, the null
            that the order test then assumes.
        blocks: With `--block-field`: permute runs of equal value as wholes.
    """
    checks = [*_checks_of_texts(texts, fields), *_checks_of_fields(texts, fields)]
    n = len(texts)
    published_1N = np.arange(n, dtype=np.int32)[None]
    observed = {c.name: float(c.statistic(published_1N)[0]) for c in checks}
    drawn: dict[str, np.ndarray] = {}
    p_values: dict[str, float] = {}
    n_more = _PERMUTATIONS_A_TEST * len(checks) - 1 - N_PERMUTATIONS
    # The second stage counts the first one's orders too, and can only decide what the
    # first one leaves open: p-values below its level are those of all orders.
    for stage, n_orders in enumerate((N_PERMUTATIONS, max(0, n_more))):
        left = [c for c in checks if p_values.get(c.name, 0.0) <= _OPEN]
        if not n_orders or not left:
            break
        more = null_distributions(
            {check.name: check.statistic for check in left},
            draw_orders(n, n_orders, seed=(seed, stage), groups=groups, blocks=blocks),
        )
        for c in left:
            old = drawn.get(c.name, np.empty(0))
            drawn[c.name] = np.concatenate([old, more[c.name]])
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
            directional=c.name.partition(":")[0] in _DIRECTIONAL,
            remedy=c.remedy,
            note=c.note,
        )
        for c in checks
    )


def directional(pretests: Sequence[Pretest]) -> tuple[Pretest, ...]:
    """Those that a reversible order must pass: grouping reads the same backwards."""
    return tuple(test for test in pretests if test.directional)


def _checks_of_texts(
    texts: Sequence[str], fields: Mapping[str, Sequence[object]]
) -> Iterator[_Check]:
    lengths = [len(text) for text in texts]
    length_rank_N = series.centred_ranks(lengths)
    yield _Check("length_autocorrelation", series.autocorrelation(length_rank_N))
    yield _Check("length_trend", series.trend(length_rank_N))
    yield _Check("length_steps", series.steps(lengths))
    yield _Check("alphabetical_trend", series.trend(_alphabetical_ranks(texts)))
    numbers_N = columns_of.first_numbers(texts)
    if numbers_N is not None and not _stand_in_a_field(numbers_N, fields):
        yield from _checks_of_numbers("", numbers_N)
    # Ids make copies differ and hide what texts have in common.
    ids = [v for v in fields.values() if _are_unique_ids(v, texts)]
    bare = columns_of.without(texts, ids)
    words = [similarity.words_of(text) for text in bare]
    vectors_NV = similarity.tfidf(words)
    yield _Check("tfidf_adjacency", similarity.similar_neighbours(vectors_NV))
    same_N = similarity.near_duplicates(words, bare, vectors_NV)
    n_repeated = len(texts) - len(np.unique(same_N))
    yield dataclasses.replace(
        _gathered("adjacent_duplicates", same_N),
        note=f"{n_repeated} of {len(texts)} examples repeat or nearly repeat another "
        "one (same words, or cosine of words from 0.9 on)"
        if n_repeated
        else None,
    )
    yield _gathered("shared_beginning", columns_of.shared_heads(bare))


def _checks_of_fields(
    texts: Sequence[str], fields: Mapping[str, Sequence[object]]
) -> Iterator[_Check]:
    for name, values in fields.items():
        n_distinct = columns_of.n_distinct(values)
        if n_distinct < 2:
            continue
        if columns_of.is_label(values):
            yield from _checks_of_label(name, values)
            continue
        if n_distinct < len(values):
            blocks = shlex.join(["--block-field", name])
            codes_N = value_codes(values)
            yield _gathered(f"shared_context:{name}", codes_N, remedy=blocks)
        # Numbers that a loader gave its rows in file order prove nothing, unless
        # the model reads them.
        if not columns_of.is_in(values, texts) or list(values) == list(texts):
            continue
        if columns_of.are_ids(values):
            order_N = columns_of.natural_order(values)
            less = columns_of.template_without_ids(fields, texts)
            yield from _checks_of_numbers(f":{name}", order_N, remedy=less)
        else:
            ranks_N = _alphabetical_ranks([str(value) for value in values])
            yield _Check(f"alphabetical_trend:{name}", series.trend(ranks_N))


def _checks_of_label(name: str, values: Sequence[object]) -> Iterator[_Check]:
    codes_N = value_codes(values)
    order_N = columns_of.natural_order(values)
    rank_N = series.centred_ranks(order_N)
    found = {
        "equal_neighbours": series.equal_neighbours(codes_N),
        "label_trend": series.trend(rank_N),
    }
    if _has_an_order(values):
        found["label_autocorrelation"] = series.autocorrelation(rank_N)
        found["label_steps"] = series.steps(order_N)
    strata = shlex.join(["--group-field", name])
    for kind, statistic in found.items():
        yield _Check(f"{kind}:{name}", statistic, remedy=strata)


def _checks_of_numbers(
    suffix: str, numbers_N: np.ndarray, remedy: str = ""
) -> Iterator[_Check]:
    ranks_N = series.centred_ranks(numbers_N)
    yield _Check(f"number_trend{suffix}", series.trend(ranks_N), remedy=remedy)
    yield _Check(f"number_steps{suffix}", series.steps(numbers_N), remedy=remedy)


def _gathered(name: str, codes_N: np.ndarray, remedy: str = "") -> _Check:
    """More equal neighbours than chance gives; scattered ones are no fault."""
    statistic = series.equal_neighbours(codes_N)
    return _Check(name, statistic, two_sided=False, remedy=remedy)


def _has_an_order(values: Sequence[object]) -> bool:
    """Of a label: two values have none, equal neighbours say it all."""
    numbered = columns_of.numbers(values) is not None
    return numbered and columns_of.n_distinct(values) > 2


def _are_unique_ids(values: Sequence[object], texts: Sequence[str]) -> bool:
    return (
        columns_of.n_distinct(values) == len(values)
        and columns_of.are_ids(values)
        and columns_of.is_in(values, texts)
    )


def _stand_in_a_field(
    numbers_N: np.ndarray, fields: Mapping[str, Sequence[object]]
) -> bool:
    """Whether the texts' first numbers are those of a field that is checked itself."""
    for values in fields.values():
        if not columns_of.are_ids(values):
            continue
        if columns_of.is_label(values) and not _has_an_order(values):
            continue
        of_field_N = columns_of.first_numbers([str(value) for value in values])
        if of_field_N is not None and np.array_equal(
            of_field_N, numbers_N, equal_nan=True
        ):
            return True
    return False


def _alphabetical_ranks(texts: Sequence[str]) -> np.ndarray:
    rank = {text: i for i, text in enumerate(sorted(set(texts)))}
    return series.centred_ranks([rank[text] for text in texts])
