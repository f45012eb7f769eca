"""Prefixes and gradients against torch, in families whose attention differs."""

import numpy as np
import pytest

from jaxcontam.models.checkpoint import load_decoder
from jaxcontam.scoring.gradients import gradient_norms
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.pair_plan import PairGroup
from tests.support.family_cases import torch_model
from tests.support.torch_reference import CONTEXT, LOGPROBS, draw, torch, torch_logprobs

pytestmark = [pytest.mark.parity, pytest.mark.unoptimised]


@pytest.mark.parametrize(
    "case",
    [
        "gpt_oss",
        "deepseek_v3",
        "qwen3_5",
        "gemma4",
        *(
            pytest.param(case, marks=pytest.mark.slow)
            for case in [
                *("olmo3", "smollm3, windows", "deepseek_v2, groups", "qwen3_5_moe"),
                "gemma4, values of keys",
            ]
        ),
    ],
)
def test_continuations_score_as_whole_texts_do_in_torch(case, tmp_path):
    model = torch_model(case, seed=len(case))
    model.save_pretrained(tmp_path)
    rng = np.random.default_rng(2)
    prefix, *texts = (rng.integers(0, 97, n).astype(np.int32) for n in (7, 3, 8))
    scorer = local_scorer(load_decoder(tmp_path)).pairs
    assert scorer is not None
    found = scorer.logprobs([PairGroup(prefix, tuple(texts), 0, (0, 1))]).logprobs[0]
    for text, logprobs in zip(texts, found, strict=True):
        whole = np.concatenate([prefix, text])
        assert len(whole) <= CONTEXT
        expected = torch_logprobs(model, whole)[len(prefix) - 1 :]
        np.testing.assert_allclose(logprobs, expected, **LOGPROBS)


@pytest.mark.parametrize(
    "case", ["gpt_oss", "deepseek_v3", "qwen3_5, biases, tied", "gemma4"]
)
def test_gradients_are_as_long_as_in_torch(case, tmp_path):
    model = torch_model(case, seed=len(case))
    model.save_pretrained(tmp_path)
    sequences = draw(97)
    found = gradient_norms(load_decoder(tmp_path), sequences, batch_tokens=64).norms
    for ids, norm in zip(sequences, found, strict=True):
        model.zero_grad()
        tokens = torch.tensor(ids[None].astype(np.int64))
        logits = model(tokens[:, :-1]).logits[0]
        torch.nn.functional.cross_entropy(logits, tokens[0, 1:]).backward()
        grads = (weight.grad for weight in model.parameters())
        squares = [float((g.double() ** 2).sum()) for g in grads if g is not None]
        # Float32 sums over all weights, in another order.
        np.testing.assert_allclose(norm, sum(squares) ** 0.5, rtol=1e-4)
