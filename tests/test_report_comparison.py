"""`jaxcontam compare`: several models on one page, corrected together."""

import csv
import dataclasses
import json
import re
import warnings

import pytest

from jaxcontam.cli import main
from jaxcontam.commands import compare
from jaxcontam.errors import InputError
from jaxcontam.report.comparison import comparison_sentences
from jaxcontam.report.figure import GREY
from jaxcontam.report.plots import Interval, intervals_plot
from jaxcontam.results.membership import SetResult
from tests.page_laws import check_page
from tests.report_documents import (
    audit_document,
    order_result,
    ranking_document,
    report_of,
    save_document,
)

pytestmark = pytest.mark.unoptimised


def compared(documents, folders):
    """`compare.compared` of reports as JSON values."""
    return compare.compared(list(map(report_of, documents)), folders)


def two(**changes):
    """Reports of two models; changes are of the second one's result."""
    return [
        audit_document(order_result(), model="a"),
        audit_document(order_result(**changes), model="b"),
    ]


def test_numbers_over_all_are_holms_over_every_test_of_every_report():
    documents = [
        audit_document(
            order_result("x", p_value=0.001), order_result("y", p_value=0.04), model="a"
        ),
        audit_document(
            order_result("x", p_value=0.01), order_result("y", p_value=0.5), model="b"
        ),
    ]
    tests, warnings = compared(documents, ["1", "2"])
    found = {(test.model, test.benchmark): test.p_adjusted_all for test in tests}
    # By hand: 4, 3, 2 and 1 times the sorted p-values.
    assert found == pytest.approx(
        {("a", "x"): 0.004, ("b", "x"): 0.03, ("a", "y"): 0.08, ("b", "y"): 0.5}
    )
    assert not warnings and all(test.comparable for test in tests)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_strata": 16}, "strata: 12 and 16"),
        ({"n_orders": 19}, "orders: 9 and 19"),
        ({"method": "adjacency"}, "test: stratified and adjacency"),
        ({"fingerprint": "sha256:other"}, "(examples or their order)"),
        ({"n_cut": 3}, "examples cut: 0 and 3"),
    ],
)
def test_tests_that_were_not_made_alike_are_named(changes, words):
    tests, warnings = compared(two(**changes), ["1", "2"])
    (warning,) = warnings
    assert warning.startswith("boolq: not comparable") and words in warning
    assert not any(test.comparable for test in tests)


def test_seeds_templates_and_number_formats_that_differ_are_named():
    one, other = two()
    other["seed"] = 1
    other["model"]["dtype"] = "bfloat16"
    other["command"] += ["--separator", " | "]
    _, (warning,) = compared([one, other], ["1", "2"])
    for words in ("seed: 0 and 1", "float32 and bfloat16", "separator: None and  | "):
        assert words in warning


def test_two_limits_of_one_test_are_named():
    one, other = (audit_document(order_result(), model="a") for _ in range(2))
    other["command"] += ["--limit", "100"]
    with pytest.raises(InputError, match=r"not made alike \(limit: None and 100\)"):
        compared([one, other], ["1", "2"])


def test_benchmarks_that_differ_in_the_same_way_share_a_sentence():
    names = ("x", "y", "z")
    one = audit_document(*map(order_result, names), model="a")
    other = audit_document(*map(order_result, names), model="b", seed=1)
    _, warnings = compared([one, other], ["1", "2"])
    assert warnings == ["x, y, z: not comparable, not tested alike (seed: 0 and 1)"]


def test_reports_of_one_model_share_a_column():
    documents = [
        audit_document(order_result("x"), model="a"),
        audit_document(order_result("y"), model="a"),
        audit_document(order_result("x"), model="b"),
    ]
    tests, _ = compared(documents, ["1", "2", "3"])
    assert [(t.model, t.benchmark) for t in tests] == [
        ("a", "x"),
        ("a", "y"),
        ("b", "x"),
    ]


def test_models_of_one_name_are_told_apart_by_their_folders():
    one, other = two()
    other["model"]["name"] = "a"
    tests, _ = compared([one, other], ["run1", "run2"])
    assert [test.model for test in tests] == ["a (run1)", "a (run2)"]


def of_command(name, **row):
    """A report of another command."""
    document = audit_document(order_result(**row), model="b", command=(name,))
    if name == "replicate":
        document["results"] = []
    if name == "membership":
        found = SetResult(
            benchmark="boolq",
            fingerprint="sha256:boolq",
            n_members=50,
            n_nonmembers=50,
            features=("min_k",),
            auc=0.8,
            p_value=1e-4,
            n_permutations=9999,
            p_adjusted=1e-4,
            verdict="may rank higher",
        )
        document["results"] = [dataclasses.asdict(found)]
    return document


def test_rankings_stand_side_by_side_with_their_intervals(tmp_path):
    one = ranking_document("a")
    other = ranking_document(verdict="confounded", auc=0.55, auc_low=0.4, auc_high=0.7)
    tests, warnings = compared([one, other], ["1", "2"])
    assert not warnings
    assert [test.method for test in tests] == ["min_k", "min_k"]
    assert [(t.effect, t.effect_low, t.effect_high) for t in tests] == [
        (0.9, 0.82, 0.95),
        (0.55, 0.4, 0.7),
    ]
    assert {t.p_adjusted_all for t in tests} == {2e-4}
    assert tests[0].log10_p == pytest.approx(-4)
    folders = [
        str(save_document(document, tmp_path / document["model"]["name"]))
        for document in (one, other)
    ]
    out = tmp_path / "out"
    assert main(["compare", *folders, "--out", str(out)]) == 0
    page = (out / "comparison.html").read_text()
    check_page(page)
    assert "AUC 0.90 (0.82 to 0.95)" in page and "detectable" not in page
    assert '<span class="badge confounded">confounded</span>' in page


def test_rankings_by_other_scores_or_texts_are_named():
    one = ranking_document("a")
    other = ranking_document(method="loss", setting="", n_members=59)
    other["command"] += ["--corpus", "x", "y", "--shots", "3"]
    _, (warning,) = compared([one, other], ["1", "2"])
    for words in (
        "score: min_k and loss",
        "members: 60 and 59",
        "corpus: None and x y",
        "shots: None and 3",
    ):
        assert words in warning


def test_damaged_ranking_is_refused():
    damaged = ranking_document(auc_low=0.93)
    with pytest.raises(InputError, match=r"2: cannot be compared .*interval"):
        compared([ranking_document("a"), damaged], ["1", "2"])


@pytest.mark.parametrize(("n", "unable"), [(10, 0), (11, 11)])
def test_what_no_ranking_can_reach_is_told(n, unable):
    documents = [ranking_document(f"step{i}") for i in range(n)]
    tests, _ = compared(documents, list(map(str, range(n))))
    said = comparison_sentences(tests, 0.001)[-1]
    assert f"{n - unable} of {n} with the strongest verdict stay" in said
    assert ("whatever the evidence" in said) == (unable > 0)


def test_a_high_floor_beside_small_p_values_can_be_reached():
    """Holm multiplies the largest p-value by 1, however many tests there are."""
    rows = [order_result(f"x{i}", p_floor=None) for i in range(20)]
    documents = [
        audit_document(*rows, model="a"),
        audit_document(order_result("y", p_floor=1e-4, p_value=1e-4), model="b"),
    ]
    tests, _ = compared(documents, ["1", "2"])
    assert tests[-1].p_adjusted_all == tests[-1].p_adjusted_floor == 1e-4
    said = comparison_sentences(tests, 0.001)[-1]
    assert "21 of 21" in said and "whatever" not in said


def test_effects_in_two_units_are_told_so(tmp_path):
    documents = two(benchmark="piqa", effect_unit="nats per letter")
    folders = [
        str(save_document(document, tmp_path / document["model"]["name"]))
        for document in documents
    ]
    assert main(["compare", *folders, "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "comparison.html").read_text()
    assert "are in nats per example boundary or nats per letter." in page


def test_two_tests_of_one_model_stand_side_by_side():
    documents = [
        audit_document(order_result(method=method), model="a")
        for method in ("direction", "reversal")
    ]
    tests, (warning,) = compared(documents, ["1", "2"])
    assert [test.model for test in tests] == ["a, direction", "a, reversal"]
    assert "not tested alike (test: direction and reversal)" in warning
    silent = [dataclasses.replace(test, verdict="no evidence") for test in tests]
    (*_, said) = comparison_sentences(silent, 0.001)
    assert "1 benchmark, 1 model." in said
    assert said.endswith("None has the strongest verdict.")


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (
            [two()[0], two()[0]],
            r"2: the same model, benchmark and test as 1 \(a, boolq, stratified\)",
        ),
        *(
            ([two()[0], of_command(name)], f"2: no test of a model .* of {name}")
            for name in ("replicate", "membership", "variants", "canary")
        ),
        ([two()[0], ranking_document()], "1 has order tests, 2 has rankings of texts"),
        (
            [two()[0], audit_document(order_result("c"), model="a")],
            "one model and",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(documents, message):
    with pytest.raises(InputError, match=message):
        compared(documents, ["1", "2"])


def test_page_and_table_say_what_the_reports_say(tmp_path, capsys):
    name = "<script>x</script>"
    documents = [
        audit_document(order_result(), order_result("piqa"), model="step-1000"),
        audit_document(
            order_result(verdict="no evidence", effect=None, effect_se=None),
            order_result(name, verdict="invalid design"),
            model="=step-2000",
        ),
    ]
    folders = [
        str(save_document(document, tmp_path / document["model"]["name"]))
        for document in documents
    ]
    out = tmp_path / "out"
    assert main(["compare", *folders, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "boolq: contaminated in step-1000; no evidence in =step-2000." in said
    assert "4 tests were made: 3 benchmarks, 2 models" in said
    *sentences, path = said.splitlines()
    assert path == f"comparison: {out / 'comparison.html'}"
    assert max(map(len, sentences)) <= 80
    page = (out / "comparison.html").read_text()
    check_page(page)
    assert "<script" not in page and page.count("not tested") == 2
    with (out / "comparison.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["step-1000"] * 2 + ["'=step-2000"] * 2
    assert float(rows[0]["effect"]) == 0.1 + 0.2 and rows[2]["effect"] == ""
    before = (out / "comparison.html").read_bytes()
    assert main(["compare", *folders, "--out", str(out)]) == 0
    assert (out / "comparison.html").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"results": [{"primary": True, "n_strata": 12}]}, "results"),
        ({"model": {"name": 3, "fingerprint": "x"}}, "model"),
        ({"n_strata": "x"}, "n_strata: expected a whole number, got 'x'"),
        ({"log10_p": float("-inf")}, "log10_p: expected a finite number"),
        ({"log10_p": 400}, "log10_p is 400"),
        ({"effect_se": -1.0}, "effect and its interval"),
        ({"p_value": 1.5}, "p_value is 1.5"),
        ({"verdict": None}, "without a verdict"),
        ({"command": 3}, "command"),
    ],
)
def test_damaged_report_is_named_in_one_line(changes, named, tmp_path, capsys):
    sound, damaged = two()
    for name, value in changes.items():
        (damaged if name in damaged else damaged["results"][0])[name] = value
    for name, document in (("sound", sound), ("damaged", damaged)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "report.json").write_text(json.dumps(document))
    folders = [str(tmp_path / name) for name in ("sound", "damaged")]
    out = tmp_path / "out"
    assert main(["compare", *folders, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"jaxcontam: error: {folders[1]}: cannot be compared (")
    assert re.search(named, error) and error.count("\n") == 2 and not out.exists()


def test_one_report_is_refused_in_one_line(tmp_path, capsys):
    assert main(["compare", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "1 report: nothing to compare it with" in error and error.count("\n") == 2


def test_figure_tells_verdicts_apart_by_shape():
    looks = {
        verdict: (GREY, marker, "full") for verdict, marker in (("a", "o"), ("b", "x"))
    }
    rows = [
        Interval(
            name=f"m{i}",
            group="boolq",
            value=1.0 + i,
            low=0.5,
            high=2.5,
            look=look,
            label=verdict,
        )
        for i, (verdict, look) in enumerate(looks.items())
    ]
    svg = intervals_plot(rows, "effect", nothing=0.0)
    assert svg.startswith(
        '<svg role="img" aria-label="effect with 95 % intervals: boolq'
    )
    assert "boolq, m0: 1.00; boolq, m1: 2.00" in svg
    assert svg == intervals_plot(rows, "effect", nothing=0.0)


def test_two_models_of_one_name_are_told_apart_and_drawn_without_a_warning(
    tmp_path, capsys
):
    folders = []
    for i in "12":
        document = audit_document(order_result(), model="checkpoint-500")
        document["model"]["fingerprint"] = f"sha256:{i}"
        name = f"checkpoint-500-a_benchmark_of_a_rather_long_name-and-11-{i}234abcd"
        folders.append(str(save_document(document, tmp_path / "audit" / name)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["compare", *folders, "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "comparison.html").read_text()
    for i in "12":
        assert f">checkpoint-500 (…and-11-{i}234abcd)<" in page
    lines = capsys.readouterr().out.splitlines()
    assert not any(str(tmp_path) in line for line in lines[:-1])
