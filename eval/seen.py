"""Which share of a file was seen: the bound of `membership`, CoDeC, the path probe?

Question: files of which a known share was seen, beside texts that were not. How often
is the bound of the share seen above it (5 % are due), and how close is it? How often
do CoDeC and the path probe rank it first? Scores of two normal laws, and of models
trained here that read texts 0 to 50 times (those of `eval.membership`) or issues.
Command: `python -m eval.seen`. Hardware: one CPU core, 15 minutes. Headline: docs/log.
"""

import dataclasses
import functools
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
from eval.study import Clock, Grid, StudyFlags, finish_study, run_study
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.members.known_texts import MEMBER, NONMEMBER, RunTexts, draw_company
from jaxcontam.members.passes import Inputs, TextModel, score_texts
from jaxcontam.members.scores import SCORES
from jaxcontam.replication.comparisons import ComparisonInputs, Issue
from jaxcontam.replication.hidden import FILE_PATH, file_path
from jaxcontam.replication.instances import filled
from jaxcontam.scoring.prompted_model import open_prompted
from jaxcontam.stats.conformal import share_seen
from jaxcontam.stats.proportions import rate_test, wilson_interval
from jaxcontam.stats.relabelling import auc_p_values
from train.run_folder import MODEL_DIR

_SHARES = (0.0, 0.1, 0.25, 0.5)
_SCORES = ("min_k", "loss")
# (texts of the file, non-members), and how far seen texts stand off, in sd.
_SIZES = ((100, 100), (200, 300), (1000, 1000))
_SHIFTS = (1.0, 2.0, 4.0)
_CODEC, _PROBE = "CoDeC: texts above 0", "path probe: files named"

Rng = np.random.Generator
Drawn = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Files of a share seen, or read so often: bound, estimate; or two rates and p."""

    kind: str
    seen: float
    numbers: Sequence[tuple[float, ...]]

    @property
    def words(self) -> tuple[str, ...]:
        """What a table says of both means, and of bounds too high or small p-values."""
        means = (f"{mean:.1%}" for mean in np.mean(self.numbers, axis=0)[:2])
        held = [n[2] <= 0.05 if n[2:] else n[0] > self.seen for n in self.numbers]
        low, high = wilson_interval(sum(held), len(held))
        return *means, f"{sum(held)} of {len(held)} ({low:.1%} to {high:.1%})"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen(StudyFlags):
    """Draw files of which a known share was seen, and look for it."""

    n_files: int = 400
    """Files a cell of the bound; half as many clean ones of the others."""
    models: int = 4
    """Models of the texts; half as many of issues."""
    any_code: bool = False
    """Take finished models that other code trained; their manifests say which."""
    models_in: Path = Path("runs/membership-study")
    """Folder of the models and their scores; that of `eval.membership`."""
    out: Path = Path("runs/seen")
    """Folder for the tables and their numbers."""

    positive = ("n_files", "models")

    def run(self) -> dict[str, Any]:
        """Train and score what is missing, look, print; returns the numbers."""
        clock, pool = Clock.start(), read_pool()
        bench = Bench(
            scale=TINY if self.tiny else FULL,
            pool=pool,
            seeds=tuple(range(self.seed, self.seed + self.models)),
            out=self.models_in,
            any_code=self.any_code,
        )
        n_files = 20 if self.tiny else self.n_files
        bounds = [*_simulated(n_files), *_of_models(bench, n_files)]
        n_each = max(1, n_files // 2 // self.models)
        beside = [*_codec(bench, n_each), *_probed(bench, 2 * n_each)]
        titles = "Mean lower bound", "Mean estimate", "Lower bounds (95 %) too high"
        grids = [
            Grid.crossed(
                title,
                "files",
                {(one.kind, f"{one.seen:.0%} seen"): one.words[i] for one in bounds},
            )
            for i, title in enumerate(titles)
        ]
        words = {
            (f"{one.kind}{name}", f"{one.seen:g} copies"): one.words[i]
            for one in beside
            for i, name in enumerate(("", ", unseen ones", ", p <= .05"))
        }
        return finish_study(
            "seen",
            self,
            clock=clock,
            numbers={"cells": [dataclasses.asdict(one) for one in (*bounds, *beside)]},
            grids=[*grids, Grid.crossed("Files beside unseen ones", "files", words)],
        )


def _bounded(
    kind: str, draws: Sequence[Callable[[Rng, float], Drawn]], n_files: int
) -> Iterable[Cell]:
    for share in _SHARES:
        rng = np.random.default_rng([zlib.crc32(kind.encode()), round(100 * share)])
        sources = itertools.islice(itertools.cycle(draws), n_files)
        numbers = [share_seen(*draw(rng, share)) for draw in sources]
        yield Cell(kind=kind, seen=share, numbers=numbers)


def _simulated(n_files: int) -> Iterable[Cell]:
    for (n, n_pool), shift in itertools.product(_SIZES, _SHIFTS):
        kind = f"{n} texts, {n_pool} non-members, {shift:g} sd"
        draw = functools.partial(_normal, n, n_pool, shift)
        yield from _bounded(kind, [draw], n_files)


def _normal(n: int, n_pool: int, shift: float, rng: Rng, share: float) -> Drawn:
    scores = rng.normal(size=n)
    scores[: round(share * n)] += shift
    return scores, rng.normal(size=n_pool)


def _of_models(bench: Bench, n_files: int) -> Iterable[Cell]:
    n = min(bench.scale.n_known, bench.scale.n_unknown // 3)
    methods = [SCORES[name] for name in _SCORES]
    tables = [
        {k: score_texts(some, methods, model).values for k, some in texts.items()}
        for model, texts in map(_read, itertools.repeat(bench), bench.seeds)
    ]
    for (i, score), k in itertools.product(enumerate(_SCORES), bench.scale.copies):
        draws = [
            functools.partial(_of_texts, table[k][:, i], table[0][:, i], n)
            for table in tables
        ]
        yield from _bounded(f"{score}, {k} copies", draws, n_files)


def _of_texts(
    seen: np.ndarray, unseen: np.ndarray, n: int, rng: Rng, share: float
) -> Drawn:
    own, rest = rng.permutation(seen)[: int(share * n)], rng.permutation(unseen)
    n_rest = n - len(own)
    return np.concatenate([own, rest[:n_rest]]), rest[n_rest:]


def _read(bench: Bench, seed: int) -> tuple[TextModel, Mapping[int, list[str]]]:
    """A model, and by copies the texts that it read."""
    draw = draw_texts(bench, seed)
    texts = {0: draw.unseen} | draw.members
    return bench.ready(planted_model(bench, draw, seed)), texts


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
    own: list[str], unseen: list[str], model: TextModel, rng: Rng
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
    for seed in bench.seeds[: max(1, len(bench.seeds) // 2)]:
        questions = drawn(bench.pool.questions, n * (len(copies) + 3), seed=seed)
        issues = [
            Issue(0, q.sentence, f"lib/{q.answer.partition('.')[0]}.py")
            for q in questions
        ]
        texts = [f"{filled(FILE_PATH, text=one.text)} {one.file}" for one in issues]
        sets = [
            planted(f"issues-{k}", texts[n * i : n * i + n], k)
            for i, k in enumerate(copies)
        ]
        bench.train(f"issues-{seed}", sets, bench.scale.config, seed)
        folder = bench.out / "models" / f"issues-{seed}" / MODEL_DIR
        with open_prompted(str(folder), is_plain=True) as model:
            asked = ComparisonInputs(
                benchmark=Benchmark("", (), ()),
                issues=tuple(issues),
                completer=model.completer,
                max_tokens=12,
            )
            _, rows = file_path(asked)
        named = np.array([row["found"] for row in rows]).reshape(-1, n)
        rng, half = np.random.default_rng(seed), n // 2
        for k in (0, *copies) * n_sets:
            unseen = rng.permutation(named[len(copies) :].ravel())
            own = rng.permutation(named[copies.index(k)]) if k else unseen[half:]
            a, b = int(own[:half].sum()), int(unseen[:half].sum())
            numbers = a / half, b / half, rate_test(a, half, b, half).fisher
            found.setdefault(k, []).append(numbers)
    return [Cell(kind=_PROBE, seen=k, numbers=of) for k, of in found.items()]


if __name__ == "__main__":
    sys.exit(run_study("seen", Seen, trains=True, compiles=True))
