"""How many points of a score come from having seen the items."""

import contextlib
import dataclasses
import functools
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxcontam.arguments import Dtype, check_names, public, store_folder
from jaxcontam.data.benchmark import drawn_places, load_benchmark
from jaxcontam.data.questions import (
    Question,
    QuestionFields,
    item_fields,
    read_questions,
)
from jaxcontam.errors import InputError
from jaxcontam.progress import Bar, Progress, default_bar
from jaxcontam.reports.archive import TEXTS_NAME, number_or_none, texts_bytes
from jaxcontam.reports.report import Report
from jaxcontam.reports.saved import Writable, write_files
from jaxcontam.reports.stopwatch import Stopwatch
from jaxcontam.score_gap.judging import (
    MIN_POINTS,
    NAME_ONCE,
    Comparison,
    judged_inflation,
    seen_groups,
)
from jaxcontam.score_gap.page import COMMAND
from jaxcontam.score_gap.result import InflationResult
from jaxcontam.score_gap.score_columns import (
    ITEM_COLUMNS,
    OTHER,
    PUBLISHED,
    read_columns,
    read_groups,
    read_model,
)
from jaxcontam.scoring.opened import DeviceInfo, ModelInfo
from jaxcontam.scoring.run_batches import finite_scores
from jaxcontam.terminal import printable

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel
    from jaxcontam.scoring.prompted_model import PromptedModel

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
        """True if the answer is one of several choices."""
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
    """Scores of a model on all items, and who gave them.

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
    from jaxcontam.scoring.completer import is_answer, readings

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


# Of the fields of config.json: what relatives of one size share.
_SHAPE = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers")


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InflationAnalysis(Writable):
    """A report of inflation, with the scores that it rests on.

    Attributes:
        report: Everything that `report.json` holds.
        rows: One per item, as in `texts.jsonl`: its scores under each model.
    """

    report: Report
    rows: tuple[dict[str, Any], ...]

    @property
    def result(self) -> InflationResult:
        """Accuracies, estimates and the verdict."""
        (row,) = self.report.results
        assert isinstance(row, InflationResult)
        return row

    @property
    def verdict(self) -> str:
        """`inflated`, `no inflation found` or `cannot tell`."""
        return self.result.verdict

    @property
    def points(self) -> float:
        """Estimate that decides, in points of 100."""
        return self.result.decides.points

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval."""
        return self.result.decides.low, self.result.decides.high

    def __repr__(self) -> str:
        low, high = self.interval
        words = f"{self.points:+.1f} points ({low:+.1f} to {high:+.1f}), {self.verdict}"
        return textwrap.fill(f"<InflationAnalysis: {words}>", 80)

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        return write_files(self.report, {TEXTS_NAME: texts_bytes(self.rows)}, out)


@public
def inflation(
    model: Any,
    benchmark: str | Path | None = None,
    *,
    against: str | Path | None = None,
    reference: Sequence[Any] = (),
    paired: bool = True,
    equally_hard: bool = False,
    scores: bool = False,
    per_byte: bool = False,
    new_tokens: int = NEW_TOKENS,
    min_points: float = MIN_POINTS,
    limit: int | None = None,
    tokenizer: Any = None,
    seed: int = 0,
    dtype: Dtype = "float32",
    batch_tokens: int | None = None,
    store: str | Path | None = None,
    progress: Progress | None = None,
    **fields: Any,
) -> InflationAnalysis:
    """Estimate the points that a model's score gains by having seen the items.

    Score on published items less score on items that cannot have been seen; with
    references that saw neither, less the same difference of theirs. It holds if the
    model, had it seen neither, would differ between the two sides as references do.
    Points that an item gives to its rewrite as well are not counted.

    Args:
        model: See `jaxcontam.scoring.load.load`; with `scores` see `given_scores`.
        benchmark: Published items: a file, an hf: name or a task; see `load_benchmark`.
        against: Rewrites of them, or another split of the same kind.
        reference: Models that saw neither, about as strong as the model and one a
            family: relatives of each other differ too little.
        paired: `against` holds rewrites, with the ids of their originals or in their
            order; else another split.
        equally_hard: Vouch that `against` is as hard, such as a split drawn at random:
            needed for a verdict without references.
        scores: The files hold scores of items in place of items.
        per_byte: Divide the log-probability of a choice by its length.
        new_tokens: Most tokens of a written answer.
        min_points: Inflation that matters: `no inflation found` means that so much
            would have been found with a chance of 0.8.
        limit: Most items of each file, drawn by what they hold; pairs stay whole.
        tokenizer: The fast tokenizer of models in memory.
        seed: Seeds the bootstrap of `constat`.
        dtype: Matmul precision of model directories.
        batch_tokens: Tokens of a batch on one device; None chooses.
        store: Folder in which scores are kept; None keeps none.
        progress: Called with what is done and in all; None draws a bar where someone
            looks.
        **fields: Of `QuestionFields`: template, options_field, answer_field, id_field,
            group_field.

    Raises:
        InputError: If items, answers or scores cannot be had.

    Source:
        The question is that of Dekoninck et al., "ConStat", arXiv:2405.16281, whose
        estimator stands beside with five references or more.
    """
    watch = Stopwatch()
    check_names(QuestionFields, fields)
    wanted = QuestionFields(**fields)
    asked = Comparison(
        paired=paired,
        equally_hard=equally_hard,
        min_points=min_points,
        group_field=wanted.group_field,
        seed=seed,
    )
    if scores:
        return given_scores(
            [model, *reference],
            benchmark,
            against,
            asked,
            watch=watch,
            command=(COMMAND, *asked.words),
        )
    if benchmark is None or against is None:
        raise InputError("no items to compare", hint="give benchmark and against")
    sides = read_sides(benchmark, against, wanted, paired=paired, limit=limit)
    bar = functools.partial(default_bar, progress)

    def ask(word: Any) -> Answers:
        from jaxcontam.scoring.load import load
        from jaxcontam.scoring.prompted_model import open_prompted

        if not sides.is_choice:
            return written_answers(
                open_prompted(
                    word,
                    tokenizer=tokenizer,
                    dtype=dtype,
                    is_plain=True,
                    beside=None if word is model else model,
                ),
                sides.questions,
                bar,
                new_tokens=new_tokens,
            )
        return chosen_answers(
            load(
                word,
                tokenizer=tokenizer,
                dtype=dtype,
                beside=None if word is model else model,
            ),
            sides.questions,
            bar,
            store=store_folder(store),
            batch_tokens=batch_tokens,
            per_byte=per_byte,
        )

    return score_and_judge(
        sides,
        (model, *reference),
        ask,
        dataclasses.replace(asked, metric=sides.metric(per_byte=per_byte)),
        command=(COMMAND, sides.benchmark, "--against", sides.against, *asked.words),
        watch=watch,
    )


def score_and_judge(
    sides: Sides,
    models: Sequence[Any],
    ask: Callable[[Any], Answers],
    asked: Comparison,
    *,
    command: Sequence[str],
    watch: Stopwatch,
) -> InflationAnalysis:
    """Ask the model in question and then each reference, and judge."""
    from jaxcontam.scoring.shares import each_scored

    _refuse_same_weights(models)
    # Weights go once a model has answered.
    found = list(each_scored([functools.partial(ask, model) for model in models]))
    infos = [info for info, _, _, _ in found]
    named = list(zip(distinct([info.name for info in infos]), found, strict=True))
    rows = sides.rows({name: scores for name, (_, _, scores, _) in named})
    said = [f"{name}: {note}" for name, (_, _, _, notes) in named for note in notes]
    result = judged_inflation(
        rows,
        [name for name, _ in named],
        dataclasses.replace(
            asked,
            benchmark=sides.benchmark,
            against=sides.against,
            chance=sides.chance,
        ),
        notes=(*sides.notes, *related(models, [name for name, _ in named]), *said),
    )
    report = watch.report(
        command,
        asked.seed,
        [result],
        model=infos[0],
        device=found[0][1],
        references=tuple(infos[1:]),
    )
    return InflationAnalysis(report=report, rows=tuple(rows))


def _refuse_same_weights(models: Sequence[Any]) -> None:
    folders = [str(one) for one in models if isinstance(one, str | Path)]
    folders = [one for one in folders if os.path.isdir(one)]
    if len(folders) < 2:
        return
    from jaxcontam.models.checkpoint import model_fingerprint

    seen: dict[str, str] = {}
    for folder in folders:
        digest = model_fingerprint(folder)
        if digest in seen:
            raise InputError(
                f"{folder}: the same model as {seen[digest]}", hint=NAME_ONCE
            )
        seen[digest] = folder


def given_scores(
    models: Sequence[str],
    benchmark: str | Path | None,
    against: str | Path | None,
    asked: Comparison,
    *,
    watch: Stopwatch,
    command: Sequence[str],
) -> InflationAnalysis:
    """Judge scores that somebody else computed.

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
    if asked.group_field is not None:
        # A pair belongs where its published item does.
        for side, file in enumerate(files[:1] if asked.paired else files):
            groups[side] = read_groups(file, asked.group_field)
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
    notes = related(names, names)
    if asked.group_field is None:
        own = {*names, *ITEM_COLUMNS, PUBLISHED, OTHER}
        notes += seen_groups(load_benchmark(files[0]).rows, own)
    result = judged_inflation(
        rows,
        names,
        dataclasses.replace(
            asked, benchmark=titles[0], against=titles[1], metric="given scores"
        ),
        notes=notes,
    )
    report = watch.report(command, asked.seed, [result])
    return InflationAnalysis(report=report, rows=tuple(rows))


def related(models: Sequence[Any], names: Sequence[str]) -> list[str]:
    """A note on references that look like relatives of each other, not of the model.

    Models are as the user gave them: what is in memory has no family. `names` are the
    report's.
    """
    first, *others = [_families(model) for model in models]
    notes = {}
    for family in sorted(set().union(*others) - first):
        kin = [n for n, own in zip(names[1:], others, strict=True) if family in own]
        if len(kin) > 1:
            notes[tuple(kin)] = (
                f"references {', '.join(kin)} look like one family: if they are more "
                "like each other than like the model, the interval is too narrow: name "
                "one a family"
            )
    return [*notes.values()]


def _families(model: Any) -> set[str]:
    """The first word of a name, and the shape of a model in a folder."""
    if not isinstance(model, str | Path):
        return set()
    name = str(model).rstrip("/").rpartition("/")[2].rpartition("#")[2]
    found = set(re.findall(r"^[^\W\d_]{3,}", name.casefold()))
    if os.path.isdir(model):
        from jaxcontam.models.checkpoint import read_config_fields

        config = read_config_fields(Path(model))
        found.add(str([config.get(field) for field in _SHAPE]))
    return found


def distinct(names: Sequence[str]) -> list[str]:
    """Names, with a number behind one that was there before."""
    return [
        f"{name} ({n + 1})" if (n := list(names[:i]).count(name)) else name
        for i, name in enumerate(names)
    ]
