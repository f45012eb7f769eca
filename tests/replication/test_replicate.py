"""`jaxcontam replicate`: local models, recorded completions, files."""

import json
import re
import shutil

import pytest

from jaxcontam.cli.main import main
from jaxcontam.replication.design import plan_replication
from jaxcontam.replication.flags import ReplicationDesign
from jaxcontam.replication.judging import ARMS
from jaxcontam.replication.run import room
from jaxcontam.reports.archive import ASKED, read_text_rows
from jaxcontam.scoring.prompted_model import open_prompted
from tests.support.instances import results
from tests.support.membership_model import (
    MEMBERS,
    OTHERS,
    drawn_texts,
    fast_tokenizer,
    fresh_decoder,
    save_overfitted,
)

pytestmark = pytest.mark.unoptimised


def test_a_reference_is_asked_the_same_and_enters_the_verdict(
    model, tmp_path, monkeypatch, capsys
):
    """It knows other texts by heart, and neither file."""
    save_overfitted(tmp_path / "ref", tuple(drawn_texts(len(MEMBERS), seed=4)))
    out, seen, unseen = (tmp_path / name for name in ("out", "seen.txt", "new.txt"))
    seen.write_text("\n".join(MEMBERS))
    unseen.write_text("\n".join(OTHERS))
    words = ["replicate", model, str(seen), "--task", "plain"]
    words += ["--control", str(unseen), "--out", str(out)]
    assert main(words) == 0
    row = results(out)["judge_local"]
    # What it knows by heart it copies, and nothing else.
    assert row["primary"] and row["reason"] == "no reference"
    assert row["control_copies"] == 0
    shutil.copytree(model, tmp_path / "copy")
    (out / "report.json").unlink()
    words += ["--reference"]
    assert main([*words, str(tmp_path / "copy")]) == 2
    assert "the reference is the model itself" in capsys.readouterr().err
    words += [str(tmp_path / "ref")]
    assert main([*words, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The reference: 48 completions of prompts" in said
    assert re.search(r"at most [\w ]+ at the speed of one batch now", said)
    assert main(words) == 0
    row = results(out)["judge_local"]
    # 24 texts are too few to show that it copies less than a tenth of them.
    assert (row["verdict"], row["reason"]) == ("suspected", "reference may share it")
    assert row["reference"]["n_copies"] == 0
    arms = [text["arm"] for text in read_text_rows(out, ASKED)]
    assert [arms.count(name) for name in ARMS] == [24, 24, 24, 24]
    document = json.loads((out / "report.json").read_text())
    assert document["reference"]["name"] == "ref"
    assert main(["verify", str(out)]) == 0

    def asks(_, prompts, *__, **___):
        assert not prompts
        return iter(())

    # Its answers are kept, too.
    monkeypatch.setattr("jaxcontam.scoring.completions.continuations", asks)
    assert main(words) == 0


def test_completions_are_as_long_as_second_pieces_ask_for(model, tmp_path):
    """500 tokens of a base model for a row of ten words took 40 seconds an answer."""
    (tmp_path / "seen.txt").write_text("\n".join(MEMBERS))

    def most(**more):
        design = ReplicationDesign(task="plain", **more)
        plan = plan_replication(tmp_path / "seen.txt", design)
        with open_prompted(model, is_plain=True) as opened:
            longest = max(len(opened.tokenize(text)) for text in plan.references)
            return room(plan, opened)[0], longest

    n, longest = most()
    assert n == 2 * longest + 32
    assert most(new_tokens=longest + 1)[0] == longest + 1


def test_samples_of_a_base_model_end_where_its_completions_do(model, tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join([*MEMBERS[:3], "short"]))
    words = ["replicate", model, str(tmp_path / "lines.txt"), "--task", "plain"]
    words += ["--compare", "cdd:1", "--sample", "2", "--new-tokens", "8"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    found = results(tmp_path / "out")
    assert 'stop=["\\n"]' in found["cdd"]["setting"]
    said = "1 of 4 instances are empty or too short"
    assert any(w.startswith(said) for w in found["judge_local"]["warnings"])


def test_instructions_to_a_base_model_are_warned_of(model):
    def notes(**kwargs):
        with open_prompted(model, **kwargs) as one:
            return one.notes()

    assert "has no chat template" in notes()[0]
    tokenizer = fast_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    with open_prompted(fresh_decoder(), tokenizer=tokenizer) as one:
        assert one.notes() == ()
        assert one.completer.chat.text([{"role": "user", "content": "a"}], asks=True)
    assert notes(is_plain=True) == ()
