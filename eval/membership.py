"""What do membership scores find, and do bounds of the share seen hold?

Question: how well does each score tell texts that a model was trained on from texts
that it was not, by number of copies? And of files of which a known share was seen: how
often is the bound of `membership` above that share (5 % are due), and how close is it?
Members and non-members are drawn at random from one pool, so that whoever reads the
texts alone is at chance.
Command: `python -m eval.membership`. Hardware: a minute of one CPU core a model;
nothing is downloaded, and a killed run goes on where it stopped. Headline: none of
these models yet; docs/how_to/membership.md has one of larger ones.

The models are those of `eval.leaderboard`, of 0.16 M parameters: members stand in
blocks of one order, 60 at each number of copies. Twelve of those at the most copies and
twelve others are set aside for prefixes, which leaves 48 members at 16 copies. Order of
scores can be compared with papers, numbers cannot.
"""

import dataclasses
import functools
import itertools
import math
import statistics
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.intervals import Share
from eval.leaderboard.methods import company_of
from eval.leaderboard.trials import DESIGN, PULSE, Bench
from eval.population import made_records
from eval.python_docs import read_python_docs
from eval.study import (
    Clock,
    Grid,
    Records,
    StudyFlags,
    finish_study,
    grouped,
    run_study,
)
from jaxcontam.members.blind import blind_baselines
from jaxcontam.members.passes import Inputs, score_texts
from jaxcontam.members.scores import SCORES
from jaxcontam.stats.conformal import share_seen
from jaxcontam.stats.roc import auc_delong, auc_interval, tpr_at_fpr
from train.data import corpus_digest

FPR = 0.05
_N_UNKNOWN, _N_SHOTS = 600, 12
_BLIND = "blind: "
_SHARES = (0.0, 0.1, 0.25, 0.5)
_BOUNDED = ("min_k", "loss")
# (texts of the file, non-members), and how far seen texts stand off, in sd.
_SIZES = ((100, 100), (200, 300), (1000, 1000))
_SHIFTS = (1.0, 2.0, 4.0)

Rng = np.random.Generator
Sides = tuple[np.ndarray, np.ndarray]
"""Scores of members and of non-members under one model, higher = more likely seen."""
File = tuple[np.ndarray, np.ndarray, float]
"""Scores of a file and of non-members, and the share of the file that was seen."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One score at one number of copies.

    Attributes:
        auc: Mean over models, weighted by their members, with DeLong's errors of these.
            What training the same model again would change is in it as far as seeds
            differ.
        tpr: Share of members above the threshold that at most `FPR` of the non-members
            of their model exceed; Wilson's interval takes the thresholds as given. None
            where there are too few of these.
    """

    setting: str
    method: str
    n_members: int
    n_nonmembers: int
    n_models: int
    auc: Share
    tpr: Share | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Files of which a share was `seen`: mean bound, estimate, and bounds above it."""

    kind: str
    seen: float
    n_files: int
    bound: float
    estimate: float
    too_high: Share


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Inputs that a process needs to score any model's texts; a task has a seed."""

    records: Records
    tiny: bool
    first_seed: int
    corpus: str

    def inputs(self, task: tuple[str, int]) -> tuple[Any, ...]:
        """Name of a record, and what determines it."""
        design = dataclasses.asdict(PULSE if self.tiny else DESIGN)
        return "{}-{}".format(*task), design, task[1], self.first_seed, self.corpus

    def maker(self) -> Callable[[tuple[str, int]], dict[str, Any]]:
        """Read the texts; returns what trains a model and scores its texts."""
        bench = Bench(seed=self.first_seed, tiny=self.tiny)
        return lambda task: scored_model(bench, task[1])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Membership(StudyFlags):
    """Train models on known texts, then see what membership scores say of them."""

    models: int = 10
    """Models, each with texts of its own."""
    n_files: int = 400
    """Files of each kind and share seen."""
    seed: int = 8000
    """Seed of the first model."""
    any_code: bool = False
    """Take finished models that other code scored."""
    out: Path = Path("runs/membership-study")
    """Folder for a record of each model and the tables; finished models stay."""

    positive = ("models", "n_files")

    def run(self) -> dict[str, Any]:
        """Train and score what is missing, print tables; returns what was found."""
        clock, docs = Clock.start(), read_python_docs()
        job = Job(
            records=Records(self.out / "models", any_code=self.any_code),
            tiny=self.tiny,
            first_seed=self.seed,
            corpus=corpus_digest([*docs.documents, *(q.text for q in docs.questions)]),
        )
        seeds = range(self.seed, self.seed + self.models)
        made, failures = made_records(job, [("texts", seed) for seed in seeds])
        records = list(made.values())
        strata = {
            place: [
                (np.array(one["members"]), np.array(one["nonmembers"])) for one in r
            ]
            for place, r in grouped(
                (row for record in records for row in record["rows"]),
                lambda row: (row["method"], row["copies"]),
            ).items()
        }
        cells = [cell(method, n, own) for (method, n), own in strata.items()]
        n_files = 20 if self.tiny else self.n_files
        bounds = list(bounds_of(strata, n_files))
        return finish_study(
            "membership",
            self,
            clock=clock,
            numbers={
                "models": [record["facts"] for record in records],
                "failed": {f"{seed}": f.reason for (_, seed), f in failures.items()},
                "cells": [dataclasses.asdict(one) for one in cells],
                "bounds": [dataclasses.asdict(one) for one in bounds],
            },
            grids=[*_cell_grids(cells), *_bound_grids(bounds)],
            earlier_seconds=job.records.earlier_seconds,
        )


def scored_model(bench: Bench, seed: int) -> dict[str, Any]:
    """A model's members and non-members by every score, and by those that ask none."""
    arena = bench.arena(seed)
    planned, design = arena.model.planned, bench.design
    groups: dict[int, list[str]] = {}
    for one in planned.sets:
        groups.setdefault(one.copies, []).extend(one.benchmark.texts)
    most, n_shots = max(groups), min(_N_SHOTS, design.n_examples // 4)
    shots, groups[most] = groups[most][:n_shots], groups[most][n_shots:]
    unseen = groups.pop(0)
    unseen, others = unseen[:-n_shots][:_N_UNKNOWN], unseen[-n_shots:]
    sides = [unseen, *groups.values()]
    table = score_texts(
        [*itertools.chain.from_iterable(sides)],
        list(SCORES.values()),
        arena.reader,
        inputs=Inputs(
            reference=bench.reference,
            nonmember_prefix=tuple(others),
            member_prefix=tuple(shots),
            company=company_of(sides, seed=seed),
            corpus_counts=bench.counts_V,
        ),
        seed=seed,
    )
    rest, *own = np.split(table.values, np.cumsum([len(side) for side in sides])[:-1])
    rows = []
    for (copies, members), values_NM in zip(groups.items(), own, strict=True):
        found = dict(
            zip(table.names, zip(values_NM.T, rest.T, strict=True), strict=True)
        )
        labels_N = np.arange(len(members) + len(unseen)) < len(members)
        blind = blind_baselines([*members, *unseen], labels_N, seed=seed)
        for one, values_N in zip(blind.rows, blind.scores.T, strict=True):
            found[_BLIND + one.name] = values_N[labels_N], values_N[~labels_N]
        for method, (seen, not_seen) in found.items():
            scores = {"members": seen.tolist(), "nonmembers": not_seen.tolist()}
            rows.append({"method": method, "copies": copies, **scores})
    facts = arena.model.facts | {"n_examples": design.n_examples}
    return {"facts": facts, "rows": rows}


def cell(method: str, copies: int, strata: Sequence[Sides]) -> Cell:
    """Average the AUC and the TPR of a score over models.

    Members are compared with non-members of the same model alone: scores of different
    models do not compare.
    """
    counts = np.array([len(members) for members, _ in strata], np.float64)
    weights = counts / counts.sum()
    values, errors = np.array([auc_delong(*one) for one in strata]).T
    auc, se = float(weights @ values), math.sqrt(float(weights**2 @ errors**2))
    n_members = int(counts.sum())
    n_nonmembers = sum(len(others) for _, others in strata)
    low, high = auc_interval(auc, se, n=min(n_members, n_nonmembers))
    tpr = None
    if all(len(others) * FPR >= 1 for _, others in strata):
        found = weights @ [tpr_at_fpr(*one, FPR)[0] for one in strata]
        tpr = Share.counted(round(float(found) * n_members), n_members)
    return Cell(
        setting=f"{copies} copies",
        method=method,
        n_members=n_members,
        n_nonmembers=n_nonmembers,
        n_models=len(strata),
        auc=Share(value=auc, low=low, high=high),
        tpr=tpr,
    )


def bounds_of(
    strata: dict[tuple[str, int], list[Sides]], n_files: int
) -> Iterable[Bounds]:
    """Bounds from scores of two normal laws, and from texts that models read."""
    for (n, n_pool), shift in itertools.product(_SIZES, _SHIFTS):
        draw = functools.partial(_normal, n, n_pool, shift)
        yield from _bounded(
            f"{n} texts, {n_pool} non-members, {shift:g} sd", [draw], n_files
        )
    for (method, copies), sides in strata.items():
        if method in _BOUNDED:
            draws = [functools.partial(_of_texts, *one) for one in sides]
            yield from _bounded(f"{method}, {copies} copies", draws, n_files)


def _normal(n: int, n_pool: int, shift: float, rng: Rng, share: float) -> File:
    scores, n_seen = rng.normal(size=n), round(share * n)
    scores[:n_seen] += shift
    return scores, rng.normal(size=n_pool), n_seen / n


def _of_texts(seen: np.ndarray, unseen: np.ndarray, rng: Rng, share: float) -> File:
    """A file of as many texts as a model read so often, and the pool beside it."""
    own = rng.permutation(seen)[: round(share * len(seen))]
    rest, n_rest = rng.permutation(unseen), len(seen) - len(own)
    file = np.concatenate([own, rest[:n_rest]])
    return file, rest[n_rest:], len(own) / len(seen)


def _bounded(
    kind: str, draws: Sequence[Callable[[Rng, float], File]], n_files: int
) -> Iterable[Bounds]:
    for share in _SHARES:
        rng = np.random.default_rng([zlib.crc32(kind.encode()), round(100 * share)])
        sources = itertools.islice(itertools.cycle(draws), n_files)
        files = (draw(rng, share) for draw in sources)
        found = np.array([(*share_seen(own, pool), seen) for own, pool, seen in files])
        bound, estimate, _ = found.mean(axis=0).tolist()
        yield Bounds(
            kind=kind,
            seen=statistics.fmean(found[:, 2]),
            n_files=n_files,
            bound=bound,
            estimate=estimate,
            too_high=Share.counted(int((found[:, 0] > found[:, 2]).sum()), n_files),
        )


def _cell_grids(cells: Sequence[Cell]) -> list[Grid]:
    """AUC, and the share found where there are non-members enough."""
    by_score = grouped(cells, lambda one: one.method)
    # The best on average first, those without a model last.
    ranked = sorted(
        by_score,
        key=lambda name: (
            name.startswith(_BLIND),
            -statistics.fmean(one.auc.value for one in by_score[name]),
        ),
    )
    numbers: dict[str, Callable[[Cell], Share | None]] = {
        "AUC": lambda one: one.auc,
        f"share found at {FPR:.0%} false alarms": lambda one: one.tpr,
    }
    return [
        Grid.crossed(
            f"Known members, by copies: {title} (95 % interval)",
            "score",
            {
                (score, one.setting): found.words()
                for score in ranked
                for one in by_score[score]
                if (found := number(one)) is not None
            },
        )
        for title, number in numbers.items()
    ]


def _bound_grids(bounds: Sequence[Bounds]) -> list[Grid]:
    numbers: dict[str, Callable[[Bounds], str]] = {
        "Mean lower bound": lambda one: f"{one.bound:.1%}",
        "Mean estimate": lambda one: f"{one.estimate:.1%}",
        "Lower bounds (95 %) too high": lambda one: one.too_high.words(".1%"),
    }
    return [
        Grid.crossed(
            title,
            "files",
            {(one.kind, f"{one.seen:.0%} seen"): words(one) for one in bounds},
        )
        for title, words in numbers.items()
    ]


if __name__ == "__main__":
    sys.exit(run_study("membership", Membership, trains=True, compiles=True))
