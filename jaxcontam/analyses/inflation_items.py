"""Which items count, and which of them belong together.

Dimension key
    M  models, the one in question first, then references
    N  published items
    P  other items
"""

import dataclasses
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.data.score_columns import OTHER, PUBLISHED
from jaxcontam.errors import InputError
from jaxcontam.methods.membership.documents import joined_codes
from jaxcontam.stats.pretests.fields import columns, numbers, shared_heads
from jaxcontam.stats.pretests.similarity import near_duplicates, read_words

Row = Mapping[str, Any]
"""`side`, `item`, `text` and `scores` (model -> score or None) of an item; `choices`
and `answers` where they are known; `group` where the user named a field."""

FEWEST_GROUPS = 10
"""Pairs, items of a side, or groups of either, that a verdict needs.

Fewer say next to nothing: where no pair differs, ten find an inflation of 37 points
with a chance of 0.8, five one of 73, three none.
"""

GROUP_FIELD = "--group-field"
"""Names the field of groups, as it is typed."""

# More different values than this share of the items are no groups.
_REPEATED = 0.75

Content = tuple[str, tuple[str, ...], tuple[str, ...]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ComparedItems:
    """Items that are compared.

    Attributes:
        published: (M, N) scores.
        other: (M, P) scores; of pairs P = N.
        groups: Codes of items that are drawn together; see `gap_estimate`.
    """

    published: np.ndarray
    other: np.ndarray
    groups: tuple[np.ndarray, ...]
    notes: tuple[str, ...]

    @property
    def n_groups(self) -> int:
        """Groups of pairs, or of the side that has fewer."""
        return min(len(np.unique(codes)) for codes in self.groups)

    @property
    def is_grouped(self) -> bool:
        """Whether a group holds several items of a side."""
        return any(len(np.unique(codes)) < len(codes) for codes in self.groups)


def seen_groups(
    rows: Sequence[Mapping[str, object] | None],
    own: Collection[str],
    texts: Sequence[str] = (),
) -> list[str]:
    """A note where items may belong together and nobody said so.

    Fields are named whose values repeat, ten different ones at least: fewer are labels.
    Fields in `own` are the item itself; `texts` are counted that begin alike.
    """
    found = []
    for name, values in columns(rows).items():
        if name in own or _are_scores(values):
            continue
        n_distinct = len({str(value) for value in values})
        if FEWEST_GROUPS <= n_distinct <= _REPEATED * len(values):
            found.append(f"values of {name} repeat ({n_distinct:,} in {len(values):,})")
    if texts and not found:
        n_alike = len(texts) - len(np.unique(shared_heads(texts)))
        if n_alike >= FEWEST_GROUPS:
            found.append(f"{n_alike:,} items begin as another one does")
    if not found:
        return []
    return [
        f"{' and '.join(found)}: if such items share a passage or a source, name the "
        f"field with {GROUP_FIELD}, for they are no independent draws and the interval "
        "is too narrow"
    ]


def _are_scores(values: Sequence[object]) -> bool:
    found = numbers(values)
    return found is not None and bool(((found >= 0) & (found <= 1)).all())


def compared_items(
    rows: Sequence[Row], models: Sequence[str], *, paired: bool
) -> ComparedItems:
    """Items that all models answered and that only one side holds.

    What stands on both sides was published, and shows nothing: in pairs such a rewrite
    is left out, else the item on both sides, so that these stay equally hard. Items of
    equal groups, and those that repeat or nearly repeat another, are drawn together.
    Several rewrites of one item count as their mean, equal ones once.
    """
    kept, notes = _unseen(rows, paired=paired)
    scored = [
        row
        for row in kept
        if not any(row["scores"].get(model) is None for model in models)
    ]
    if n_unscored := len(kept) - len(scored):
        notes.append(f"items without a score of each model, left out: {n_unscored}")
    published, other = (
        [row for row in scored if row["side"] == side] for side in (PUBLISHED, OTHER)
    )
    if paired:
        units, more = _pairs(published, other)
        notes += more
        sides = [[unit[:1] for unit in units], [unit[1:] for unit in units]]
    else:
        units = [[row] for row in [*published, *other]]
        sides = [units[: len(published)], units[len(published) :]]
    codes, n_like = _groups(units, apart=paired)
    groups = (codes,) if paired else (codes[: len(published)], codes[len(published) :])
    if n_like:
        notes.append(f"items that nearly repeat another one, drawn with it: {n_like}")
    if min(len(np.unique(codes)) for codes in groups) < 2:
        counts = " and ".join(str(len(side)) for side in sides)
        if min(map(len, sides)) > 1:
            raise InputError(
                f"too few items to compare: {counts} in one group",
                hint="items of one group, or that nearly repeat another, are one draw",
            )
        raise InputError(
            f"too few items to compare: {counts}",
            hint="rewrites need the ids of their originals; --unpaired takes any",
        )
    return ComparedItems(
        published=_scores(sides[0], models),
        other=_scores(sides[1], models),
        groups=groups,
        notes=tuple(notes),
    )


def _content(row: Row) -> Content | None:
    """What is asked and what counts as right; None where it is not known."""
    if not row["text"] or "choices" not in row:
        return None
    return row["text"], tuple(row["choices"]), tuple(row["answers"])


def _unseen(rows: Sequence[Row], *, paired: bool) -> tuple[list[Row], list[str]]:
    held = [
        {_content(row) for row in rows if row["side"] == side} - {None}
        for side in (PUBLISHED, OTHER)
    ]
    both = held[0] & held[1]
    kept = [
        row
        for row in rows
        if _content(row) not in both or (paired and row["side"] == PUBLISHED)
    ]
    n_out = len(rows) - len(kept)
    said = "rewrites that equal a published item" if paired else "items on both sides"
    return kept, [f"{said}, left out: {n_out}"] * bool(n_out)


def _pairs(
    published: Sequence[Row], other: Sequence[Row]
) -> tuple[list[list[Row]], list[str]]:
    """Each item followed by its rewrites, and what is to be known of them."""
    by_item: dict[str, Row] = {}
    for row in published:
        if row["item"] in by_item:
            raise InputError(
                f"item {row['item']!r} is published twice",
                hint="--id-field names what tells items apart",
            )
        by_item[row["item"]] = row
    rewrites: dict[str, dict[Hashable, Row]] = {}
    for i, row in enumerate(other):
        rewrites.setdefault(row["item"], {}).setdefault(_content(row) or i, row)
    pairs = [
        [row, *rewrites[item].values()]
        for item, row in by_item.items()
        if item in rewrites
    ]
    notes = []
    if n_alone := len(by_item) + len(rewrites) - 2 * len(pairs):
        notes.append(f"items without a partner, left out: {n_alone}")
    if n_several := sum(len(pair) > 2 for pair in pairs):
        notes.append(f"items with several rewrites, taken by mean: {n_several}")
    return pairs, notes


def _groups(units: Sequence[Sequence[Row]], *, apart: bool) -> tuple[np.ndarray, int]:
    """Codes of units that are drawn together, and how many only repeat another one.

    `apart` compares texts within a side alone: those of the other differ in wording.
    """
    like: list[list[Hashable]] = [[] for _ in units]
    texts = [
        (row["side"], labels, "\n".join([content[0], *content[1], *content[2]]))
        for labels, unit in zip(like, units, strict=True)
        for row in unit
        if (content := _content(row)) is not None
    ]
    if texts and len(texts) == sum(map(len, units)):
        for sides in ((PUBLISHED,), (OTHER,)) if apart else ((PUBLISHED, OTHER),):
            own = [(labels, text) for side, labels, text in texts if side in sides]
            words = read_words(tuple(text for _, text in own))
            codes = near_duplicates(words.words, [t for _, t in own], words.vectors)
            for (labels, _), code in zip(own, codes.tolist(), strict=True):
                labels.append((sides, code))
    n_like = len(units) - len(np.unique(joined_codes(like)))
    # A pair belongs where its published item does.
    named = [unit[0].get("group") for unit in units]
    labels = [
        own if name is None else [*own, name]
        for own, name in zip(like, named, strict=True)
    ]
    return joined_codes(labels), n_like


def _scores(units: Sequence[Sequence[Row]], models: Sequence[str]) -> np.ndarray:
    """(M, units) mean score of each model on the rows of each unit."""
    return np.array(
        [
            [np.mean([row["scores"][m] for row in unit]) for unit in units]
            for m in models
        ],
        np.float64,
    )
