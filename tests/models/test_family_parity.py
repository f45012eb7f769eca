"""Every model family's token scores against transformers' torch models."""

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file

from jaxcontam.models.checkpoint import load_decoder
from jaxcontam.models.families import FAMILIES
from jaxcontam.scoring.local import local_scorer
from tests.support.family_cases import (
    CASES,
    EAGER,
    FAMILY_CASES,
    PARITY_CASES,
    reopened,
    torch_model,
)
from tests.support.family_files import RAW
from tests.support.torch_reference import (
    LOGPROBS,
    assert_scores_agree,
    randomised,
    torch,
    torch_logprobs,
)

pytestmark = [pytest.mark.parity, pytest.mark.unoptimised]


@pytest.mark.parametrize("case", PARITY_CASES)
def test_scores_agree(case, tmp_path):
    model = torch_model(case, seed=len(case))
    model.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


# Queries attend in blocks of 256: one whole block and a rest.
@pytest.mark.parametrize("case", ["llama 3", "gemma2"])
def test_long_texts_score_as_torch_does(case, tmp_path):
    model = torch_model(case, max_position_embeddings=300)
    model.save_pretrained(tmp_path)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 97, n).astype(np.int32) for n in (300, 257)]
    found = local_scorer(load_decoder(tmp_path)).tokens(texts)
    for ids, scores in zip(texts, found, strict=True):
        np.testing.assert_allclose(scores[0], torch_logprobs(model, ids), **LOGPROBS)


# Transposed maps; plain ones; one tensor of queries, keys and values; and scales that
# files hold less one.
@pytest.mark.parametrize("case", ["gpt2, tied", "llama 3", "pythia", "gemma2"])
def test_sharded_bfloat16_files_score_as_torch_does_in_float32(case, tmp_path):
    torch_model(case).to(torch.bfloat16).save_pretrained(
        tmp_path, max_shard_size="20KB"
    )
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    # Opened anew: the cast above has rounded torch's rotary angles too.
    assert_scores_agree(load_decoder(tmp_path), reopened(tmp_path))


def test_text_model_within_an_image_model_scores_as_torch_does(tmp_path):
    _, fields = CASES["qwen3_5"]
    vision = {"depth": 1, "hidden_size": 8, "num_heads": 2, "intermediate_size": 8}
    config = transformers.AutoConfig.for_model(
        "qwen3_5", text_config=fields, vision_config=vision | {"out_hidden_size": 42}
    )
    whole = transformers.AutoModelForImageTextToText.from_config(config, **EAGER)
    randomised(whole, seed=1).save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors")
    assert any(name.startswith("model.visual.") for name in names)
    assert_scores_agree(load_decoder(tmp_path), reopened(tmp_path))


def test_every_family_has_a_case():
    assert {CASES[case][0] for case in FAMILY_CASES} == set(FAMILIES) == set(RAW)
