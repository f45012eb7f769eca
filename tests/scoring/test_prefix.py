"""What stands before a text stands there once, on whatever path a model reads it."""

import json

import numpy as np
import pytest
from tokenizers import processors

from jaxcontam.cli.main import main
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import ids_before, own_ids
from jaxcontam.data.journal import Journal
from jaxcontam.data.questions import Question
from jaxcontam.errors import InputError
from jaxcontam.members.passes import text_model
from jaxcontam.models.chat import ChatLayout, read_chat_layout
from jaxcontam.orders.benchmarks import read_files
from jaxcontam.orders.design import AuditDesign
from jaxcontam.orders.run import plan_audit
from jaxcontam.proof.versions import VersionSet, plan_texts
from jaxcontam.score_gap.items import choice_groups
from jaxcontam.scoring.completions import LocalCompleter
from jaxcontam.scoring.load import load
from jaxcontam.scoring.remote import read_local_tokenizer
from tests.support.served_model import BOS, EOS, byte_tokenizer, save

TURN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
WRITES = "{{ bos_token }}" + TURN
# template, whether the file adds BOS, add_bos_token; what stands first, and what the
# tokenizer or the template puts there by itself.
FORMS = {
    "the template writes it": (WRITES, False, None, BOS, True),
    "the template and the tokenizer write it": (WRITES, True, True, BOS, True),
    "the tokenizer adds it, as Gemma's": (TURN, True, None, BOS, True),
    "the flag adds it": (TURN, False, True, BOS, True),
    "nothing adds it": (TURN, False, False, BOS, False),
    "EOS stands in": (TURN, False, None, EOS, False),
    "there is none": (TURN, False, None, None, False),
}


def made(folder, form):
    """A model of a form, the id before a text, and whether a chat begins with it."""
    template, adds, flag, first, is_added = FORMS[form]
    no = {"bos_token": None, "eos_token": None}
    changes = {BOS: {}, EOS: {"bos_token": None}, None: no}[first]
    save(folder, chat_template=template, **changes)
    if adds:
        fast = byte_tokenizer()
        fast.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", BOS)]
        )
        fast.backend_tokenizer.save(str(folder / "tokenizer.json"))
    if flag is not None:
        path = folder / "tokenizer_config.json"
        fields = json.loads(path.read_text()) | {"add_bos_token": flag}
        path.write_text(json.dumps(fields))
    return load(folder), first, is_added


@pytest.fixture(scope="module", params=FORMS)
def form(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("form") / "model"
    return folder, *made(folder, request.param)


def once(ids, first):
    """Whether the id stands before something else, and not twice."""
    ids = [int(i) for i in ids]
    return ids[:1] == [first] and ids[1:2] != [first] and len(ids) > 1


def test_it_stands_before_a_text_once(form, tmp_path):
    folder, model, first, _ = form
    assert read_local_tokenizer(folder).prefix_id == model.prefix_id == first
    completer = LocalCompleter(
        checkpoint=model.checkpoint, journal=Journal(tmp_path / "j")
    )
    written = read_chat_layout(folder).text([{"role": "user", "content": "in"}], asks=1)
    for text in (written, "the inn"):
        versions = VersionSet(name="v", rows=((text, text + "!"),), places=("v:1",))
        how = {"prefix_id": first, "seed": 0}
        rows = [
            text_model(model, store=None).sequences([text])[0],
            choice_groups([Question("1", text, ("a", "b"), 0)], model)[0].prefix,
            completer.ids(text),
            *plan_texts(versions, model.tokenizer, **how).sequences,
        ]
        expected = own_ids(_ids(model, text), first).tolist()
        for ids in rows:
            own = own_ids(ids, first).tolist()
            assert own[: len(expected)] == expected
            assert first is None or once(ids, first)


@pytest.mark.parametrize("name", FORMS)
def test_no_prefix_leaves_before_a_text_what_its_tokenizer_puts_there(tmp_path, name):
    model, first, _ = made(tmp_path / "model", name)
    _, adds, flag, *_ = FORMS[name]
    (ids,) = text_model(model, store=None, no_prefix=True).sequences(["the inn"])
    before = [first] if adds or flag else []
    assert ids.tolist() == before + own_ids(_ids(model, "the inn"), first).tolist()


def test_scores_that_were_made_after_a_token_keep_it(tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_text('{"text": "a", "logprobs": [-1.0, -2.0]}\n')
    with pytest.raises(InputError, match=r"--no-prefix: .*scores\.jsonl has itself"):
        text_model(load(path), store=None, no_prefix=True)


def _ids(model, text):
    (encoding,) = model.tokenizer.encode_batch([text], add_special_tokens=False)
    return np.array(encoding.ids)


@pytest.mark.parametrize("tests", ["adjacency", "stratified"])
def test_it_stands_before_an_order_of_chats_once(form, tests):
    _, model, first, _ = form
    texts = tuple(f"{word} {i}" for i, word in enumerate(["in", "on", "at", "by"] * 3))
    benchmark = Benchmark("b", texts, (None,) * len(texts))
    design = AuditDesign(tests=tests, separator="chat:user", order=("random",))
    (planned,), _ = plan_audit(
        [benchmark], read_files(benchmark, design), model, design
    )
    plan = planned.layout.plan
    is_paired = tests == "adjacency"
    rows = [g.prefix for g in plan.groups] if is_paired else plan.sequences
    assert first is None or all(once(ids, first) for ids in rows)


def test_a_prompt_of_a_chat_begins_with_it_where_template_or_tokenizer_say(form):
    folder, model, first, is_added = form
    chat = read_chat_layout(folder)
    messages = [{"role": "user", "content": "the one in the inn"}]
    ids = chat.ids(model.checkpoint, messages)
    own = own_ids(_ids(model, chat.text(messages, asks=True)), first)
    assert ids.tolist() == [first] * is_added + own.tolist()
    # A prompt that is cut keeps it.
    for layout in (chat, ChatLayout()):
        cut = layout.ids(model.checkpoint, messages, room=5)
        whole = layout.ids(model.checkpoint, messages)
        own = own_ids(whole, first).tolist()
        n = len(whole) - len(own)
        assert len(own) > 5 and cut.tolist() == [first] * n + own[n - 5 :]


def test_inside_the_harness_it_stands_before_a_text_once(form, monkeypatch):
    pytest.importorskip("lm_eval", reason="pip install -e '.[lm-eval]'")
    from lm_eval.api.instance import Instance

    from jaxcontam.scoring.lm_eval_backend import JaxcontamLM

    folder, _, first, is_added = form
    if first is None:
        with pytest.raises(ValueError, match="neither BOS nor EOS"):
            JaxcontamLM(str(folder))
        return
    lm, asked = JaxcontamLM(str(folder)), []
    text = read_chat_layout(folder).text([{"role": "user", "content": "in"}], asks=True)
    ids = lm.tok_encode(text)
    assert [ids[0] == first, ids[1] == first] == [is_added, False]

    def note(requests, *_, **__):
        asked.extend(context + own for _, context, own in requests)
        return [(0.0, True)] * len(requests)

    monkeypatch.setattr(lm, "_loglikelihood_tokens", note)
    lm.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0)])
    assert once(asked[0], first)
    lm.loglikelihood([Instance("loglikelihood", {}, ("", text), 0)])
    assert once(asked[1], first)


def test_it_stands_before_orders_unless_each_example_brings_it():
    """Else the same id would stand first in some orders, and be read in others."""
    with_it, without = np.array([BOS, 5]), np.array([5])
    assert ids_before(BOS, [with_it, without]).tolist() == [BOS]
    assert ids_before(BOS, [with_it, with_it]).tolist() == []
    assert ids_before(None, [without]).tolist() == []


def test_score_says_which_id_stands_before_a_text(tmp_path):
    folder = save(tmp_path / "m")
    (tmp_path / "t.txt").write_text("<s>the\nthe\n")
    out = tmp_path / "s.jsonl"
    assert main(["score", str(folder), str(tmp_path / "t.txt"), "--out", str(out)]) == 0
    one, other = map(json.loads, out.read_text().splitlines())
    assert one["prefix_id"] == BOS and one["token_ids"] == other["token_ids"]
    assert one["logprobs"] == other["logprobs"]
