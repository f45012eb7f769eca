"""Small transformers that copy from their context; clean, or with files planted.

They read lists of random words that stand several times, which nothing but copying
foretells, and the copying scorer's background. `copying` shows that they do: a string
of random words is likelier after itself than after another one.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np

from eval.natural_order.background import ALL_WORDS, background_texts
from eval.natural_order.words import pseudoword
from eval.planted import trained_model
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.config import llama_shape
from jaxcontam.scoring.local import checkpoint_scorer
from jaxcontam.scoring.pair_plan import PairGroup
from train.config import Config, Optimizer
from train.plant import PlannedSet
from train.run_folder import MODEL_DIR


def _preset(name: str, *, D: int, L: int, F: int) -> Config:
    decoder = llama_shape(
        vocab_size=1024, d_model=D, n_layers=L, n_heads=4, d_ff=F, context=128
    )
    return Config(
        name=name, decoder=decoder, batch_rows=8, optimizer=Optimizer(peak_rate=5e-3)
    )


SHAPES = {
    "wide": (_preset("wide", D=96, L=2, F=192), 1),
    "deep": (_preset("deep", D=64, L=4, F=128), 2),
}
"""What is trained, and the seed of all that it reads; each one's clean model is the
other's reference."""

# Tokens after which both copy, and those beside planted files; documents that are
# lists.
_TOKENS, _BESIDE = 6_000_000, 1_000_000
_REPEATED = 0.7

COPIES = 15
"""Times that each planted file is trained on."""


def model_folder(name: str, folder: Path, *, planted: bool = False) -> Path:
    """Where `train_transformer` leaves a model."""
    return folder / f"{name}{'-planted' * planted}" / MODEL_DIR


def train_transformer(
    name: str,
    folder: Path,
    *,
    planted: Sequence[Benchmark] = (),
    n_tokens: int | None = None,
) -> None:
    """Train a transformer; a finished one stays.

    Args:
        name: One of `SHAPES`.
        folder: Takes the models.
        planted: Files to read besides, as a continuation of the clean model's training.
        n_tokens: Of the background; by default until it copies.

    Raises:
        KeyboardInterrupt: If training was asked to stop.
    """
    preset, seed = SHAPES[name]
    n_tokens = n_tokens or (_BESIDE if planted else _TOKENS)
    trained_model(
        model_folder(name, folder, planted=bool(planted)).parent,
        _documents(n_tokens, seed=seed),
        [PlannedSet(benchmark=file, copies=COPIES) for file in planted],
        preset,
        seed=seed,
        background_tokens=n_tokens,
        start=model_folder(name, folder).parent if planted else None,
    )


def _documents(n_tokens: int, *, seed: int) -> list[str]:
    """Lists of random words, each several times, among texts of the background."""
    rng, texts = Random(f"lists {seed}"), background_texts(seed=seed)
    found, n_characters = [], 0
    # More than enough: a token has three characters or four.
    while n_characters < 6 * n_tokens:
        found.append(_list(rng) if rng.random() < _REPEATED else next(texts))
        n_characters += len(found[-1])
    return found


def _list(rng: Random) -> str:
    return " ".join(_words(rng, rng.randrange(4, 12)) * rng.randrange(3, 6))


def _words(rng: Random, n: int) -> list[str]:
    """Random words, of which one in five was never seen."""
    return [
        rng.choice(ALL_WORDS) if rng.random() < 0.8 else pseudoword(rng, 2)
        for _ in range(n)
    ]


def copying(checkpoint: Checkpoint, *, n: int = 100) -> tuple[float, float]:
    """Mean log-probability of a string of random words, in nats a token.

    Args:
        checkpoint: A transformer.
        n: Strings.

    Returns:
        After itself, and after another string.
    """
    rng = Random("strings")
    texts = [(_words(rng, 10), _words(rng, 10)) for _ in range(n)]
    groups = [
        _pair(checkpoint, " ".join(before), f" {' '.join(words)}")
        for words, other in texts
        for before in (words, other)
    ]
    scorer = checkpoint_scorer(checkpoint, store=None).pairs
    assert scorer is not None
    means = [float(np.mean(own)) for (own,) in scorer.logprobs(groups).logprobs]
    return float(np.mean(means[::2])), float(np.mean(means[1::2]))


def _pair(checkpoint: Checkpoint, before: str, after: str) -> PairGroup:
    assert checkpoint.prefix_id is not None
    first, then = (
        checkpoint.tokenizer.encode(text, add_special_tokens=False).ids
        for text in (before, after)
    )
    prefix = np.array([checkpoint.prefix_id, *first], np.int32)
    return PairGroup(prefix, (np.array(then, np.int32),), 0, (1,))
