"""bfloat16 operands: what they change, and what stays float32."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcontam.cli.main import main
from jaxcontam.models.checkpoint import load_decoder, save_checkpoint
from jaxcontam.models.config import gpt2_shape, llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.local import local_scorer

SIZES = {"vocab_size": 91, "d_model": 32, "n_layers": 2, "n_heads": 4, "context": 32}
SHAPES = {"llama": llama_shape(d_ff=40, **SIZES), "gpt2": gpt2_shape(**SIZES)}


@pytest.fixture(params=SHAPES)
def folder(request, tmp_path):
    decoder = Decoder(SHAPES[request.param], rngs=nnx.Rngs(0))
    nnx.update(decoder, jax.tree.map(lambda x: 4 * x, nnx.state(decoder)))
    save_checkpoint(decoder, None, tmp_path, model_type=request.param)
    return tmp_path


def scores(decoder):
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, 91, 30).astype(np.int32) for _ in range(6)]
    found = local_scorer(decoder, moments=True).tokens(sequences)
    return np.concatenate(found, axis=1)


def test_only_operands_of_products_are_rounded(folder):
    decoder = load_decoder(folder, dtype="bfloat16")
    assert decoder.dtype == "bfloat16"
    for path, leaf in jax.tree.leaves_with_path(nnx.state(decoder)):
        name = jax.tree_util.keystr(path)
        is_operand = "kernel" in name or name.startswith("['embedding']")
        assert leaf.dtype == (jnp.bfloat16 if is_operand else jnp.float32), name


def test_scores_are_near_those_of_float32_and_are_float32(folder):
    exact = scores(load_decoder(folder))
    rounded = scores(load_decoder(folder, dtype="bfloat16"))
    assert rounded.dtype == np.float32
    assert np.abs(exact[0]).mean() > 3
    difference = np.abs(rounded - exact)
    # bfloat16 keeps 8 bits: the operands differ, and are no parity.
    assert difference[0].max() > 1e-3
    assert difference[0].mean() < 0.05
    assert (rounded[0] <= 0).all()
    assert (rounded[2] >= 0).all()


@pytest.mark.parametrize(("platform", "n_rounded"), [("cpu", 0), ("cuda", 2)])
def test_hidden_states_and_sums_of_products_are_float32(folder, platform, n_rounded):
    """On a GPU two of a layer leave it rounded, as what follows would round them."""
    decoder = load_decoder(folder, dtype="bfloat16")
    ids = jax.ShapeDtypeStruct((2, 5), jnp.int32)
    assert jax.eval_shape(decoder, ids).dtype == jnp.float32
    lowered = jax.jit(decoder).trace(ids).lower(lowering_platforms=(platform,))
    products = [
        line for line in lowered.as_text().splitlines() if "dot_general" in line
    ]
    rounded = [line for line in products if line.rpartition("->")[2].endswith("bf16>")]
    assert len(products) > len(rounded) == n_rounded


def test_audit_says_its_dtype_and_its_scores_are_not_taken_for_float32(pulse, tmp_path):
    words = ["audit", str(pulse / "model"), str(pulse / "sets/pydocs-0a.txt")]
    words += ["--tests", "reversal", "--store", str(tmp_path / "store")]
    rows = []
    for dtype in ("float32", "bfloat16", "bfloat16"):
        out = tmp_path / dtype
        assert main([*words, "--dtype", dtype, "--out", str(out)]) == 0
        report = json.loads((out / "report.json").read_text())
        assert report["model"]["dtype"] == dtype
        rows += report["results"]
    single, first, again = rows
    assert first["cached_tokens"] == again["tokens_scored"] == 0
    assert single["statistic"] != first["statistic"] == again["statistic"]
