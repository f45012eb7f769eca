"""`jaxcontam inflation` on items of few passages, and beside relatives."""

import csv
import json

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.score_gap.run import related
from tests.support.labelled_rows import write_lines
from tests.support.membership_model import fast_tokenizer, fresh_decoder

pytestmark = pytest.mark.unoptimised


def run(*words):
    return main(["inflation", *map(str, words)])


@pytest.fixture
def passages(tmp_path):
    """Scores on 20 passages of 5 items, of which all or none are right."""
    rng = np.random.default_rng(0)
    for name, share in (("test", 0.7), ("new", 0.4)):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["item", "passage", "pythia-1b", "pythia-2b", "m"])
            for p in range(20):
                own = [int(rng.random() < share) for _ in range(3)]
                rows.writerows([f"{p}-{i}", f"{name}{p}", *own] for i in range(5))
    return tmp_path


@pytest.mark.parametrize("split", [(), ("--unpaired",)])
def test_items_of_a_named_passage_are_drawn_together_and_verified(
    passages, capsys, split
):
    wide = ("m", passages / "test.csv", "--against", passages / "new.csv", "--scores")
    wide = (*wide, "--equally-hard", *split)
    assert run(*wide, "--json", "--out", passages / "items") == 0
    items = json.loads(capsys.readouterr().out)["results"][0]
    assert any("values of passage repeat (20 in 100)" in w for w in items["warnings"])
    out = passages / "groups"
    named = (*wide, "--group-field", "passage")
    assert run(*named, "--out", out) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "drawn in groups of equal passage: 20 of them" in said
    assert "values of passage" not in said
    assert "if these groups of items are independent draws and the other items" in said
    (groups,) = json.loads((out / "report.json").read_text())["results"]
    assert (groups["group_field"], groups["n_groups"]) == ("passage", 20)
    assert (items["group_field"], items["n_groups"]) == (None, None)

    def width(result):
        return result["estimates"][0]["high"] - result["estimates"][0]["low"]

    assert width(groups) > 1.7 * width(items)
    assert main(["verify", str(out)]) == 0
    texts = out / "texts.jsonl"
    texts.write_text(texts.read_text().replace('"test7"', '"test8"'))
    assert main(["verify", str(out)]) == 3
    assert "results[0].n_groups is 20, recomputed 19" in capsys.readouterr().out


def test_references_of_one_name_are_noted(passages, capsys):
    words = ("m", passages / "test.csv", "--against", passages / "new.csv", "--scores")
    kin = ("--reference", "pythia-1b", "pythia-2b", "--json")
    assert run(*words, *kin, "--out", passages / "out") == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    notes = " ".join(result["warnings"])
    assert "references pythia-1b, pythia-2b look like one family" in notes
    assert related(["pythia-9b", "pythia-1b", "pythia-2b"], "abc") == []


def test_references_of_one_shape_are_noted(tmp_path):
    """Names and weights differ, the fields of config.json do not."""
    for seed, name in enumerate(("first", "second", "third")):
        save_checkpoint(fresh_decoder(seed), fast_tokenizer(), tmp_path / name)
    kin = [tmp_path / "first", tmp_path / "second"]
    (note,) = related(["api:http://host/v1#m", *kin], ["m", "first", "second"])
    assert note.startswith("references first, second look like one family")
    assert related([tmp_path / "third", *kin], ["third", "first", "second"]) == []


def test_groups_are_read_from_records(tmp_path, capsys):
    """Of pairs those of the published items; a split needs the field on both sides."""
    save_checkpoint(fresh_decoder(), fast_tokenizer(), tmp_path / "m")
    for name in ("test", "new"):
        rows = [
            {"ctx": f"{name} {i}", "choices": ["a b", "c d"], "label": i % 2}
            for i in range(24)
        ]
        passages = [{"source": f"page {i // 2}"} for i in range(24)]
        if name == "test":
            rows = [row | of for row, of in zip(rows, passages, strict=True)]
        write_lines(tmp_path / f"{name}.jsonl", rows)
    words = (tmp_path / "m", tmp_path / "test.jsonl", "--equally-hard")
    words = (*words, "--against", tmp_path / "new.jsonl", "--group-field", "source")
    assert run(*words, "--json", "--out", tmp_path / "out") == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["n_groups"] == 12
    assert run(*words, "--unpaired", "--out", tmp_path / "no") == 2
    assert "new: example 1: no field 'source'" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "out")]) == 0
