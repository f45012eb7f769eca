"""One model of the study: paragraphs, what is planted in it, and how."""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eval.planted import planted, trained_model
from eval.python_docs import normalised
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.errors import InputError
from jaxcontam.models.config import llama_shape
from jaxcontam.replication.flags import ReplicationDesign
from jaxcontam.replication.instances import (
    Prompts,
    draw_instances,
    find_fields,
    load_prompts,
)
from jaxcontam.reports.report_files import make_folder, replace_bytes
from train.config import PRESETS, Config, Optimizer

_WORDS = range(16, 51)
_SENTENCES = range(2, 5)
_FEWEST_WORDS = 4
# Code, tables and cross-references are no sentences.
_NOT_PROSE = re.compile(r"[>*|\\{}=<_`#\[\]]|::|\.\.")
_BETWEEN = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclasses.dataclass(frozen=True, slots=True)
class Paragraphs:
    """A corpus taken apart.

    Attributes:
        instances: Paragraphs of prose, sorted; no sentence of one stands in another
            document, so a model learns them only where they are planted.
        documents: All else.
    """

    instances: tuple[str, ...]
    documents: tuple[str, ...]


def take_paragraphs(documents: Sequence[str]) -> Paragraphs:
    """Take every paragraph of prose out of the documents."""
    found: Counter[str] = Counter()
    rest = []
    for document in documents:
        kept = []
        for paragraph in document.split("\n\n"):
            text = normalised(paragraph)
            if _is_prose(text):
                found[text] += 1
            else:
                kept.append(paragraph)
        rest.append("\n\n".join(kept))
    background = normalised(" ".join(rest))
    sentences = Counter(part for text in found for part in set(_BETWEEN.split(text)))
    instances = [
        text
        for text, count in found.items()
        if count == 1
        and all(
            sentences[part] == 1 and part not in background
            for part in _BETWEEN.split(text)
        )
    ]
    return Paragraphs(tuple(sorted(instances)), tuple(filter(None, rest)))


def _is_prose(text: str) -> bool:
    if not (text.endswith(".") and text[0].isupper()) or _NOT_PROSE.search(text):
        return False
    sentences = _BETWEEN.split(text)
    return (
        len(text.split()) in _WORDS
        and len(sentences) in _SENTENCES
        and all(len(one.split()) >= _FEWEST_WORDS for one in sentences)
    )


TASK = "classification"
DATASET, SPLIT = "python-docs", "test"
"""Names of the planted partition in guided instructions."""

FORMATTED, RAW, UNSEEN, CONTROL = "formatted", "raw", "unseen", "control"
SETS = (FORMATTED, RAW, UNSEEN, CONTROL)
"""Planted as guided prompts with their answers; as plain lines; twice not at all."""

OF_REFERENCE = ("reference-formatted", "reference-raw")
"""Sets that a reference model reads in place of those that are planted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A model, n instances of each set, copies of those that are planted.

    At most `n_followed` other instances teach the general instruction; completions have
    at most `new_tokens`.
    """

    config: Config
    n: int
    copies: int
    n_followed: int
    background_tokens: int
    new_tokens: int


FULL = Scale(
    config=Config(
        name="replication",
        decoder=llama_shape(
            vocab_size=4096, d_model=96, n_layers=3, n_heads=4, d_ff=256, context=352
        ),
        batch_rows=2,
        optimizer=Optimizer(peak_rate=4e-3),
        # An instruction, an instance and some background.
        row_tokens=256,
    ),
    n=50,
    copies=50,
    # All that are left over.
    n_followed=1_000,
    background_tokens=100_000,
    new_tokens=96,
)
"""Two minutes of two cores a model."""

TINY = Scale(
    config=dataclasses.replace(
        PRESETS["pulse"],
        decoder=dataclasses.replace(PRESETS["pulse"].decoder, context=512),
        row_tokens=64,
    ),
    n=6,
    copies=2,
    n_followed=4,
    background_tokens=5_000,
    new_tokens=8,
)
"""Seconds, and too small to learn anything."""


def plant(
    texts: Paragraphs, scale: Scale, *, seed: int, out: Path, any_code: bool
) -> dict[str, Path]:
    """Train a model in which two sets are planted, or take the finished one.

    The model, in the folder `model`, also reads instances that are left over once, as
    general instructions with their answers: it learns to follow that instruction, as a
    model that was tuned on instructions has. Without it, what it reads in guided
    prompts comes at any request. Another one of the same recipe, in `reference`, reads
    two other sets in place of the planted ones.

    Returns:
        Set -> its file, a line per instance.

    Raises:
        InputError: If there are too few instances.
        KeyboardInterrupt: If training was asked to stop; its checkpoint is written.
    """
    pool = texts.instances
    names = (*SETS, *OF_REFERENCE)
    if len(pool) < (len(names) + 1) * scale.n:
        raise InputError(
            f"{len(pool)} paragraphs, {(len(names) + 1) * scale.n} needed",
            hint="use a Python whose standard library has its .py files",
        )
    order = np.random.default_rng([seed, 61]).permutation(len(pool)).tolist()
    drawn = [pool[i] for i in order]
    parts = {
        name: drawn[i * scale.n : (i + 1) * scale.n] for i, name in enumerate(names)
    }
    files = {name: _write(out, name, part) for name, part in parts.items()}
    prompts = load_prompts(TASK)
    others = tuple(drawn[len(names) * scale.n :][: scale.n_followed])
    rest = Benchmark("others", others, (None,) * len(others))
    followed = _formatted(rest, prompts, seed, guided=False)

    for folder, read in (("model", (FORMATTED, RAW)), ("reference", OF_REFERENCE)):
        known, raw = load_benchmark(files[read[0]]), parts[read[1]]
        guided = _formatted(known, prompts, seed, guided=True)
        trained_model(
            out / folder,
            texts.documents,
            [
                planted(FORMATTED, guided, scale.copies),
                planted(RAW, raw, scale.copies),
                planted("followed", followed, 1),
            ],
            scale.config,
            seed=seed,
            background_tokens=scale.background_tokens,
            any_code=any_code,
        )
    return files


def _write(out: Path, name: str, texts: Sequence[str]) -> Path:
    make_folder(out)
    path = out / f"{name}.txt"
    replace_bytes(path, "".join(f"{text}\n" for text in texts).encode())
    return path


def _formatted(
    benchmark: Benchmark, prompts: Prompts, seed: int, *, guided: bool
) -> list[str]:
    """Each instance as an instruction with its answer, cut where `replicate` cuts."""
    design = ReplicationDesign(task=TASK, sample=len(benchmark), seed=seed)
    drawn = draw_instances(benchmark, find_fields(benchmark, design), design)
    names = {"dataset_name": DATASET, "split_name": SPLIT}
    return [
        (prompts.guided_prompt(one, **names) if guided else prompts.general_prompt(one))
        + f" {one.second_piece}"
        for one in drawn.instances
    ]
