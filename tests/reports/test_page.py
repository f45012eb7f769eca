"""`report.html`: self-contained, escaped, and true to report.json."""

import re
import shutil

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.methods import method_words
from jaxcontam.proof.page import order_page
from jaxcontam.proof.result import Screening
from jaxcontam.proof.sentences import (
    assumed_sentence,
    screening_sentence,
    verdict_sentence,
    where_sentence,
)
from jaxcontam.reports.figure import BLUE, GREY, ORANGE
from jaxcontam.reports.numbers import p_words
from jaxcontam.reports.page import render
from jaxcontam.reports.report_files import read_report
from jaxcontam.stats.result import Local, Pretest
from tests.support.page_laws import check_page, contrast, text_contrasts
from tests.support.report_documents import audit_report, changed, order_result

pytestmark = pytest.mark.unoptimised


WORDS = method_words()


@pytest.fixture
def row():
    return order_result()


def test_page_needs_no_other_file_and_no_network(pulse):
    page = (pulse / "report.html").read_text(encoding="utf-8")
    check_page(page)
    # Names of SVG's own language are no addresses that a browser opens.
    urls = set(re.findall(r"https?://[\w.]+", page))
    assert urls <= {
        "http://www.w3.org",
        "http://purl.org",
        "http://creativecommons.org",
    } | {"https://matplotlib.org"}


def test_colours_can_be_read_and_figures_can_be_seen(pulse):
    page = (pulse / "report.html").read_text(encoding="utf-8")
    contrasts = text_contrasts(page)
    # WCAG 2 AA: 4.5 for text, 3 for what a figure is made of.
    assert {".quiet", ".badge", ".contaminated", ".suspected"} <= set(contrasts)
    assert min(contrasts.values()) >= 4.5
    assert min(contrast(colour, "#ffffff") for colour in (BLUE, ORANGE, GREY)) >= 3
    # Black on white is 21, and grey #767676 is the lightest that passes.
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)


def test_page_has_a_headline_a_sentence_and_a_picture_for_every_set(pulse):
    page = (pulse / "report.html").read_text(encoding="utf-8")
    text = re.sub(r"</?span[^>]*>", "", page)
    primary = [r for r in read_report(pulse / "report.json").results if r.primary]
    for result in primary:
        sentence = verdict_sentence(result, WORDS).replace("<=", "&lt;=")
        assert text.count(sentence) == 1
        assert f"<h2>{result.benchmark}</h2>" in page
    n_found = sum(row.verdict == "contaminated" for row in primary)
    found = f"{n_found} of {len(primary)} benchmarks contaminated"
    none = f"None of {len(primary)} benchmarks proven contaminated, none cleared"
    assert f'<p class="headline">{found if n_found else none}</p>' in page
    # The copies; the null of each; the split and the strata of those not silent.
    silent = sum(row.verdict in ("no evidence", "inconclusive") for row in primary)
    assert page.count("<svg") == 1 + len(primary) + 2 * (len(primary) - silent)


def test_a_report_of_many_files_says_each_thing_once_and_folds_the_rest():
    verdicts = ["contaminated", "suspected", "no evidence", "inconclusive"]
    local = Local(first_example=1, last_example=9, statistic=3.0, p_value=0.001)
    rows = [
        order_result(f"set{i}", verdict=verdicts[i % 4], local=local) for i in range(20)
    ]
    page = render(order_page(audit_report(*rows), [None] * 20, WORDS))
    check_page(page)
    assert '<p class="headline">5 of 20 benchmarks contaminated</p>' in page
    assert "set0, set4, set8, set12, set16: do not trust" in page
    assert page.count('<section class="folded">') == 20 + 1
    # Where a silent test is silent is noise.
    assert page.count("stand out most") == 10
    assert '<th scope="col">n</th>' in page


def test_report_command_renders_the_same_page_again(pulse, tmp_path, capsys):
    for name in ("report.json", "orders.npz"):
        shutil.copy(pulse / name, tmp_path / name)
    table = (pulse / "results.csv").read_bytes()
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    again = (tmp_path / "report.html").read_bytes()
    assert again == (pulse / "report.html").read_bytes()
    assert (tmp_path / "results.csv").read_bytes() == table


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
    assert p_words(log10_p, validity) == words


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ("contaminated", "order seen, presence in other orders not tested"),
        ("suspected", "suspected"),
        ("no evidence", "0.3 nats per example boundary, the same throughout, would"),
        ("inconclusive", "only an effect of"),
        ("invalid design", "not random (length that rises or falls along the file)"),
    ],
)
def test_every_verdict_has_its_sentence_and_none_says_clean(row, verdict, expected):
    failed = Pretest(name="length_trend", statistic=1.0, p_value=0.0, passed=False)
    test = changed(row, verdict=verdict, mde_adjusted=0.3, pretests=(failed,))
    sentence = verdict_sentence(test, WORDS)
    assert expected in sentence
    assert "clean" not in sentence


@pytest.mark.parametrize(
    ("first", "last", "p", "words"),
    [
        (201, 400, 0.0004, "examples 201 to 400 of 1000 stand out most"),
        (1, 1000, 0.0004, "throughout; no run of examples stands out more"),
        (201, 400, 0.2, "no run of examples stands out; the best one would be as"),
    ],
)
def test_place_of_the_evidence_is_said_only_where_there_is_one(
    row, first, last, p, words
):
    local = Local(first_example=first, last_example=last, statistic=3.0, p_value=p)
    sentence = where_sentence(changed(row, n_examples=1000, local=local)) or ""
    assert sentence.startswith(f"Where: {words}")
    assert ("p <= 4.0e-4" if p < 0.05 else "p <= 0.200") in sentence
    assert where_sentence(row) is None


def test_word_of_the_user_is_quoted_where_a_verdict_rests_on_it(row):
    declared = changed(row, order_provenance="declared")
    words = "declared shuffled by whoever ran this"
    for verdict in ("contaminated", "suspected", "inconclusive"):
        said = verdict_sentence(changed(declared, verdict=verdict), WORDS)
        assert words in said
    assert words in assumed_sentence(declared, WORDS)
    matrix = changed(declared, method="matrix", null="exchangeability (declared)")
    assert words not in verdict_sentence(matrix, WORDS)


def test_screening_lists_benchmarks_but_no_invalid_one():
    verdicts = {"a": "suspected", "b": "suspected", "c": "invalid design"}
    rows = [order_result(name, verdict=verdicts[name]) for name in verdicts]
    levels = {"a": (0.01, 0.2), "b": (0.9, 1.0), "c": (0.001, 0.001)}
    screening = tuple(
        Screening(benchmark=name, by=by, e_bh=e_bh)
        for name, (by, e_bh) in levels.items()
    )
    sentence = screening_sentence(audit_report(*rows, screening=screening))
    assert sentence is not None and "these 3" in sentence
    assert "a by p-values" in sentence
    assert "none by e-values" in sentence
    assert screening_sentence(audit_report(*rows)) is None
