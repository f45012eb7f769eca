"""Judge inflation from scores on two sides; needs no model.

`judged_inflation` is called once scores exist, and by `verify` with what `texts.jsonl`
holds.

Dimension key
    R  references
    N  published items
    P  other items
"""

import dataclasses
import functools
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.documents import joined_codes
from jaxcontam.errors import InputError
from jaxcontam.score_gap.result import (
    InflationEstimate,
    InflationReason,
    InflationResult,
    InflationVerdict,
    ModelAccuracy,
)
from jaxcontam.score_gap.score_columns import OTHER, PUBLISHED
from jaxcontam.stats.inflation import (
    FEWEST,
    ConStatEstimate,
    GapEstimate,
    constat,
    gap_estimate,
)
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
        """True if a group holds several items of a side."""
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
        found_N = numbers(values)
        is_score = found_N is not None and ((found_N >= 0) & (found_N <= 1)).all()
        if name in own or is_score:
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
    """The question and its right answers; None where they are not known."""
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
    return np.array(
        [
            [np.mean([row["scores"][m] for row in unit]) for unit in units]
            for m in models
        ],
        np.float64,
    )


MIN_POINTS = 5.0
"""Inflation that matters unless a user says otherwise."""

NAME_ONCE = "name each model once, and MODEL as no reference of itself"
"""What to do about a model that stands twice: it hides how much models differ."""

UNPAIRED, EQUALLY_HARD, LEAST = "--unpaired", "--equally-hard", "--min-points"
"""What decides a verdict beside the scores, as it is typed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides, and what is known of how they compare.

    Attributes:
        chance: Mean score of guessing; None where it is not known.
        group_field: Field whose equal values name items that are drawn together.
        seed: Seeds the bootstrap of `constat`.
    """

    benchmark: str = ""
    against: str = ""
    paired: bool = True
    equally_hard: bool = False
    metric: str = ""
    chance: float | None = None
    min_points: float = MIN_POINTS
    group_field: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.min_points) and self.min_points > 0):
            raise InputError(f"{LEAST} must be positive, got {self.min_points}")

    @property
    def words(self) -> tuple[str, ...]:
        """The flags by which the user speaks of the comparison."""
        words = [UNPAIRED] * (not self.paired) + [EQUALLY_HARD] * self.equally_hard
        if self.min_points != MIN_POINTS:
            words += [LEAST, str(self.min_points)]
        if self.group_field is not None:
            words += [GROUP_FIELD, self.group_field]
        return tuple(words)

    @classmethod
    def said(cls, words: Sequence[str], **known: Any) -> "Comparison":
        """The comparison that the words of a command ask for."""
        if LEAST in words:
            known["min_points"] = float(words[list(words).index(LEAST) + 1])
        if GROUP_FIELD in words:
            known["group_field"] = words[list(words).index(GROUP_FIELD) + 1]
        paired, equally_hard = UNPAIRED not in words, EQUALLY_HARD in words
        return cls(paired=paired, equally_hard=equally_hard, **known)


def judged_inflation(
    rows: Sequence[Row],
    models: Sequence[str],
    asked: Comparison,
    notes: Sequence[str] = (),
) -> InflationResult:
    """Estimate the inflation of the first model's score and choose the word."""
    n_references = len(models) - 1
    items = compared_items(rows, models, paired=asked.paired)
    published_MN, other_MP = items.published, items.other
    _refuse_twins(np.hstack([published_MN, other_MP]), models)
    estimate = functools.partial(gap_estimate, paired=asked.paired, groups=items.groups)
    gaps = [
        estimate(published_MN[m, None], other_MP[m, None]) for m in range(len(models))
    ]
    first, estimates = gaps[0], [_points("gap", gaps[0])]
    warnings = [*notes, *items.notes]
    if n_references:
        beside = estimate(published_MN, other_MP)
        estimates.append(_points("difference in differences", beside))
        if not asked.equally_hard:
            # Nobody vouches that the model's own gap is inflation.
            first, estimates = beside, estimates[::-1]
        references = estimate(
            published_MN[1:].mean(axis=0)[None], other_MP[1:].mean(axis=0)[None]
        )
        warnings += _of_references(references)
    if n_references >= FEWEST:
        found, warning = _curve(items, asked)
        estimates += found
        warnings += warning
    verdict, reason = inflation_verdict(
        first,
        n_groups=items.n_groups,
        n_references=n_references,
        equally_hard=asked.equally_hard,
        min_points=asked.min_points,
    )
    accuracies = tuple(
        ModelAccuracy(
            model=name,
            reference=m > 0,
            published=float(published_MN[m].mean()),
            other=float(other_MP[m].mean()),
            gap=100 * gaps[m].estimate,
            gap_low=100 * gaps[m].low,
            gap_high=100 * gaps[m].high,
        )
        for m, name in enumerate(models)
    )
    told = dataclasses.asdict(asked)
    return InflationResult(
        **{name: value for name, value in told.items() if name != "seed"},
        fingerprint=fingerprint(
            [f"{row['side']}\t{row['item']}\t{row['text']}" for row in rows]
        ),
        n_published=published_MN.shape[1],
        n_other=other_MP.shape[1],
        n_groups=items.n_groups if items.is_grouped else None,
        verdict=verdict,
        reason=reason,
        accuracies=accuracies,
        estimates=tuple(estimates),
        warnings=tuple(warnings),
    )


def inflation_verdict(
    found: GapEstimate,
    *,
    n_groups: int,
    n_references: int,
    equally_hard: bool,
    min_points: float,
) -> tuple[InflationVerdict, InflationReason]:
    """The word for the estimate that decides, and why it cannot be told.

    `n_groups` are groups of pairs, or of the side that has fewer; without groups pairs
    or items.
    """
    if n_groups < FEWEST_GROUPS:
        return "cannot tell", "items"
    if n_references < 2 and not equally_hard:
        return "cannot tell", "one reference" if n_references else "no reference"
    if found.outside:
        return "cannot tell", "outside"
    if found.low > 0:
        return "inflated", ""
    if 100 * found.mde <= min_points:
        return "no inflation found", ""
    return "cannot tell", "references" if found.rests_on == "models" else "items"


def _curve(
    items: ComparedItems, asked: Comparison
) -> tuple[list[InflationEstimate], list[str]]:
    try:
        found = constat(
            items.published,
            items.other,
            paired=asked.paired,
            chance=asked.chance,
            groups=items.groups,
            seed=asked.seed,
        )
    except ValueError:
        return [], ["the references score alike, so there is no curve"]
    beyond = (
        "the model scores outside the references on the other items: the curve of "
        "constat is a straight line there"
    )
    return [_points("constat", found)], [beyond] * found.outside


def _refuse_twins(scores_MI: np.ndarray, models: Sequence[str]) -> None:
    for m, name in enumerate(models):
        for n in range(m):
            is_one = (scores_MI[m] == scores_MI[n]).all()
            if is_one and np.ptp(scores_MI[m]) > 0:
                raise InputError(
                    f"{models[n]} and {name} have the same score on every item",
                    hint=NAME_ONCE,
                )


def _of_references(mean: GapEstimate) -> list[str]:
    """A note if the gap of their mean score shows the others to be harder or easier."""
    if mean.low <= 0 <= mean.high:
        return []
    word, less = ("harder", "less") if mean.low > 0 else ("easier", "more")
    return [
        f"the other items are {word}: references score "
        f"{100 * abs(mean.estimate):.1f} points {less} on them, which the "
        "difference in differences takes out"
    ]


def _points(estimator: Any, found: GapEstimate | ConStatEstimate) -> InflationEstimate:
    is_gap = isinstance(found, GapEstimate)
    return InflationEstimate(
        estimator=estimator,
        points=100 * found.estimate,
        low=100 * found.low,
        high=100 * found.high,
        p_value=found.p_value,
        mde=100 * found.mde if is_gap else None,
        spread=100 * found.spread if is_gap and found.spread is not None else None,
        rests_on=found.rests_on if is_gap else "items",
    )
