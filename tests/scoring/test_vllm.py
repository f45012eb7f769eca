"""vLLM in this process: `vllm:NAME` and an engine that is there already.

The stand-in has the shape of vllm-project/vllm: `LLM` and `SamplingParams` as in
docs/models/generative_models.md, `RequestOutput` of vllm/outputs.py, `Logprob` of
vllm/logprobs.py, the config of `LLMEngine` in vllm/v1/engine/llm_engine.py.
"""

import itertools
import math
import sys
import types

import numpy as np
import pytest

import jaxcontam
from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.budget import ApiOptions
from jaxcontam.scoring.asked import EACH_WITHIN, MEAN_WITHIN, is_same
from tests.models.test_tokenizer_file import TOKENIZERS
from tests.models.test_tokenizer_file import folder as tokenizer_folder
from tests.support.membership_model import CONTEXT, fast_tokenizer
from tests.test_functions import texts

pytestmark = pytest.mark.unoptimised

part = types.SimpleNamespace


class LLM:
    """p(id | id before) follows a table; `wobble` nats come with every mate."""

    __module__ = "vllm.entrypoints.llm"
    wobble = 0.0

    def __init__(self, model, *, max_model_len=None, **more):
        if model == "gone":
            raise OSError("gone is not a local folder\nand no model of the hub")
        caching = more.get("enable_prefix_caching", True)
        self.llm_engine = part(
            model_config=part(
                model=model,
                max_model_len=max_model_len or CONTEXT + 1,
                dtype="torch.bfloat16",
            ),
            vllm_config=part(cache_config=part(enable_prefix_caching=caching)),
        )
        size = fast_tokenizer().vocab_size
        logits_VV = np.random.default_rng(0).normal(size=(size, size))
        self.table_VV = logits_VV - np.log(np.exp(logits_VV).sum(axis=1, keepdims=True))

    def get_tokenizer(self):
        return fast_tokenizer()

    def generate(self, prompts, sampling_params, *, use_tqdm):
        assert (sampling_params.prompt_logprobs, sampling_params.max_tokens) == (0, 1)
        outputs = []
        for prompt in prompts:
            ids = prompt["prompt_token_ids"]
            change = self.wobble * (len(prompts) > 1)
            entries = [
                {own: part(logprob=self.table_VV[before, own] - change)}
                for before, own in itertools.pairwise(ids)
            ]
            outputs.append(part(prompt_logprobs=[None, *entries]))
        return outputs


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    module = types.ModuleType("vllm")
    vars(module).update(LLM=LLM, SamplingParams=part)
    monkeypatch.setitem(sys.modules, "vllm", module)


def test_the_engine_that_a_word_names_is_read_at_the_continuation():
    opened = jaxcontam.load("vllm:org/name", api=ApiOptions(context=32))
    assert (opened.info.name, opened.context) == ("org/name", 32)
    assert opened.info.dtype == "bfloat16"
    ids = np.array([0, 7, 300, 5], np.int32)
    (scores,) = opened.make_scorer(store=None).token_table([ids]).scores
    table_VV = LLM("m").table_VV
    assert scores[0] == pytest.approx(table_VV[ids[:-1], ids[1:]], abs=1e-6)


@pytest.mark.parametrize("wobble", [0.0, 0.01, 0.2])
def test_numbers_that_depend_on_the_batch_are_told_or_refused(wobble, monkeypatch):
    monkeypatch.setattr(LLM, "wobble", wobble)
    opened = jaxcontam.load("vllm:org/name")
    rows = [np.array([0, i, i + 1], np.int32) for i in range(5)]
    scorer = opened.make_scorer(store=None)
    if wobble > 0.05:
        with pytest.raises(InputError, match=r"among others \(by up to 0.20 "):
            scorer.sums(rows)
    else:
        scorer.sums(rows)
        told = [note for note in opened.notes() if "differs by 0.010 nats" in note]
        assert len(told) == (wobble > 0)


def test_answers_are_the_same_up_to_and_with_both_bounds():
    least = math.ceil(EACH_WITHIN / MEAN_WITHIN)
    for n, change, expected in (
        (least, EACH_WITHIN, True),
        (least - 1, EACH_WITHIN, False),
        (2 * least, np.nextafter(EACH_WITHIN, 1), False),
    ):
        first = np.zeros(n)
        assert is_same(first, np.append(first[1:], change)) == expected
    assert not is_same(np.zeros(2), np.zeros(3))


def test_ids_of_an_engine_are_those_of_the_file_in_its_folder(tmp_path):
    made = TOKENIZERS["cl100k"]
    folder = tokenizer_folder(tmp_path, made, tokenizer_class="GPT2Tokenizer")
    opened = jaxcontam.load(f"vllm:{folder}")
    assert opened.tokenizer.to_str() == plain_tokenizer(made).to_str()
    assert opened.prefix_id == made.token_to_id("<s>")


def test_a_prefix_cache_and_prompt_tokens_without_numbers_are_refused(monkeypatch):
    with pytest.raises(InputError, match="cached prompt tokens") as found:
        jaxcontam.load(LLM("org/name"))
    assert "enable_prefix_caching=False" in found.value.hint
    llm = LLM("org/name", enable_prefix_caching=False)
    empty = [part(prompt_logprobs=[None] * 999)]
    monkeypatch.setattr(llm, "generate", lambda prompts, *_, **__: empty * len(prompts))
    with pytest.raises(InputError, match="cached prompt tokens"):
        jaxcontam.audit(llm, texts(), tests="direction", reference=lambda pairs: [-1.0])


def test_an_engine_that_does_not_start_or_is_not_there_is_one_line(monkeypatch):
    with pytest.raises(InputError, match=r"^vllm:gone: gone is not a local folder$"):
        jaxcontam.load("vllm:gone")
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(InputError, match=r"^vllm:a/b: the package vllm is not") as e:
        jaxcontam.load("vllm:a/b")
    assert "pip install vllm" in e.value.hint
