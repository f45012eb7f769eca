"""Judge inflation from scores on two sides; needs no model.

Called once scores exist, and by `verify` with what `texts.jsonl` holds.

Dimension key
    M  models, the one in question first
    N  published items
    P  other items
"""

import dataclasses
import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.documents import joined_codes
from jaxcontam.errors import InputError
from jaxcontam.score_gap.flags import NAME_ONCE, InflationDesign
from jaxcontam.score_gap.result import (
    InflationEstimate,
    InflationReason,
    InflationResult,
    InflationVerdict,
    ModelAccuracy,
)
from jaxcontam.stats.inflation import (
    FEWEST,
    ConStatEstimate,
    GapEstimate,
    constat,
    gap_estimate,
)
from jaxcontam.stats.pretests.similarity import near_duplicates, read_words

COMMAND = "inflation"
PUBLISHED, OTHER = "published", "other"
"""Sides, and columns of a file that holds one model's scores on both."""

Row = Mapping[str, Any]
"""`side`, `item`, `text` and `scores` (model -> score or None) of an item; `choices`
and `answers` where they are known; `group` where the user named a field."""

FEWEST_GROUPS = 10
"""Pairs, items of a side, or groups of either, that a verdict needs.

Fewer say next to nothing: where no pair differs, ten find an inflation of 37 points
with a chance of 0.8, five one of 73, three none.
"""


def judged_inflation(
    rows: Sequence[Row],
    models: Sequence[str],
    design: InflationDesign,
    *,
    benchmark: str = "",
    against: str = "",
    metric: str = "",
    chance: float | None = None,
    notes: Sequence[str] = (),
) -> InflationResult:
    """Estimate the inflation of the first model's score and choose the word.

    `metric` says how an item is scored, `chance` is the mean score of guessing, and
    None where it is not known.
    """
    n_references = len(models) - 1
    items = compared_items(rows, models, paired=design.paired)
    published_MN, other_MP = items.published, items.other
    _refuse_twins(np.hstack([published_MN, other_MP]), models)
    estimate = functools.partial(
        gap_estimate, paired=design.paired, groups=items.groups
    )
    gaps = [*map(estimate, published_MN[:, None], other_MP[:, None])]
    decides, estimates = gaps[0], [_points("gap", gaps[0])]
    warnings = [*notes, *items.notes]
    if n_references:
        beside = estimate(published_MN, other_MP)
        estimates.append(_points("difference in differences", beside))
        if not design.equally_hard:
            # Nobody vouches that the model's own gap is inflation.
            decides, estimates = beside, estimates[::-1]
        references = estimate(
            published_MN[1:].mean(axis=0)[None], other_MP[1:].mean(axis=0)[None]
        )
        warnings += _of_references(references)
    if n_references >= FEWEST:
        found, warning = _curve(items, design, chance)
        estimates += found
        warnings += warning
    verdict, reason = _verdict(decides, items.n_groups, n_references, design)
    texts = [f"{row['side']}\t{row['item']}\t{row['text']}" for row in rows]
    return InflationResult(
        benchmark=benchmark,
        against=against,
        paired=design.paired,
        equally_hard=design.equally_hard,
        metric=metric,
        chance=chance,
        min_points=design.min_points,
        group_field=design.named("document"),
        fingerprint=fingerprint(texts),
        n_published=published_MN.shape[1],
        n_other=other_MP.shape[1],
        n_groups=items.n_groups if items.is_grouped else None,
        verdict=verdict,
        reason=reason,
        accuracies=tuple(
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
        ),
        estimates=tuple(estimates),
        warnings=tuple(warnings),
    )


def _verdict(
    found: GapEstimate, n_groups: int, n_references: int, design: InflationDesign
) -> tuple[InflationVerdict, InflationReason]:
    """The word for the estimate that decides, and why it cannot be told."""
    if n_groups < FEWEST_GROUPS:
        return "cannot tell", "items"
    if n_references < 2 and not design.equally_hard:
        return "cannot tell", "one reference" if n_references else "no reference"
    if found.outside:
        return "cannot tell", "outside"
    if found.low > 0:
        return "inflated", ""
    if 100 * found.mde <= design.min_points:
        return "no inflation found", ""
    return "cannot tell", "references" if found.rests_on == "models" else "items"


def _curve(
    items: "ComparedItems", design: InflationDesign, chance: float | None
) -> tuple[list[InflationEstimate], list[str]]:
    try:
        found = constat(
            items.published,
            items.other,
            paired=design.paired,
            chance=chance,
            groups=items.groups,
            seed=design.seed,
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
            if (scores_MI[m] == scores_MI[n]).all() and np.ptp(scores_MI[m]) > 0:
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
        f"the other items are {word}: references score {100 * abs(mean.estimate):.1f} "
        f"points {less} on them, which the difference in differences removes"
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


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ComparedItems:
    """Scores of items that are compared.

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
        row for row in kept if None not in (row["scores"].get(name) for name in models)
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
        notes.append(f"items that nearly repeat another one, grouped with it: {n_like}")
    if min(len(np.unique(codes)) for codes in groups) < 2:
        counts = " and ".join(str(len(side)) for side in sides)
        hint = "give rewrites the ids of their originals, or pass --unpaired"
        if min(map(len, sides)) > 1:
            counts += " in one group"
            hint = (
                "give more items: those of one group, or that nearly repeat each "
                "other, count once"
            )
        raise InputError(f"too few items to compare: {counts}", hint=hint)
    return ComparedItems(
        published=_scores(sides[0], models),
        other=_scores(sides[1], models),
        groups=groups,
        notes=tuple(notes),
    )


def _content(row: Row) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
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
    return kept, [f"{said}, left out: {n_out}"] if n_out else []


def _pairs(
    published: Sequence[Row], other: Sequence[Row]
) -> tuple[list[list[Row]], list[str]]:
    by_item: dict[str, Row] = {}
    for row in published:
        if row["item"] in by_item:
            raise InputError(
                f"item {row['item']!r} is published twice",
                hint="name the field that identifies an item with --fields id=NAME",
            )
        by_item[row["item"]] = row
    rewrites: dict[str, dict[Hashable, Row]] = {}
    for i, row in enumerate(other):
        rewrites.setdefault(row["item"], {}).setdefault(_content(row) or i, row)
    both = [item for item in by_item if item in rewrites]
    pairs = [[by_item[item], *rewrites[item].values()] for item in both]
    notes = []
    if n_alone := len(by_item) + len(rewrites) - 2 * len(pairs):
        notes.append(f"items without a partner, left out: {n_alone}")
    if n_several := sum(len(pair) > 2 for pair in pairs):
        notes.append(f"items with several rewrites, whose mean is used: {n_several}")
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
    for labels, unit in zip(like, units, strict=True):
        # A pair belongs where its published item does.
        if (name := unit[0].get("group")) is not None:
            labels.append(name)
    return joined_codes(like), n_like


def _scores(units: Sequence[Sequence[Row]], models: Sequence[str]) -> np.ndarray:
    means = [
        [np.mean([row["scores"][m] for row in unit]) for unit in units] for m in models
    ]
    return np.array(means, np.float64)
