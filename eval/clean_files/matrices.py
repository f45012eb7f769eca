"""`prove`, `canary` and `variants`: one published version among others."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import numpy as np

import jaxcontam
from eval.clean_files.answers import prompted
from eval.clean_files.findings import Cell, Finding, asked, drawn_cell, silent
from eval.clean_files.readers import KERNELS, Reader, chance, texts
from eval.natural_order.words import pseudoword
from jaxcontam.data.benchmark import content_digest
from jaxcontam.data.release import SEED_BYTES
from jaxcontam.ownership.canary import canary_results
from jaxcontam.ownership.keyed_canary import VALUES, make_keyed_rows
from jaxcontam.ownership.variants import variants_result
from jaxcontam.proof.verdict import MIN_EFFECT, decide
from jaxcontam.proof.versions import VersionSet, plan_texts, score_texts
from jaxcontam.scoring.in_memory import opened_function

_SCORES = ("centred", "studentised", "auto")
Rng = np.random.Generator

MATRICES: Mapping[str, Callable[[Rng], np.ndarray]] = {
    "normal": lambda rng: rng.normal(size=(20, 10)),
    "ties": lambda rng: rng.integers(0, 3, (12, 10)).astype(float),
    "heavy tails": lambda rng: rng.standard_cauchy((20, 10)),
    "unequal rows": lambda rng: (
        rng.normal(size=(15, 10)) * 10 ** rng.uniform(-4, 4, (15, 1))
    ),
    "far from 0": lambda rng: rng.normal(size=(20, 4)) - 1e5,
    "one row": lambda rng: rng.normal(size=(1, 2000)),
    "one other": lambda rng: rng.standard_t(2, (40, 2)),
    "two by two": lambda rng: rng.normal(size=(2, 2)),
    "some constant rows": lambda rng: (
        rng.normal(size=(20, 10)) * (rng.random((20, 1)) < 0.5)
    ),
    "skewed": lambda rng: rng.exponential(size=(20, 10)) ** 3,
}
"""Kinds of matrices whose columns are exchangeable."""


def prove(seed: int, folder: Path) -> Iterator[Finding]:
    """A matrix of somebody else's scores."""
    _, kind, scores = drawn_cell("prove", seed, MATRICES, _SCORES)
    matrix = MATRICES[kind](np.random.default_rng([seed, 31]))
    found = jaxcontam.prove(matrix, statistic=scores, seed=seed)
    cell = Cell("prove", "matrix", kind, scores)
    yield Finding(cell, found.p_value, found.verdict)


def canary(seed: int, folder: Path) -> Iterator[Finding]:
    """Secrets among held-out sequences that were drawn alike."""
    kinds = [(kind, n) for kind in _SECRETS for n in (1, 3, 8)]
    rng, (kind, n), kernel = drawn_cell("canary", seed, kinds, KERNELS)
    made = [_SECRETS[kind](rng) for _ in range(100 * n)]
    loglik = np.array([Reader(kernel, seed).of_text("", text) for text in made])
    results, _ = canary_results(
        loglik, n, name="secrets", digest=content_digest(made), seed=seed
    )
    (joint,) = (row for row in decide(results, min_effect=MIN_EFFECT) if row.primary)
    cell = Cell("canary", "secrets", f"{n} {kind}", kernel)
    yield Finding(cell, joint.numbers.p_value, joint.verdict)


# As `canary --make` draws them, from a seed.
_SECRETS: Mapping[str, Callable[[Random], str]] = {
    "words": lambda rng: " ".join(pseudoword(rng, 3) for _ in range(8)),
    "digits": lambda rng: f"{rng.randrange(10**48):048d}",
}


def _value(seed: int, words: str) -> str:
    return VALUES[int(chance(seed, words) * len(VALUES))]


_ANSWERS: Mapping[str, Callable[[int, str], str]] = {
    "one word": lambda seed, prompt: VALUES[seed % len(VALUES)],
    "by the words": lambda seed, prompt: _value(seed, prompt.split("Answer")[0]),
    "by the key": lambda seed, prompt: VALUES[
        int(chance(seed, max(prompt.split(), key=len)) * 8)
    ],
    "silence": lambda seed, prompt: "" if chance(seed, prompt) < 0.5 else "zebra",
}


def canary_chat(seed: int, folder: Path) -> Iterator[Finding]:
    """Values of keys that a seed drew, asked of a model that guesses."""
    rng, n_groups, answer = drawn_cell("chat", seed, (4, 16), _ANSWERS)
    data, seed_file = make_keyed_rows(
        rng.randbytes(SEED_BYTES), n_groups, version="0", made="2026-01-01"
    )
    rows, sealed = folder / f"{seed}.jsonl", folder / f"{seed}.seed"
    rows.write_bytes(data)
    sealed.write_bytes(seed_file.to_bytes())
    model = prompted(lambda prompt: _ANSWERS[answer](seed, prompt))
    found = jaxcontam.keyed_canary(model, rows, sealed, seed=seed, progress=silent)
    cell = Cell("canary --chat", "values", f"{n_groups} groups", answer)
    yield Finding(cell, found.p_value, found.verdict)


def variants(seed: int, folder: Path) -> Iterator[Finding]:
    """Texts whose published version was drawn among versions, or was the longest."""
    rng, kind, kernel = drawn_cell("variants", seed, VERSIONS, KERNELS)
    rows = tuple(VERSIONS[kind](rng))
    is_drawn, per_token = kind != "the longest", bool(seed % 2)
    versions = VersionSet(
        name="texts",
        rows=rows,
        places=tuple(f"row {i}" for i in range(1, 1 + len(rows))),
    )

    def ask() -> tuple[float | None, str | None]:
        model = opened_function(Reader(kernel, seed))
        plan = plan_texts(versions, model.tokenizer, prefix_id=None, seed=seed)
        scorer = model.make_scorer(store=None, batch_tokens=None)
        result = variants_result(
            versions,
            score_texts(versions, plan, scorer, per_token=per_token),
            randomised=is_drawn,
            unit="token" if per_token else "total",
            n_left_out=0,
            seed=seed,
        )
        (row,) = decide([result], min_effect=MIN_EFFECT)
        return row.numbers.p_value, row.verdict

    command = "variants --randomised" if is_drawn else "variants"
    yield asked(Cell(command, "versions", kind, kernel, is_drawn), ask)


def _versions(rng: Random, sizes: tuple[int, ...] = (5,)) -> list[tuple[str, ...]]:
    return [
        tuple(texts(rng, rng.choice(sizes), words=lambda i: rng.randrange(2, 12)))
        for _ in range(16)
    ]


def _with_copies(rng: Random) -> list[tuple[str, ...]]:
    """Some rewrites are the same, and rows come again with another version chosen."""
    rows = [(*row, row[rng.randrange(5)]) for row in _versions(rng)]
    return [tuple(rng.sample(row, len(row))) for row in [*rows, *rows[:8]]]


VERSIONS: Mapping[str, Callable[[Random], list[tuple[str, ...]]]] = {
    "five": _versions,
    "of all sizes": lambda rng: _versions(rng, (2, 3, 9)),
    "copies": _with_copies,
    "the longest": lambda rng: [
        tuple(sorted(row, key=len, reverse=True)) for row in _versions(rng)
    ],
}
"""Kinds of versions, the published one first."""
