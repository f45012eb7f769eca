"""Models and tasks of lm-evaluation-harness here, and our models there."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("lm_eval", reason="pip install -e '.[lm-eval]'")
pytest.importorskip("torch", reason="the harness's own models need torch")

from membership_model import CONTEXT, drawn_texts, fresh_decoder, tokenizer
from tokenizers import normalizers, processors

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.methods import order_method
from jaxcontam.methods.order_test import order_result, plan_test, score_test
from jaxcontam.models.checkpoint import load_checkpoint, save_checkpoint
from jaxcontam.scoring.lm_eval_model import open_lm_eval, opened_lm
from jaxcontam.scoring.lm_eval_scorer import LmEvalScorer
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


def sequences(seed=0, lengths=(2, 5, 40, CONTEXT, CONTEXT + 1, 3 * CONTEXT)):
    rng = np.random.default_rng(seed)
    return [np.r_[0, rng.integers(1, 300, n - 1)].astype(np.int32) for n in lengths]


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
    from jaxcontam.serving.server import running_server

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
    assert (model.prefix_id, model.context) == (None, 1_000)
    assert model.name == opened_lm(lm, word="mine").name == "mine"
    texts = drawn_texts(3, 1)
    ids = [np.array([ord(c) for c in text], np.int32) for text in texts]
    scorer = model.make_scorer(store=None)
    expected = [lm._logprob("", text) for text in texts]
    np.testing.assert_allclose(scorer.log_likelihoods(ids), expected, rtol=1e-12)
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
        (lambda lm, before, text: 3 * lm._logprob(before, text[:1]), "two parts"),
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


def test_of_a_server_only_what_is_missing_is_asked(tmp_path):
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    class Served(LocalCompletionsAPI):
        def __init__(self):
            self.n_asked = []

        def loglikelihood_rolling(self, requests, disable_tqdm=False):
            self.n_asked.append(len(requests))
            return [-float(len(request.args[0])) for request in requests]

    lm = Served()
    journal = Journal(tmp_path / "answers.jsonl")
    scorer = LmEvalScorer(lm, sends_ids=False, context=9, identity="", journal=journal)
    asked = sequences()
    scorer.sums(asked[1:])
    again = scorer.sums([*asked, asked[0][::-1]])
    assert lm.n_asked == [len(asked) - 1, 2]
    lengths = [len(ids) for ids in asked]
    assert again.loglik.tolist() == [-n for n in (*lengths, lengths[0])]
    assert again.n_cached == sum(n - 1 for n in lengths[1:])


def test_too_few_answers_are_refused_and_not_kept(tmp_path):
    lm = CharacterModel()
    lm.loglikelihood_rolling = lambda requests: [-1.0]
    journal = Journal(tmp_path / "answers.jsonl")
    scorer = LmEvalScorer(lm, sends_ids=False, context=9, identity="", journal=journal)
    with pytest.raises(InputError, match="1 answers to 6 requests"):
        scorer.sums(sequences())
    assert not journal.path.exists()


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


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch, word):
    for name in [name for name in sys.modules if name.split(".")[0] == "lm_eval"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(InputError, match="not installed") as caught:
        open_lm_eval(word)
    assert "pip install" in caught.value.hint
    with pytest.raises(InputError, match="not installed") as caught:
        load_benchmark("lm_eval:arc_easy")
    assert "pip install" in caught.value.hint


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A task file over local splits; a function of its folder builds another."""
    folder = tmp_path_factory.mktemp("task")
    rows = [
        {"question": f"What is {i} + 1?", "options": [f"{i}", f"{i + 1}"], "right": 1}
        for i in range(6)
    ]
    for split, kept in {"train": rows[:2], "test": rows[2:]}.items():
        lines = "".join(json.dumps(row) + "\n" for row in kept)
        (folder / f"{split}.jsonl").write_text(lines)

    def write(name, **more):
        config = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {
                "data_files": {
                    split: str(folder / f"{split}.jsonl") for split in ("train", "test")
                }
            },
            "test_split": "test",
            "output_type": "multiple_choice",
            "doc_to_text": "Q: {{question}}\nA:",
            "doc_to_choice": "options",
            "doc_to_target": "right",
            **more,
        }
        path = folder / f"{name}.yaml"
        path.write_text(json.dumps(config))
        return f"lm_eval:{path}"

    return write


@pytest.fixture(scope="module", autouse=True)
def own_datasets_cache(tmp_path_factory):
    import datasets

    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("datasets")
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
        yield


def test_a_task_is_its_split_with_right_answers_in_order(task):
    benchmark = load_benchmark(task("sums"))
    assert benchmark.name == "sums-test"
    assert benchmark.order_provenance == "published"
    assert benchmark.texts == tuple(
        f"Q: What is {i} + 1?\nA: {i + 1}" for i in range(2, 6)
    )
    assert benchmark.rows[0]["options"] == ["2", "3"]


def test_a_split_of_the_dataset_can_be_named(task):
    assert len(load_benchmark(task("sums") + ":train")) == 2
    with pytest.raises(InputError, match="unknown split") as caught:
        load_benchmark(task("sums") + ":tset")
    assert "'test'" in caught.value.hint


def test_fields_of_documents_fill_a_template(task):
    word = task("sums")
    benchmark = load_benchmark(word, template="{question} {right}", limit=1)
    assert benchmark.texts == ("What is 2 + 1? 1",)
    assert load_benchmark(word, text_field="question").texts[1] == "What is 3 + 1?"


def test_a_target_that_is_text_stands_after_the_delimiter(task):
    word = task(
        "plain",
        output_type="generate_until",
        doc_to_choice=None,
        doc_to_target="{{options[1]}}",
        target_delimiter=" -> ",
    )
    assert load_benchmark(word).texts[0] == "Q: What is 2 + 1?\nA: -> 3"


def test_a_task_that_shuffles_is_refused_and_one_that_filters_is_not(task):
    import textwrap
    from pathlib import Path

    word = task("mixed")
    path = Path(word.removeprefix("lm_eval:"))
    (path.parent / "order.py").write_text(
        textwrap.dedent(
            """
            def backwards(docs):
                return docs.select(range(len(docs) - 1, -1, -2))

            def later(docs):
                return docs.select([0, 1, 3])

            def backwards_then_copied(docs):
                return backwards(docs).map(lambda doc: {"more": doc["question"]})

            def made_anew(docs):
                from datasets import Dataset

                fields = ("question", "options", "right")
                rows = [{name: doc[name] for name in fields} for doc in docs]
                return Dataset.from_list(rows)
            """
        )
    )
    original = path.read_text()[:-1]

    def process(function):
        path.write_text(original + f', "process_docs": !function order.{function}}}')

    for function in ("backwards", "backwards_then_copied"):
        process(function)
        with pytest.raises(InputError, match="another order than the dataset"):
            load_benchmark(word)
    process("later")
    kept = load_benchmark(word)
    assert [row["options"][0] for row in kept.rows] == ["2", "3", "5"]
    assert set(kept.rows[0]) == {"question", "options", "right"}
    assert kept.order_provenance == "published"
    process("made_anew")
    made = load_benchmark(word)
    assert (len(made), made.order_provenance) == (4, "unknown")


def test_a_task_that_cannot_be_loaded_is_one_line(task):
    with pytest.raises(InputError, match="cannot be loaded") as caught:
        load_benchmark(task("broken", doc_to_text="{{no_such_field.x}}"))
    assert "\n" not in str(caught.value)


def test_names_are_looked_up_before_anything_is_loaded(monkeypatch):
    import lm_eval.tasks

    def manager(**_):
        return SimpleNamespace(
            all_subtasks=["arc_easy", "mmlu_law"], all_groups=["mmlu"], all_tags=[]
        )

    monkeypatch.setattr(lm_eval.tasks, "TaskManager", manager)
    with pytest.raises(InputError, match="a group of tasks") as caught:
        load_benchmark("lm_eval:mmlu")
    assert "mmlu_law" in caught.value.hint
    with pytest.raises(
        InputError, match="unknown task of lm_eval 'arc_esay'"
    ) as caught:
        load_benchmark("lm_eval:arc_esay")
    assert "did you mean 'arc_easy'" in caught.value.hint


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
