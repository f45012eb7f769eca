"""Models of lm-evaluation-harness here, and our models there."""

import importlib
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lm_eval", reason="pip install -e '.[lm-eval]'")
pytest.importorskip("torch", reason="the harness's own models need torch")

from tokenizers import normalizers, processors

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.scoring.lm_eval_model import open_lm_eval, opened_lm
from jaxcontam.scoring.load import load
from jaxcontam.scoring.pair_plan import PairGroup
from tests.support.membership_model import (
    CONTEXT,
    drawn_texts,
    fast_tokenizer,
    fresh_decoder,
    sequences,
)

pytestmark = pytest.mark.unoptimised

# Two implementations in float32: 1e-5 a token, some hundred tokens.
CLOSE = 2e-3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path, fast = tmp_path_factory.mktemp("lm-eval") / "model", fast_tokenizer()
    # As Llama's: BOS and a space before a text, which audits leave out.
    fast.backend_tokenizer.normalizer = normalizers.Prepend(" ")
    fast.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", 0)]
    )
    save_checkpoint(fresh_decoder(), fast, path)
    return path


@pytest.fixture(scope="module")
def harness(folder):
    return load(f"lm_eval:hf:pretrained={folder},device=cpu,dtype=float32,batch_size=4")


def code_points(text):
    return np.array([ord(c) for c in text], np.int32)


def test_sums_and_pairs_are_what_the_object_says_of_the_texts(harness, theirs):
    texts = [*drawn_texts(3, 4), " ".join(drawn_texts(16, 6))]
    scorer = harness.make_scorer(store=None)
    expected = theirs.loglikelihood_rolling(
        requests("loglikelihood_rolling", [(text,) for text in texts])
    )
    found = scorer.sums([code_points(text) for text in texts]).loglik
    np.testing.assert_allclose(found, expected, atol=1e-4)
    a, b, c = texts[:3]
    groups = [
        PairGroup(code_points(a), (code_points(b), code_points(c)), 0, (1, 2)),
        # The same text again, divided elsewhere into prefix and continuation.
        PairGroup(code_points(a + b[:4]), (code_points(b[4:]),), 1, (0,)),
    ]
    whole, rest = scorer.pairs.logprobs(groups).logprobs
    (expected,) = theirs.loglikelihood(requests("loglikelihood", [(a, b)]))
    assert whole[0].item() == pytest.approx(expected[0], abs=1e-4)
    assert abs(rest[0].item() - whole[0].item()) > 1e-3


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
    scorer = model.make_scorer(store=None)
    expected = [lm._logprob("", text) for text in texts]
    found = scorer.sums(list(map(code_points, texts))).loglik
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(InputError, match="one number per text"):
        scorer.token_table(sequences())
    with pytest.raises(InputError, match="no moments"):
        model.make_scorer(store=None, moments=True)


class Spoilt(CharacterModel):
    def __init__(self, spoil):
        self._spoil = spoil

    def loglikelihood(self, requests):
        return [(self._spoil(self, *request.args), False) for request in requests]


class RefusedByServer(Exception):
    status = 400


RefusedByServer.__module__ = "aiohttp.client_exceptions"


def failing(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize(
    ("spoil", "message", "hint"),
    [
        (lambda lm, before, text: 0.5, "not log-probabilities", ""),
        (lambda lm, before, text: float("nan"), "not log-probabilities", ""),
        # Each number belongs to the place before.
        (
            lambda lm, before, text: lm._logprob(before[:-1], before[-1] + text[:-1]),
            "same number for every continuation",
            "audit the model itself",
        ),
        (failing(NotImplementedError), "gives no log-likelihoods", "works with chats"),
        # Of an error of many lines the first.
        (
            failing(ConnectionRefusedError("no\nmore")),
            "Spoilt: no$",
            "answers are kept",
        ),
        (
            failing(RefusedByServer("400, message='Bad Request'")),
            "Spoilt: 400",
            "fewer tokens than 1000, add max_length=N",
        ),
    ],
)
def test_an_object_that_gives_no_logprobs_of_what_is_asked_is_refused(
    spoil, message, hint
):
    with pytest.raises(InputError, match=message) as caught:
        opened_lm(Spoilt(spoil), word="lm_eval:mine:")
    assert hint in caught.value.hint


def test_numbers_that_do_not_add_up_are_a_note_for_the_report():
    lm = Spoilt(lambda lm, before, text: 3 * lm._logprob(before, text[:1]))
    model = opened_lm(lm, word="lm_eval:mine:")
    before, own = map(code_points, ("a b", "c d e"))
    pairs = model.make_scorer(store=None).pairs
    pairs.logprobs([PairGroup(before, (own,), 0, (1,))])
    (note,) = model.notes()
    assert "two parts of a text" in note


@pytest.mark.parametrize("is_served", [True, False])
def test_what_is_missing_is_asked_and_of_a_local_model_its_batch(tmp_path, is_served):
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    class Counted(*(CharacterModel, LocalCompletionsAPI)[: 1 + is_served]):
        calls = ()

        def __init__(self):
            pass

        def loglikelihood_rolling(self, requests):
            self.calls += (len(requests),)
            found = super().loglikelihood_rolling(requests)
            return found[: 1 if len(requests) == 6 else None]

    lm = Counted()
    scorer = opened_lm(lm, word="mine").make_scorer(store=tmp_path)
    # Too few answers are refused and not kept.
    with pytest.raises(InputError, match="1 answers to 6 requests"):
        scorer.sums(sequences())
    assert list(tmp_path.iterdir()) == []
    asked = [code_points(text) for text in drawn_texts(3, 1)]
    first = scorer.sums(asked[1:]).loglik.tolist()
    for _ in range(2):
        again = scorer.sums(asked).loglik.tolist()
        assert again[1:] == first
    assert lm.calls == (6, 2, 1 if is_served else 3)


def test_answers_of_a_folder_whose_files_changed_are_not_taken(tmp_path):
    # As Windows writes a place.
    (weights := tmp_path / "C:model" / "weights").parent.mkdir()

    class Counted(CharacterModel):
        n_asked = 0

        def loglikelihood_rolling(self, requests):
            self.n_asked += len(requests)
            return super().loglikelihood_rolling(requests)

    lm = Counted()
    for content, n_asked in [("a", 6), ("a", 6), ("b", 12)]:
        weights.write_text(content)
        model = opened_lm(lm, word=f"lm_eval:hf:pretrained={weights.parent}")
        model.make_scorer(store=tmp_path / "store").sums(sequences())
        assert lm.n_asked == n_asked


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("lm_eval:hff:pretrained=x", "unknown type of lm_eval model 'hff'"),
        ("lm_eval:", "no type of model"),
        ("lm_eval:hf:pretrained=/no/such/folder", "lm_eval:hf:pretrained=/no/such"),
        # Names that only sound like secrets go on to the object.
        (
            "lm_eval:hf:tokenizer=a,max_tokens=1,tokenized_requests=x,token=True",
            "unexpected keyword|pretrained",
        ),
    ],
)
def test_a_model_word_that_cannot_be_built_is_one_line(word, message):
    with pytest.raises(InputError, match=message) as caught:
        open_lm_eval(word)
    assert "\n" not in str(caught.value)


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "lm_eval"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(InputError, match="not installed") as caught:
        open_lm_eval("lm_eval:hf:pretrained=any,device=cpu")
    assert "pip install" in caught.value.hint
    with pytest.raises(InputError, match="not installed"):
        load_benchmark("lm_eval:arc_easy")


def test_the_entry_points_of_the_harness_name_our_model_types():
    from lm_eval.api.registry import get_model

    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    found = project["entry-points"]["lm_eval.models"]
    assert list(found) == ["jaxcontam", "jaxcontam_audit"]
    for name, place in found.items():
        module, type_name = place.split(":")
        made = getattr(importlib.import_module(module), type_name)
        assert get_model(name) is made


@pytest.fixture(scope="module")
def ours(folder):
    from jaxcontam.scoring.lm_eval_backend import JaxcontamLM

    return JaxcontamLM(str(folder))


@pytest.fixture(scope="module")
def theirs(folder):
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=4)


def requests(kind, arguments):
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]


def assert_same(own, other):
    """Log-likelihoods, and what is said of greedy continuations where it is known."""
    for (value, greedy), (expected, is_greedy) in zip(own, other, strict=True):
        assert value == pytest.approx(expected, abs=CLOSE)
        assert greedy == is_greedy


def test_inside_the_harness_texts_longer_than_the_context_have_the_same_sum(
    ours, folder
):
    from lm_eval.models.huggingface import HFLM

    # Theirs would read the BOS that the tokenizer adds after another one.
    how = {"device": "cpu", "dtype": "float32", "add_bos_token": False}
    theirs = HFLM(pretrained=str(folder), **how)
    asked = requests(
        "loglikelihood_rolling", [(" ".join(drawn_texts(16, 6)),), ("Ba",)]
    )
    assert len(ours.tok_encode(asked[0].args[0])) > 2 * CONTEXT
    found = ours.loglikelihood_rolling(asked)
    expected = theirs.loglikelihood_rolling(asked)
    assert found == pytest.approx(expected, abs=CLOSE)


def test_inside_the_harness_ids_scores_and_cut_contexts_are_theirs(ours, theirs):
    for text in ("Bagen fist", "<|bos|>Bagen", " Ba"):
        assert ours.tok_encode(text) == theirs.tok_encode(text)
    assert ours.tok_encode("Ba")[0] == 0
    texts = drawn_texts(6, 4)
    pairs = [*zip(texts[:3], texts[3:], strict=True), ("", texts[0])]
    asked = requests("loglikelihood", pairs)
    assert_same(ours.loglikelihood(asked), theirs.loglikelihood(asked))
    ids = ours.tok_encode(" ".join(drawn_texts(16, 6)))
    asked = [
        (None, ids[: n - 3], ids[n - 3 : n]) for n in (CONTEXT + 1, CONTEXT + 2, 99)
    ]
    expected = theirs._loglikelihood_tokens(asked, disable_tqdm=True)
    assert_same(ours._loglikelihood_tokens(asked), expected)
    for n_ids in (0, CONTEXT + 1):
        with pytest.raises(ValueError, match=f"1 to {CONTEXT} tokens, got {n_ids}"):
            ours._loglikelihood_tokens([(None, [0], [5] * n_ids)])


# Seven seconds.
@pytest.mark.slow
def test_inside_the_harness_greedy_text_stops_where_theirs_does(ours, theirs):
    def asked(*until):
        # A new list each, as the harness's type hf adds its EOS to it.
        how = {"until": [*until], "max_gen_toks": 40, "do_sample": False}
        long = " ".join(drawn_texts(16, 6))
        texts = [*(text[:9] for text in drawn_texts(3, 8)), long]
        return requests("generate_until", [(text, how) for text in texts])

    for until in ((" g g", "e"), ()):
        expected = theirs.generate_until(asked(*until))
        assert ours.generate_until(asked(*until)) == expected
    # Nothing stops a text at nothing, though their type ends at once.
    assert ours.generate_until(asked("")) == expected


def test_of_all_next_ids_the_likeliest_alone_is_greedy(ours):
    context = [0, *ours.tok_encode("Bagen fist")]
    found = ours._loglikelihood_tokens([(None, context, [i]) for i in range(320)])
    values = [value for value, _ in found]
    assert sum(np.exp(values)) == pytest.approx(1, abs=1e-4)
    assert [i for i, (_, greedy) in enumerate(found) if greedy] == [np.argmax(values)]
