"""Read the items that are compared, or scores of them that somebody else computed."""

import contextlib
import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.benchmark import drawn_places, load_benchmark
from jaxcontam.data.encoding import encode_texts
from jaxcontam.data.questions import Question, item_fields, read_questions
from jaxcontam.data.tables import is_number
from jaxcontam.data.templates import field_of
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.progress import Progress
from jaxcontam.reports.archive import number_or_none
from jaxcontam.score_gap.flags import InflationDesign
from jaxcontam.score_gap.judging import FEWEST_GROUPS, OTHER, PUBLISHED
from jaxcontam.scoring.opened import OpenModel, SequenceScorer
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.stats.pretests.fields import columns, numbers, shared_heads
from jaxcontam.terminal_text import printable

ITEM_COLUMNS = ("item", "id", "item_id", "question_id")
"""Names of the column of items, the first one that stands there."""

# More different values than this share of the items are no groups.
_REPEATED = 0.75

Scores = dict[str, float]
"""Item -> score in [0, 1]."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sides:
    """Items that a model may have seen, and `other` ones that it cannot have."""

    benchmark: str
    against: str
    published: tuple[Question, ...]
    other: tuple[Question, ...]
    notes: tuple[str, ...]

    @property
    def questions(self) -> tuple[Question, ...]:
        """All of them, published ones first."""
        return self.published + self.other

    @property
    def is_choice(self) -> bool:
        """True if the answer is one of several choices."""
        return bool(self.published[0].choices)

    @property
    def chance(self) -> float:
        """Mean score of guessing."""
        if not self.is_choice:
            return 0.0
        return float(np.mean([1 / len(one.choices) for one in self.questions]))

    def metric(self, *, per_byte: bool) -> str:
        """Metric of the items."""
        if not self.is_choice:
            return "exact match"
        return "likeliest choice per byte" if per_byte else "likeliest choice"

    def rows(self, scores: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Rows of `texts.jsonl`; NaN is no score."""
        names = [PUBLISHED] * len(self.published) + [OTHER] * len(self.other)
        return [
            {
                "side": side,
                "item": one.item,
                "group": one.group,
                "text": one.prompt,
                "choices": [choice.strip() for choice in one.choices],
                "answers": [a.strip() for a in one.right],
                "scores": {
                    name: number_or_none(own[i]) for name, own in scores.items()
                },
            }
            for i, (side, one) in enumerate(zip(names, self.questions, strict=True))
        ]


def read_sides(
    benchmark: str | Path, against: str | Path, design: InflationDesign
) -> Sides:
    """Read both files; see `read_questions`. Pairs are grouped by published items."""
    sides, names, notes, kept = [], [], [], set[str]()
    for path in (benchmark, against):
        file = load_benchmark(path, check_fields=True)
        notes += [f"{file.name}: {words}" for words in file.left_out]
        is_first = not sides
        questions = read_questions(file, design, grouped=is_first or design.unpaired)
        if is_first and design.named("document") is None:
            prompts = [one.prompt for one in questions]
            notes += seen_groups(file.rows, item_fields(file, design), prompts)
        if n_out := len(file) - len(questions):
            notes.append(f"records of {file.name} without options, left out: {n_out}")
        keys = [one.item if design.paired else one.prompt for one in questions]
        if is_first or design.unpaired:
            kept = {keys[i] for i in drawn_places(keys, design.sample)}
        questions = [q for q, key in zip(questions, keys, strict=True) if key in kept]
        if not questions:
            raise InputError(
                f"{file.name}: no item of the {design.sample} that were drawn",
                hint="raise --sample",
            )
        sides.append(tuple(questions))
        names.append(file.name)
    if bool(sides[0][0].choices) != bool(sides[1][0].choices):
        raise InputError(f"{names[0]} and {names[1]}: only one of them has options")
    return Sides(
        benchmark=names[0],
        against=names[1] if names[1] != names[0] else f"{names[1]} (other)",
        published=sides[0],
        other=sides[1],
        notes=tuple(notes),
    )


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
            found.append(f"{n_alike:,} items begin like another one")
    said = (
        f"{' and '.join(found)}: if such items share a passage or a source, name the "
        "field with --fields document=NAME; otherwise the interval is too narrow, "
        "since they are not independent draws"
    )
    return [said] if found else []


def read_scores(
    models: Sequence[str],
    benchmark: str | Path | None,
    against: str | Path | None,
    design: InflationDesign,
) -> tuple[list[str], list[str], list[dict[str, Any]], list[str]]:
    """Names of models and of sides, rows of `texts.jsonl`, and notes.

    Models are columns of the two files, see `read_columns`; without these each is a
    file, see `read_model`.
    """
    if benchmark is not None and against is not None:
        names = distinct(models)
        files = (Path(benchmark), Path(against))
        tables = [read_columns(file, models) for file in files]
        titles = [printable(file.stem) for file in files]
    else:
        names = distinct([printable(Path(model).stem) for model in models])
        files = (Path(models[0]),) * 2
        pairs = [read_model(Path(model)) for model in models]
        tables = [[pair[side] for pair in pairs] for side in (0, 1)]
        titles = [PUBLISHED, OTHER]
    groups: list[dict[str, str]] = [{}, {}]
    document = design.named("document")
    if document is not None:
        hint = f"--fields document={document} must name a column"
        # A pair belongs where its published item does.
        for side, file in enumerate(files[:1] if design.paired else files):
            read, named = _rows(file)
            for row in read:
                value = field_of(row, document, str(file), hint=hint)
                groups[side][str(row[named])] = str(value)
    rows = [
        {
            "side": side,
            "item": item,
            "group": own_groups.get(item),
            "text": "",
            "scores": {n: own.get(item) for n, own in zip(names, table, strict=True)},
        }
        for side, table, own_groups in zip(
            (PUBLISHED, OTHER), tables, groups, strict=True
        )
        for item in dict.fromkeys(item for column in table for item in column)
    ]
    notes = []
    if document is None:
        own = {*names, *ITEM_COLUMNS, PUBLISHED, OTHER}
        notes = seen_groups(load_benchmark(files[0]).rows, own)
    return names, titles, rows, notes


def read_columns(path: Path, models: Sequence[str]) -> list[Scores]:
    """Scores of models on the items of one .csv file, a column a model."""
    rows, named = _rows(path)
    for model in models:
        if model not in rows[0]:
            known = [name for name in rows[0] if name != named]
            raise unknown_name(f"column of {path}:", model, known)
    return [_scores(path, rows, named, model) for model in models]


def read_model(path: Path) -> tuple[Scores, Scores]:
    """Scores of one model on both sides: columns `item`, `published`, `other`.

    An item that stands on one side alone has an empty cell on the other.
    """
    published, other = read_columns(path, (PUBLISHED, OTHER))
    return published, other


def _rows(path: Path) -> tuple[list[dict[str, object]], str]:
    """Rows of a file, and its column of items."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise InputError(
            f"{path}: not a .csv or .tsv file of scores", hint="see --scored"
        )
    rows = [row for row in load_benchmark(path).rows if row is not None]
    name = next((name for name in ITEM_COLUMNS if name in rows[0]), None)
    if name is None:
        has = ", ".join(rows[0])
        if any(map(is_number, rows[0])):
            raise InputError(
                f"{path}:1: the first row holds data, not names of columns ({has})",
                hint="put a line above it: item, and a name for each model",
            )
        raise InputError(
            f"{path}: no column of items (it has: {has})", hint="call it item"
        )
    seen: set[object] = set()
    for row in rows:
        if row[name] in seen:
            raise InputError(f"{path}: item {row[name]!r} occurs twice")
        seen.add(row[name])
    return rows, name


def _scores(
    path: Path, rows: Sequence[dict[str, object]], named: str, model: str
) -> Scores:
    found = {}
    for row in rows:
        word, value = str(row[model]).strip(), math.nan
        if not word:
            continue
        with contextlib.suppress(ValueError):
            value = float(word)
        if not 0 <= value <= 1:
            raise InputError(
                f"{path}: item {row[named]!r}: {model}: not a score in [0, 1] "
                f"({word!r})",
                hint="write 1 for right, 0 for wrong; divide percentages by 100",
            )
        found[str(row[named])] = value
    return found


def distinct(names: Sequence[str]) -> list[str]:
    """Names, with a number behind one that was there before."""
    return [
        f"{name} ({n + 1})" if (n := list(names[:i]).count(name)) else name
        for i, name in enumerate(names)
    ]


def choice_groups(questions: Sequence[Question], model: OpenModel) -> list[PairGroup]:
    """A prompt with its choices each; a prompt that is too long keeps its end.

    Prompt and choices become ids each by itself, as everywhere in this package.
    """
    prefix = [] if model.prefix_id is None else [model.prefix_id]
    start = np.array(prefix, np.int32)
    asked = [one.prompt for one in questions]
    prompts = encode_texts(model.tokenizer, asked, after=model.prefix_id, begins=True)
    flat = [text for one in questions for text in one.choices]
    choices = iter(encode_texts(model.tokenizer, flat))
    groups = []
    for one, prompt in zip(questions, prompts, strict=True):
        own = tuple(next(choices) for _ in one.choices)
        # The last id of a choice is a target that is not read.
        room = model.context + 1 - len(start) - max(map(len, own))
        if not all(map(len, own)) or room < 1 or not len(start) + len(prompt):
            raise InputError(
                f"item {one.item!r}: its prompt or a choice has no token, or a choice "
                f"fills the context of {model.context}"
            )
        ids = np.concatenate([start, prompt[max(0, len(prompt) - room) :]])
        groups.append(PairGroup(ids, own, 0, tuple(range(1, 1 + len(own)))))
    return groups


def choice_scores(
    questions: Sequence[Question],
    model: OpenModel,
    scorer: SequenceScorer,
    *,
    per_byte: bool,
    progress: Progress | None = None,
) -> np.ndarray:
    """(n_questions,) float64: 1 if the right choice is likeliest; of k as likely 1 / k.

    `per_byte` divides the log-probability of a choice by its length in UTF-8.
    """
    if scorer.pairs is None:
        raise InputError(f"{model.info.name}: scores only whole texts, not choices")
    found = scorer.pairs.logprobs(choice_groups(questions, model), progress)
    scores = np.zeros(len(questions))
    for i, (one, values) in enumerate(zip(questions, found.logprobs, strict=True)):
        sums = np.array([own.sum(dtype=np.float64) for own in values])
        if per_byte:
            sums /= [len(text.strip().encode()) or 1 for text in one.choices]
        best = sums >= sums.max()
        scores[i] = best[one.answer] / best.sum()
    return scores
