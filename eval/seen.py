"""Which share of a file was seen: the bound of `membership`, CoDeC, the path probe?

Question: files of which a known share was seen, beside texts that were not. How often
is the bound of the share seen above it (5 % are due), and how close is it? How often
do CoDeC and the path probe call a file seen that was (not)? Scores of two normal laws,
and of texts that models trained here read 0 to 50 times (those of `eval.membership`;
issues with their files in models of their own).
Command: `python -m eval.seen`. Hardware: one CPU core, half an hour. Headline:
docs/results/seen.md, which is the table of this study.
"""

import dataclasses
import itertools
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.membership.copies import FULL, TINY, Bench, draw_texts, planted_model
from eval.membership.texts import drawn, read_pool
from eval.planted import planted
from eval.study import Clock, Grid, finish_study, run_study
from jaxcontam.analyses.known_texts import MEMBER, NONMEMBER, RunTexts, draw_company
from jaxcontam.analyses.prompted_model import open_prompted
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.methods import SCORES
from jaxcontam.methods.membership.plan import Inputs, score_texts
from jaxcontam.methods.membership.text_model import TextModel
from jaxcontam.methods.replication.file_path import Issue, file_path
from jaxcontam.methods.replication.questions import FILE_PATH, Names, filled
from jaxcontam.stats.proportions import rate_test, wilson_interval
from jaxcontam.stats.relabelling import auc_p_values
from jaxcontam.stats.share import share_seen
from train.earlier import MODEL_DIR

_SHARES = (0.0, 0.1, 0.25, 0.5)
_SCORES = ("min_k", "loss")
# (texts of the file, non-members), and how far seen texts stand off, in sd.
_SIZES = ((100, 100), (200, 300), (1000, 1000))
_SHIFTS = (1.0, 2.0, 4.0)
_CODEC, _PROBE = "CoDeC: texts above 0", "path probe: files named"

Draw = Callable[[np.random.Generator, float], tuple[np.ndarray, np.ndarray]]
"""(generator, share seen) -> scores of a file and of a pool."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Files of one kind, and their share seen or copies.

    `numbers` of each file are bound and estimate; or a rate, the same of unseen
    texts, and a p-value.
    """

    kind: str
    seen: float
    numbers: Sequence[tuple[float, ...]]

    def mean(self, place: int) -> str:
        """Mean of a number over the files."""
        return f"{np.mean([one[place] for one in self.numbers]):.1%}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Draw files of which a known share was seen, and look for it."""

    n_files: int = 400
    """Files a cell of the bound; half as many clean ones of the others."""
    models: int = 4
    """Models of the texts; half as many of issues."""
    seed: int = 0
    """The first seed of the models."""
    any_code: bool = False
    """Take finished models that other code trained; their manifests say which."""
    models_in: Path = Path("runs/membership-study")
    """Folder of the models and their scores; that of `eval.membership`."""
    out: Path = Path("runs/seen")
    """Folder for the tables and their numbers."""
    tiny: bool = False
    """A pulse run, whose numbers mean nothing."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "n_files", "models")

    def run(self) -> dict[str, Any]:
        """Train and score what is missing, look, print; returns the numbers."""
        clock = Clock.start()
        bench = Bench(
            scale=TINY if self.tiny else FULL,
            pool=read_pool(),
            seeds=tuple(range(self.seed, self.seed + self.models)),
            out=self.models_in,
            any_code=self.any_code,
        )
        n_files = 20 if self.tiny else self.n_files
        bounds = [*_simulated(n_files), *_of_models(bench, n_files)]
        n_each = max(1, n_files // 2 // self.models)
        beside = [*_codec(bench, n_each), *_probed(bench, 2 * n_each)]
        tables: dict[str, Callable[[Cell], str]] = {
            "Lower bounds (95 %) above the share that was seen": lambda one: _counted(
                [low > one.seen + 1e-9 for low, _ in one.numbers]
            ),
            "Mean lower bound": lambda one: one.mean(0),
            "Mean estimate": lambda one: one.mean(1),
        }
        grids = [
            Grid.crossed(
                title,
                "files",
                {(one.kind, f"{one.seen:.0%} seen"): words(one) for one in bounds},
            )
            for title, words in tables.items()
        ]
        words = {
            (name, f"{one.seen:g} copies"): cell
            for one in beside
            for name, cell in (
                (one.kind, one.mean(0)),
                (f"{one.kind}, unseen ones", one.mean(1)),
                (
                    f"{one.kind}, p <= .05",
                    _counted([n[2] <= 0.05 for n in one.numbers]),
                ),
            )
        }
        return finish_study(
            "seen",
            flags_of(self),
            clock=clock,
            out=self.out,
            numbers={"cells": [dataclasses.asdict(one) for one in (*bounds, *beside)]},
            grids=[*grids, Grid.crossed("Files beside unseen ones", "files", words)],
        )


def _counted(held: Sequence[bool]) -> str:
    low, high = wilson_interval(sum(held), len(held))
    return f"{sum(held)} of {len(held)} ({low:.1%} to {high:.1%})"


def _bounded(kind: str, draws: Sequence[Draw], n_files: int) -> Iterable[Cell]:
    for share in _SHARES:
        rng = np.random.default_rng([zlib.crc32(kind.encode()), round(100 * share)])
        sources = itertools.islice(itertools.cycle(draws), n_files)
        found = [share_seen(*draw(rng, share)) for draw in sources]
        numbers = [(one.low, one.estimate) for one in found]
        yield Cell(kind=kind, seen=share, numbers=numbers)


def _simulated(n_files: int) -> Iterable[Cell]:
    for (n, n_pool), shift in itertools.product(_SIZES, _SHIFTS):

        def draw(
            rng: np.random.Generator, share: float, n=n, n_pool=n_pool, shift=shift
        ) -> tuple[np.ndarray, np.ndarray]:
            scores = rng.normal(size=n)
            scores[: round(share * n)] += shift
            return scores, rng.normal(size=n_pool)

        kind = f"{n} texts, {n_pool} non-members, {shift:g} sd"
        yield from _bounded(kind, [draw], n_files)


def _of_models(bench: Bench, n_files: int) -> Iterable[Cell]:
    n = min(bench.scale.n_known, bench.scale.n_unknown // 3)
    methods = [SCORES[name] for name in _SCORES]
    tables = [
        {k: score_texts(some, methods, model).values for k, some in texts.items()}
        for model, texts in map(_read, itertools.repeat(bench), bench.seeds)
    ]
    for (i, score), k in itertools.product(enumerate(_SCORES), bench.scale.copies):

        def draw_of(seen: np.ndarray, unseen: np.ndarray) -> Draw:
            def draw(
                rng: np.random.Generator, share: float
            ) -> tuple[np.ndarray, np.ndarray]:
                own = rng.permutation(seen)[: int(share * n)]
                rest, n_rest = rng.permutation(unseen), n - len(own)
                return np.concatenate([own, rest[:n_rest]]), rest[n_rest:]

            return draw

        draws = [draw_of(table[k][:, i], table[0][:, i]) for table in tables]
        yield from _bounded(f"{score}, {k} copies", draws, n_files)


def _read(bench: Bench, seed: int) -> tuple[TextModel, Mapping[int, list[str]]]:
    """A model, and by copies the texts that it read."""
    draw = draw_texts(bench, seed)
    return bench.ready(planted_model(bench, draw, seed)), {
        0: draw.unseen
    } | draw.members


def _codec(bench: Bench, n_clean: int) -> Iterable[Cell]:
    found: dict[int, list[tuple[float, ...]]] = {}
    for seed in bench.seeds:
        rng, (model, texts) = np.random.default_rng(seed), _read(bench, seed)
        n = min(100, len(texts[0]) // 2)
        for k, some in texts.items():
            for _ in range(n_clean // 5 if k else n_clean):
                unseen = rng.permutation(texts[0]).tolist()
                own = rng.permutation(some).tolist() if k else unseen[n:]
                numbers = _codec_file(own[:n], unseen[:n], model, rng)
                found.setdefault(k, []).append(numbers)
    return [Cell(kind=_CODEC, seen=k, numbers=of) for k, of in found.items()]


def _codec_file(
    own: list[str], unseen: list[str], model: TextModel, rng: np.random.Generator
) -> tuple[float, ...]:
    roles = (MEMBER,) * len(own) + (NONMEMBER,) * len(unseen)
    texts, is_own = (*own, *unseen), np.arange(len(roles)) < len(own)
    run = RunTexts(name="", texts=texts, roles=roles, clusters=None, sources=texts)
    seed = int(rng.integers(2**31))
    inputs = Inputs(company=draw_company(run, np.zeros(len(texts), bool), seed=seed))
    scores = score_texts(texts, [SCORES["codec"]], model, inputs=inputs).values
    (p_value,) = auc_p_values(scores, is_own, n=999, seed=seed).tolist()
    above = scores[:, 0] > 0
    return float(above[is_own].mean()), float(above[~is_own].mean()), p_value


def _probed(bench: Bench, n_sets: int) -> Iterable[Cell]:
    """Sets of 50 issues, beside 50 of three times as many that were never read."""
    found: dict[int, list[tuple[float, ...]]] = {}
    copies, n = bench.scale.copies, bench.scale.n_known // 2
    names = Names(benchmark="", fingerprint="", dataset="", split="")
    for seed in bench.seeds[: max(1, len(bench.seeds) // 2)]:
        questions = drawn(bench.pool.questions, n * (len(copies) + 3), seed=seed)
        # A sentence, and the module that it is of.
        issues = [
            Issue(0, q.sentence, f"lib/{q.answer.partition('.')[0]}.py")
            for q in questions
        ]
        texts = [f"{filled(FILE_PATH, text=one.text)} {one.file}" for one in issues]
        places = {k: np.arange(n * i, n * i + n) for i, k in enumerate(copies)}
        sets = [
            planted(f"issues-{k}", texts[p[0] : p[-1] + 1], k)
            for k, p in places.items()
        ]
        bench.train(f"issues-{seed}", sets, bench.scale.preset, seed)
        folder = bench.out / "models" / f"issues-{seed}" / MODEL_DIR
        with open_prompted(str(folder), is_plain=True) as model:
            _, rows = file_path(issues, (), model.completer, names, max_tokens=12)
        named, rng = (
            np.array([row["found"] for row in rows]),
            np.random.default_rng(seed),
        )
        half = n // 2
        for k in (0, *copies) * n_sets:
            unseen = rng.permutation(np.arange(n * len(copies), len(issues)))
            own = rng.permutation(places[k]) if k else unseen[half:]
            a, b = named[own[:half]], named[unseen[:half]]
            p_value = rate_test(int(a.sum()), half, int(b.sum()), half).fisher
            found.setdefault(k, []).append((a.mean(), b.mean(), p_value))
    return [Cell(kind=_PROBE, seen=k, numbers=of) for k, of in found.items()]


def main() -> int:
    """Command line of `python -m eval.seen`."""
    return run_study("seen", Seen, trains=True, compiles=True)


if __name__ == "__main__":
    sys.exit(main())
