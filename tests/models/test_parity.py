"""Token scores and files of GPT-2 and LLaMA against transformers' torch models."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers
from flax import nnx

from jaxcontam.cli.score import Score
from jaxcontam.models.checkpoint import load_checkpoint, load_decoder, save_checkpoint
from jaxcontam.models.config import gpt2_shape, llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.rows import windows
from tests.support.torch_reference import (
    CONTEXT,
    LOGPROBS,
    MOMENTS,
    assert_scores_agree,
    randomised,
    torch_logprobs,
    torch_moments,
)
from train.tokenizer import train_tokenizer

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.parity, pytest.mark.unoptimised]

# Each on top of the sizes in `torch_llama` and `torch_gpt2`. The kernel's vocabulary
# block is 1024.
LLAMA_CASES = {
    "grouped heads": {"num_key_value_heads": 2, "vocab_size": 2501},
    "one key head, tied": {
        "num_key_value_heads": 1,
        "head_dim": 10,
        "vocab_size": 1024,
        "hidden_act": "gelu",
        "tie_word_embeddings": True,
    },
    "biases and theta": {
        "attention_bias": True,
        "mlp_bias": True,
        "rms_norm_eps": 1e-2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
    },
}
GPT2_CASES = {
    "gelu": {"activation_function": "gelu", "n_inner": 37, "layer_norm_epsilon": 1e-2},
    "gelu_pytorch_tanh": {"activation_function": "gelu_pytorch_tanh"},
    "silu, untied": {
        "activation_function": "silu",
        "vocab_size": 2501,
        "tie_word_embeddings": False,
    },
}


def torch_llama(seed=0, **changes):
    sizes = {
        "vocab_size": 97,
        "hidden_size": 42,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "head_dim": 14,
        "intermediate_size": 53,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
    }
    config = transformers.LlamaConfig(**sizes | changes)
    return randomised(transformers.LlamaForCausalLM(config), seed)


def torch_gpt2(seed=0, **changes):
    sizes = {
        "vocab_size": 97,
        "n_embd": 35,
        "n_layer": 3,
        "n_head": 5,
        "n_positions": CONTEXT,
    }
    config = transformers.GPT2Config(**sizes | changes)
    return randomised(transformers.GPT2LMHeadModel(config), seed)


@pytest.mark.parametrize("case", LLAMA_CASES)
def test_llama_scores_agree(case, tmp_path):
    model = torch_llama(seed=len(case), **LLAMA_CASES[case])
    model.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


@pytest.mark.parametrize("case", GPT2_CASES)
def test_gpt2_scores_agree(case, tmp_path):
    model = torch_gpt2(seed=len(case), **GPT2_CASES[case])
    model.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("make", [torch_llama, torch_gpt2])
def test_scores_agree_for_any_weights(make, seed, tmp_path):
    model = make(seed)
    model.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


@pytest.mark.parametrize("make", [torch_llama, torch_gpt2])
def test_sharded_files_score_alike(make, tmp_path):
    model = make()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_scores_agree(load_decoder(tmp_path), model)


@pytest.mark.parametrize("make", [torch_llama, torch_gpt2])
def test_bfloat16_weights_score_as_torch_does_in_float32(make, tmp_path):
    make().to(torch.bfloat16).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    # Opened anew: the cast above has rounded torch's rotary angles too.
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32
    )
    assert_scores_agree(load_decoder(tmp_path), model)


def test_gpt2_body_without_prefix_scores_as_the_whole_model(tmp_path):
    model = torch_gpt2()
    model.transformer.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


def test_flat_rope_settings_of_older_files_score_alike(tmp_path):
    model = torch_llama(**LLAMA_CASES["biases and theta"])
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    del raw["rope_parameters"]
    path.write_text(json.dumps(raw | {"rope_theta": 500_000.0, "rope_scaling": None}))
    reopened = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), reopened)


SMALL = llama_shape(
    vocab_size=97, d_model=42, n_layers=3, n_heads=3, d_ff=53, context=CONTEXT
)
OURS = {
    "llama": SMALL,
    "llama, all switches": dataclasses.replace(
        SMALL,
        n_heads=6,
        n_kv_heads=2,
        rope_theta=500_000.0,
        norm_eps=1e-2,
        activation="gelu_tanh",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        tied=False,
    ),
    "gpt2": dataclasses.replace(
        gpt2_shape(vocab_size=97, d_model=35, n_layers=3, n_heads=5, context=CONTEXT),
        d_ff=37,
        norm_eps=1e-2,
        tied=False,
    ),
}


def our_decoder(config, seed=0):
    """A decoder of ours with every weight far from its start."""
    decoder = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(seed)

    def drawn(path, leaf):
        is_scale = "scale" in jax.tree_util.keystr(path)
        values = rng.normal(loc=1.0 if is_scale else 0.0, scale=0.2, size=leaf.shape)
        return jnp.asarray(values.astype(np.float32))

    nnx.update(decoder, jax.tree.map_with_path(drawn, nnx.state(decoder)))
    return decoder


@pytest.mark.parametrize("case", OURS)
def test_saved_decoder_scores_alike_in_transformers(case, tmp_path):
    decoder = our_decoder(OURS[case])
    model_type = case.split(",")[0]
    save_checkpoint(decoder, None, tmp_path, model_type=model_type)
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert model.config.model_type == model_type
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys"))
    assert_scores_agree(decoder, model.eval())


SCORE_CONTEXT = 40
TEXTS = [
    "the cat sat on the mat and the dog sat on the cat",
    "A",
    '{"question": "how many cats are there?", "answer": "four or five"}',
    "naïve cafés: 猫は五匹 🐈",
    " ".join(f"the {n} cats saw {n + 1} dogs;" for n in range(12)),
]


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """(model, tokenizer, checkpoint, rows) of one `jaxcontam score` of TEXTS."""
    folder = tmp_path_factory.mktemp("score")
    tokenizer = train_tokenizer(TEXTS[:3] * 3, 320)
    model = torch_llama(
        vocab_size=len(tokenizer),
        num_key_value_heads=2,
        max_position_embeddings=SCORE_CONTEXT,
    )
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    texts, out = folder / "texts.txt", folder / "new" / "scores.jsonl"
    texts.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    assert Score(model=str(folder / "model"), texts=texts, out=out).run() == 0
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    return model, tokenizer, load_checkpoint(str(folder / "model")), rows


def test_score_writes_each_text_with_its_ids_and_the_prefix(scored):
    _, tokenizer, _, rows = scored
    assert [row["text"] for row in rows] == TEXTS
    assert [row["id"] for row in rows] == list(range(len(TEXTS)))
    for row in rows:
        assert row["prefix_id"] == tokenizer.bos_token_id
        expected = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        assert row["token_ids"] == expected


def test_score_writes_the_logprobs_and_moments_that_torch_gives(scored):
    model, _, _, rows = scored
    short = [row for row in rows if len(row["token_ids"]) < SCORE_CONTEXT]
    assert len(short) > 1
    for row in short:
        ids = np.array([row["prefix_id"], *row["token_ids"]])
        np.testing.assert_allclose(
            row["logprobs"], torch_logprobs(model, ids), **LOGPROBS
        )
        moments = [row["means"], row["variances"]]
        np.testing.assert_allclose(moments, torch_moments(model, ids), **MOMENTS)


def test_text_longer_than_the_context_is_scored_once_in_windows(scored):
    model, _, _, rows = scored
    ids = np.array([rows[-1]["prefix_id"], *rows[-1]["token_ids"]])
    assert len(ids) > 3 * SCORE_CONTEXT
    expected_S = np.full(len(ids) - 1, np.nan)
    for window in windows(len(ids), SCORE_CONTEXT):
        logprobs = torch_logprobs(model, ids[window.start : window.stop])
        own = slice(window.first_target - 1, window.stop - 1)
        assert np.isnan(expected_S[own]).all()
        expected_S[own] = logprobs[window.first_target - window.start - 1 :]
    np.testing.assert_allclose(rows[-1]["logprobs"], expected_S, **LOGPROBS)
