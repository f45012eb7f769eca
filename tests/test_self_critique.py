"""Self-critique: similarity of entropies, what is asked, kept and refused."""

import dataclasses

import numpy as np
import pytest

from jaxcontam.analyses.known_texts import NONMEMBER, RunTexts
from jaxcontam.analyses.membership_plan import WEIGHTS, choose
from jaxcontam.errors import InputError
from jaxcontam.methods import SCORES
from jaxcontam.methods.membership import critique
from jaxcontam.methods.membership.critique import similarity
from jaxcontam.methods.membership.plan import Inputs, count_targets, score_texts
from jaxcontam.methods.membership.text_model import text_model
from jaxcontam.scoring.completions import continuation_text
from tests.membership_model import (
    CONTEXT,
    checkpoint_of,
    drawn_texts,
    fresh_decoder,
    tokenizer,
)

pytestmark = pytest.mark.unoptimised

ROW = SCORES["self_critique"]
TEXTS = drawn_texts(3, seed=5, n_words=4)
N_NEW = CONTEXT // 4
STOP = 7


@pytest.fixture
def model(tmp_path):
    return text_model(checkpoint_of(fresh_decoder()), store=tmp_path / "store")


def scored(texts, model):
    return score_texts(texts, [ROW], model).values[:, 0]


def greedy(decoder, ids, n_new, stops=()):
    """Answer and entropies, each step from the whole prefix, in float64."""
    ids, entropies = list(ids), []
    for _ in range(n_new):
        hidden_D = decoder(np.array([ids], np.int32))[0, -1]
        logits_V = np.asarray(decoder.head_VD @ hidden_D, np.float64)
        logs_V = logits_V - np.logaddexp.reduce(logits_V)
        entropies.append(-(np.exp(logs_V) * logs_V).sum())
        ids.append(int(logits_V.argmax()))
        if ids[-1] in stops:
            break
    return ids[-len(entropies) :], np.array(entropies)


def test_similarity_is_a_padded_cosine_times_the_ratio_of_lengths():
    a, b = np.array([3.0, 4.0]), np.array([4.0, 3.0, 0.0, 12.0])
    # (3 * 4 + 4 * 3) / (5 * 13), two tokens of four.
    assert similarity(a, b) == similarity(b, a) == pytest.approx(24 / 65 / 2)
    assert similarity(a, 2 * a) == pytest.approx(1.0)
    assert similarity(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 0.0


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0.0, 0.0], [0.0], 0.5),
        # What float32 leaves of an entropy of 0.
        ([-1e-7], [0.0], 1.0),
        ([0.0, 0.0], [0.1, 0.2], 0.0),
    ],
)
def test_answers_without_entropy_are_alike_and_unlike_others(first, second, expected):
    assert similarity(np.array(first), np.array(second)) == expected


@pytest.mark.parametrize("stops", [(), (STOP,)])
def test_score_is_that_of_two_greedy_answers_read_from_scratch(stops):
    checkpoint = dataclasses.replace(checkpoint_of(fresh_decoder()), stop_ids=stops)
    (found,) = scored(TEXTS[:1], text_model(checkpoint, store=None))
    encode = tokenizer().encode

    def prompt(text):
        return [0, *encode(text, add_special_tokens=False).ids][-(CONTEXT - N_NEW) :]

    first = prompt(TEXTS[0])
    answer, entropies = greedy(checkpoint.decoder, first, N_NEW, stops)
    words = continuation_text(checkpoint.tokenizer, first, answer)
    second = prompt(critique.CRITIQUE.format(TEXTS[0], words))
    _, others = greedy(checkpoint.decoder, second, N_NEW, stops)
    # Entropies of float32 logits, of some nats.
    assert found == pytest.approx(similarity(entropies, others), abs=1e-5)


def test_every_text_has_a_score_but_the_empty_one(model):
    long = " ".join(drawn_texts(9, seed=6))
    found = scored(["", TEXTS[0], long, TEXTS[0]], model)
    assert np.isnan(found).tolist() == [True, False, False, False]
    assert found[1] == found[3]
    assert ((found[1:] >= 0) & (found[1:] <= 1 + 1e-9)).all()
    reads = count_targets(TEXTS, [ROW], model, inputs=Inputs(), seed=0)
    own = count_targets(TEXTS, [SCORES["loss"]], model, inputs=Inputs(), seed=0)
    assert reads - own == 2 * N_NEW * len(TEXTS)


def test_answers_are_kept_and_asked_for_once(model, tmp_path, monkeypatch):
    first = scored(TEXTS, model)
    asked = []
    whole = critique.continuations

    def counted(decoder, prompts, sampling):
        asked.append(len(prompts))
        return whole(decoder, prompts, sampling)

    monkeypatch.setattr(critique, "continuations", counted)
    again = text_model(checkpoint_of(fresh_decoder()), store=tmp_path / "store")
    np.testing.assert_array_equal(scored(TEXTS, again), first)
    assert asked == [0, 0]
    # Another id that ends answers is another answer.
    checkpoint = dataclasses.replace(checkpoint_of(fresh_decoder()), stop_ids=(STOP,))
    scored(TEXTS, text_model(checkpoint, store=tmp_path / "store"))
    assert asked[2:] == [len(TEXTS)] * 2


def test_model_without_weights_is_refused_in_words(model):
    bare = dataclasses.replace(
        model, model=dataclasses.replace(model.model, checkpoint=None)
    )
    with pytest.raises(InputError, match="self_critique: needs the weights of the mod"):
        scored(TEXTS, bare)


def test_all_scores_leave_it_out_and_its_name_asks_for_it():
    texts = tuple(drawn_texts(40, seed=8))
    roles = (NONMEMBER,) * len(texts)
    run = RunTexts(name="", texts=texts, roles=roles, clusters=None, sources=texts)
    found = {row.name for row in choose(run, ["all"], WEIGHTS).methods}
    assert "gradient_norm" in found and "self_critique" not in found
    assert choose(run, ["self_critique"], WEIGHTS).methods == (ROW,)
