"""What do membership scores find?

Question: how well does each score tell texts that a model was trained on from texts
that it was not, by number of copies? Members and non-members are drawn at random from
one pool, so that whoever reads the texts alone is at chance.
Command: `python -m eval.membership`. Hardware: a minute of one CPU core a model;
nothing is downloaded, and a killed run goes on where it stopped. Headline: none of
these models yet; docs/how_to/membership.md has one of larger ones.

The models are those of `eval.leaderboard`, of 0.16 M parameters: members stand in
blocks of one order, 60 at each number of copies. Twelve of those at the most copies and
twelve others are set aside for prefixes, which leaves 48 members at 16 copies. Order of
scores can be compared with papers, numbers cannot. That the bound of the share seen
holds is a law of tests/stats/test_conformal.py.
"""

import dataclasses
import functools
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Sequence
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
    ResumedFlags,
    finish_study,
    grouped,
    run_study,
)
from jaxcontam.members.blind import blind_baselines
from jaxcontam.members.passes import Inputs, score_texts
from jaxcontam.members.scores import SCORES
from jaxcontam.stats.roc import auc_delong, auc_interval, tpr_at_fpr
from train.data import corpus_digest

FPR = 0.05
_N_UNKNOWN, _N_SHOTS = 600, 12
_BLIND = "blind: "

Sides = tuple[np.ndarray, np.ndarray]
"""Scores of members and of non-members under one model, higher = more likely seen."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One score in one setting, such as a number of copies.

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
class Membership(ResumedFlags):
    """Train models on known texts, then see what membership scores say of them."""

    models: int = 10
    """Models, each with texts of its own."""
    seed: int = 8000
    """Seed of the first model."""
    out: Path = Path("runs/membership-study")
    """Folder for a record of each model and the tables; finished models stay."""

    positive = ("models",)

    def run(self) -> dict[str, Any]:
        """Train and score what is missing, print tables; returns what was found."""
        clock, docs = Clock.start(), read_python_docs()
        kept = Records(self.out / "models", any_code=self.any_code)
        design = dataclasses.asdict(PULSE if self.tiny else DESIGN)
        corpus = corpus_digest([*docs.documents, *(q.text for q in docs.questions)])
        made, failures = made_records(
            kept,
            [*range(self.seed, self.seed + self.models)],
            lambda seed: (f"texts-{seed}", design, seed, self.seed, corpus),
            functools.partial(maker, self.seed, self.tiny),
        )
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
        cells = [cell(name, f"{n} copies", own) for (name, n), own in strata.items()]
        return finish_study(
            "membership",
            self,
            clock=clock,
            numbers={
                "models": [record["facts"] for record in records],
                "failed": failures,
                "cells": [dataclasses.asdict(one) for one in cells],
            },
            grids=_cell_grids(cells),
            earlier_seconds=kept.earlier_seconds,
        )


def maker(first_seed: int, tiny: bool) -> Callable[[int], dict[str, Any]]:
    """Read the texts; returns what trains the model of a seed and scores its texts."""
    return functools.partial(scored_model, Bench(seed=first_seed, tiny=tiny))


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


def cell(method: str, setting: str, strata: Sequence[Sides]) -> Cell:
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
        setting=setting,
        method=method,
        n_members=n_members,
        n_nonmembers=n_nonmembers,
        n_models=len(strata),
        auc=Share(value=auc, low=low, high=high),
        tpr=tpr,
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
                (_label(score), one.setting): found.words()
                for score in ranked
                for one in by_score[score]
                if (found := number(one)) is not None
            },
        )
        for title, number in numbers.items()
    ]


def _label(score: str) -> str:
    """A score with its parameter, or with what made its neighbours."""
    return f"{score} {SCORES[score].setting}".strip() if score in SCORES else score


if __name__ == "__main__":
    sys.exit(run_study("membership", Membership, trains=True, compiles=True))
