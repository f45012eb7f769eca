"""Models of lm-evaluation-harness here, and our models there."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lm_eval", reason="pip install -e '.[lm-eval]'")
pytest.importorskip("torch", reason="the harness's own models need torch")

from tokenizers import normalizers, processors

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.scoring.load import load
from jaxcontam.scoring.pair_plan import PairGroup
from tests.support.membership_model import (
    CONTEXT,
    drawn_texts,
    fresh_decoder,
    sequences,
    tokenizer,
)

pytestmark = pytest.mark.unoptimised

# Two implementations in float32: 1e-5 a token, some hundred tokens.
_TOLERANCE = 2e-3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from transformers import PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("lm-eval") / "model"
    made = tokenizer()
    # As Llama's: BOS and a space before a text, which audits leave out.
    made.normalizer = normalizers.Prepend(" ")
    made.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", 0)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<|bos|>", eos_token="<|bos|>"
    )
    save_checkpoint(fresh_decoder(), fast, path)
    return path


@pytest.fixture(scope="module")
def word(folder):
    return f"lm_eval:hf:pretrained={folder},device=cpu,dtype=float32,batch_size=4"


@pytest.fixture(scope="module")
def harness(word):
    return load(word)


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


def test_tables_of_tokens_and_moments_are_refused(harness):
    scorer = harness.make_scorer(store=None)
    with pytest.raises(InputError, match="one number a text"):
        scorer.token_table(sequences())
    with pytest.raises(InputError, match="no moments"):
        harness.make_scorer(store=None, moments=True)


def test_the_entry_points_of_the_harness_name_our_model_types():
    import tomllib

    from lm_eval.api.registry import get_model

    from jaxcontam.orders import harness as lm_eval_audit
    from jaxcontam.scoring import lm_eval_backend

    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    types = lm_eval_backend.JaxcontamLM, lm_eval_audit.AuditedLM
    assert project["entry-points"]["lm_eval.models"] == {
        "jaxcontam": f"{lm_eval_backend.__name__}:JaxcontamLM",
        "jaxcontam_audit": f"{lm_eval_audit.__name__}:AuditedLM",
    }
    assert tuple(map(get_model, ("jaxcontam", "jaxcontam_audit"))) == types


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


def test_inside_the_harness_our_model_scores_as_theirs(ours, theirs):
    texts = drawn_texts(6, 4)
    asked = requests(
        "loglikelihood", [*zip(texts[:3], texts[3:], strict=True), ("", texts[0])]
    )
    for own, other in zip(
        ours.loglikelihood(asked), theirs.loglikelihood(asked), strict=True
    ):
        assert own[0] == pytest.approx(other[0], abs=_TOLERANCE)
        assert own[1] == other[1]


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
    assert found == pytest.approx(expected, abs=_TOLERANCE)


def test_inside_the_harness_ids_and_cut_contexts_are_theirs(ours, theirs):
    for text in ("Bagen fist", "<|bos|>Bagen", " Ba"):
        assert ours.tok_encode(text) == theirs.tok_encode(text)
    assert ours.tok_encode("Ba")[0] == 0
    ids = ours.tok_encode(" ".join(drawn_texts(16, 6)))
    asked = [
        (None, ids[: n - 3], ids[n - 3 : n]) for n in (CONTEXT + 1, CONTEXT + 2, 99)
    ]
    for own, other in zip(
        ours._loglikelihood_tokens(asked),
        theirs._loglikelihood_tokens(asked, disable_tqdm=True),
        strict=True,
    ):
        assert own[0] == pytest.approx(other[0], abs=_TOLERANCE)


@pytest.mark.parametrize("n_ids", [0, CONTEXT + 1])
def test_a_continuation_that_is_empty_or_too_long_is_refused(ours, n_ids):
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
