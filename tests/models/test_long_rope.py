"""Rotary factors for long contexts: one choice for all texts of a decoder."""

import json

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_decoder
from jaxcontam.scoring.local import local_scorer
from tests.support.family_cases import torch_model
from tests.support.torch_reference import CONTEXT, LOGPROBS, torch_logprobs

pytestmark = [pytest.mark.parity, pytest.mark.unoptimised]


def texts(*lengths):
    rng = np.random.default_rng(1)
    return [rng.integers(0, 97, n).astype(np.int32) for n in lengths]


def scores(decoder, sequences):
    return [one[0] for one in local_scorer(decoder).tokens(sequences)]


@pytest.mark.parametrize("case", ["llama, longrope", "phi3, long"])
def test_texts_above_the_first_context_score_as_transformers_does(case, tmp_path):
    model = torch_model(case)
    model.save_pretrained(tmp_path)
    decoder = load_decoder(tmp_path, context=4 * CONTEXT)
    # transformers chooses by the ids that it reads, all but the last.
    sequences = texts(CONTEXT + 2, 40, 4 * CONTEXT)
    for ids, found in zip(sequences, scores(decoder, sequences), strict=True):
        np.testing.assert_allclose(found, torch_logprobs(model, ids), **LOGPROBS)


def test_length_of_a_text_changes_no_token_before_its_end(tmp_path):
    torch_model("llama, longrope").save_pretrained(tmp_path)
    (long,) = texts(40)
    short = long[:CONTEXT]
    decoder = load_decoder(tmp_path, context=64)
    whole, part = scores(decoder, [long, short])
    np.testing.assert_allclose(whole[: CONTEXT - 1], part, **LOGPROBS)
    own = scores(load_decoder(tmp_path), [short])[0]
    assert np.abs(own - part).max() > 0.01


@pytest.mark.parametrize(
    ("case", "context", "longest"),
    [("llama, longrope", 65, 64), ("llama 3", 17, 16), ("llama 3", 1, 16)],
)
def test_context_that_a_model_was_not_made_for_is_refused(
    case, context, longest, tmp_path
):
    torch_model(case).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=f"must be 2 to {longest}, got {context}"):
        load_decoder(tmp_path, context=context)


def test_context_of_a_folder_is_a_flag(pulse, tmp_path):
    words = ["audit", str(pulse / "model"), str(pulse / "sets/pydocs-0a.txt")]
    words += ["--tests", "reversal", "--no-store"]
    assert main([*words, "--context", "64", "--out", str(tmp_path / "b")]) == 0
    report = json.loads((tmp_path / "b/report.json").read_text())
    assert report["model"]["context"] == 64
