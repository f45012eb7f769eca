"""What does asking a reference cost `audit --tests options`, and what does it prevent?

Question: models that read sets of multiple-choice items 0 to 10 times, each time in
another order of items. How many sets are called contaminated beside a model that read
the background alone? And simulated: items whose order a clean model likes, beside
references that like it as much or less. How many of these are accused?
Command: `python -m eval.options`. Hardware: 2 CPU cores, five minutes. Headline:
docs/methods/orders/options.md.

The simulation takes normal noise, 100 items in four orders, and p-values by the normal
law. Without a reference no set is called contaminated, planted or not.

Dimension key
    F  files
    K  items of a file
    M  orders of an item
"""

import dataclasses
import functools
import itertools
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from eval.planted import trained_model
from eval.python_docs import read_python_docs
from eval.study import Clock, Grid, ResumedFlags, finish_study, grouped, run_study
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.orders.run import audit
from jaxcontam.reports.terms import (
    CONTAMINATED_LEVEL,
    REFERENCE_LEVEL,
    REFERENCE_SHARE,
    SHARE_LEVEL,
)
from train.config import PRESETS
from train.plant import PlannedSet
from train.run_folder import MODEL_DIR

_COPIES, _SETS = (0, 1, 2, 4, 10), 3
_N_OPTIONS, _N_WORDS = 4, 5
# (gain, noise) of the reference in parts of the model's.
_REFERENCES = ((1.0, 1.0), (0.5, 0.5), (0.1, 0.1), (0.7, 1.0), (0.5, 1.0), (0.3, 1.0))
# Nats that orders differ by to a taste, in standard deviations of the noise.
_TASTES = (0.25, 0.35, 0.5, 0.7)
_K, _M = 100, 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options(ResumedFlags):
    """Audit options that were read and options in a liked order, beside references."""

    models: int = 2
    """Models, each with sets of its own and a reference of its own."""
    n_items: int = 100
    """Items of each set."""
    n_files: int = 40_000
    """Simulated files of each taste and reference."""
    out: Path = Path("runs/options")
    """Folder for models, records and tables."""

    positive = ("models", "n_items", "n_files")

    def run(self) -> dict[str, Any]:
        """Train, audit, simulate, print the tables; returns the numbers."""
        clock = Clock.start()
        seeds = range(self.seed, self.seed + (1 if self.tiny else self.models))
        rows = [row for seed in seeds for row in self._audited(seed)]
        n_files = 500 if self.tiny else self.n_files
        cells = [
            {"taste": taste, "gain": gain, "noise": noise}
            | simulate(taste, gain, noise, n_files=n_files, seed=self.seed)
            for taste, (gain, noise) in itertools.product(_TASTES, _REFERENCES)
        ]
        return finish_study(
            "options",
            self,
            clock=clock,
            numbers={"rows": rows, "cells": cells},
            grids=[
                _planted_grid(rows),
                Grid.of(
                    "Share of simulated files whose order a clean model likes",
                    cells,
                    {
                        "taste, sd": "{r[taste]:g}",
                        "reference's": "{r[gain]:g}",
                        "its noise": "{r[noise]:g}",
                        "p <= 0.001": "{r[found]:.3f}",
                        "contaminated": "{r[accused]:.4f}",
                    },
                ),
            ],
        )

    def _audited(self, seed: int) -> Iterable[dict[str, Any]]:
        """A model and its reference; a row for each set."""
        docs, folder = read_python_docs(), self.out / f"model-{seed}"
        words = sorted(
            {
                word
                for one in docs.questions
                for word in one.text.replace("?", " ").split()
                if word.isalpha() and 4 <= len(word) <= 10
            }
        )
        rng = np.random.default_rng([seed, 17])
        n_items = min(self.n_items, 12) if self.tiny else self.n_items
        sets = []
        for copies, i in itertools.product(_COPIES, range(_SETS)):
            lines = tuple(_item(rng, words) for _ in range(n_items))
            rows = tuple(json.loads(line) for line in lines)
            file = Benchmark(f"read-{copies}-{i}", lines, rows)
            sets.append(PlannedSet(benchmark=file, copies=copies, shuffled=True))
        train = functools.partial(
            trained_model,
            documents=docs.documents,
            config=PRESETS["pulse" if self.tiny else "tiny"],
            background_tokens=5_000 if self.tiny else 200_000,
            any_code=self.any_code,
        )
        train(folder / "model", sets=sets, seed=seed)
        unread = [dataclasses.replace(one, copies=0) for one in sets]
        train(folder / "reference", sets=unread, seed=seed + 1000)
        for one in sets:
            found = audit(
                str(folder / "model" / MODEL_DIR),
                one.benchmark,
                reference=str(folder / "reference" / MODEL_DIR),
                tests="options",
                seed=seed,
            ).primary
            assert found is not None and found.reference is not None
            yield {
                "copies": one.copies,
                "p_value": found.p_value,
                "effect": found.effect,
                "scale": found.reference.scale,
                "verdict": found.verdict,
                "reasons": found.reasons,
            }


def _item(rng: np.random.Generator, words: list[str]) -> str:
    """A made-up item: its options stand in random order by construction."""
    drawn = [str(word) for word in rng.choice(words, _N_WORDS + _N_OPTIONS, False)]
    return json.dumps(
        {
            "question": " ".join(drawn[:_N_WORDS]) + "?",
            "choices": drawn[_N_WORDS:],
            "answer": int(rng.integers(_N_OPTIONS)),
        }
    )


def _planted_grid(rows: list[dict[str, Any]]) -> Grid:
    found = [
        {
            "copies": copies,
            "effect": np.mean([row["effect"] for row in some]),
            "found": sum(row["p_value"] <= CONTAMINATED_LEVEL for row in some),
            "proven": sum(row["verdict"] == "contaminated" for row in some),
            "n": len(some),
        }
        for copies, some in grouped(rows, lambda row: row["copies"]).items()
    ]
    columns = {
        "copies": "{r[copies]}",
        "nats an item": "{r[effect]:.2f}",
        "p <= 0.001": "{r[found]} of {r[n]}",
        "contaminated beside the reference": "{r[proven]} of {r[n]}",
    }
    return Grid.of("Sets of items that models read", found, columns)


def simulate(
    taste: float, gain: float, noise: float, *, n_files: int, seed: int
) -> dict[str, float]:
    """Shares of files found, and accused, where a clean model likes the order.

    `taste` is how many standard deviations of the noise orders differ by; `gain` and
    `noise` are the reference's in parts of the model's. Half of the items stand in an
    order that is liked twice as much again.
    """
    rng, counts = np.random.default_rng([seed, round(100 * taste)]), np.zeros(2)
    # Little memory whatever the number of files.
    for start in range(0, n_files, 500):
        shape = (min(500, n_files - start), _K, _M)
        taste_FKM = taste * rng.exponential(size=shape)
        is_liked_FK = rng.random(shape[:2]) < 0.5
        taste_FKM[..., 0] += 2 * taste * is_liked_FK * rng.lognormal(-0.5, 1, shape[:2])
        own_FKM, other_FKM = rng.normal(size=(2, *shape))
        counts += accused(own_FKM + taste_FKM, noise * other_FKM + gain * taste_FKM)
    found, called = (counts / n_files).tolist()
    return {"found": found, "accused": called}


def accused(model_FKM: np.ndarray, reference_FKM: np.ndarray) -> np.ndarray:
    """(2,) files with a small p-value, and those that are called contaminated."""
    found_F = _standardised(model_FKM) > norm.isf(CONTAMINATED_LEVEL)
    ratio_F = _spread(model_FKM) / _spread(reference_FKM)
    scaled_FKM = np.maximum(1.0, ratio_F)[:, None, None] * reference_FKM
    difference_F = _standardised(model_FKM - scaled_FKM)
    half_F = _standardised(REFERENCE_SHARE * model_FKM - scaled_FKM)
    accused_F = found_F & (difference_F > norm.isf(CONTAMINATED_LEVEL))
    accused_F &= np.abs(_standardised(reference_FKM)) < norm.isf(REFERENCE_LEVEL)
    accused_F &= half_F >= norm.isf(SHARE_LEVEL)
    return np.array([found_F.sum(), accused_F.sum()])


def _standardised(scores_FKM: np.ndarray) -> np.ndarray:
    """(F,) sums of published scores, in their standard deviations by chance."""
    centred_FKM = scores_FKM - scores_FKM.mean(axis=-1, keepdims=True)
    deviation_F = np.sqrt((centred_FKM**2).mean(axis=-1).sum(axis=1))
    return centred_FKM[..., 0].sum(axis=1) / deviation_F


def _spread(scores_FKM: np.ndarray) -> np.ndarray:
    """`row_spread` of each file."""
    means_FK1 = scores_FKM.mean(axis=-1, keepdims=True)
    return np.abs(scores_FKM - means_FK1).mean(axis=(1, 2))


if __name__ == "__main__":
    sys.exit(run_study("options", Options, trains=True))
