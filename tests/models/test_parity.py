"""Switches, files, long contexts and the command `score` against torch's models."""

import dataclasses
import json

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file

from jaxcontam.cli.flags import Score
from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import (
    load_decoder,
    read_config_fields,
    save_checkpoint,
)
from jaxcontam.models.rope import frequencies
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.rows import windows
from tests.support.decoders import LLAMA, SHAPES, spread
from tests.support.family_cases import (
    CASES,
    EAGER,
    OPTIMISED_CASES,
    PARITY_CASES,
    torch_model,
)
from tests.support.torch_reference import (
    CONTEXT,
    LOGPROBS,
    MOMENTS,
    assert_scores_agree,
    draw,
    logits,
    torch,
    torch_logprobs,
    torch_moments,
)
from train.tokens import train_tokenizer

pytestmark = [pytest.mark.parity, pytest.mark.unoptimised]

# Beside those that test_family_parity.py and test_family_optimised.py hold.
SWITCHES = [case for case in CASES if case not in {*PARITY_CASES, *OPTIMISED_CASES}]
SEEDS = {case: len(case) for case in SWITCHES}


# Thousands of positions multiply the last place of a frequency.
@pytest.mark.parametrize("theta", [1e4, 5e5, 1e6, 5e6])
def test_rotary_frequencies_are_those_of_torch(theta):
    same = []
    for R in (64, 80, 128, 256):
        config = dataclasses.replace(LLAMA, rope_theta=theta, head_dim=R)
        powers_F = torch.arange(0, R, 2, dtype=torch.float) / R
        same.append(frequencies(config) == (1.0 / theta**powers_F).numpy())
    # Float32 powers differ in 1 of 6, float64 ones that are rounded last in 2 of 5.
    assert np.concatenate(same).mean() > 0.95


# Switches, and other weights of plain models.
@pytest.mark.parametrize(
    ("case", "seed"),
    [
        *SEEDS.items(),
        *((case, n) for case in ("llama 3", "gpt2, tied") for n in (1, 2)),
    ],
)
def test_scores_agree_with_every_switch_and_any_weights(case, seed, tmp_path):
    model = torch_model(case, seed=seed)
    model.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


def test_gpt2_body_without_prefix_scores_as_the_whole_model(tmp_path):
    model = torch_model("gpt2, tied")
    model.transformer.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


def assert_same_tensors(folder, expected):
    """Names, shapes and bits of the one file of a folder."""
    found = load_file(folder / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def save(decoder, fields, folder):
    save_checkpoint(
        decoder, None, folder, model_type=fields["model_type"], raw_config=fields
    )


def without_unread_rows(tensors):
    """Tensors as float32, OPT's two position rows of padding zero."""
    exact = {name: value.astype(np.float32) for name, value in tensors.items()}
    if (positions := exact.get("model.decoder.embed_positions.weight")) is not None:
        assert (positions[:2] != 0).all()
        positions[:2] = 0
    return exact


def read_whole(folder):
    """What transformers reads of a folder that lacks nothing and has nothing more."""
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, **EAGER
    )
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys"))
    assert model.dtype == torch.float32
    return model.eval()


@pytest.mark.parametrize("case", CASES)
def test_model_that_is_read_and_written_is_the_same_to_the_bit(case, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    model = torch_model(case, seed=3)
    model.save_pretrained(first)
    save(load_decoder(first), read_config_fields(first), second)
    tensors = load_file(first / "model.safetensors")
    assert_same_tensors(second, without_unread_rows(tensors))
    assert ("lm_head.weight" in tensors or "embed_out.weight" in tensors) == (
        not model.config.tie_word_embeddings
    )
    assert read_config_fields(second) == read_config_fields(first)
    again = read_whole(second)
    for ids in draw(model.config.vocab_size):
        # Equal weights; torch's sums differ with where they lie: measured 4e-7.
        np.testing.assert_allclose(logits(again, ids), logits(model, ids), atol=1e-5)


@pytest.mark.parametrize("case", SHAPES)
def test_saved_decoder_scores_alike_in_transformers(case, tmp_path):
    decoder = spread(SHAPES[case], scale=0.2)
    model_type = case.split("_")[0]
    save_checkpoint(decoder, None, tmp_path, model_type=model_type)
    model = read_whole(tmp_path)
    assert model.config.model_type == model_type
    assert_scores_agree(decoder, model)


def scores(decoder, sequences):
    return [one[0] for one in local_scorer(decoder).tokens(sequences)]


def texts(*lengths):
    rng = np.random.default_rng(1)
    return [rng.integers(0, 97, n).astype(np.int32) for n in lengths]


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
    """Rotary factors for long contexts: one choice for all texts of a decoder."""
    torch_model("llama, longrope").save_pretrained(tmp_path)
    (long,) = texts(40)
    short = long[:CONTEXT]
    whole, part = scores(load_decoder(tmp_path, context=64), [long, short])
    np.testing.assert_allclose(whole[: CONTEXT - 1], part, **LOGPROBS)
    own = scores(load_decoder(tmp_path), [short])[0]
    assert np.abs(own - part).max() > 0.01


@pytest.mark.parametrize(
    ("case", "context", "longest"),
    [("llama, longrope", 65, 64), ("llama 3", 17, 16), ("llama 3", 1, 16)],
)
def test_context_beyond_a_model_is_refused(case, context, longest, tmp_path):
    torch_model(case).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=f"must be 2 to {longest}, got {context}"):
        load_decoder(tmp_path, context=context)


def test_context_of_a_folder_is_a_flag(pulse, tmp_path):
    words = ["audit", str(pulse / "model"), str(pulse / "sets/pydocs-0a.txt")]
    words += ["--tests", "reversal", "--store", "none"]
    assert main([*words, "--context", "64", "--out", str(tmp_path / "b")]) == 0
    report = json.loads((tmp_path / "b/report.json").read_text())
    assert report["model"]["context"] == 64


TEXTS = [
    "the cat sat on the mat and the dog sat on the cat",
    "A",
    '{"question": "how many cats are there?", "answer": "four or five"}',
    "naïve cafés: 猫は五匹 🐈",
    " ".join(f"the {n} cats saw {n + 1} dogs;" for n in range(12)),
]


def test_score_writes_what_torch_gives_for_each_text_with_its_ids(tmp_path):
    context, tokenizer = 40, train_tokenizer(TEXTS[:3] * 3, 320)
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": context}
    model = torch_model("llama, many words", **sizes)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    file, out = tmp_path / "texts.txt", tmp_path / "new" / "scores.jsonl"
    file.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    assert Score(model=str(tmp_path / "model"), texts=file, out=out).run() == 0
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [(row["id"], row["text"]) for row in rows] == list(enumerate(TEXTS))
    n_long = 0
    for row in rows:
        assert row["prefix_id"] == tokenizer.bos_token_id
        expected = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        assert row["token_ids"] == expected
        ids = np.array([row["prefix_id"], *row["token_ids"]])
        expected_S = np.full(len(ids) - 1, np.nan)
        # A text that is longer than the context is scored once, in windows.
        for window in windows(len(ids), context):
            logprobs = torch_logprobs(model, ids[window.start : window.stop])
            own = slice(window.first_target - 1, window.stop - 1)
            assert np.isnan(expected_S[own]).all()
            expected_S[own] = logprobs[window.first_target - window.start - 1 :]
        np.testing.assert_allclose(row["logprobs"], expected_S, **LOGPROBS)
        if len(ids) <= context:
            moments = [row["means"], row["variances"]]
            np.testing.assert_allclose(moments, torch_moments(model, ids), **MOMENTS)
        n_long += len(ids) > 3 * context
    assert n_long == 1
