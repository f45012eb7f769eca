"""Answers of a served model: the scorer's numbers, the generator's texts."""

import dataclasses
import itertools
import json

import jax
import numpy as np
import pytest
import scipy.special
from flax import nnx

from jaxcontam.data.encoding import encode_texts
from jaxcontam.models.chat import ChatLayout, read_chat_layout
from jaxcontam.models.generation import Sampling, generate
from jaxcontam.scoring.api.logprobs import Way, read_prompt_scores
from jaxcontam.scoring.local import checkpoint_scorer
from jaxcontam.serving.model import ServedModel
from jaxcontam.serving.requests import RequestError, parse_chat, parse_completion
from tests.served_model import BOS, CONTEXT, EOS, TEXTS, byte_tokenizer, opened, save

pytestmark = pytest.mark.unoptimised

VOCAB = len(byte_tokenizer())


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    # A model that never stops: what ends a text is asked for, test by test.
    return opened(tmp_path_factory.mktemp("served"), name="tiny", stop_ids=())


@pytest.fixture(scope="module")
def model(checkpoint):
    return ServedModel(checkpoint, draw_seed=itertools.count().__next__)


def complete(model, prompt, **fields):
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 0, **fields}
    return model.complete(parse_completion(body, vocab_size=VOCAB))


def chat(model, words, **fields):
    body = {"messages": [{"role": "user", "content": words}], **fields}
    return model.chat(parse_chat({"temperature": 0, "max_tokens": 8, **body}))


def echoed(model, prompt, **fields):
    """`logprobs` of each prompt, scored alone."""
    fields = {"echo": True, "logprobs": 1, **fields}
    return [one["logprobs"] for one in complete(model, prompt, **fields)["choices"]]


def ids_of(checkpoint, text):
    return encode_texts(checkpoint.tokenizer, [text])[0].tolist()


@jax.jit
def read(decoder, tokens):
    with jax.default_matmul_precision("highest"):
        return decoder(tokens)[0]


def direct(checkpoint, ids):
    """log p of every token at each place, (n_ids, V) float64; no kernel of ours."""
    padded = np.zeros((1, CONTEXT), np.int32)
    padded[0, : len(ids)] = ids
    hidden = np.asarray(read(checkpoint.decoder, padded), np.float64)[: len(ids)]
    head = np.asarray(checkpoint.decoder.head_VD, np.float64)
    return scipy.special.log_softmax(hidden @ head.T, axis=-1)


def test_a_text_has_the_scores_that_score_gives_it(model, checkpoint, strict_dtypes):
    scorer = checkpoint_scorer(checkpoint, store=None)
    sequences = [np.array([BOS, *ids_of(checkpoint, text)], np.int32) for text in TEXTS]
    expected = scorer.tokens(sequences)
    for found, (scores,) in zip(echoed(model, TEXTS), expected, strict=True):
        assert found["token_logprobs"][0] is None
        np.testing.assert_allclose(found["token_logprobs"][1:], scores, atol=1e-5)


def test_a_text_and_its_ids_behind_bos_are_read_alike(model, checkpoint):
    prompts = [[BOS, *ids_of(checkpoint, text)] for text in TEXTS]
    for a, b in zip(echoed(model, TEXTS), echoed(model, prompts), strict=True):
        assert a["token_logprobs"] == b["token_logprobs"]
        assert "".join(a["tokens"]) == "".join(b["tokens"])


def test_nothing_is_put_before_ids(model, checkpoint):
    ids = ids_of(checkpoint, TEXTS[0])
    (found,) = echoed(model, ids)
    expected = direct(checkpoint, ids)[np.arange(len(ids) - 1), ids[1:]]
    assert found["token_logprobs"][0] is None
    np.testing.assert_allclose(found["token_logprobs"][1:], expected, atol=1e-5)


def test_without_bos_the_first_token_of_a_text_has_no_score(checkpoint):
    bare = ServedModel(dataclasses.replace(checkpoint, prefix_id=None))
    ids = ids_of(checkpoint, TEXTS[0])
    (found,), (same,) = echoed(bare, TEXTS[0]), echoed(bare, ids)
    assert found["tokens"][0] == "the"
    assert found["token_logprobs"] == same["token_logprobs"]
    with pytest.raises(RequestError, match="a prompt is empty"):
        complete(bare, "")


def test_the_pieces_in_a_row_are_the_text_and_stand_at_their_offsets(model, checkpoint):
    for text in TEXTS:
        for prompt in (text, [BOS, *ids_of(checkpoint, text)]):
            (choice,) = complete(model, prompt, echo=True, logprobs=1, max_tokens=5)[
                "choices"
            ]
            found, whole = choice["logprobs"], choice["text"]
            assert whole.startswith(text)
            assert "".join(found["tokens"]) == whole
            places = list(zip(found["tokens"], found["text_offset"], strict=True))
            assert all(whole[at : at + len(piece)] == piece for piece, at in places)
            n = 1 + len(ids_of(checkpoint, text)) + 5
            assert {len(part) for part in found.values()} == {n}


@pytest.mark.parametrize("n_new", [0, 1])
def test_texts_that_end_in_parts_of_a_letter_are_read_like_their_ids(
    model, checkpoint, n_new
):
    for text in ("the 日本語", "a 🦊", "é"):
        way = Way(echo=True, ids=False, max_tokens=n_new, bos=True)
        found = read_prompt_scores(model.complete(asked(way, text)), way, text)
        ids = (BOS, *ids_of(checkpoint, text))
        way = Way(echo=True, ids=True, max_tokens=n_new)
        expected = read_prompt_scores(model.complete(asked(way, ids)), way, ids)
        # Two shapes of the same program: the rounding of float32.
        np.testing.assert_allclose(found.logprobs, expected.logprobs, atol=1e-5)
        # Parts begin where their letter does.
        assert found.starts.tolist()[-2:] == [len(text) - 1] * 2


def asked(way, prompt):
    return parse_completion(way.body(prompt), vocab_size=VOCAB)


def test_the_likeliest_tokens_are_those_of_the_whole_softmax(model, checkpoint):
    ids = [BOS, *ids_of(checkpoint, TEXTS[1])]
    (found,) = complete(model, ids, prompt_logprobs=5)["choices"]
    entries = found["prompt_logprobs"]
    assert entries[0] is None
    logprobs = direct(checkpoint, ids)
    for i, entry in enumerate(entries[1:]):
        expected = logprobs[i]
        order = np.argsort(-expected)
        ranks = {int(token): rank for rank, token in enumerate(order, start=1)}
        assert set(entry) == {*map(str, order[:5]), str(ids[i + 1])}
        for token, row in entry.items():
            assert row["rank"] == ranks[int(token)]
            assert abs(row["logprob"] - expected[int(token)]) < 1e-5


def test_a_token_is_the_likeliest_where_its_number_is_the_largest(model, checkpoint):
    """As lm-evaluation-harness tells it: by equality."""
    prompt = [BOS, *ids_of(checkpoint, TEXTS[0])]
    (choice,) = complete(model, prompt, logprobs=1, max_tokens=20)["choices"]
    found = choice["logprobs"]
    assert len(found["tokens"]) == 20
    for value, top in zip(found["token_logprobs"], found["top_logprobs"], strict=True):
        assert value == max(top.values())
    (prompt_only,) = echoed(model, prompt)
    greedy = [
        value == max(top.values())
        for value, top in zip(
            prompt_only["token_logprobs"][1:],
            prompt_only["top_logprobs"][1:],
            strict=True,
        )
    ]
    likeliest = direct(checkpoint, prompt).argmax(axis=-1)[:-1]
    assert greedy == (likeliest == prompt[1:]).tolist()
    assert not all(greedy)


@pytest.mark.parametrize("text", ["thé 漢字 then", "a 🦊"])
def test_a_place_names_its_own_token_as_the_list_of_tokens_does(
    model, checkpoint, text
):
    (found,) = echoed(model, text, logprobs=5, max_tokens=3)
    likeliest = []
    for token, value, top in zip(
        found["tokens"][1:],
        found["token_logprobs"][1:],
        found["top_logprobs"][1:],
        strict=True,
    ):
        assert top[token] == value
        assert len(top) in (5, 6)
        likeliest.append(max(top, key=top.__getitem__) == token)
    # As lm-evaluation-harness tells what is greedy: by name.
    ids = [BOS, *ids_of(checkpoint, text)]
    best = direct(checkpoint, ids).argmax(axis=-1)[:-1]
    assert likeliest[:-3] == (best == ids[1:]).tolist()
    assert likeliest[-3:] == [True] * 3


def test_what_was_written_is_scored_as_when_it_is_sent_back(model, checkpoint):
    prompt = [BOS, *ids_of(checkpoint, TEXTS[0])]
    sampling = Sampling(n_samples=1, new_tokens=12, temperature=0.0)
    ((_, (new,)),) = generate(checkpoint.decoder, [np.array(prompt)], sampling)
    (written,) = complete(model, prompt, logprobs=1, max_tokens=12)["choices"]
    (again,) = echoed(model, [*prompt, *new.tolist()])
    # Two shapes of the same program: the rounding of float32.
    np.testing.assert_allclose(
        written["logprobs"]["token_logprobs"],
        again["token_logprobs"][-12:],
        atol=1e-5,
    )
    assert written["logprobs"]["text_offset"][0] == 0
    assert written["text"] == "".join(written["logprobs"]["tokens"])


def test_usage_counts_what_was_read_and_written(model, checkpoint):
    usage = complete(model, TEXTS[:2], n=2, max_tokens=3)["usage"]
    n_prompt = sum(1 + len(ids_of(checkpoint, text)) for text in TEXTS[:2])
    assert usage["prompt_tokens"] == n_prompt
    assert usage["completion_tokens"] == 2 * 2 * 3
    assert usage["total_tokens"] == n_prompt + 12


def test_choices_stand_prompt_by_prompt(model):
    together = complete(model, TEXTS[:2], n=2, max_tokens=4)
    alone = [complete(model, text, max_tokens=4)["choices"][0] for text in TEXTS[:2]]
    texts = [choice["text"] for choice in together["choices"]]
    assert texts == [alone[0]["text"]] * 2 + [alone[1]["text"]] * 2
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2, 3]
    assert together["system_fingerprint"] == model.checkpoint.fingerprint
    assert together["model"] == "tiny"


WARM = {"temperature": 1.0, "max_tokens": 12, "n": 2}


def texts_of(answer):
    return [choice["text"] for choice in answer["choices"]]


def test_a_seed_gives_the_same_samples_and_none_gives_others(model):
    first, same, other, *free = [
        texts_of(complete(model, TEXTS[0], **WARM, **fields))
        for fields in ({"seed": 7}, {"seed": 7}, {"seed": 8}, {}, {})
    ]
    assert first == same
    assert len({*first, *other, *free[0], *free[1]}) == 8


def test_copies_of_a_prompt_differ_unless_a_seed_is_given(model):
    prompts = [TEXTS[0]] * 2
    warm = WARM | {"n": 1}
    assert len(set(texts_of(complete(model, prompts, **warm)))) == 2
    assert len(set(texts_of(complete(model, prompts, **warm, seed=3)))) == 1


def test_a_text_ends_before_the_first_stop_string(model):
    fields = {"seed": 5, "max_tokens": 32, "temperature": 1.0}
    (free,) = complete(model, TEXTS[0], **fields)["choices"]
    text = free["text"]
    # Strings of two letters, which lie across tokens, the later one named first.
    early, late = text[7:9], text[20:22]
    (found,) = complete(model, TEXTS[0], **fields, stop=[late, early], logprobs=0)[
        "choices"
    ]
    end = min(text.index(early), text.index(late))
    assert found["text"] == text[:end]
    assert found["finish_reason"] == "stop"
    assert free["finish_reason"] == "length"
    pieces = found["logprobs"]["tokens"]
    assert "".join(pieces) == text[:end]
    assert found["logprobs"]["top_logprobs"] is None


def test_a_stop_string_saves_the_ids_after_it(model, monkeypatch):
    from jaxcontam.models import generation

    steps = []
    go_on = generation.go_on

    def counted(*args, **kwargs):
        steps.append(int(args[4]))
        return go_on(*args, **kwargs)

    monkeypatch.setattr(generation, "go_on", counted)
    fields = {"seed": 5, "max_tokens": 32, "temperature": 1.0}
    text = complete(model, TEXTS[0], **fields)["choices"][0]["text"]
    assert steps == [32]
    steps.clear()
    complete(model, TEXTS[0], **fields, stop=text[3:5])
    assert steps == [16]


def test_a_stop_string_that_does_not_come_changes_nothing(model):
    fields = {"seed": 5, "max_tokens": 32, "temperature": 1.0, "n": 2}
    free = texts_of(complete(model, TEXTS[0], **fields))
    assert texts_of(complete(model, TEXTS[0], **fields, stop="\x00\x01\x02")) == free


def test_a_stop_id_is_the_last_token_and_no_text(checkpoint, model):
    fields = {"max_tokens": 20, "temperature": 1.0, "seed": 2, "logprobs": 1}
    ids = [BOS, *ids_of(checkpoint, TEXTS[0])]
    sampling = Sampling(n_samples=1, new_tokens=20, seed=2)
    ((_, (free,)),) = generate(checkpoint.decoder, [np.array(ids)], sampling)
    stop = int(free[6])
    n = free.tolist().index(stop)
    ending = ServedModel(dataclasses.replace(checkpoint, stop_ids=(stop, EOS)))
    (found,) = complete(ending, ids, **fields)["choices"]
    pieces = found["logprobs"]["tokens"]
    assert found["finish_reason"] == "stop"
    assert len(pieces) == n + 1
    assert pieces[-1] == ""
    assert "".join(pieces) == found["text"]
    again = echoed(ending, [*ids, *free[: n + 1].tolist()])[0]["token_logprobs"]
    np.testing.assert_allclose(
        found["logprobs"]["token_logprobs"], again[-n - 1 :], atol=1e-5
    )


def test_one_token_more_is_one_entry_more_even_where_it_ends_the_text(checkpoint):
    """lm-evaluation-harness drops the last entry, whatever it is."""
    ids = [BOS, *ids_of(checkpoint, TEXTS[0])]
    likeliest = int(direct(checkpoint, ids)[-1].argmax())
    ending = ServedModel(dataclasses.replace(checkpoint, stop_ids=(likeliest,)))
    (found,) = echoed(ending, ids, max_tokens=1)
    assert len(found["token_logprobs"]) == len(ids) + 1


def test_a_prompt_may_fill_the_context_and_no_more(model):
    full = list(range(2, 2 + CONTEXT))
    assert len(echoed(model, full)[0]["tokens"]) == CONTEXT
    with pytest.raises(RequestError, match="the context is of 64 tokens; the prompt h"):
        complete(model, full, max_tokens=1)
    with pytest.raises(RequestError, match="the prompt has 65, and 0 more"):
        complete(model, [*full, 2])
    # Without a number it is the usual one, or what is left.
    (short,) = complete(model, full[:-3], max_tokens=None, logprobs=0)["choices"]
    assert len(short["logprobs"]["tokens"]) == 3
    (usual,) = complete(model, full[:9], max_tokens=None, logprobs=0)["choices"]
    assert len(usual["logprobs"]["tokens"]) == 16


def test_one_message_without_a_template_is_read_as_a_completion(model):
    (completed,) = complete(model, TEXTS[0], max_tokens=8)["choices"]
    (answered,) = chat(model, TEXTS[0])["choices"]
    assert answered["message"] == {"role": "assistant", "content": completed["text"]}
    parts = [
        {"type": "text", "text": TEXTS[0][:5]},
        {"type": "text", "text": TEXTS[0][5:]},
    ]
    assert chat(model, parts)["choices"] == [answered]


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'tool' %}"
    "{{ raise_exception('no tools') }}{% endif %}[{{ m.role }}]{{ m.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def test_a_template_writes_what_the_model_reads(model, checkpoint, tmp_path):
    layout = read_chat_layout(save(tmp_path, chat_template=TEMPLATE))
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    ids = layout.ids(checkpoint, messages).tolist()
    assert ids == [BOS, *ids_of(checkpoint, "[system]be\n[user]hi\n[assistant]")]
    with_template = ServedModel(checkpoint, chat=layout)
    (answered,) = chat(with_template, "hi")["choices"]
    prompt = [BOS, *ids_of(checkpoint, "[user]hi\n[assistant]")]
    (completed,) = complete(model, prompt, max_tokens=8)["choices"]
    assert answered["message"]["content"] == completed["text"]
    refused = {"messages": [{"role": "tool", "content": "x"}]}
    with pytest.raises(RequestError, match=r"refuses the messages \(no tools\)"):
        with_template.chat(parse_chat(refused))


def test_a_folder_without_a_template_has_the_plain_layout(checkpoint, tmp_path):
    layout = read_chat_layout(save(tmp_path))
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert layout.ids(checkpoint, messages).tolist() == [
        BOS,
        *ids_of(checkpoint, "a\nb"),
    ]
    assert (
        layout.ids(checkpoint, messages).tolist()
        == ChatLayout().ids(checkpoint, messages).tolist()
    )


def test_numbers_that_are_not_finite_are_refused(checkpoint):
    graphdef, state = nnx.split(checkpoint.decoder)
    broken = nnx.merge(graphdef, jax.tree.map(lambda leaf: leaf * np.nan, state))
    spoilt = ServedModel(dataclasses.replace(checkpoint, decoder=broken))
    with pytest.raises(RequestError, match="log-probability is not finite") as e:
        echoed(spoilt, "the")
    assert e.value.status == 500


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": None}, "prompt must be a text, a list of token ids, or a list of"),
        ({"prompt": []}, "prompt must be a text"),
        ({"prompt": ["a", 1]}, "a prompt must be a text or a list of token ids, got 1"),
        ({"prompt": [[1], []]}, r"a prompt must be a text or a list .*, got \[\]"),
        ({"prompt": [VOCAB]}, f"from 0 to {VOCAB - 1}, got {VOCAB}"),
        ({"prompt": [True]}, "a prompt must be a text"),
        ({"prompt": "\ud83d"}, "prompt: the text holds half a surrogate pair"),
        ({"max_tokens": -1}, "max_tokens must be an integer of at least 0, got -1"),
        ({"max_tokens": 1.5}, "max_tokens must be an integer"),
        ({"logprobs": 21}, "logprobs must be an integer from 0 to 20, got 21"),
        ({"logprobs": True}, "logprobs must be an integer"),
        ({"echo": 1}, "echo must be true or false, got 1"),
        ({"temperature": "hot"}, "temperature must be 0, or from 0.01 to 100"),
        ({"temperature": 1e-9}, "temperature must be 0, or from 0.01 to 100"),
        ({"n": 0}, "n must be an integer from 1 to 128, got 0"),
        ({"seed": 0.5}, "seed must be an integer"),
        ({"stop": [""]}, "stop must be a string or at most 16, none of them empty"),
        ({"stop": 3}, "stop must be a string or at most 16"),
        ({"top_p": 0.9}, "top_p is not supported, got 0.9"),
        ({"stream": True}, "stream is not supported, got True"),
        ({"best_of": 2}, "best_of is not supported, got 2"),
        ({"echoes": True}, "unknown field 'echoes'"),
    ],
)
def test_what_cannot_be_answered_as_asked_is_refused(fields, message):
    body = {"prompt": "x", "model": "tiny", **fields}
    with pytest.raises(RequestError, match=message) as e:
        parse_completion(body, vocab_size=VOCAB)
    assert e.value.status == 400
    assert e.value.field == next(iter(fields))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": []}, "messages must be a list of objects"),
        ({"messages": ["hi"]}, "a message must have a role and a content"),
        (
            {"messages": [{"role": "user"}]},
            "a message's content must be text, got None",
        ),
        (
            {"messages": [{"role": "\ud83d", "content": "x"}]},
            "messages: the text holds half a surrogate pair",
        ),
        ({"max_completion_tokens": 0}, "max_completion_tokens must be an integer of"),
        ({"logprobs": True}, "logprobs is not supported"),
        ({"tools": [{}]}, "tools is not supported"),
    ],
)
def test_chats_that_cannot_be_answered_are_refused(fields, message):
    body = {"messages": [{"role": "user", "content": "x"}], **fields}
    with pytest.raises(RequestError, match=message):
        parse_chat(body)


def test_fields_at_the_value_that_changes_nothing_are_accepted():
    neutral = {
        "prompt": "x",
        "n": 2,
        "best_of": 2,
        "top_p": 1.0,
        "stream": False,
        "logit_bias": None,
        "user": "somebody",
        "presence_penalty": 0,
    }
    asked = parse_completion(json.loads(json.dumps(neutral)), vocab_size=VOCAB)
    assert asked == parse_completion({"prompt": "x", "n": 2}, vocab_size=VOCAB)
    body = {"messages": [{"role": "user", "content": "x"}]}
    assert parse_chat(body | {"logprobs": False}) == parse_chat(body)
    both = parse_chat(body | {"max_tokens": 9, "max_completion_tokens": 7})
    assert both.drawing.max_tokens == 7
