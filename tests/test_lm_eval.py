"""Models of lm-evaluation-harness here, and our models there."""

import numpy as np
import pytest

pytest.importorskip("lm_eval", reason="pip install -e '.[lm-eval]'")
pytest.importorskip("torch", reason="the harness's own models need torch")

from membership_model import CONTEXT, drawn_texts, fresh_decoder, sequences, tokenizer
from tokenizers import normalizers, processors

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.errors import InputError
from jaxcontam.methods import order_method
from jaxcontam.methods.order_test import order_result, plan_test, score_test
from jaxcontam.models.checkpoint import load_checkpoint, save_checkpoint
from jaxcontam.scoring.opened import open_model, opened_checkpoint
from jaxcontam.scoring.pair_plan import PairGroup

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
    return open_model(word)


@pytest.fixture(scope="module")
def local(folder):
    return opened_checkpoint(load_checkpoint(str(folder)))


def test_open_model_is_that_of_the_same_directory(harness, local):
    assert (harness.context, harness.prefix_id) == (local.context, local.prefix_id)
    text = "Bagen fist. Cor dun"
    assert (
        harness.tokenizer.encode(text, add_special_tokens=False).ids
        == local.tokenizer.encode(text, add_special_tokens=False).ids
    )
    assert harness.info.n_parameters is None


def test_sums_are_those_of_our_own_model_windows_included(harness, local):
    ours = local.make_scorer(store=None).sums(sequences()).loglik
    theirs = harness.make_scorer(store=None).sums(sequences()).loglik
    np.testing.assert_allclose(theirs, ours, atol=_TOLERANCE, rtol=0)


def test_pairs_are_sums_of_our_own_pairs(harness, local):
    a, b, c = (ids[1:] for ids in sequences(1, (9, 12, 20)))
    groups = [
        PairGroup(np.r_[0, a].astype(np.int32), (b, c), 0, (1, 2)),
        # The same ids again, split elsewhere into prefix and continuation.
        PairGroup(np.r_[0, a, b[:4]].astype(np.int32), (b[4:], c), 1, (0, 2)),
    ]
    ours = local.make_scorer(store=None).pairs.logprobs(groups).logprobs
    theirs = harness.make_scorer(store=None).pairs.logprobs(groups).logprobs
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            [part.sum() for part in other],
            [part.sum() for part in own],
            atol=_TOLERANCE,
            rtol=0,
        )


@pytest.mark.slow  # a server, a client and seconds of compiling
def test_a_server_asked_through_the_harness_gives_the_same_sums(folder, local):
    pytest.importorskip("aiohttp", reason="pip install -e '.[test,serving]'")
    pytest.importorskip("tenacity", reason="pip install -e '.[test,serving]'")
    from tests.model_server import running_server

    with running_server(load_checkpoint(str(folder)), name="model") as url:
        served = open_model(
            f"lm_eval:local-completions:model=model,base_url={url}/completions,"
            f"tokenizer={folder},tokenizer_backend=huggingface,max_length={CONTEXT}"
        )
        # One id less: such a model always writes one.
        assert served.context == CONTEXT - 1
        short = sequences(lengths=(2, 5, 40))
        theirs = served.make_scorer(store=None).sums(short).loglik
    ours = local.make_scorer(store=None).sums(short).loglik
    np.testing.assert_allclose(theirs, ours, atol=_TOLERANCE, rtol=0)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    path = tmp_path_factory.mktemp("set") / "texts.txt"
    path.write_text("\n".join(drawn_texts(24, 5)) + "\n")
    return load_benchmark(path)


def planned(model, benchmark, name, **how):
    return plan_test(
        benchmark,
        encode_examples(model.tokenizer, benchmark.texts),
        order_method(name),
        prefix_id=model.prefix_id,
        context=model.context,
        seed=0,
        **how,
    )


@pytest.mark.parametrize("name", ["adjacency", "stratified"])
def test_order_tests_give_the_same_pvalue(harness, local, benchmark, name):
    def p_value(model):
        test = planned(model, benchmark, name)
        scored = score_test(test, model.make_scorer(store=None))
        row = order_result(test, scored, primary=True, pretests=())
        return row.numbers.p_value

    # Exact tests over a few thousand orders: a tie could fall to the other side.
    assert p_value(harness) == pytest.approx(p_value(local), abs=1e-3)


def test_first_tokens_are_refused_before_anything_is_asked(harness, benchmark):
    test = planned(harness, benchmark, "adjacency", first_tokens=(2,))
    with pytest.raises(InputError, match="--first-tokens: this model gives one number"):
        score_test(test, harness.make_scorer(store=None))


def test_scores_of_tokens_and_moments_are_refused(harness):
    scorer = harness.make_scorer(store=None)
    for ask in (scorer.tokens, scorer.token_table):
        with pytest.raises(InputError, match="one number a text"):
            ask(sequences())
    with pytest.raises(InputError, match="no moments"):
        harness.make_scorer(store=None, moments=True)


def test_finished_requests_are_asked_once(harness, tmp_path):
    first = harness.make_scorer(store=tmp_path / "store").sums(sequences())
    again = harness.make_scorer(store=tmp_path / "store")
    again._lm = None
    second = again.sums(sequences())
    np.testing.assert_array_equal(first.loglik, second.loglik)
    assert (first.n_cached, second.n_cached) == (
        0,
        sum(len(ids) - 1 for ids in sequences()),
    )


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
    ours, theirs
):
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
