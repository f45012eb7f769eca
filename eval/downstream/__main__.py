"""How hard is it to find test examples among training data, and what makes it easier?

Question: a small model goes on training on text in which 200 examples of each task
stand at random places. How well do five scores tell them from 200 others, by learning
rate, background, copies, size of the model and length of the text, and does the model
answer better what it read? Shi et al., arXiv:2310.16789, sections 6 and 4.4: tables 3,
4, 7 and 8, figures 2 and 5, beside what the paper found.
Command: `python -m eval.downstream`. Hardware: 2 CPU cores, 40 minutes; a killed run
goes on. Headline: docs/results/downstream.md.

Members and non-members are drawn at random from one pool, so that whoever reads the
texts alone is at chance. Models have 0.2 to 1.3 M parameters: directions can be
compared with the paper's, numbers cannot. `--start` goes on from a model of any size.
"""

import dataclasses
import functools
import math
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.downstream.models import (
    FULL,
    ONE_PASS,
    TABLE_SCORES,
    TINY,
    Bench,
    Job,
    Scale,
    read_bench,
)
from eval.intervals import Share
from eval.membership import FPR, Sides, cell
from eval.study import (
    Clock,
    Column,
    Grid,
    Records,
    ResumedFlags,
    finish_study,
    grouped,
    run_study,
    say,
)
from jaxcontam.errors import InputError, check_names
from jaxcontam.proof.sentences import WIDTH
from jaxcontam.stats.roc import auc_delong, paired_delong

PARTS = ("tasks", "rate", "accuracy", "corpus", "texts", "occurrence", "size")
_SIZE_RATE = 3e-3
_ALL = "all"
# Tables 3 and 7: means over the paper's four tasks, in the order of the scores.
_PAPER_SCORES = (".86; 46%", ".84; 42%", ".68; 13%", ".68; 17%", ".66; 20%")
# By rate, means over five tasks: AUC of table 4; accuracies of table 8.
_PAPER_AUCS = {"1e-05": ".65", "0.0001": ".85"}
_PAPER_ACCURACY = {"1e-05": ".55, .51", "0.0001": ".64, .53"}
_CELLS = f"AUC, 95 % interval; share found at {FPR:.0%} false alarms"

_Row = dict[str, Any]
_Strata = Mapping[tuple[str, str, str, str], list[Sides]]
"""(Part, setting, task, score) -> members and non-members of each model and task."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Downstream(ResumedFlags):
    """Plant examples of tasks in a model's further training, then look for them."""

    only: tuple[str, ...] = ()
    """Parts: tasks, rate, accuracy, corpus, texts, occurrence, size (default: all)."""
    models: int = 2
    """Models of each setting, each with examples of its own."""
    corpus: tuple[str, ...] = ()
    """Background: files or folders (default: documentation of this Python)."""
    tasks: tuple[Path, ...] = ()
    """Files of questions with answers (default: three tasks made of docstrings)."""
    templates: tuple[str, ...] = ()
    """What stands before an answer, one for each of these files (default: the
    question)."""
    start: Path | None = None
    """Folder or GGUF file to go on from (default: trained on a fifth of the corpus)."""
    background: tuple[int, ...] = (50_000, 170_000, 400_000)
    """Tokens of background of figure 5a."""
    rates: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 3e-3)
    """Learning rates of tables 4 and 8."""
    rate: float = 1e-3
    """Learning rate of the other parts."""
    out: Path = Path("runs/downstream")
    """Folder for a record of each model and the tables; finished records stay."""

    positive = ("models",)

    def __post_init__(self) -> None:
        ResumedFlags.__post_init__(self)
        check_names("part", self.only, PARTS)
        if self.start is not None and "size" in self.only:
            raise InputError("--start: a model has one size", hint="leave out size")
        numbers = {"rates": self.rates, "background": self.background}
        for name, values in ({"rate": (self.rate,)} | numbers).items():
            if not all(0 < value < math.inf for value in values):
                raise InputError(f"--{name} must be above 0, got {values}")
        if self.templates and len(self.templates) != len(self.tasks):
            raise InputError(
                f"--templates: {len(self.templates)} for {len(self.tasks)} files",
                hint="one for each file of --tasks, in the same order",
            )

    def run(self) -> dict[str, Any]:
        """Train and score what is missing, print tables; returns what was found."""
        clock, bench = Clock.start(), self.bench()
        scale = bench.scale
        kept = Records(self.out / "models", any_code=self.any_code)
        parts = self.only or (PARTS if self.start is None else PARTS[:-1])
        jobs = {part: self._jobs(part, scale) for part in parts}
        made: dict[Job, _Row] = {}
        wanted = dict.fromkeys(job for own in jobs.values() for job in own)
        # All settings of a seed first: what a killed run leaves can be compared.
        for job in sorted(wanted, key=lambda job: job.seed):
            inputs = [job.name, dataclasses.asdict(scale), bench.digest]
            if (found := kept.read(*inputs)) is None:
                say(job.name)
                own = Clock.start()
                found = bench.made(job) | {"cpu_seconds": own.cost()["cpu_seconds"]}
                kept.write(inputs[0], found, *inputs[1:])
                # Its record is all that is read again.
                shutil.rmtree(self.out / "train", ignore_errors=True)
            made[job] = found
        strata = _strata(
            [
                (part, _setting(part, job, row, made[job]), row)
                for part, own in jobs.items()
                if part != "accuracy"
                for job in own
                for row in made[job]["rows"]
            ]
        )
        accuracy = _accuracy(
            [(job, made[job]["right"]) for job in jobs.get("accuracy", ())]
        )
        trends, cells = _trends(strata), []
        for (part, setting, task, score), sides in strata.items():
            found = dataclasses.asdict(cell(score, setting, sides))
            cells.append({"part": part, "task": task, **found})
        return finish_study(
            "downstream",
            self,
            clock=clock,
            numbers={
                "models": [
                    dataclasses.asdict(job) | {"n_parameters": one["n_parameters"]}
                    for job, one in made.items()
                ],
                "cells": cells,
                "accuracy": accuracy,
                "trends": trends,
            },
            grids=[
                *_grids(strata),
                *([_accuracy_grid(accuracy)] if accuracy else []),
                *([_trend_grid(trends)] if trends else []),
            ],
            earlier_seconds=kept.earlier_seconds,
        )

    def bench(self) -> Bench:
        """What models are made of; InputError if there is too little of it."""
        return read_bench(
            TINY if self.tiny else FULL,
            corpus=self.corpus,
            tasks=self.tasks,
            templates=self.templates,
            start=self.start,
            main_rate=self.rate,
            out=self.out,
            tiny=self.tiny,
            any_code=self.any_code,
        )

    def _jobs(self, part: str, scale: Scale) -> list[Job]:
        """Models of a part, setting by setting."""
        main = Job(kind="tasks", seed=0, rate=self.rate, n=scale.tokens)
        change = functools.partial(dataclasses.replace, main)
        by_rate = [change(rate=rate) for rate in self.rates]
        sizes = range(len(scale.widths))
        settings = {
            "tasks": [main],
            "rate": by_rate,
            "accuracy": [
                Job(kind="before", seed=0),
                *by_rate,
                change(copies=scale.many),
            ],
            "corpus": [change(n=n) for n in self.background],
            "texts": [change(kind="texts", n=n) for n in scale.corpora],
            "occurrence": [change(copies=0)],
            "size": [Job(kind="size", seed=0, rate=_SIZE_RATE, n=n) for n in sizes],
        }
        seeds = range(self.seed, self.seed + self.models)
        return [
            dataclasses.replace(job, seed=seed)
            for job in settings[part]
            for seed in seeds
        ]


def _setting(part: str, job: Job, row: _Row, found: _Row) -> str:
    """What a part varies, in words."""
    words = {
        "rate": f"{job.rate:g}",
        "corpus": f"{job.n:,} tokens",
        "texts": f"{job.n:,} texts",
        "size": f"{found['n_parameters'] / 1e6:.2f} M parameters",
    }
    return words.get(part) or row["group"]


def _strata(rows: Sequence[tuple[str, str, _Row]]) -> _Strata:
    """Scores of each task, and of all together."""
    found: dict[tuple[str, str, str, str], list[Sides]] = {}
    for part, setting, row in rows:
        sides = np.array(row["members"]), np.array(row["nonmembers"])
        # Fewer than two have no error.
        if min(map(len, sides)) >= 2:
            for task in (row["task"], _ALL):
                found.setdefault((part, setting, task, row["method"]), []).append(sides)
    return found


def change(first: Sequence[Sides], last: Sequence[Sides], *, paired: bool) -> Share:
    """AUC in the last setting less that in the first, mean over models and tasks.

    Weighted by members; `paired` settings score the same examples.
    """
    if not paired:
        (auc_a, se_a), (auc_b, se_b) = map(_mean_auc, (first, last))
        return _normal(auc_b - auc_a, math.hypot(se_a, se_b))
    pairs = [paired_delong(*b, *a) for a, b in zip(first, last, strict=True)]
    weights = _weights(first)
    errors = np.array([pair.se for pair in pairs])
    value = weights @ [pair.difference for pair in pairs]
    return _normal(float(value), math.sqrt(weights**2 @ errors**2))


def _mean_auc(strata: Sequence[Sides]) -> tuple[float, float]:
    aucs, errors = np.array([auc_delong(*sides) for sides in strata]).T
    weights = _weights(strata)
    return float(weights @ aucs), math.sqrt(weights**2 @ errors**2)


def _weights(strata: Sequence[Sides]) -> np.ndarray:
    weights = np.array([len(members) for members, _ in strata], np.float64)
    return weights / weights.sum()


def _normal(value: float, se: float) -> Share:
    return Share(value=value, low=value - WIDTH * se, high=value + WIDTH * se)


def _trends(strata: _Strata) -> list[_Row]:
    """First and last settings of each part, by Min-K%."""
    by_part = grouped((key for key in strata if key[3] == _MIN_K), lambda key: key[0])
    pairs, found = [], []
    for part, where, paper in (
        ("rate", "table 4", "rises"),
        ("corpus", "figure 5a", "rises"),
        ("texts", "figure 5b", "falls"),
        ("occurrence", "figure 5c", "rises"),
    ):
        own = sorted({key[1] for key in by_part.get(part, ())}, key=_number)
        if len(own) > 1:
            first, last = ((part, setting, _ALL) for setting in (own[0], own[-1]))
            pairs.append((where, paper, first, last))
    if own := by_part.get("size"):
        sizes = [*dict.fromkeys(key[1] for key in own)]
        lengths = [*dict.fromkeys(key[2] for key in own if key[2] != _ALL)]
        last = ("size", sizes[-1], lengths[-1])
        pairs.append(("figure 2a", "rises", ("size", sizes[0], lengths[-1]), last))
        pairs.append(("figure 2b", "rises", ("size", sizes[-1], lengths[0]), last))
    for where, paper, a, b in pairs:
        is_paired = where != "figure 5c"
        share = change(strata[*a, _MIN_K], strata[*b, _MIN_K], paired=is_paired)
        low, high = share.low or 0.0, share.high or 0.0
        here = "rises" if low > 0 else "falls" if high < 0 else "neither"
        verdict = "the reverse of the paper"
        if here in (paper, "neither"):
            verdict = "as in the paper" if here == paper else "not seen"
        names = (", ".join(n for n in k[1:] if n != _ALL) for k in (a, b))
        found.append(
            dict(zip(("first", "last"), names, strict=True))
            | {"where": where, "paper": paper, "here": here, "verdict": verdict}
            | dataclasses.asdict(share)
        )
    return found


def _number(setting: str) -> float:
    return float(setting.split()[0].replace(",", ""))


def _accuracy(answers: Sequence[tuple[Job, Mapping[str, Any]]]) -> list[_Row]:
    """Accuracy on seen and unseen examples of each task, beside that before training.

    `gain` is the difference beyond the one that the same examples had before.
    """
    before = {job.seed: right for job, right in answers if job.kind == "before"}
    # Now and before, of seen and of unseen examples.
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for job, right in answers:
        setting = "before" if job.kind == "before" else f"{job.rate:g}"
        setting += f", {job.copies} copies" * (job.copies > 1)
        for name, sides in right.items():
            scores_22N = np.array([sides, before[job.seed][name]])
            for task in (name, _ALL):
                found.setdefault((setting, task), []).append(scores_22N)
    rows = []
    for (setting, task), own in found.items():
        now_2N, then_2N = np.concatenate(own, axis=2)
        (seen, unseen), gains_2N = now_2N.mean(axis=1).tolist(), now_2N - then_2N
        rows.append(
            {"setting": setting, "task": task, "n": now_2N.shape[1]}
            | {"seen": seen, "unseen": unseen}
            | {"difference": _gap(now_2N), "gain": _gap(gains_2N)}
        )
    return rows


def _gap(values_2N: np.ndarray) -> dict[str, float]:
    """Mean of the first less that of the second."""
    (a, b), n = values_2N.mean(axis=1).tolist(), values_2N.shape[1]
    return dataclasses.asdict(
        _normal(a - b, math.sqrt(values_2N.var(axis=1).sum() / n))
    )


def _grids(strata: _Strata) -> list[Grid]:
    """A table for each part, the paper's numbers in a column or line of their own."""
    grids = []
    # Tasks first, then all together.
    for part, keys in grouped(strata, lambda key: key[0]).items():
        title, place = _LAYOUTS[part]
        keys.sort(key=lambda key: key[2] == _ALL)
        words = {at: _words(strata[key]) for key in keys if (at := place(*key[1:]))}
        if part == "tasks":
            pairs = zip(TABLE_SCORES, _PAPER_SCORES, strict=True)
            words |= {(name, "paper, mean of 4"): paper for name, paper in pairs}
        if part == "rate":
            rates = {setting for _, setting in words} & _PAPER_AUCS.keys()
            words |= {("paper, mean of 5", rate): _PAPER_AUCS[rate] for rate in rates}
        grids.append(Grid.crossed(f"{title} ({_CELLS})", "", words))
    return grids


def _by_setting(setting: str, task: str, score: str) -> tuple[str, str] | None:
    return (score, setting) if task == _ALL and score in ONE_PASS else None


_MIN_K = TABLE_SCORES[0]
# Part -> its title, and line and column of (setting, task, score).
_LAYOUTS: Mapping[str, tuple[str, Callable[..., tuple[str, str] | None]]] = {
    "tasks": ("Tables 3 and 7", lambda setting, task, score: (score, task)),
    "rate": (
        f"Table 4: {_MIN_K} by learning rate",
        lambda setting, task, score: (task, setting) if score == _MIN_K else None,
    ),
    "corpus": ("Figure 5a: examples of tasks, by background", _by_setting),
    "texts": ("Figure 5b: texts like the rest, by texts of the corpus", _by_setting),
    "occurrence": (
        "Figure 5c: by copies, drawn from a Poisson distribution",
        _by_setting,
    ),
    "size": (
        f"Figure 2: {_MIN_K} by parameters and length",
        lambda setting, task, score: (
            (setting, task) if score == _MIN_K and task != _ALL else None
        ),
    ),
}


def _words(sides: Sequence[Sides]) -> str:
    found = cell("", "", sides)
    share = "" if found.tpr is None else f"; {found.tpr.value:.0%}"
    return f"{found.auc.words('.3f')}{share}"


def _accuracy_grid(rows: Sequence[_Row]) -> Grid:
    columns: dict[str, Column] = {
        "learning rate": "{r[setting]}",
        "seen": "{r[seen]:.3f}",
        "unseen": "{r[unseen]:.3f}",
        "difference": lambda row: _signed(row["difference"]),
        "beyond that before": lambda row: _signed(row["gain"]),
        "paper, mean of 5: seen, unseen": lambda row: _PAPER_ACCURACY.get(
            row["setting"], ""
        ),
    }
    title = "Table 8: accuracy on seen and unseen examples of all tasks"
    return Grid.of(title, [row for row in rows if row["task"] == _ALL], columns)


def _trend_grid(rows: Sequence[_Row]) -> Grid:
    columns: dict[str, Column] = {
        "": "{r[where]}",
        "from": "{r[first]}",
        "to": "{r[last]}",
        "change of AUC": _signed,
        "paper": "{r[paper]}",
        "here": "{r[verdict]}",
    }
    return Grid.of(f"{_MIN_K} from the first setting to the last", rows, columns)


def _signed(row: Mapping[str, Any]) -> str:
    return "{value:+.3f} ({low:+.3f} to {high:+.3f})".format(**row)


if __name__ == "__main__":
    sys.exit(run_study("downstream", Downstream, trains=True, compiles=True))
