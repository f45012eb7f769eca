"""A tiny model's folder, to be spoilt."""

import shutil

import pytest
from flax import nnx

from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from train.tokens import train_tokenizer

SHAPE = llama_shape(
    vocab_size=280, d_model=8, n_layers=1, n_heads=2, d_ff=8, context=16
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder of a model that knows nothing."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = train_tokenizer(["the cat sat on the mat"] * 3, 280)
    save_checkpoint(Decoder(SHAPE, rngs=nnx.Rngs(0)), tokenizer, folder)
    return folder


@pytest.fixture
def spoilt(model, tmp_path):
    """A copy, and a benchmark beside it."""
    # Letters in no order: a file that rises is refused before its model is read.
    (tmp_path / "b.txt").write_text("".join(f"line {c}\n" for c in "hbkdagljcfei"))
    return shutil.copytree(model, tmp_path / "tiny")
