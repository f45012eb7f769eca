"""The main job end to end, in its pulse size, and what `verify` finds in its report."""

import json
import shutil
import zipfile

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.reports.report_files import sealed_text
from tests.support.verified import verified

pytestmark = pytest.mark.unoptimised


RESULT_FIELDS = {
    "benchmark",
    "fingerprint",
    "order_provenance",
    "n_examples",
    "n_cut",
    "method",
    "primary",
    "null",
    "validity",
    "n_strata",
    "n_orders",
    "tokens_scored",
    "cached_tokens",
    "statistic",
    "p_value",
    "log10_p",
    "p_lower",
    "p_monte_carlo",
    "p_floor",
    "p_adjusted",
    "e_value",
    "effect",
    "effect_se",
    "effect_unit",
    "mde",
    "pretests",
    "verdict",
    "warnings",
    "copies",
    "copies_shuffled",
}


def read(directory):
    return json.loads((directory / "report.json").read_text())


def rows_of(document, method):
    return [row for row in document["results"] if row["method"] == method]


def test_report_has_the_fields_of_its_contract(pulse):
    document = read(pulse)
    assert {"schema", "jaxcontam", "command", "seed", "started", "wall_seconds"} <= set(
        document
    )
    assert set(document["model"]) == {
        "name",
        "fingerprint",
        "n_parameters",
        "dtype",
        "precision",
        "context",
    }
    for row in rows_of(document, "adjacency"):
        assert set(row) >= RESULT_FIELDS
        assert (row["null"], row["order_provenance"]) == (
            ("exchangeability", "published")
            if row["benchmark"] == "pydocs-natural"
            else ("designed randomisation", "seeded")
        )
    for row in rows_of(document, "min_k"):
        assert row["p_value"] is None
        assert row["verdict"] is None
        assert 0 <= row["auc"] <= 1


def test_every_set_has_one_primary_test_and_a_name_of_its_own(pulse):
    primary = [row for row in read(pulse)["results"] if row["primary"]]
    assert [row["copies"] for row in primary] == [0, 0, 1, 2, 4, 10, 50, 10, 0]
    assert len({row["benchmark"] for row in primary}) == 9
    assert [row["copies_shuffled"] for row in primary] == [False] * 7 + [True, False]


def test_drawn_orders_are_decided_by_adjacency_and_the_natural_one_by_direction(pulse):
    rows = read(pulse)["results"]
    decides = {row["benchmark"]: row["method"] for row in rows if row["primary"]}
    assert decides.pop("pydocs-natural") == "direction"
    assert set(decides.values()) == {"adjacency"}
    assert {row["benchmark"] for row in rows_of(read(pulse), "direction")} == {
        *decides,
        "pydocs-natural",
    }
    # Read from adjacency's pairs.
    assert {row["tokens_scored"] for row in rows_of(read(pulse), "direction")} == {0}


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
    read_lines = {
        line
        for path in (pulse / "sets").glob("*.txt")
        if path.stem != "pydocs-natural"
        for line in path.read_text().splitlines()
    }
    assert read_lines.isdisjoint(lines)
    manifest = json.loads((pulse / "manifest.json").read_text())
    rows = {row["name"]: row for row in manifest["sets"]}
    assert rows["pydocs-natural"]["copies"] == 0


def test_controls_are_ranked_against_each_other_and_add_to_one(pulse):
    rows = {row["benchmark"]: row for row in rows_of(read(pulse), "min_k")}
    assert rows["pydocs-0a"]["reference"] == ["pydocs-0b"]
    assert rows["pydocs-10"]["reference"] == ["pydocs-0a", "pydocs-0b"]
    both = rows["pydocs-0a"]["auc"] + rows["pydocs-0b"]["auc"]
    assert both == pytest.approx(1.0)


def test_fifty_copies_are_ranked_above_unseen_texts_even_by_a_pulse_model(pulse):
    rows = {row["benchmark"]: row for row in rows_of(read(pulse), "min_k")}
    assert rows["pydocs-50"]["auc"] > 0.9


def test_audit_of_a_planted_set_gives_the_quickstarts_numbers(pulse, tmp_path, capsys):
    words = ["audit", str(pulse / "model"), str(pulse / "sets/pydocs-50.txt")]
    assert main([*words, "--out", str(tmp_path), "--json"]) == 0
    audited = json.loads(capsys.readouterr().out)
    assert audited == read(tmp_path)
    expected = next(
        row
        for row in rows_of(read(pulse), "adjacency")
        if row["benchmark"] == "pydocs-50"
    )
    found = audited["results"][0]
    for name in ("p_value", "statistic", "effect", "fingerprint", "n_strata"):
        assert found[name] == expected[name]
    assert found["order_provenance"] == "published"
    assert found["null"] == "exchangeability"
    assert {test["name"] for test in found["pretests"]} >= {
        "length_autocorrelation",
        "length_trend",
        "alphabetical_trend",
        "tfidf_adjacency",
        "adjacent_duplicates",
    }


def test_audit_of_several_benchmarks_corrects_for_their_number(pulse, tmp_path):
    files = [str(pulse / f"sets/pydocs-{name}.txt") for name in ("0a", "50", "2")]
    words = ["audit", str(pulse / "model"), *files, "--tests", "stratified"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    rows = read(tmp_path)["results"]
    p = sorted((row["p_value"], row["p_adjusted"]) for row in rows)
    assert p[0][1] == pytest.approx(min(1.0, 3 * p[0][0]))


def test_sorted_file_is_an_invalid_design_with_a_remedy(pulse, tmp_path, capsys):
    lines = (pulse / "sets/pydocs-0a.txt").read_text().splitlines()
    path = tmp_path / "sorted.txt"
    path.write_text("".join(f"{line}\n" for line in sorted(lines, key=len)))
    words = ["audit", str(pulse / "model"), str(path), "--out", str(tmp_path / "o")]
    assert main([*words, "--score-anyway"]) == 0
    (row,) = (r for r in read(tmp_path / "o")["results"] if r["primary"])
    assert row["verdict"] == "invalid design"
    said = capsys.readouterr()
    assert "length that rises or falls along the file" in said.err
    assert "no order test of this file alone is sound" in said.out


def test_untouched_report_is_verified(pulse):
    assert verified(pulse) == ([], 36)
    assert main(["verify", str(pulse)]) == 0


@pytest.fixture
def copied(pulse, tmp_path):
    for name in ("report.json", "orders.npz"):
        shutil.copy(pulse / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("seed", range(4))
def test_any_flipped_digit_in_the_report_is_found(copied, seed):
    path = copied / "report.json"
    text = path.read_text()
    digits = [i for i, c in enumerate(text) if c.isdigit()]
    place = digits[int(np.random.default_rng(seed).integers(len(digits)))]
    flipped = str((int(text[place]) + 1) % 10)
    path.write_text(text[:place] + flipped + text[place + 1 :])
    assert main(["verify", str(copied)]) != 0


def test_flipped_digit_that_leaves_every_number_equal_is_found(copied):
    """About one digit in a hundred: the last of 17, between two floats."""
    path = copied / "report.json"
    text = path.read_text()
    document = json.loads(text)
    changed = (
        text[:i] + str((int(c) + 1) % 10) + text[i + 1 :]
        for i, c in enumerate(text)
        if c.isdigit() and not text[i + 1].isdigit() and text[i - 16 : i].isdigit()
    )
    path.write_text(next(t for t in changed if json.loads(t) == document))
    assert main(["verify", str(copied)]) == 3


@pytest.mark.parametrize("name", ["p_value", "effect", "mde", "p_adjusted"])
def test_number_changed_together_with_the_digest_is_still_found(copied, name):
    document = read(copied)
    document["results"][0][name] = document["results"][0][name] * 1.001
    (copied / "report.json").write_text(sealed_text(document))
    faults, _ = verified(copied)
    assert any(name in fault for fault in faults)


@pytest.mark.parametrize("name", ["p_value", "p_floor"])
def test_smaller_pvalue_is_found_however_deep_it_lies(copied, name):
    document = read(copied)
    (deep,) = [
        row for row in rows_of(document, "adjacency") if row["benchmark"] == "pydocs-50"
    ]
    deep[name] = min(deep[name], 1e-13) * 1e-20
    (copied / "report.json").write_text(sealed_text(document))
    assert any(name in fault for fault in verified(copied)[0])


@pytest.mark.parametrize(
    "array",
    [
        *("0/pairs", "0/orders", "0/codes"),
        *("1/pairs", "2/scores", "2/orders", "2/place"),
    ],
)
def test_flipped_digit_in_the_archive_is_found(copied, array):
    path = copied / "orders.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    changed = arrays[array]
    # Entry 1: of a pair matrix, whose first is on the diagonal, one that counts.
    changed.flat[min(1, changed.size - 1)] += 1
    np.savez(path, **arrays)
    assert main(["verify", str(copied)]) == 3
    # Even if the digests are made to fit.
    from jaxcontam.reports.report_files import ARCHIVE_NAME, archive_digest

    document = read(copied)
    document["digests"] = {ARCHIVE_NAME: archive_digest(path)}
    (copied / "report.json").write_text(sealed_text(document))
    assert verified(copied)[0]


def test_truncated_archive_is_found(copied):
    path = copied / "orders.npz"
    path.write_bytes(path.read_bytes()[:-100])
    assert not zipfile.is_zipfile(path)
    assert main(["verify", str(copied)]) == 3


def test_report_that_holds_its_digest_twice_or_other_line_ends_is_found(copied):
    path = copied / "report.json"
    text = path.read_bytes()
    digest = json.loads(text)["digest"].encode()
    path.write_bytes(text.replace(b'"name": "', b'"name": "' + digest, 1))
    assert main(["verify", str(copied)]) == 3
    path.write_bytes(text.replace(b"\n", b"\r\n"))
    assert main(["verify", str(copied)]) == 3
