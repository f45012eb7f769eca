"""Small transformers that copy from their context, and the numbers that show it.

Their first layer looks one token back, as a sliding window does; that is half of an
induction head, and 0.2 M weights then find the other half in minutes.

Dimension key
    B  rows a step
    N  steps
    T  targets a row
"""

import dataclasses
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import jax
import numpy as np
from flax import nnx
from tokenizers import Tokenizer

from eval.natural_order.background import Reading, documents, random_words
from eval.study import inputs_digest
from jaxcontam.data.encoding import encode_examples, encode_texts, plain_tokenizer
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.report.document import make_folder, replace_bytes
from jaxcontam.scoring.local import local_scorer
from train.presets import Preset, preset_to_json
from train.step import adamw, training_step

VOCAB_SIZE, CONTEXT = 1536, 256
# Documents that the tokenizer is trained on, and those encoded at once.
_TOKENIZER_DOCUMENTS, _AT_ONCE = 3_000, 500
# Weights start at the scale of wide models. That of a width of 64 is five times as
# large; without it copying is not found in millions of tokens.
_KERNELS, _EMBEDDING = 5.0, 3.0
# Strings whose repetition shows that a model copies.
_STRINGS, _STRING_WORDS = 64, 20
_SEPARATOR = "\n"

READER = Preset(
    name="reader",
    decoder=dataclasses.replace(
        llama_shape(
            vocab_size=VOCAB_SIZE,
            d_model=64,
            n_layers=2,
            n_heads=2,
            d_ff=160,
            context=CONTEXT,
        ),
        windows=(2, None),
    ),
    batch_rows=4,
    peak_rate=6e-3,
    row_tokens=128,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A reader to train.

    Attributes:
        reading: What it reads.
        n_steps: Each a batch of the preset.
        seed: Of its text and of its weights.
        planted: Rows of files that stand in the text.
        copies: Of each planted file, each a document of its own.
        preset: Shape, batch and learning rate.
    """

    reading: Reading
    n_steps: int
    seed: int
    planted: tuple[tuple[str, ...], ...] = ()
    copies: int = 0
    preset: Preset = READER


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What training a reader gave.

    Attributes:
        n_parameters: Tied weights counted once.
        n_tokens: Targets of training.
        planted_share: Share of them that copies of files are.
        loss: Mean of the last tenth of the steps, nats a token.
        first: Loss of random strings of words when they are read first.
        again: Loss of the same strings when they are read again at once.
        cpu_seconds: It took.
    """

    n_parameters: int
    n_tokens: int
    planted_share: float
    loss: float
    first: float
    again: float
    cpu_seconds: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The tokenizer that all readers share.

    Attributes:
        tokenizer: Byte-level, so that every file encodes.
        prefix_id: Before each document.
    """

    tokenizer: Tokenizer
    prefix_id: int


def read_words() -> Words:
    """Train the tokenizer; the same each time."""
    from train.tokenizer import prefix_id, train_tokenizer

    texts = itertools.islice(documents("worldly", seed=0), _TOKENIZER_DOCUMENTS)
    tokenizer = train_tokenizer(texts, VOCAB_SIZE)
    return Words(plain_tokenizer(tokenizer.backend_tokenizer), prefix_id(tokenizer))


def kept_reader(plan: Plan, words: Words, path: Path) -> Training:
    """Train a reader and write its weights, unless they stand there.

    Args:
        plan: The reader.
        words: Its tokenizer.
        path: Of its weights, .npz; numbers stand beside it as .json.
    """
    key = inputs_digest(
        preset_to_json(plan.preset),
        [plan.reading, plan.n_steps, plan.seed, plan.planted, plan.copies],
    )
    numbers = path.with_suffix(".json")
    if path.is_file() and (found := _read_training(numbers, key)) is not None:
        return found
    start = time.process_time()
    decoder, loss, share = trained_reader(plan, words)
    first, again = copying_losses(decoder, words)
    weights = _weights(decoder)
    training = Training(
        n_parameters=sum(weight.size for weight in weights.values()),
        n_tokens=plan.n_steps * plan.preset.step_tokens,
        planted_share=share,
        loss=loss,
        first=first,
        again=again,
        cpu_seconds=time.process_time() - start,
    )
    make_folder(path.parent)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, allow_pickle=False, **weights)
    partial.replace(path)
    fields = {"key": key, **dataclasses.asdict(training)}
    replace_bytes(numbers, f"{json.dumps(fields)}\n".encode())
    return training


def open_reader(path: Path, preset: Preset = READER) -> Decoder:
    """A reader whose weights `kept_reader` wrote."""
    graphdef, params = nnx.split(Decoder(preset.decoder, rngs=nnx.Rngs(0)))
    with np.load(path, allow_pickle=False) as weights:
        params = jax.tree_util.tree_map_with_path(
            lambda place, _: jax.numpy.asarray(weights[jax.tree_util.keystr(place)]),
            params,
        )
    return nnx.merge(graphdef, params)


def trained_reader(plan: Plan, words: Words) -> tuple[Decoder, float, float]:
    """Train a transformer on what it reads.

    Returns:
        The model, the mean loss of its last steps, and the share of its text that
        copies of planted files are.
    """
    preset, N = plan.preset, plan.n_steps
    T, B = preset.context, preset.batch_rows
    ids, share = reader_stream(plan, words)
    starts = np.arange(N * B) * T
    rows_NBT = ids[starts[:, None] + np.arange(T + 1)].reshape(N, B, T + 1)
    graphdef, params = nnx.split(Decoder(preset.decoder, rngs=nnx.Rngs(plan.seed)))
    optimizer = adamw(preset.peak_rate, N, params, schedule=preset.schedule)

    def step(carry: tuple[Any, Any], batch_BT: jax.Array):
        params, opt_state, loss = training_step(
            graphdef, optimizer, *carry, batch_BT, compute=preset.compute
        )
        return (params, opt_state), loss

    @jax.jit
    def run(params: nnx.State, rows_NBT: np.ndarray):
        begin = (params, optimizer.init(params))
        (params, _), losses_N = jax.lax.scan(step, begin, rows_NBT)
        return params, losses_N

    params, losses_N = run(_spread(params), rows_NBT)
    loss = float(np.asarray(losses_N)[-max(1, N // 10) :].mean())
    return nnx.merge(graphdef, params), loss, share


def copying_losses(decoder: Decoder, words: Words) -> tuple[float, float]:
    """Loss of random strings at their first and at their second reading.

    Nats a token. A model without a cache loses as much at both; one that copies loses
    next to nothing at the second.
    """
    rng = Random("strings")
    strings = encode_texts(
        words.tokenizer,
        [f" {random_words(rng, _STRING_WORDS)}\n" for _ in range(_STRINGS)],
    )
    scores = local_scorer(decoder).tokens(
        [np.concatenate([[words.prefix_id], ids, ids]) for ids in strings]
    )
    first = [own[0][: len(ids)] for own, ids in zip(scores, strings, strict=True)]
    again = [own[0][len(ids) :] for own, ids in zip(scores, strings, strict=True)]
    lost_first, lost_again = (
        -float(np.concatenate(part).mean()) for part in (first, again)
    )
    return lost_first, lost_again


def reader_stream(plan: Plan, words: Words) -> tuple[np.ndarray, float]:
    """What a reader reads: documents in random places, each after the prefix id.

    Returns:
        (n_targets + 1,) int32, and the share of it that copies of planted files are.

    Raises:
        ValueError: If the copies do not fit.
    """
    n_ids = plan.n_steps * plan.preset.step_tokens + 1
    copies = [_document(words, rows) for rows in plan.planted] * plan.copies
    n_planted = sum(len(ids) + 1 for ids in copies)
    if n_planted > n_ids:
        raise ValueError(f"planted files must fit {n_ids:,} ids, got {n_planted:,}")
    taken, left = list(copies), n_ids - n_planted
    for ids in _encoded(words, documents(plan.reading, seed=plan.seed)):
        if left <= 0:
            break
        taken.append(ids)
        left -= len(ids) + 1
    prefix = np.array([words.prefix_id], np.int32)
    order = np.random.default_rng([plan.seed, 1]).permutation(len(taken))
    parts = [part for i in order for part in (prefix, taken[i])]
    # The last document is cut, whichever it is.
    return np.concatenate(parts)[:n_ids].astype(np.int32), n_planted / n_ids


def _document(words: Words, rows: Sequence[str]) -> np.ndarray:
    """A file as training and scoring read it: every example with its separator."""
    return np.concatenate(
        encode_examples(words.tokenizer, rows, separator=_SEPARATOR).ids
    )


def _encoded(words: Words, texts: Iterator[str]) -> Iterator[np.ndarray]:
    while True:
        batch = list(itertools.islice(texts, _AT_ONCE))
        yield from encode_texts(words.tokenizer, batch)


def _spread(params: nnx.State) -> nnx.State:
    """Weights at the scale of a narrow model."""

    def scaled(place: Any, weight: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(place)
        if "kernel" in name:
            return _KERNELS * weight
        return _EMBEDDING * weight if "embed" in name else weight

    return jax.tree_util.tree_map_with_path(scaled, params)


def _weights(decoder: Decoder) -> dict[str, np.ndarray]:
    """Weights by their place in the model."""
    params = nnx.split(decoder)[1]
    return {
        jax.tree_util.keystr(place): np.asarray(weight)
        for place, weight in jax.tree_util.tree_flatten_with_path(params)[0]
    }


def _read_training(path: Path, key: str) -> Training | None:
    """Numbers of an earlier training from the same plan."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Training(**fields) if fields.pop("key") == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
