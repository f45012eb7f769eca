"""Models of lm-evaluation-harness whose answers are few, wrong or refused."""

import sys

import numpy as np
import pytest

pytest.importorskip("lm_eval", reason="pip install -e '.[lm-eval]'")
pytest.importorskip("torch", reason="the harness's own models need torch")

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.errors import InputError
from jaxcontam.scoring.lm_eval_model import open_lm_eval, opened_lm
from jaxcontam.scoring.pair_plan import PairGroup
from tests.support.membership_model import drawn_texts, sequences

pytestmark = pytest.mark.unoptimised


class CharacterModel:
    """Takes text alone; a character's log-probability depends on the one before it.

    Each probability is 1/64 or 3/64, by a rule of both characters.
    """

    max_length = 1_000

    def _logprob(self, before, text):
        total = 0.0
        for character in text:
            is_likely = (ord(before[-1:] or " ") + ord(character)) % 3 == 0
            total += np.log((3 if is_likely else 1) / 64)
            before += character
        return total

    def loglikelihood(self, requests):
        return [(self._logprob(*request.args), False) for request in requests]

    def loglikelihood_rolling(self, requests):
        return [self._logprob("", request.args[0]) for request in requests]


def test_an_object_without_a_tokenizer_scores_texts():
    lm = CharacterModel()
    model = opened_lm(lm, word="lm_eval:mine:")
    assert model.name == opened_lm(lm, word="mine").name == "mine"
    assert (model.prefix_id, model.context) == (None, 1_000)
    texts = drawn_texts(3, 1)
    ids = [np.array([ord(c) for c in text], np.int32) for text in texts]
    scorer = model.make_scorer(store=None)
    expected = [lm._logprob("", text) for text in texts]
    np.testing.assert_allclose(scorer.sums(ids).loglik, expected, rtol=1e-12)
    (found,) = scorer.pairs.logprobs([PairGroup(ids[0], (ids[1],), 0, (1,))]).logprobs
    assert found[0].item() == pytest.approx(lm._logprob(texts[0], texts[1]))


class Spoilt(CharacterModel):
    def __init__(self, spoil):
        self._spoil = spoil

    def loglikelihood(self, requests):
        return [(self._spoil(self, *request.args), False) for request in requests]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda lm, before, text: 0.5, "no log-probabilities"),
        (lambda lm, before, text: float("nan"), "no log-probabilities"),
        # Each number belongs to the place before.
        (
            lambda lm, before, text: lm._logprob(before[:-1], before[-1] + text[:-1]),
            "same number whatever follows",
        ),
    ],
)
def test_numbers_that_are_no_logprobs_of_what_is_asked_are_refused(spoil, message):
    with pytest.raises(InputError, match=message):
        opened_lm(Spoilt(spoil), word="lm_eval:mine:")


def test_an_object_of_chats_alone_is_refused():
    def none(*_):
        raise NotImplementedError

    with pytest.raises(InputError, match="Spoilt: gives no log-likelihoods"):
        opened_lm(Spoilt(none), word="lm_eval:mine:")


def test_a_server_that_fails_is_one_line():
    def fails(*_):
        raise ConnectionRefusedError("refused\nand more")

    with pytest.raises(InputError, match=r"Spoilt: refused$") as caught:
        opened_lm(Spoilt(fails), word="lm_eval:mine:")
    assert "goes on" in caught.value.hint


def test_a_server_that_refuses_is_a_hint_at_its_context():
    class Refused(Exception):
        status = 400

    Refused.__module__ = "aiohttp.client_exceptions"

    def refuses(*_):
        raise Refused("400, message='Bad Request'")

    with pytest.raises(InputError, match="Spoilt: 400") as caught:
        opened_lm(Spoilt(refuses), word="lm_eval:mine:")
    assert "fewer tokens than 1000" in caught.value.hint
    assert "max_length=N" in caught.value.hint


def test_numbers_that_do_not_add_up_are_a_note_for_the_report():
    lm = Spoilt(lambda lm, before, text: 3 * lm._logprob(before, text[:1]))
    model = opened_lm(lm, word="lm_eval:mine:")
    before, own = (np.array([ord(c) for c in text]) for text in ("a b", "c d e"))
    pairs = model.make_scorer(store=None).pairs
    pairs.logprobs([PairGroup(before, (own,), 0, (1,))])
    (note,) = model.notes()
    assert "two parts of a text" in note


def counted(lm):
    """The number of texts of each call."""
    calls, rolling = [], lm.loglikelihood_rolling

    def count(requests):
        calls.append(len(requests))
        return rolling(requests)

    lm.loglikelihood_rolling = count
    return calls


@pytest.mark.parametrize("is_served", [True, False])
def test_what_is_missing_is_asked_and_of_a_local_model_its_batch(tmp_path, is_served):
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    class Served(CharacterModel, LocalCompletionsAPI):
        def __init__(self):
            pass

    lm = Served() if is_served else CharacterModel()
    calls = counted(lm)
    scorer = opened_lm(lm, word="mine").make_scorer(store=tmp_path)
    asked = [np.array([ord(c) for c in text], np.int32) for text in drawn_texts(3, 1)]
    first = scorer.sums(asked[1:]).loglik
    again = scorer.sums(asked).loglik
    assert calls == [2, 1 if is_served else 3]
    assert again[1:].tolist() == first.tolist()
    assert scorer.sums(asked).loglik.tolist() == again.tolist()
    assert len(calls) == 2


def test_too_few_answers_are_refused_and_not_kept(tmp_path):
    lm = CharacterModel()
    scorer = opened_lm(lm, word="mine").make_scorer(store=tmp_path)
    lm.loglikelihood_rolling = lambda requests: [-1.0]
    with pytest.raises(InputError, match="1 answers to 6 requests"):
        scorer.sums(sequences())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("lm_eval:hff:pretrained=x", "unknown type of lm_eval model 'hff'"),
        ("lm_eval:", "no type of model"),
        ("lm_eval:hf:pretrained=/no/such/folder", "lm_eval:hf:pretrained=/no/such"),
        ("lm_eval:hf:no_such_argument=1", "no_such_argument|pretrained"),
        *(
            (f"lm_eval:local-completions:{name}=hush", f"{name} does not belong")
            for name in ("auth_token", "hf_token", "apikey", "password", "api_key")
        ),
        ("lm_eval:local-completions:base_url=https://u:hush@h/v1", "no password"),
        ("lm_eval:local-completions:base_url=https://h/v1?k=hush", "no query"),
        # Names that only sound so go on to the object.
        (
            "lm_eval:hf:tokenizer=a,max_tokens=1,add_bos_token=x,prefix_token_id=1,"
            "use_fast_tokenizer=x,tokenized_requests=x,token=True,no_such_argument=1",
            "no_such_argument|pretrained",
        ),
    ],
)
def test_a_model_word_that_cannot_be_built_is_one_line(word, message):
    with pytest.raises(InputError, match=message) as caught:
        open_lm_eval(word)
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value) + caught.value.hint


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "lm_eval"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(InputError, match="not installed") as caught:
        open_lm_eval("lm_eval:hf:pretrained=any,device=cpu")
    assert "pip install" in caught.value.hint
    with pytest.raises(InputError, match="not installed") as caught:
        load_benchmark("lm_eval:arc_easy")
    assert "pip install" in caught.value.hint
