"""How often does the bound of the share seen hold, and how close is it?

Question: files of which a known share was seen, beside non-members of the same pool:
how often is the lower bound above the share (at most 5 % are due), and how far below
it and the estimate are. Scores are drawn from two normal laws, or are those of texts
that models trained here read 1 to 50 times or never (those of `eval.membership`).
Command: `python -m eval.share`. Hardware: one CPU core, minutes. Headline:
docs/results/share.md, which is the table of this study.
"""

import dataclasses
import itertools
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from eval.membership.copies import FULL, TINY, Bench, draw_texts, planted_model
from eval.membership.texts import read_pool
from eval.study import Clock, Grid, finish_study, run_study
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.methods import SCORES
from jaxcontam.methods.membership.plan import score_texts
from jaxcontam.stats.proportions import wilson_interval
from jaxcontam.stats.share import share_seen

_SHARES = (0.0, 0.1, 0.25, 0.5)
_SCORES = ("min_k", "loss")
# (texts of the file, non-members), and how far seen texts stand off, in sd.
_SIZES = ((100, 100), (200, 300), (1000, 1000))
_SHIFTS = (1.0, 2.0, 4.0)

Draw = Callable[[np.random.Generator, float], tuple[np.ndarray, np.ndarray]]
"""(generator, share seen) -> scores of a file and of a pool."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Files of one kind.

    Attributes:
        kind: Where their scores come from.
        share: What of them was seen.
        n_files: How many were drawn.
        n_above: How many bounds are above the share.
        low: Mean bound.
        estimate: Mean estimate.
        spread: Standard deviation of the estimate.
    """

    kind: str
    share: float
    n_files: int
    n_above: int
    low: float
    estimate: float
    spread: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Draw files of a known share seen, and bound it."""

    n_files: int = 400
    """Files a cell, spread over the models."""
    models: int = 4
    """Models of the texts."""
    seed: int = 0
    """The first seed of the models."""
    any_code: bool = False
    """Take finished models that other code trained; their manifests say which."""
    models_in: Path = Path("runs/membership-study")
    """Folder of the models and their scores; that of `eval.membership`."""
    out: Path = Path("runs/share")
    """Folder for the table and its numbers."""
    tiny: bool = False
    """A pulse run, whose numbers mean nothing."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "n_files", "models")

    def run(self) -> dict[str, Any]:
        """Simulate, train and score what is missing, print; returns the numbers."""
        clock = Clock.start()
        n_files = 20 if self.tiny else self.n_files
        cells = [
            cell(f"{n} texts, {pool} non-members, {shift:g} sd", share, [draw], n_files)
            for (n, pool), shift, share in itertools.product(_SIZES, _SHIFTS, _SHARES)
            for draw in [_normal(n, pool, shift)]
        ]
        cells += self._of_models(n_files)
        tables = {
            "Lower bounds (95 %) above the share that was seen": above_words,
            "Mean lower bound": lambda one: f"{one.low:.1%}",
            "Mean estimate ± sd": lambda r: f"{r.estimate:.1%} ± {r.spread:.1%}",
        }
        return finish_study(
            "share",
            flags_of(self),
            clock=clock,
            out=self.out,
            numbers={"cells": [dataclasses.asdict(one) for one in cells]},
            grids=[
                Grid.crossed(
                    title,
                    "files",
                    {(one.kind, f"{one.share:.0%} seen"): words(one) for one in cells},
                )
                for title, words in tables.items()
            ],
        )

    def _of_models(self, n_files: int) -> Iterable[Cell]:
        """Files of texts that models read, by score and number of copies."""
        bench = Bench(
            scale=TINY if self.tiny else FULL,
            pool=read_pool(),
            seeds=tuple(range(self.seed, self.seed + self.models)),
            out=self.models_in,
            any_code=self.any_code,
        )
        n = min(bench.scale.n_known, bench.scale.n_unknown // 3)
        tables = [_scores(bench, seed) for seed in bench.seeds]
        for i, score in enumerate(_SCORES):
            for copies, share in itertools.product(bench.scale.copies, _SHARES):
                draws = [_of_texts(t[copies][:, i], t[0][:, i], n) for t in tables]
                yield cell(f"{score}, {copies} copies", share, draws, n_files)


def cell(kind: str, share: float, draws: list[Draw], n_files: int) -> Cell:
    """Bounds of fresh files, from each source in turn; see `Cell`."""
    rng = np.random.default_rng([zlib.crc32(kind.encode()), round(100 * share)])
    found = [share_seen(*draws[i % len(draws)](rng, share)) for i in range(n_files)]
    estimates = [one.estimate for one in found]
    return Cell(
        kind=kind,
        share=share,
        n_files=n_files,
        n_above=sum(one.low > share + 1e-9 for one in found),
        low=float(np.mean([one.low for one in found])),
        estimate=float(np.mean(estimates)),
        spread=float(np.std(estimates)),
    )


def above_words(one: Cell) -> str:
    """How many bounds are above the share, with an interval of that rate."""
    low, high = wilson_interval(one.n_above, one.n_files)
    return f"{one.n_above} of {one.n_files} ({low:.1%} to {high:.1%})"


def _normal(n: int, n_pool: int, shift: float) -> Draw:
    def draw(rng: np.random.Generator, share: float) -> tuple[np.ndarray, np.ndarray]:
        scores = rng.normal(size=n)
        scores[: round(share * n)] += shift
        return scores, rng.normal(size=n_pool)

    return draw


def _of_texts(seen: np.ndarray, unseen: np.ndarray, n: int) -> Draw:
    """Files of n texts; what is left of the unseen ones is the pool."""

    def draw(rng: np.random.Generator, share: float) -> tuple[np.ndarray, np.ndarray]:
        own, rest = rng.permutation(seen)[: int(share * n)], rng.permutation(unseen)
        n_rest = n - len(own)
        return np.concatenate([own, rest[:n_rest]]), rest[n_rest:]

    return draw


def _scores(bench: Bench, seed: int) -> dict[int, np.ndarray]:
    """Number of copies -> (N, 2) scores of the texts that a model read so often."""
    draw = draw_texts(bench, seed)
    model = planted_model(bench, draw, seed)
    return {
        copies: score_texts(
            texts, [SCORES[name] for name in _SCORES], bench.ready(model)
        ).values
        for copies, texts in {0: draw.unseen, **draw.members}.items()
    }


def main() -> int:
    """Command line of `python -m eval.share`."""
    return run_study("share", Share, trains=True, compiles=True)


if __name__ == "__main__":
    sys.exit(main())
