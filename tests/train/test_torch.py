"""Training beside torch's: weights, rows, schedule, decay and clipping alike."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from eval.python_docs import read_python_docs
from eval.speed.subjects import torch_model
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.config import gpt2_shape
from jaxcontam.models.decoder import Decoder
from train.config import PRESETS
from train.data import Rows, row_batches
from train.loop import Watch, train
from train.optimizer import learning_rate, make_optimizer
from train.step import fresh_decoder
from train.tokens import BOS, train_tokenizer

N_STEPS = 30
# Modules of transformers that hold embeddings and heads, which are no kernels here.
UNDECAYED = {"embed_tokens", "wte", "wpe", "lm_head"}


def decay_groups(model):
    """Weights that decay and those that do not, as `train.optimizer.kernels` has it."""
    groups = {True: [], False: []}
    for name, weight in model.named_parameters():
        # Biases and norms have one axis.
        groups[weight.ndim > 1 and not UNDECAYED & {*name.split(".")}].append(weight)
    return groups


def torch_losses(config, folder, batches):
    """Losses of transformers' model under `torch.optim.AdamW`."""
    import torch
    import transformers

    decoder = fresh_decoder(config.decoder, seed=0, mesh=None)
    save_checkpoint(decoder, None, folder, model_type=config.model_type)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa"
    ).train()
    told = config.optimizer
    optimizer = torch.optim.AdamW(
        [
            {"params": weights, "weight_decay": told.weight_decay if decays else 0.0}
            for decays, weights in decay_groups(model).items()
        ],
        betas=(told.beta1, told.beta2),
        # Optax's default, which `train.step` leaves as it is.
        eps=1e-8,
    )
    rate = learning_rate(told, N_STEPS)
    for step in range(N_STEPS):
        for group in optimizer.param_groups:
            group["lr"] = float(rate(step))
        tokens = torch.from_numpy(next(batches).astype(np.int64))
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens[:, 1:].flatten()
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), told.clip_norm)
        optimizer.step()
        yield loss.item()


def test_thirty_steps_lose_what_torchs_lose(tmp_path):
    """Of the same weights, on the same rows in the same order."""
    pytest.importorskip("torch")
    config, documents = PRESETS["pulse"], read_python_docs().documents
    tokenizer = train_tokenizer(documents, config.decoder.vocab_size)
    text = "".join(f"{BOS}{document}" for document in documents)
    ids = np.array(tokenizer(text)["input_ids"])
    starts = np.random.default_rng(0).permutation(
        np.arange(0, len(ids), config.context)
    )
    rows = Rows(ids, starts[: N_STEPS * config.batch_rows], config.context)

    def batches():
        return row_batches(rows, batch_rows=config.batch_rows, n_steps=N_STEPS)

    losses = []
    train(
        config,
        fresh_decoder(config.decoder, seed=0, mesh=None),
        batches(),
        n_steps=N_STEPS,
        watch=Watch(steps=lambda _, found: losses.extend(found["loss"].tolist())),
    )
    # Adam divides by the root of its second moment: roundings grow.
    theirs = [*torch_losses(config, tmp_path, batches())]
    np.testing.assert_allclose(losses, theirs, rtol=0, atol=1e-3)
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("name", ["llama", "untied llama", "gpt2"])
def test_the_weights_that_decay_here_decay_in_torch(name):
    torch = pytest.importorskip("torch")
    config = PRESETS["pulse"].decoder
    if name == "untied llama":
        config = dataclasses.replace(config, tied=False)
    if name == "gpt2":
        config = gpt2_shape(
            vocab_size=99, d_model=32, n_layers=2, n_heads=4, context=64
        )
    params = nnx.state(Decoder(config, rngs=nnx.Rngs(0)), nnx.Param)
    # With gradients of zero, what changes has decayed.
    optimizer = make_optimizer(PRESETS["pulse"].optimizer, 1)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = optimizer.init(params)
    for _ in range(2):
        updates, state = optimizer.update(zeros, state, params)
    ours = sum(int((u != 0).sum()) for u in jax.tree.leaves(updates))
    groups = decay_groups(torch_model(config, "cpu", torch.float32))
    assert sum(weight.numel() for weight in groups[True]) == ours
    assert groups[False]
