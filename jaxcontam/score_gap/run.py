"""Ask models for the items of both sides, and judge what their scores gained."""

import contextlib
import dataclasses
import functools
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxcontam.arguments import Dtype, check_names, public, store_folder
from jaxcontam.data.questions import Question
from jaxcontam.errors import InputError
from jaxcontam.progress import Bar, Progress, default_bar
from jaxcontam.reports.archive import TEXTS_NAME, texts_bytes
from jaxcontam.reports.report import Report, Stopwatch
from jaxcontam.reports.report_files import Writable, write_files
from jaxcontam.score_gap.flags import NAME_ONCE, InflationDesign
from jaxcontam.score_gap.items import Sides, distinct, read_scores, read_sides
from jaxcontam.score_gap.judging import COMMAND, judged_inflation
from jaxcontam.score_gap.result import InflationResult
from jaxcontam.scoring.opened import DeviceInfo, ModelInfo
from jaxcontam.scoring.run_batches import finite_scores

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel
    from jaxcontam.scoring.prompted_model import PromptedModel

# Fields of config.json that relatives of one size share.
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


class Answers(NamedTuple):
    """Scores of a model on all items, and who gave them.

    `scores` are (n_questions,) float64, NaN where there is no answer; `notes` say what
    a reader should know of them.
    """

    info: ModelInfo
    device: DeviceInfo | None
    scores: np.ndarray
    notes: tuple[str, ...]


@public
def inflation(
    model: Any,
    benchmark: str | Path | None = None,
    *,
    against: str | Path | None = None,
    references: Sequence[Any] = (),
    tokenizer: Any = None,
    dtype: Dtype = "float32",
    store: str | Path | None = None,
    progress: Progress | None = None,
    **items: Any,
) -> InflationAnalysis:
    """Estimate the points that a model's score gains by having seen the items.

    Score on published items less score on items that cannot have been seen; with
    references that saw neither, less the same difference of theirs. It holds if the
    model, had it seen neither, would differ between the two sides as references do.
    Points that an item gives to its rewrite as well are not counted.

    Args:
        model: See `jaxcontam.scoring.load.load`; with `scored` see `read_scores`.
        benchmark: Published items: a file, an hf: name or a task; see `load_benchmark`.
        against: Rewrites of them, or another split of the same kind.
        references: Models that saw neither, about as strong as the model and one a
            family: relatives of each other differ too little.
        tokenizer: The fast tokenizer of models in memory.
        dtype: Matmul precision of model directories.
        store: Folder in which scores are kept; None keeps none.
        progress: Called with what is done and in all; None draws a bar where someone
            looks.
        **items: Fields of `InflationDesign`, the flags of `jaxcontam inflation`:
            unpaired, equally_hard, scored, text, fields, sample, seed, ...

    Raises:
        InputError: If items, answers or scores cannot be had.

    Source:
        The question is that of Dekoninck et al., "ConStat", arXiv:2405.16281, whose
        estimator stands beside with five references or more.
    """
    check_names(InflationDesign, items, "inflation")
    design = InflationDesign(**items)
    if not design.scored and (benchmark is None or against is None):
        raise InputError("no items to compare", hint="give benchmark and against")
    bar = functools.partial(default_bar, progress)

    def ask(word: Any, sides: Sides) -> Answers:
        from jaxcontam.scoring.load import load
        from jaxcontam.scoring.prompted_model import open_prompted

        beside = None if word is model else model
        if not sides.is_choice:
            prompted = open_prompted(
                word, tokenizer=tokenizer, dtype=dtype, is_plain=True, beside=beside
            )
            return written_answers(
                prompted, sides.questions, bar, new_tokens=design.new_tokens
            )
        return chosen_answers(
            load(word, tokenizer=tokenizer, dtype=dtype, beside=beside),
            sides.questions,
            bar,
            store=store_folder(store),
            per_byte=design.per_byte,
        )

    return compare(design, (model, *references), benchmark, against, ask)


def compare(
    design: InflationDesign,
    models: Sequence[Any],
    benchmark: str | Path | None,
    against: str | Path | None,
    ask: Callable[[Any, Sides], Answers],
    command: Sequence[str] = (),
) -> InflationAnalysis:
    """Ask the model in question and then each reference, and judge; see `inflation`.

    Without the words of a command the report has those that decide.
    """
    from jaxcontam.scoring.shares import each_scored

    watch = Stopwatch()
    if design.scored:
        names, titles, rows, notes = read_scores(models, benchmark, against, design)
        result = judged_inflation(
            rows,
            names,
            design,
            benchmark=titles[0],
            against=titles[1],
            metric="given scores",
            notes=[*related(names, names), *notes],
        )
        words = command or (COMMAND, *design.words)
        report = watch.report(words, design.seed, [result])
        return InflationAnalysis(report=report, rows=tuple(rows))
    assert benchmark is not None and against is not None
    sides = read_sides(benchmark, against, design)
    _refuse_same_weights(models)
    # Weights go once a model has answered.
    found = list(each_scored([functools.partial(ask, one, sides) for one in models]))
    names = distinct([one.info.name for one in found])
    by_name = dict(zip(names, found, strict=True))
    rows = sides.rows({name: one.scores for name, one in by_name.items()})
    said = [f"{name}: {note}" for name, one in by_name.items() for note in one.notes]
    result = judged_inflation(
        rows,
        names,
        design,
        benchmark=sides.benchmark,
        against=sides.against,
        metric=sides.metric(per_byte=design.per_byte),
        chance=sides.chance,
        notes=[*sides.notes, *related(models, names), *said],
    )
    words = (COMMAND, sides.benchmark, "--against", sides.against, *design.words)
    report = watch.report(
        command or words,
        design.seed,
        [result],
        model=found[0].info,
        device=found[0].device,
        references=tuple(one.info for one in found[1:]),
    )
    return InflationAnalysis(report=report, rows=tuple(rows))


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
    per_byte: bool,
) -> Answers:
    """Scores of a model that chooses by log-probability."""
    from jaxcontam.score_gap.items import choice_scores

    scorer = opened.make_scorer(store=store)
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
                "like each other than like the model, the interval is too narrow; name "
                "one per family"
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
