"""Design of a population's models: texts, sets, stream, rows.

The sets of a model are disjoint samples of one pool of examples, each in random
order: at 0 copies the null hypothesis of every order test holds
by construction, whatever the examples are and wherever else they occur.

Dimension key
    E  examples of a set
    R  training rows
    T  targets a row
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded, encode_examples, plain_tokenizer
from jaxcontam.errors import InputError
from train.config import Config
from train.plan import PlannedSet, When
from train.stream import Stream, build_stream, training_order
from train.tokenizer import prefix_id, train_tokenizer
from train.tokens import Documents, TokenCache, as_cache, choose_documents


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What the models of a population share.

    Attributes:
        name: Prefix of the sets' names.
        config: Model and batch.
        n_examples: Examples in each set.
        copies: Duplication count of each set.
        n_steps: Training steps; background fills what the sets leave.
        max_example_tokens: Cut of an example, separator included.
        separator: Text after each example.
        when: When the copies of each set are trained on; none: at random.
    """

    name: str
    config: Config
    n_examples: int
    copies: tuple[int, ...]
    n_steps: int
    max_example_tokens: int
    separator: str = "\n"
    when: tuple[When, ...] = ()

    def __post_init__(self) -> None:
        if self.when and len(self.when) != len(self.copies):
            raise ValueError(
                f"when must be given for {len(self.copies)} sets, got {len(self.when)}"
            )

    @property
    def n_tokens(self) -> int:
        """Target tokens of a training run."""
        return self.n_steps * self.config.step_tokens

    @property
    def set_names(self) -> tuple[str, ...]:
        """One per set: its copies, and its number among those with as many."""
        names = []
        for i, copies in enumerate(self.copies):
            again = self.copies[:i].count(copies)
            names.append(f"{self.name}-{copies}" + (f"-{again + 1}" if again else ""))
        return tuple(names)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """What models of one vocabulary are trained and tested on.

    Attributes:
        tokenizer: Adds nothing of its own; see `plain_tokenizer`.
        prefix_id: Before each document and each copy.
        documents: Background, tokenised once for all models.
        pool: Examples that sets are sampled from, no two alike.
        encoded: Their ids.
    """

    tokenizer: Tokenizer
    prefix_id: int
    documents: TokenCache
    pool: tuple[str, ...]
    encoded: Encoded


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PlannedModel:
    """One model before its training.

    Attributes:
        seed: Seed of sets, stream, weights and tests.
        sets: Its sets, one a duplication count.
        encoded: Their ids.
        stream: Background and copies.
        rows: (R, T + 1) int32 ids, exactly the design's steps.
        starts: (R,) where each row starts in the stream.
    """

    seed: int
    sets: tuple[PlannedSet, ...]
    encoded: tuple[Encoded, ...]
    stream: Stream
    rows: np.ndarray
    starts: np.ndarray


def read_pool(
    tokenizer: Tokenizer,
    prefix_id: int,
    documents: TokenCache,
    pool: Sequence[str],
    *,
    max_example_tokens: int,
    separator: str = "\n",
) -> Texts:
    """Background and pool together, the pool encoded.

    Raises:
        InputError: If an example and its separator give no ids.
    """
    encoded = encode_examples(
        tokenizer, pool, separator=separator, max_example_tokens=max_example_tokens
    )
    return Texts(tokenizer, prefix_id, documents, tuple(pool), encoded)


def texts_in_memory(
    documents: Sequence[str], pool: Sequence[str], design: Design
) -> Texts:
    """Train a tokenizer on the background, and encode it and the pool.

    The same texts give the same tokenizer. For studies; `train.population` keeps what
    it tokenised on disk.

    Raises:
        InputError: If an example and its separator give no ids.
    """
    tokenizer = train_tokenizer(documents, design.config.decoder.vocab_size)
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    return read_pool(
        plain,
        prefix_id(tokenizer),
        as_cache(documents, plain),
        pool,
        max_example_tokens=design.max_example_tokens,
        separator=design.separator,
    )


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
    sampled = rng.permutation(len(pool))[:needed]
    return np.split(sampled, len(design.copies))


def plan_model(design: Design, texts: Texts, *, seed: int) -> PlannedModel:
    """Sample the sets, build the stream, and cut it into rows.

    Raises:
        InputError: If there are too few examples or documents.
    """
    members = draw_sets(design, texts.pool, seed=seed)
    sets = tuple(
        PlannedSet(
            benchmark=Benchmark(
                name,
                tuple(texts.pool[i] for i in part),
                (None,) * len(part),
                order_provenance="seeded",
            ),
            copies=copies,
            when=when,
        )
        for name, copies, when, part in zip(
            design.set_names,
            design.copies,
            design.when or ("uniform",) * len(design.copies),
            members,
            strict=True,
        )
    )
    encoded = tuple(_chosen(texts.encoded, part) for part in members)
    stream = build_stream(
        _background(design, texts, encoded, seed=seed),
        list(zip(sets, encoded, strict=True)),
        prefix_id=texts.prefix_id,
        seed=seed,
    )
    # One BOS before each document and copy: a few tokens more than the steps take.
    n_rows = design.n_steps * design.config.batch_rows
    starts = training_order(
        len(stream.ids),
        design.config.context,
        seed=seed,
        timed=stream.timed,
        planted_C2=stream.planted,
        n_trained=n_rows,
    )[:n_rows]
    places = starts[:, None] + np.arange(design.config.context + 1)
    rows = stream.ids[places % len(stream.ids)]
    return PlannedModel(seed, sets, encoded, stream, rows, starts)


def _chosen(encoded: Encoded, members_E: np.ndarray) -> Encoded:
    return Encoded(
        tuple(encoded.ids[i] for i in members_E),
        encoded.separator,
        encoded.n_cut_ids[members_E],
    )


def _background(
    design: Design, texts: Texts, encoded: Sequence[Encoded], *, seed: int
) -> Documents:
    """Random documents that fill what planted tokens leave, the last one cut."""
    sizes = [int(ids.lengths.sum()) for ids in encoded]
    n_planted = sum(n * size for n, size in zip(design.copies, sizes, strict=True))
    n_ids = design.n_tokens - n_planted
    if n_ids < 0:
        raise InputError(
            f"the sets' copies are {n_planted:,} tokens, training only "
            f"{design.n_tokens:,}",
            hint="raise --steps or --background-tokens, or plant fewer copies",
        )
    cache = texts.documents
    order = choose_documents(cache.lengths, budget=n_ids, seed=seed)
    documents = cache.chosen(order if n_ids else order[:0])
    surplus = int(documents.lengths.sum()) - n_ids
    if surplus < 0:
        raise InputError(
            f"the corpus has {-surplus:,} tokens too few to fill {design.n_steps:,} "
            "steps",
            hint="give more text, or train for fewer steps",
        )
    documents.lengths[-1:] -= surplus
    return documents
