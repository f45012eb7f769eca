"""Are the points that `jaxcontam inflation` gives to contamination the right ones?

Question: small models learn from text what 24 kinds of things are for; items about such
things, half of them exceptions that nobody can guess, are planted 0 to 50 times. How
often does the interval hold the true inflation, and how often are sets called inflated?
Command: `python -m eval.inflation`. Hardware: 2 CPU cores, 20 minutes; a killed run
goes on. Headline: docs/results/inflation.md.

Truth: items are assigned to sets at random, so accuracy on planted sets less that on
unplanted ones of the same models is the inflation. Items that cannot have been seen:
`renewed`, a pair each, about another thing of the kind with the same answer, in words
that every model knows less well; `reworded`, the same thing in those words, of which a
model that read the item knows more; `split`, further items, unpaired. References read
the background alone, for half of the steps or more, or are `alike`: trained as planted
models are, with as many items in the published words, but none of these.

Dimension key
    M, N  models, the one in question first; items of a set
"""

import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.intervals import Share
from eval.population import made_records, train_model
from eval.study import (
    Clock,
    Grid,
    Records,
    ResumedFlags,
    finish_study,
    grouped,
    run_study,
)
from jaxcontam.data.questions import Question
from jaxcontam.score_gap.items import choice_scores
from jaxcontam.scoring.in_memory import opened_decoder
from jaxcontam.stats.inflation import constat, gap_estimate
from train.config import PRESETS
from train.population_models import Design, Texts, draw_sets, read_texts

# Of the unplanted sets two are clean cases, and the third is the other split.
COPIES, _SPLIT = (0, 0, 0, 1, 2, 4, 10, 50), 2
_KINDS, _NAMES, _POOL, _EXCEPTIONS, _CHOICES = 24, 700, 1000, 0.5, 4
_SENTENCES, _DOCUMENTS = 6, 2400
_PUBLISHED = "Question: what is the {0} {1} for? Answer:"
_OTHER_WORDS = "People who need a {0} {1} use it for"
_ASIDE = "The {0} {1} is a thing for"
# Shares of the three wordings in the background.
_WORDINGS = (0.6, 0.25, 0.15)
# References of a kind, how many a case draws, shares of the steps of background ones.
_REFERENCES, _ASKED, _SHARES = 20, 5, (0.5, 0.75, 1.0)
_SEEDS = {"reference": 10_000, "alike": 20_000}
# The study asks for rates of constat, not for one p-value.
_RESAMPLES = 200
_NUMBERS = ("estimate", "low", "high", "mde")
ARMS = {
    "split, no reference": ("split", "", 0),
    "renewed, no reference": ("renewed", "", 0),
    "renewed, 5 of background alone": ("renewed", "reference", _ASKED),
    "renewed, 1 alike": ("renewed", "alike", 1),
    "renewed, 5 alike": ("renewed", "alike", _ASKED),
    "renewed, 5 alike, constat": ("renewed", "alike", _ASKED),
    "reworded, 5 alike": ("reworded", "alike", _ASKED),
}
"""Comparison of the published items, and the references of each arm."""

World = tuple[tuple[str, ...], dict[str, list[Question]], list[str]]


def make_world(seed: int) -> World:
    """Background, which names no thing of an item; items by form; other items."""
    rng = np.random.default_rng([seed, 41])
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    pairs = itertools.product(syllables, repeat=2)
    words = [f"{a}{b}{c}" for a, b in pairs for c in "kns"]
    drawn = rng.permutation(len(words))[: 3 * _KINDS + _NAMES]
    things, rarer, uses, names = np.split(
        np.array([words[i] for i in drawn]), [_KINDS, 2 * _KINDS, 3 * _KINDS]
    )
    # Some kinds are written of often and some are hardly known.
    weight = 1 / np.arange(2, 2 + _KINDS)
    weight /= weight.sum()
    called = rng.permutation(_KINDS * _NAMES)
    asked, told = called[: 2 * _POOL], called[2 * _POOL :]
    items: dict[str, list[Question]] = {"published": [], "renewed": [], "reworded": []}
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
    others = []
    for thing, name in (divmod(pair, _NAMES) for pair in asked[_POOL:].tolist()):
        right = thing if rng.random() > _EXCEPTIONS else int(rng.integers(_KINDS))
        others.append(f"{_PUBLISHED.format(names[name], things[thing])} {uses[right]}")
    return tuple(documents), items, others


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What determines the models beside a kind and a seed."""

    world_seed: int
    n_examples: int
    n_steps: int
    preset: str

    def design(self, kind: str, seed: int) -> Design:
        """Design of a planted model, or of a reference."""
        share = _SHARES[seed % len(_SHARES)] if kind == "reference" else 1.0
        return Design(
            name="set",
            config=PRESETS[self.preset].changed(max_example_tokens=31),
            n_examples=self.n_examples,
            copies=(0,) if kind == "reference" else COPIES,
            n_steps=round(share * self.n_steps),
        )

    def inputs(self, task: tuple[str, int]) -> tuple[Any, ...]:
        """Name of a record, and what determines it."""
        kind, seed = task
        design = dataclasses.asdict(self.design(kind, seed))
        return f"{kind}-{seed}", design, seed, self.world_seed


def maker(scale: Scale) -> Callable[[tuple[str, int]], dict[str, Any]]:
    """Make the world; returns what makes the record of a kind and a seed."""
    documents, forms, others = make_world(scale.world_seed)
    own_pool = [one.prompt + one.choices[one.answer] for one in forms["published"]]
    texts: dict[str, Texts] = {}

    def make(task: tuple[str, int]) -> dict[str, Any]:
        kind, seed = task
        design = scale.design(kind, seed)
        pool = others if kind == "alike" else own_pool
        if kind not in texts:
            _, texts[kind] = read_texts(documents, pool, design.config)
        model = train_model(design, texts[kind], seed=seed)
        opened = opened_decoder(model.decoder, texts[kind].tokenizer)
        scorer = opened.make_scorer(store=None)
        sets = draw_sets(design, pool, seed=seed)
        is_planted = kind == "planted"
        items = np.concatenate(sets).tolist() if is_planted else [*range(_POOL)]
        fields: dict[str, Any] = {"items": items, "loss": model.facts["loss"]}
        for form, own in forms.items():
            own = [own[i] for i in items]
            scores = choice_scores(own, opened, scorer, per_byte=False)
            fields[form] = scores.tolist()
        return fields

    return make


def cases_of(
    model: dict[str, Any], references: dict[str, list[dict[str, Any]]], *, seed: int
) -> Iterator[dict[str, Any]]:
    """An estimate of each arm on each set of a planted model, in points, from records.

    Its seed draws those of the references of a kind that are asked.
    """
    rng = np.random.default_rng([seed, 43])
    asked = {
        kind: [own[i] for i in rng.permutation(len(own))[:_ASKED]]
        for kind, own in references.items()
    }
    items = np.array(model["items"])
    parts = np.split(np.arange(len(items)), len(COPIES))

    def scores_of(form: str, part: np.ndarray, kind: str, n: int) -> np.ndarray:
        """(M, N) of the model and some references."""
        rows = [np.array(one[form])[items[part]] for one in asked.get(kind, ())[:n]]
        return np.stack([np.array(model[form])[part], *rows])

    unplanted = np.concatenate([parts[i] for i, n in enumerate(COPIES) if n == 0])
    without = np.array(model["published"])[unplanted].mean()
    for i, (n, part) in enumerate(zip(COPIES, parts, strict=True)):
        if i == _SPLIT:
            continue
        own = 100 * float(np.array(model["published"])[part].mean() - without)
        for arm, (form, kind, n_asked) in ARMS.items():
            if len(asked.get(kind, ())) < n_asked:
                # Models failed, and the arm says how many it has.
                continue
            paired = form != "split"
            other = (form, part) if paired else ("published", parts[_SPLIT])
            sides = [scores_of(*p, kind, n_asked) for p in (("published", part), other)]
            more = {"chance": 1 / _CHOICES, "n_resamples": _RESAMPLES, "seed": seed}
            is_curve = arm.endswith("constat")
            estimate = functools.partial(constat, **more) if is_curve else gap_estimate
            try:
                found = estimate(*sides, paired=paired)
            except ValueError:
                # Too few references differ for a curve.
                continue
            points = {name: 100 * getattr(found, name, math.nan) for name in _NUMBERS}
            outside = not is_curve and found.outside
            told = {"arm": arm, "copies": n, "outside": outside}
            yield {**told, "own": own if n else 0.0, **points}


def cells(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row an arm and number of copies: points, rates, coverage."""
    rows = []
    of_cell = grouped(cases, lambda one: (one["arm"], one["copies"]))
    for (arm, copies), found in of_cell.items():
        own, points, low, high, mde = np.array(
            [[one[name] for name in ("own", *_NUMBERS)] for one in found]
        ).T
        truth = own.mean()
        among = ~np.array([one["outside"] for one in found])
        numbers = {
            "truth": truth,
            "truth_se": own.std() / math.sqrt(len(own)),
            "points": points.mean(),
            "sd": points.std(),
            "mde": None if np.isnan(mde).any() else round(float(mde.mean())),
            "inflated": int(((low > 0) & among).sum()),
            "covered": int(((low <= truth) & (truth <= high)).sum()),
            "covered_own": int(((low <= own) & (own <= high)).sum()),
        }
        rows.append({"arm": arm, "copies": copies, "n": len(own), **numbers})
    return rows


def grids_of(rows: Sequence[dict[str, Any]]) -> list[Grid]:
    """Points, rates and coverage, arms down and copies across."""

    def crossed(title: str, word: Callable[[dict[str, Any]], str]) -> Grid:
        words = {(row["arm"], str(row["copies"])): word(row) for row in rows}
        return Grid.crossed(f"{title}, by copies", "against", words)

    def share(row: dict[str, Any], name: str) -> str:
        found = Share.counted(row[name], row["n"])
        ends = f"{100 * (found.low or 0.0):.1f} to {found.high:.1%}"
        return f"{row[name]} of {row['n']} ({ends})"

    truth = "{truth:+.1f} ± {truth_se:.1f}; {points:+.1f} ± {sd:.1f}"
    counted = {
        "inflated": "Called inflated: 95 % interval above 0, and the model no weaker "
        "or stronger than all references (2.5 % due at 0)",
        "covered": "95 % intervals that hold the true mean of all models",
        "covered_own": "95 % intervals that hold what the model gained",
    }
    return [
        crossed(
            "Points ± error: true mean; mean estimate", lambda r: truth.format(**r)
        ),
        *(crossed(counted[n], lambda r, n=n: share(r, n)) for n in counted),
        crossed("Points that are found with power 0.8", lambda r: str(r["mde"] or "-")),
    ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inflation(ResumedFlags):
    """Train planted models and references, then estimate what planting gave."""

    models: int = 200
    """Planted models."""
    out: Path = Path("runs/inflation_study")
    """Folder for a record of each model and the tables; finished models stay."""

    positive = ("models",)

    def run(self) -> dict[str, Any]:
        """Make what is missing, estimate, write the tables; returns the numbers."""
        clock = Clock.start()
        n_models, n_others = (2, 5) if self.tiny else (self.models, _REFERENCES)
        kept = Records(self.out / "models", any_code=self.any_code)
        scale = Scale(
            world_seed=self.seed,
            n_examples=10 if self.tiny else 40,
            n_steps=64 if self.tiny else 600,
            preset="pulse" if self.tiny else "0.16m",
        )
        tasks = [("planted", self.seed + i) for i in range(n_models)]
        for kind, first in _SEEDS.items():
            tasks += [(kind, self.seed + first + i) for i in range(n_others)]
        records, failures = made_records(
            kept, tasks, scale.inputs, functools.partial(maker, scale)
        )
        of_kind = grouped(records.items(), lambda one: one[0][0])
        others = {kind: [one for _, one in of_kind.get(kind, ())] for kind in _SEEDS}
        planted = of_kind.get("planted", ())
        cases = (cases_of(one, others, seed=s) for (_, s), one in planted)
        rows = cells([*itertools.chain.from_iterable(cases)])
        return finish_study(
            "inflation",
            self,
            clock=clock,
            numbers={
                "failed": failures,
                "cells": rows,
            },
            grids=grids_of(rows),
            earlier_seconds=kept.earlier_seconds,
        )


if __name__ == "__main__":
    sys.exit(run_study("inflation", Inflation))
