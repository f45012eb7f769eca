"""What every model of a population is made of: texts, sets, stream, rows.

The sets of a model are disjoint draws from one pool of examples, each in the random
order in which it was drawn: at 0 copies the null hypothesis of every order test holds
by construction, whatever the examples are and wherever else they occur.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded, encode_examples, plain_tokenizer
from jaxcontam.data.manifest import PlantedSet
from jaxcontam.errors import InputError
from train.presets import Preset
from train.stream import Canary, Stream, build_stream, steps_of_copy, training_rows
from train.tokenizer import BOS

SETS_DIR = "sets"

_IDS_NAME, _BOUNDS_NAME = "documents.npy", "bounds.npy"
# Documents are tokenised so many at a time, to bound memory.
_DOCUMENTS_A_BATCH = 1000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What the models of a population share.

    Attributes:
        name: Of the population; names the sets.
        preset: Model and batch.
        n_examples: Of each set.
        copies: Duplication count of each set.
        n_steps: Training steps; background fills what the sets leave.
        max_example_tokens: Cut of an example, separator included.
        separator: Text after each example.
    """

    name: str
    preset: Preset
    n_examples: int
    copies: tuple[int, ...]
    n_steps: int
    max_example_tokens: int
    separator: str = "\n"

    @property
    def n_tokens(self) -> int:
        """Target tokens of a training run."""
        return self.n_steps * self.preset.step_tokens

    @property
    def set_names(self) -> tuple[str, ...]:
        """One a set: its copies, and its number among those with as many."""
        names = []
        for i, copies in enumerate(self.copies):
            again = self.copies[:i].count(copies)
            names.append(f"{self.name}-{copies}" + (f"-{again + 1}" if again else ""))
        return tuple(names)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Background, tokenised once for all models.

    Attributes:
        ids: int32 or uint16 ids, one document after the other; may be a memory map.
        bounds: (n + 1,) int64, where each document begins.
    """

    ids: np.ndarray
    bounds: np.ndarray

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        start, stop = self.bounds[index], self.bounds[index + 1]
        return np.asarray(self.ids[start:stop], np.int32)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """What models of one vocabulary are trained and tested on.

    Attributes:
        tokenizer: Trained on the documents; adds nothing of its own.
        prefix_id: BOS.
        documents: Background.
        pool: The examples that sets are drawn from, no two alike.
        encoded: Their ids.
    """

    tokenizer: Tokenizer
    prefix_id: int
    documents: Documents
    pool: tuple[str, ...]
    encoded: Encoded


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PlannedModel:
    """One model before its training.

    Attributes:
        seed: Of sets, stream, weights and tests.
        sets: Its benchmarks, one a duplication count.
        encoded: Their ids.
        stream: Background and copies.
        rows: (R, T + 1) int32 ids, exactly the design's steps.
        starts: (R,) where each row starts in the stream.
    """

    seed: int
    sets: tuple[Benchmark, ...]
    encoded: tuple[Encoded, ...]
    stream: Stream
    rows: np.ndarray
    starts: np.ndarray


def tokenise(
    tokenizer: Tokenizer,
    documents: Sequence[str],
    pool: Sequence[str],
    *,
    max_example_tokens: int,
    separator: str = "\n",
) -> Texts:
    """Ids of the background and of the pool.

    Args:
        tokenizer: With BOS among its tokens.
        documents: Background texts.
        pool: Examples.
        max_example_tokens: Cut of an example, separator included.
        separator: Text after each example.

    Raises:
        InputError: If an example and its separator give no ids.
    """
    plain = plain_tokenizer(tokenizer)
    prefix_id = plain.token_to_id(BOS)
    assert prefix_id is not None, "the trainer was given BOS as a special token"
    dtype = np.uint16 if plain.get_vocab_size() <= 2**16 else np.int32
    ids = [
        np.array(encoding.ids, dtype)
        for start in range(0, len(documents), _DOCUMENTS_A_BATCH)
        for encoding in plain.encode_batch(
            list(documents[start : start + _DOCUMENTS_A_BATCH]),
            add_special_tokens=False,
        )
    ]
    return Texts(
        plain,
        prefix_id,
        Documents(
            np.concatenate([np.zeros(0, dtype), *ids]),
            np.cumsum([0, *map(len, ids)], dtype=np.int64),
        ),
        tuple(pool),
        encode_examples(
            plain, pool, separator=separator, max_example_tokens=max_example_tokens
        ),
    )


def save_documents(documents: Documents, folder: Path) -> None:
    """Write them for `open_documents`."""
    np.save(folder / _IDS_NAME, documents.ids)
    np.save(folder / _BOUNDS_NAME, documents.bounds)


def open_documents(folder: Path) -> Documents:
    """Documents that processes share: read where they lie, not copied."""
    ids = np.load(folder / _IDS_NAME, mmap_mode="r")
    return Documents(ids, np.load(folder / _BOUNDS_NAME))


def draw_sets(design: Design, pool: Sequence[str], *, seed: int) -> list[np.ndarray]:
    """Indices of the examples of each set, in a seeded random order; no one twice.

    Raises:
        InputError: If the pool is too small.
    """
    needed = design.n_examples * len(design.copies)
    if len(pool) < needed:
        raise InputError(
            f"the pool has {len(pool)} examples, {needed} needed for "
            f"{len(design.copies)} sets of {design.n_examples}",
            hint="give more files, fewer copies or smaller sets",
        )
    rng = np.random.default_rng([seed, 3])
    drawn = rng.permutation(len(pool))[:needed]
    return np.split(drawn, len(design.copies))


def plan_model(design: Design, texts: Texts, *, seed: int) -> PlannedModel:
    """Draw the sets, lay out the stream, cut it into the rows of the design's steps.

    Raises:
        InputError: If there are too few examples or documents.
    """
    drawn = draw_sets(design, texts.pool, seed=seed)
    sets = tuple(
        Benchmark(
            name,
            tuple(texts.pool[i] for i in part),
            (None,) * len(part),
            order_provenance="seeded",
        )
        for name, part in zip(design.set_names, drawn, strict=True)
    )
    encoded = tuple(_chosen(texts.encoded, part) for part in drawn)
    stream = build_stream(
        _background(design, texts, encoded, seed=seed),
        [
            Canary(name=one.name, encoded=ids, copies=copies)
            for one, ids, copies in zip(sets, encoded, design.copies, strict=True)
        ],
        prefix_id=texts.prefix_id,
        seed=seed,
    )
    rows, starts = training_rows(stream.ids, design.preset.context, seed=seed)
    # One BOS before each document and copy: a few tokens more than the steps take.
    n_rows = design.n_steps * design.preset.batch_rows
    return PlannedModel(seed, sets, encoded, stream, rows[:n_rows], starts[:n_rows])


def planted_sets(design: Design, model: PlannedModel) -> tuple[PlantedSet, ...]:
    """Rows of a model's manifest."""
    return tuple(_planted_set(design, model, i) for i in range(len(design.copies)))


def set_file(benchmark: Benchmark) -> str:
    """Where a set stands beside its manifest; lines of JSON keep their kind."""
    is_jsonl = all(text.lstrip().startswith("{") for text in benchmark.texts)
    return f"{SETS_DIR}/{benchmark.name}{'.jsonl' if is_jsonl else '.txt'}"


def _chosen(encoded: Encoded, part: np.ndarray) -> Encoded:
    return Encoded(
        tuple(encoded.ids[i] for i in part), encoded.separator, encoded.n_cut_ids[part]
    )


def _background(
    design: Design, texts: Texts, encoded: Sequence[Encoded], *, seed: int
) -> list[np.ndarray]:
    """Random documents that fill what the sets leave, the last one cut."""
    sizes = [int(ids.lengths.sum()) for ids in encoded]
    n_planted = sum(n * size for n, size in zip(design.copies, sizes, strict=True))
    n_ids = design.n_tokens - n_planted
    if n_ids < 0:
        raise InputError(
            f"the sets' copies are {n_planted:,} tokens, training only "
            f"{design.n_tokens:,}",
            hint="raise --steps or --background-tokens, or plant fewer copies",
        )
    rng = np.random.default_rng([seed, 0])
    chosen: list[np.ndarray] = []
    for index in rng.permutation(len(texts.documents)):
        if n_ids <= 0:
            break
        chosen.append(texts.documents[int(index)][:n_ids])
        n_ids -= len(chosen[-1])
    if n_ids > 0:
        raise InputError(
            f"the corpus has {n_ids:,} tokens too few to fill {design.n_steps:,} steps",
            hint="give more text, or train for fewer steps",
        )
    return chosen


def _planted_set(design: Design, model: PlannedModel, i: int) -> PlantedSet:
    benchmark, encoded = model.sets[i], model.encoded[i]
    n_tokens = int(encoded.lengths.sum())
    offsets = model.stream.offsets[benchmark.name]
    steps = []
    for offset in offsets:
        rows = steps_of_copy(
            offset,
            n_tokens,
            starts_R=model.starts,
            context=design.preset.context,
            n_ids_in_all=len(model.stream.ids),
        )
        seen = np.unique(rows // design.preset.batch_rows + 1)
        steps.append(tuple(seen.tolist()))
    return PlantedSet(
        name=benchmark.name,
        copies=design.copies[i],
        shuffled=False,
        n_examples=len(benchmark),
        fingerprint=benchmark.fingerprint,
        content_digest=benchmark.content_digest,
        token_offsets=offsets,
        orders=(),
        steps=tuple(steps),
        n_tokens=n_tokens,
        file=set_file(benchmark),
    )
