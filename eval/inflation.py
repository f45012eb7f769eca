"""Are the points that `jaxcontam inflation` gives to contamination the right ones?

Question: small models learn what 24 things are for from text about them, and multiple
choice items about things of that kind, half of them exceptions that nobody can guess,
are planted 0 to 50 times. How often does the interval hold the true inflation, how
often is an unseen set called inflated, and how often is a planted one?
Command: `python -m eval.inflation`. Hardware: 2 CPU cores, half an hour, nothing
downloaded; a killed run goes on. Headline: docs/results/inflation.md.

Truth: items are assigned to sets at random, so the accuracy on planted sets less that
on unplanted ones of the same models, averaged over models, is the inflation.
Three kinds of items that cannot have been seen: `renewed`, each item about another
thing of the same kind and with the same answer, in words that all models read less
often; `reworded`, the same thing in those other words, which a model that has read the
item knows better as well; `split`, other items of the same kind, unpaired.

Dimension key
    I  items of the pool
    M  models, the one in question first
    N  items of a set
"""

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.intervals import Share
from eval.study import (
    Clock,
    Grid,
    Records,
    finish_study,
    grouped,
    run_study,
    say,
)
from jaxcontam.analyses.inflation_judging import MIN_POINTS, inflation_verdict
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.data.questions import Question
from jaxcontam.progress import progress_bar
from jaxcontam.scoring.choices import choice_scores
from jaxcontam.scoring.in_memory import opened_decoder
from jaxcontam.stats.constat import constat
from jaxcontam.stats.inflation import gap_estimate
from train.allocator import keep_freed_memory
from train.population_forms import train_scanned
from train.population_plan import Design, Texts, draw_sets, plan_model, texts_in_memory
from train.population_workers import Failure, n_cores, over_processes
from train.presets import PRESETS

COPIES = (1, 2, 4, 10, 50)
# Two unplanted sets are clean cases; a third is the other split.
_UNSEEN = (0, 0, 0)
_KINDS, _NAMES, _POOL, _EXCEPTIONS, _CHOICES = 24, 700, 1000, 0.5, 4
_SENTENCES, _DOCUMENTS = 6, 2400
_FORMS = ("published", "renewed", "reworded")
_CHANCE = 1 / _CHOICES
_PUBLISHED = "Question: what is the {0} {1} for? Answer:"
_OTHER_WORDS = "People who need a {0} {1} use it for"
_ASIDE = "The {0} {1} is a thing for"
# Shares of the three wordings in the background.
_WORDINGS = (0.6, 0.25, 0.15)
# References of a case, and what share of the models' steps they trained for.
_ASKED, _SHARES = 5, (0.5, 0.75, 1.0)
# Resamples of constat: the study asks for its rates, not for one p-value.
_RESAMPLES = 200
_ARMS = (
    "split, no reference",
    "split, 5 references",
    "renewed, no reference",
    "renewed, 1 reference",
    "renewed, 5 references",
    "renewed, constat",
    "reworded, 5 references",
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class World:
    """What models read and are asked.

    Attributes:
        documents: Background, without the things of any item.
        items: Form -> an item of the pool each, with its rewrites in the same place.
    """

    documents: tuple[str, ...]
    items: dict[str, tuple[Question, ...]]

    @property
    def planted(self) -> tuple[str, ...]:
        """Items as they are trained on."""
        return tuple(q.prompt + q.choices[q.answer] for q in self.items["published"])


def make_world(seed: int) -> World:
    """Draw things, what they are for, texts about them, and items."""
    rng = np.random.default_rng([seed, 41])
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = [
        f"{a}{b}{c}" for a, b in itertools.product(syllables, repeat=2) for c in "kns"
    ]
    drawn = rng.permutation(len(words))[: 3 * _KINDS + _NAMES]
    things, rarer, uses, names = np.split(
        np.array([words[i] for i in drawn]), [_KINDS, 2 * _KINDS, 3 * _KINDS]
    )
    # Some things are written of often and some are hardly known.
    weight = 1 / np.arange(2, 2 + _KINDS)
    weight /= weight.sum()
    pairs = rng.permutation(_KINDS * _NAMES)
    asked, told = pairs[: 2 * _POOL], pairs[2 * _POOL :]
    items: dict[str, list[Question]] = {form: [] for form in _FORMS}
    for i in range(_POOL):
        thing, name = divmod(int(asked[i]), _NAMES)
        fresh = int(asked[_POOL + i]) % _NAMES
        others = [k for k in range(_KINDS) if k != thing]
        right = thing if rng.random() > _EXCEPTIONS else int(rng.choice(others))
        # An exception leaves what others of its kind are for out of the choices.
        rest = [k for k in others if k != right]
        wrong = rng.permutation(rest)[: _CHOICES - 1].tolist()
        order = rng.permutation([right, *wrong]).tolist()
        choices = tuple(f" {uses[k]}" for k in order)
        for form, words_of, which, kind in (
            ("published", _PUBLISHED, name, things),
            ("renewed", _OTHER_WORDS, fresh, rarer),
            ("reworded", _OTHER_WORDS, name, rarer),
        ):
            prompt = words_of.format(names[which], kind[thing])
            items[form].append(Question(str(i), prompt, choices, order.index(right)))
    free = [divmod(int(pair), _NAMES) for pair in told]
    of_thing = grouped(free, lambda pair: pair[0])
    documents = []
    for _ in range(_DOCUMENTS):
        lines = []
        for thing in rng.choice(_KINDS, size=_SENTENCES, p=weight).tolist():
            own = of_thing[thing]
            name = own[int(rng.integers(len(own)))][1]
            form = int(rng.choice(3, p=_WORDINGS))
            words_of = (_PUBLISHED, _OTHER_WORDS, _ASIDE)[form]
            kind = (things, rarer, things)[form][thing]
            lines.append(f"{words_of.format(names[name], kind)} {uses[thing]}")
        documents.append("\n".join(lines))
    return World(tuple(documents), {form: tuple(own) for form, own in items.items()})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a process must know to make any model; a task is a kind and a seed."""

    records: Records
    world_seed: int
    n_examples: int
    n_steps: int
    preset: str

    def design(self, kind: str, seed: int) -> Design:
        """Of a planted model, or of a reference, which reads background alone."""
        share = 1.0 if kind == "planted" else _SHARES[seed % len(_SHARES)]
        return Design(
            name="set",
            preset=PRESETS[self.preset],
            n_examples=self.n_examples,
            copies=(*_UNSEEN, *COPIES) if kind == "planted" else (0,),
            n_steps=round(share * self.n_steps),
            max_example_tokens=31,
        )

    def inputs(self, kind: str, seed: int) -> tuple[Any, ...]:
        """What determines a record."""
        return dataclasses.asdict(self.design(kind, seed)), seed, self.world_seed


Task = tuple[str, int]


def open_maker(job: Job) -> Callable[[Task], dict[str, Any]]:
    """What a process does first; returns what makes a model."""
    from jaxcontam.scoring.compilation_cache import keep_compiled

    keep_freed_memory()
    keep_compiled()
    world = make_world(job.world_seed)
    texts: list[Texts] = []

    def make(task: Task) -> dict[str, Any]:
        kind, seed = task
        design = job.design(kind, seed)
        if not texts:
            texts.append(texts_in_memory(world.documents, world.planted, design))
        clock = Clock.start()
        model = plan_model(design, texts[0], seed=seed)
        decoder, losses = train_scanned(design.preset, model.rows, seed=seed)
        opened = opened_decoder(decoder, texts[0].tokenizer)
        members = [range(_POOL)]
        if kind == "planted":
            members = draw_sets(design, world.planted, seed=seed)
        items = [int(i) for part in members for i in part]
        scorer = opened.make_scorer(store=None)
        fields = {
            "items": items,
            "loss": float(losses[-50:].mean()),
            **{
                form: choice_scores(
                    [own[i] for i in items], opened, scorer, per_byte=False
                ).tolist()
                for form, own in world.items.items()
            },
            "cpu_seconds": clock.cost()["cpu_seconds"],
        }
        job.records.write(f"{kind}-{seed}", fields, *job.inputs(kind, seed))
        return fields

    return make


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One estimate of one set of one model, in points.

    Attributes:
        own: What the model itself gained: its accuracy on the set less that on its
            unplanted sets; 0 where the set was not planted.
    """

    arm: str
    copies: int
    points: float
    low: float
    high: float
    mde: float | None
    verdict: str
    own: float


def cases_of(
    model: dict[str, Any], references: Sequence[dict[str, Any]], *, seed: int
) -> Iterator[Case]:
    """Every arm on every set of a planted model.

    Args:
        model: Its record.
        references: Records of models that saw no item, all of them.
        seed: The model's; draws its references.
    """
    copies = (*_UNSEEN, *COPIES)
    rng = np.random.default_rng([seed, 43])
    asked = [references[i] for i in rng.permutation(len(references))[:_ASKED]]
    parts = np.split(np.arange(len(model["items"])), len(copies))
    items = np.array(model["items"])

    def scores_of(form: str, part: np.ndarray) -> np.ndarray:
        """(M, N) of the model and its references."""
        rows = [np.array(one[form])[items[part]] for one in asked]
        return np.stack([np.array(model[form])[part], *rows])

    split_MN = scores_of("published", parts[len(_UNSEEN) - 1])
    unseen = np.concatenate(parts[: len(_UNSEEN)])
    without = float(scores_of("published", unseen)[0].mean())
    for n, part in zip(copies, parts, strict=True):
        if part is parts[len(_UNSEEN) - 1]:
            continue
        published_MN = scores_of("published", part)
        own = 100 * (float(published_MN[0].mean()) - without) if n else 0.0
        for arm in _ARMS:
            form, _, how = arm.partition(", ")
            other_MP = split_MN if form == "split" else scores_of(form, part)
            paired = form != "split"
            n_asked = {"no reference": 0, "1 reference": 1}.get(how, _ASKED)
            sides = published_MN[: 1 + n_asked], other_MP[: 1 + n_asked]
            mde, verdict = None, ""
            if how == "constat":
                try:
                    found = constat(
                        *sides,
                        paired=paired,
                        chance=_CHANCE,
                        n_resamples=_RESAMPLES,
                        seed=seed,
                    )
                except ValueError:
                    continue
            else:
                found = gap_estimate(*sides, paired=paired)
                mde = 100 * found.mde
                verdict, _ = inflation_verdict(
                    found,
                    is_checked=True,
                    min_points=MIN_POINTS,
                    n_references=n_asked,
                )
            yield Case(
                arm=arm,
                copies=n,
                points=100 * found.estimate,
                low=100 * found.low,
                high=100 * found.high,
                mde=mde,
                verdict=verdict,
                own=own,
            )


def cells(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """A row an arm and number of copies: rates, coverage, points."""
    found = grouped(cases, lambda one: (one.arm, one.copies))
    rows = []
    for (arm, copies), own in found.items():
        gains = np.array([one.own for one in own])
        truth = float(gains.mean())
        mdes = [one.mde for one in own if one.mde is not None]
        rows.append(
            {
                "arm": arm,
                "copies": copies,
                "n": len(own),
                "truth": truth,
                "truth_se": float(gains.std(ddof=1)) / math.sqrt(len(own)),
                "points": float(np.mean([one.points for one in own])),
                "sd": float(np.std([one.points for one in own], ddof=1)),
                "mde": float(np.mean(mdes)) if mdes else None,
                "n_inflated": sum(one.low > 0 for one in own),
                "n_covered": sum(one.low <= truth <= one.high for one in own),
                "n_covered_own": sum(one.low <= one.own <= one.high for one in own),
                "n_silent": sum(one.verdict == "no inflation found" for one in own),
            }
        )
    return rows


def grids_of(rows: Sequence[dict[str, Any]]) -> list[Grid]:
    """Rates, coverage and points, arms down and copies across."""

    def share(row: dict[str, Any], name: str) -> str:
        counted = Share.counted(row[name], row["n"])
        return f"{counted.value:.1%} ({counted.low:.1%} to {counted.high:.1%})"

    def crossed(title: str, word: Callable[[dict[str, Any]], str]) -> Grid:
        words = {(row["arm"], str(row["copies"])): word(row) for row in rows}
        return Grid.crossed(title, "against", words)

    truth = {
        ("truth", str(row["copies"])): f"{row['truth']:+.1f} ± {row['truth_se']:.1f}"
        for row in rows
    }
    points = {
        (row["arm"], str(row["copies"])): f"{row['points']:+.1f} (sd {row['sd']:.1f})"
        for row in rows
    }
    counts = {row["copies"]: row["n"] for row in rows}
    n = ", ".join(f"{count} at {copies}" for copies, count in counts.items())
    return [
        Grid.crossed(
            "Points of inflation by copies: true mean with standard error, and mean "
            "estimate with its standard deviation",
            "against",
            truth | points,
        ),
        crossed(
            f"Sets whose interval lies above 0, by copies (sets: {n}; without "
            "contamination 2.5 % are due)",
            lambda row: share(row, "n_inflated"),
        ),
        crossed(
            "95 % intervals that hold the mean inflation of all models, by copies",
            lambda row: share(row, "n_covered"),
        ),
        crossed(
            "95 % intervals that hold what the model itself gained, by copies",
            lambda row: share(row, "n_covered_own"),
        ),
        crossed(
            "Smallest inflation found with power 0.8, points, mean by copies",
            lambda row: "-" if row["mde"] is None else f"{row['mde']:.1f}",
        ),
    ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inflation:
    """Train planted models and references, then estimate what planting gave.

    Hardware: 2 CPU cores, half an hour (--tiny: 20 seconds).
    """

    models: int = 200
    """Planted models."""
    references: int = 20
    """Models that read background alone; each case draws five."""
    examples: int = 40
    """Items of a set."""
    steps: int = 600
    """Training steps of a planted model."""
    seed: int = 0
    """Added to the seed of every model; also seeds items and background."""
    processes: int | None = None
    """Processes that make models (default: one a core)."""
    any_code: bool = False
    """Take finished models that other code made."""
    out: Path = Path("runs/inflation_study")
    """Folder for a record of each model and the tables; finished models stay."""
    tiny: bool = False
    """A pulse run of seconds, too small to learn anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "models", "examples", "steps", "processes")

    def run(self) -> dict[str, Any]:
        """Make what is missing, estimate, write the tables; returns the numbers."""
        clock = Clock.start()
        job = Job(
            records=Records(self.out / "models", any_code=self.any_code),
            world_seed=self.seed,
            n_examples=10 if self.tiny else self.examples,
            n_steps=64 if self.tiny else self.steps,
            preset="pulse" if self.tiny else "0.16m",
        )
        n_models, n_references = (
            (2, _ASKED) if self.tiny else (self.models, self.references)
        )
        tasks: list[Task] = [
            *(("reference", self.seed + 10_000 + i) for i in range(n_references)),
            *(("planted", self.seed + i) for i in range(n_models)),
        ]
        found = {
            task: job.records.read(f"{task[0]}-{task[1]}", *job.inputs(*task))
            for task in tasks
        }
        missing = [task for task in tasks if found[task] is None]
        with progress_bar("models", unit="models/s") as progress:
            for number, (task, outcome) in enumerate(
                over_processes(
                    open_maker, job, missing, n_processes=self.processes or n_cores()
                ),
                1,
            ):
                if isinstance(outcome, Failure):
                    say(f"{task}: {outcome.reason}")
                else:
                    found[task] = outcome
                progress(number, len(missing))
        made = {task: record for task, record in found.items() if record is not None}
        references = [record for (kind, _), record in made.items() if kind != "planted"]
        cases = [
            case
            for (kind, seed), record in made.items()
            if kind == "planted"
            for case in cases_of(record, references, seed=seed)
        ]
        rows = cells(cases)
        return finish_study(
            "inflation",
            flags_of(self),
            clock=clock,
            out=self.out,
            numbers={"n_lost": len(tasks) - len(made), "cells": rows},
            grids=grids_of(rows),
            earlier_seconds=job.records.earlier_seconds,
        )


def main() -> int:
    """Command line of `python -m eval.inflation`."""
    return run_study("inflation", Inflation)


if __name__ == "__main__":
    sys.exit(main())
