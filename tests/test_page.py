"""`report.html`: self-contained, escaped, and true to report.json."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from jaxcontam.cli import main
from jaxcontam.commands.report import write_page
from jaxcontam.report.document import read_document
from jaxcontam.report.plots import null_plot
from jaxcontam.report.sentences import p_words, verdict_sentence
from jaxcontam.results import NullPicture


@pytest.fixture
def row(pulse):
    return read_document(pulse / "report.json")["results"][0]


def test_page_needs_no_other_file_and_no_network(pulse):
    page = (pulse / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert not re.findall(r"(?:src|href)=\"(?!#)", page)
    # Names of SVG's own language are no addresses that a browser opens.
    urls = set(re.findall(r"https?://[\w.]+", page))
    assert urls <= {
        "http://www.w3.org",
        "http://purl.org",
        "http://creativecommons.org",
    } | {"https://matplotlib.org"}


def test_page_has_a_sentence_and_two_plots_for_every_set(pulse):
    page = (pulse / "report.html").read_text(encoding="utf-8")
    document = read_document(pulse / "report.json")
    primary = [r for r in document["results"] if r["primary"]]
    for result in primary:
        # Once in the summary and once in its own section.
        assert page.count(verdict_sentence(result).replace("<=", "&lt;=")) == 2
    # Two a set, the copies and the loss.
    assert page.count("<svg") == 2 * len(primary) + 2


def test_report_command_renders_the_same_page_again(pulse, tmp_path, capsys):
    for name in ("report.json", "orders.npz", "manifest.json", "metrics.jsonl"):
        shutil.copy(pulse / name, tmp_path / name)
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    again = (tmp_path / "report.html").read_bytes()
    assert again == (pulse / "report.html").read_bytes()


def test_names_from_outside_are_escaped(pulse, tmp_path):
    shutil.copy(pulse / "orders.npz", tmp_path)
    document = read_document(pulse / "report.json")
    for result in document["results"]:
        result["benchmark"] = "<script>alert(1)</script>" + result["benchmark"]
    document["model"]["name"] = "<img src=x onerror=alert(1)>"
    page = write_page(document, tmp_path).read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;pydocs-0a" in page


def test_same_numbers_give_the_same_plot():
    picture = NullPicture(
        null_sums=np.random.default_rng(0).normal(size=500),
        observed=2.5,
        contributions=np.arange(5.0),
    )
    assert null_plot(picture) == null_plot(dataclasses.replace(picture))
    assert null_plot(picture) != null_plot(dataclasses.replace(picture, observed=9.0))


@pytest.mark.parametrize(
    ("log10_p", "validity", "words"),
    [
        (-15.397, "exact", "p <= 4.1e-16"),
        (0.0, "exact", "p <= 1.000"),
        (np.log10(0.0421), "exact", "p <= 0.043"),
        (-400.0, "exact", "p <= 1.0e-400"),
        (-5.0000001, "exact", "p <= 1.0e-5"),
        (-38.0, "asymptotic", "p < 1e-15"),
        (-3.0, "asymptotic", "p = 0.001"),
    ],
)
def test_pvalues_in_words_are_rounded_up(log10_p, validity, words):
    assert p_words({"log10_p": log10_p, "validity": validity}) == words


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ("contaminated", "order seen, presence in other orders not tested"),
        ("suspected", "suspected"),
        ("no evidence", "would have been found with probability 0.8"),
        ("inconclusive", "only an effect of"),
        ("invalid design", "not random (length that rises or falls along the file)"),
    ],
)
def test_every_verdict_has_its_sentence_and_none_says_clean(row, verdict, expected):
    failed = [{"name": "length_trend", "p_value": 0.0, "passed": False}]
    sentence = verdict_sentence(
        {**row, "verdict": verdict, "mde": 0.3, "pretests": failed}
    )
    assert expected in sentence
    assert "clean" not in sentence


def test_page_of_a_matrix_says_that_the_null_was_declared(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("3,1,2\n4,1,0\n5,2,1\n")
    assert main(["prove", str(path), "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "declared by whoever made the matrix" in page
    assert json.loads((tmp_path / "out/report.json").read_text())["model"] is None
