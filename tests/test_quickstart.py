"""The main job end to end, in its pulse size."""

import json

import pytest

from jaxcontam.cli.main import main

pytestmark = pytest.mark.unoptimised


@pytest.fixture(scope="module")
def document(pulse):
    return json.loads((pulse / "report.json").read_text())


def rows_of(document, method):
    rows = [row for row in document["results"] if row["method"] == method]
    return {row["benchmark"]: row for row in rows}


def test_drawn_orders_are_decided_by_adjacency_and_the_natural_one_by_direction(
    document,
):
    primary = [row for row in document["results"] if row["primary"]]
    assert [row["copies"] for row in primary] == [0, 0, 1, 2, 4, 10, 50, 10, 0]
    assert [row["copies_shuffled"] for row in primary] == [False] * 7 + [True, False]
    decides = {row["benchmark"]: row["method"] for row in primary}
    assert len(decides) == 9
    assert [*decides.values()] == ["adjacency"] * 8 + ["direction"]
    assert [*decides][-1] == "pydocs-natural"
    for name, row in rows_of(document, "adjacency").items():
        is_natural = name == "pydocs-natural"
        null = "exchangeability" if is_natural else "designed randomisation"
        provenance = "published" if is_natural else "seeded"
        assert (row["null"], row["order_provenance"]) == (null, provenance)
    directed = rows_of(document, "direction")
    assert {*directed} == {*decides}
    # Read from adjacency's pairs.
    assert {row["tokens_scored"] for row in directed.values()} == {0}


def test_natural_set_is_in_alphabetical_order_and_in_no_training_text(pulse):
    """Each line names what it describes, before the colon or behind the `A:`."""
    lines = (pulse / "sets/pydocs-natural.txt").read_text().splitlines()
    is_question = [line.startswith("Q: ") for line in lines]
    names = [
        line.rpartition(" A: ")[2] if asked else line.partition(":")[0]
        for line, asked in zip(lines, is_question, strict=True)
    ]
    assert names == sorted(names)
    assert len(set(is_question)) == 2
    for path in (pulse / "sets").glob("*.txt"):
        if path.stem != "pydocs-natural":
            assert {*path.read_text().splitlines()}.isdisjoint(lines)
    manifest = json.loads((pulse / "manifest.json").read_text())
    copies = {row["name"]: row["copies"] for row in manifest["sets"]}
    assert copies["pydocs-natural"] == 0


def test_sets_are_ranked_against_controls_which_add_to_one(document):
    rows = rows_of(document, "min_k")
    assert rows["pydocs-0a"]["reference"] == ["pydocs-0b"]
    assert rows["pydocs-10"]["reference"] == ["pydocs-0a", "pydocs-0b"]
    assert rows["pydocs-0a"]["auc"] + rows["pydocs-0b"]["auc"] == pytest.approx(1.0)
    # Even by a pulse model.
    assert rows["pydocs-50"]["auc"] > 0.9
    for row in rows.values():
        assert (row["p_value"], row["verdict"]) == (None, None)
        assert 0 <= row["auc"] <= 1


def test_audit_of_a_planted_set_gives_the_quickstarts_numbers(
    pulse, document, tmp_path, capsys
):
    words = ["audit", str(pulse / "model"), str(pulse / "sets/pydocs-50.txt")]
    words += ["--tests", "direction,adjacency"]
    assert main([*words, "--out", str(tmp_path), "--json"]) == 0
    audited = json.loads(capsys.readouterr().out)
    assert audited == json.loads((tmp_path / "report.json").read_text())
    found, expected = audited["results"][0], rows_of(document, "adjacency")["pydocs-50"]
    for name in ("p_value", "statistic", "effect", "fingerprint", "n_strata"):
        assert found[name] == expected[name]
    origin = (found["order_provenance"], found["null"])
    assert origin == ("published", "exchangeability")
