"""Watch a benchmark while a Flax model trains on a corpus that holds it.

python examples/watch_flax_training.py
"""

import random

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import jaxcontam
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder

STEPS, EVERY, LENGTH = 120, 40, 48


def tokenizer_of(texts: list[str]) -> Tokenizer:
    """A small word-level tokenizer."""
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>"])
    made.train_from_iterator([*texts, "\n"], trainer)
    return made


def loss(decoder: Decoder, batch_BT: jax.Array) -> jax.Array:
    """Mean negative log-likelihood, nats a token."""
    logits_BTV = decoder(batch_BT[:, :-1]) @ decoder.head_VD.T
    losses_BT = optax.softmax_cross_entropy_with_integer_labels(
        logits_BTV, batch_BT[:, 1:]
    )
    return jnp.mean(losses_BT)


@nnx.jit
def train_step(decoder: Decoder, optimiser: nnx.Optimizer, batch_BT: jax.Array) -> None:
    """Update the decoder."""
    optimiser.update(decoder, nnx.grad(loss)(decoder, batch_BT))


def main() -> list[jaxcontam.AuditResult]:
    """Train, and audit on the way."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghij", k=3)) for _ in range(100)]
    benchmark = [" ".join(rng.choices(words, k=7)) for _ in range(64)]
    tokenizer = tokenizer_of(benchmark)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text).ids

    shape = llama_shape(
        vocab_size=tokenizer.get_vocab_size(),
        d_model=64,
        n_layers=2,
        n_heads=4,
        d_ff=128,
        context=64,
    )
    decoder = Decoder(shape, rngs=nnx.Rngs(0))
    optimiser = nnx.Optimizer(decoder, optax.adamw(1e-2), wrt=nnx.Param)
    ids = [i for text in benchmark for one in (text, "\n") for i in encode(one)]
    windows = np.lib.stride_tricks.sliding_window_view(np.array(ids, np.int32), LENGTH)
    draw = np.random.default_rng(0)
    audits = []
    for step in range(1, STEPS + 1):
        batch_BT = jnp.asarray(windows[draw.integers(len(windows), size=16)])
        train_step(decoder, optimiser, batch_BT)
        # The five lines that watch.
        if step % EVERY == 0:
            found = jaxcontam.audit(
                decoder, benchmark, tokenizer=tokenizer, order="random"
            )
            gain = found["direction"].effect
            print(f"step {step}: {found.verdict}, {gain:.2f} nats a boundary")
            audits.append(found)
    return audits


if __name__ == "__main__":
    main()
