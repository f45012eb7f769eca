"""Items of two sides, and models that answer them."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxcontam.analyses.finite import finite_scores
from jaxcontam.analyses.inflation_items import seen_groups
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.questions import (
    Question,
    QuestionFields,
    item_fields,
    read_questions,
)
from jaxcontam.data.repeats import drawn_places
from jaxcontam.data.score_columns import OTHER, PUBLISHED
from jaxcontam.errors import InputError
from jaxcontam.progress import Bar, Progress
from jaxcontam.report.archive import number_or_none
from jaxcontam.results import DeviceInfo, ModelInfo

if TYPE_CHECKING:
    from jaxcontam.analyses.prompted_model import PromptedModel
    from jaxcontam.scoring.opened import OpenModel

NEW_TOKENS = 32
"""Most tokens of a written answer."""


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
        """Whether the answer is one of several choices."""
        return bool(self.published[0].choices)

    @property
    def chance(self) -> float:
        """Mean score of guessing."""
        if not self.is_choice:
            return 0.0
        return float(np.mean([1 / len(one.choices) for one in self.questions]))

    def metric(self, *, per_byte: bool) -> str:
        """How the items are scored."""
        if not self.is_choice:
            return "exact match"
        return "likeliest choice" + " per byte" * per_byte

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
    benchmark: str | Path,
    against: str | Path,
    wanted: QuestionFields,
    *,
    paired: bool = True,
    limit: int | None = None,
) -> Sides:
    """Read both files; see `read_questions`. Pairs are grouped by published items."""
    sides, names, notes = [], [], []
    kept: set[str] = set()
    for path in (benchmark, against):
        file = load_benchmark(path, check_fields=True)
        notes += [f"{file.name}: {words}" for words in file.left_out]
        is_first = not sides
        questions = read_questions(file, wanted, grouped=is_first or not paired)
        if is_first and wanted.group_field is None:
            prompts = [one.prompt for one in questions]
            notes += seen_groups(file.rows, item_fields(file, wanted), prompts)
        if n_out := len(file) - len(questions):
            notes.append(f"records of {file.name} without options, left out: {n_out}")
        if is_first or not paired:
            keys = [one.item if paired else one.prompt for one in questions]
            kept = {keys[i] for i in drawn_places(keys, limit)}
        keys = [one.item if paired else one.prompt for one in questions]
        questions = [q for q, key in zip(questions, keys, strict=True) if key in kept]
        if not questions:
            raise InputError(
                f"{file.name}: no item of the {limit} that were drawn",
                hint="a higher --limit",
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


class Answers(NamedTuple):
    """What a model answered.

    `scores` are (n_questions,) float64, NaN where there is no answer; `notes` say what
    a reader should know of them.
    """

    info: ModelInfo
    device: DeviceInfo | None
    scores: np.ndarray
    notes: tuple[str, ...]


@contextlib.contextmanager
def _asking(name: str, questions: Sequence[Question], bar: Bar) -> Iterator[Progress]:
    def place(i: int) -> str:
        return f"item {questions[i].item!r}: a score of {name}"

    with bar(f"asking {name}") as progress, finite_scores(place):
        yield progress


def chosen_answers(
    opened: "OpenModel",
    questions: Sequence[Question],
    bar: Bar,
    *,
    store: Path | None,
    batch_tokens: int | None,
    per_byte: bool,
) -> Answers:
    """Scores of a model that chooses by log-probability."""
    from jaxcontam.scoring.choices import choice_scores

    scorer = opened.make_scorer(store=store, batch_tokens=batch_tokens)
    with _asking(opened.info.name, questions, bar) as progress:
        scores = choice_scores(
            questions, opened, scorer, per_byte=per_byte, progress=progress
        )
    return Answers(opened.info, opened.device, scores, opened.notes())


def written_answers(
    opened: AbstractContextManager["PromptedModel"],
    questions: Sequence[Question],
    bar: Bar,
    *,
    new_tokens: int,
) -> Answers:
    """Scores of a model that writes its answers."""
    from jaxcontam.methods.replication.questions import is_answer, readings

    scores = np.full(len(questions), np.nan)
    with opened as model, _asking(model.info.name, questions, bar) as progress:
        prompts = [one.prompt for one in questions]
        found = model.completer.complete(
            prompts, max_tokens=new_tokens, progress=progress
        )
        for i, (one, (answer,)) in enumerate(zip(questions, found, strict=True)):
            if not answer.refused:
                given = readings(answer.text)
                scores[i] = any(is_answer(text, given) for text in one.written)
        return Answers(model.info, model.device, scores, model.notes())
