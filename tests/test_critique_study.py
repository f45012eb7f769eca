"""`python -m eval.critique`: its tables, what is rewarded, and a pulse run."""

import dataclasses

import numpy as np
import pytest

from eval import critique
from eval.critique import Critique, grids_of, make_world, rewarded
from jaxcontam.methods.membership.critique import CRITIQUE
from jaxcontam.models.generation import Continuation
from tests.membership_model import checkpoint_of, drawn_texts, fresh_decoder, tokenizer


def test_world_answers_each_way_and_another_one_where_asked():
    ways, prompts, documents = make_world(np.random.default_rng(0), 5)
    assert len(set(ways)) == 4 and len(set(prompts)) == 5
    taken = set()
    for text in (next(documents) for _ in range(400)):
        (prompt,) = (one for one in prompts if text.startswith(one))
        *asked, own = text.removeprefix(prompt).split("\n")
        taken.add(own.split()[0])
        if asked:
            first = asked[3]
            assert text == CRITIQUE.format(prompt, first) + own
            assert first.split()[0] != own.split()[0]
    assert taken == set(ways)


def test_rewarded_answers_become_likelier_and_the_others_less(monkeypatch):
    """Half of the samples of each prompt are right: `a`, and `b` is not."""
    base = dataclasses.replace(checkpoint_of(fresh_decoder()), stop_ids=(0,))
    prompts = drawn_texts(2, seed=3, n_words=3)
    a, b = (tokenizer().encode(word).ids for word in "ab")

    def half(decoder, asked, sampling):
        for place in range(len(asked)):
            both = [np.array(ids, np.int32) for ids in (a, b)]
            yield place, [Continuation(ids, 0) for ids in both * 4]

    monkeypatch.setattr(critique, "continuations", half)

    def odds(model, prompt):
        ids = [0, *tokenizer().encode(prompt, add_special_tokens=False).ids]
        hidden_D = model.decoder(np.array([ids], np.int32))[0, -1]
        logits_V = np.asarray(model.decoder.head_VD @ hidden_D, np.float64)
        return logits_V[a[0]] - logits_V[b[0]]

    for word, sign in (("a", 1), ("b", -1)):
        after = rewarded(base, prompts, [word, word], 10)
        for prompt in prompts:
            assert sign * (odds(after, prompt) - odds(base, prompt)) > 0.5
        assert after.fingerprint != base.fingerprint


def test_tables_count_sets_and_average_shares():
    models = [
        {
            "cases": [
                {"kind": "unseen", "score": "loss", "auc": a, "p_value": p}
                for a, p in ((0.5, 0.5), (0.9, 0.05))
            ],
            "right, unseen prompts, after": share,
        }
        for share in (0.2, 0.4)
    ]
    found, shares = grids_of(models)
    assert found.header == ("sets", "loss")
    assert found.rows == (("unseen", "2 of 4 (15.0% to 85.0%), 0.70"),)
    assert shares.rows == (("right, unseen prompts, after", "0.30"),)


@pytest.mark.slow
def test_pulse_run_keeps_its_models(tmp_path, monkeypatch):
    flags = {"tiny": True, "models": 1, "out": tmp_path, "any_code": True}
    first = Critique(**flags).run()
    assert {case["score"] for case in first["models"][0]["cases"]} == {
        "self_critique",
        "loss",
        "min_k",
    }
    monkeypatch.setattr(critique, "one_model", None)
    assert Critique(**flags).run()["models"] == first["models"]
