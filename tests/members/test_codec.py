"""CoDeC: each text after another one of its own file."""

import json

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import MEMBER, NONMEMBER, RunTexts, draw_company
from jaxcontam.members.passes import Inputs, score_texts, text_model
from jaxcontam.members.scores import SCORES
from jaxcontam.scoring.opened import opened_checkpoint
from tests.support.membership_model import (
    MEMBERS,
    OTHERS,
    checkpoint_of,
    drawn_texts,
    fresh_decoder,
    save_overfitted,
)

pytestmark = pytest.mark.unoptimised

TEXTS, BEFORE = drawn_texts(5, seed=1), drawn_texts(5, seed=2)


@pytest.mark.parametrize("prefix", [True, False])
def test_score_is_what_the_text_before_takes_by_whole_sequences(prefix):
    model = text_model(
        opened_checkpoint(checkpoint_of(fresh_decoder(), prefix=prefix)), store=None
    )
    methods = [SCORES["codec"]]
    found = score_texts(TEXTS, methods, model, inputs=Inputs(company=tuple(BEFORE)))
    alone = model.sequences(TEXTS)
    both = [
        np.concatenate([a, nl[model.n_before :], b[model.n_before :]])
        for a, b in zip(model.sequences(BEFORE), alone, strict=True)
        for nl in model.sequences(["\n"])
    ]
    table = model.plain.token_table([*alone, *both])
    rows = [row[0].astype(float) for row in table.scores]
    expected = [
        one.mean() - two[-len(one) :].mean()
        for one, two in zip(rows[:5], rows[5:], strict=True)
    ]
    # Other batch shapes sum in another order.
    np.testing.assert_allclose(found.values[:, 0], expected, rtol=1e-4, atol=1e-5)


def test_without_another_text_it_is_refused():
    model = text_model(opened_checkpoint(checkpoint_of(fresh_decoder())), store=None)
    with pytest.raises(InputError, match="codec: needs another text beside each one"):
        score_texts(TEXTS, [SCORES["codec"]], model)


def test_company_is_a_ring_of_the_distinct_texts_of_a_side():
    texts: tuple[str, ...] = ("a", "b", "c", "a", "x", "y", " ")
    roles = (MEMBER,) * 4 + (NONMEMBER,) * 3
    run = RunTexts(name="r", texts=texts, roles=roles, clusters=None, sources=texts)
    found = draw_company(run, np.arange(7) == 2, seed=0)
    assert found == ("b", "a", "b", "y", "x", found[5]) and found[5] in "xy"
    for seed in range(5):
        company = draw_company(run, np.zeros(7, bool), seed=seed)
        after = dict[str, str](zip(texts, company, strict=True))
        assert {after[t] for t in "abc"} == {*"abc"}
        assert all(after[t] != t for t in texts)
    assert draw_company(run, np.arange(7) < 3, seed=0) == ()


def test_command_states_the_share_of_each_side_and_verify_counts_again(
    tmp_path, capsys
):
    save_overfitted(tmp_path / "model")
    for name, texts in (("seen", MEMBERS), ("unseen", OTHERS)):
        (tmp_path / name).with_suffix(".txt").write_text("\n".join(texts) + "\n")
    out = tmp_path / "out"
    words = ["membership", str(tmp_path / "model"), "--scores", "codec", "loss"]
    words += ["--members", str(tmp_path / "seen.txt")]
    words += ["--nonmembers", str(tmp_path / "unseen.txt"), "--out", str(out)]
    assert main([*words, "--primary", "codec"]) == 0
    study = json.loads((out / "report.json").read_text())["study"]
    seen, unseen = study["codec"]
    assert (seen["role"], unseen["role"]) == (MEMBER, NONMEMBER)
    assert seen["n_texts"] == unseen["n_texts"] == 24
    rows = [json.loads(row) for row in (out / "texts.jsonl").read_text().splitlines()]
    above = [row["scores"]["codec"] > 0 for row in rows if row["role"] == MEMBER]
    assert seen["share"] == np.mean(above)
    said = "lowers the confidence in"
    assert said in capsys.readouterr().out.replace("\n", " ")
    assert said in (out / "report.html").read_text()
    assert main(["verify", str(out)]) == 0
    text = (out / "report.json").read_text()
    (out / "report.json").write_text(text.replace('"share": 1.0', '"share": 0.5', 1))
    assert main(["verify", str(out)]) == 3
    assert "is 0.5, recomputed 1.0" in capsys.readouterr().out


def test_a_text_that_leaves_no_room_is_refused_and_all_goes_without(tmp_path, capsys):
    save_overfitted(tmp_path / "model")
    long = tmp_path / "long.txt"
    long.write_text("\n".join(f"{text} " * 8 for text in MEMBERS[:3]) + "\n")
    words = ["membership", str(tmp_path / "model"), str(long), "--dry-run"]
    assert main([*words, "--scores", "codec"]) == 2
    assert "fills the model's context" in capsys.readouterr().err
    assert main([*words, "--scores", "all"]) == 0
    assert "codec" not in capsys.readouterr().out
