"""`report.html`: self-contained, escaped, true to report.json; words of methods."""

import dataclasses
import re
import shutil
import types
from string import Formatter

import pytest

from jaxcontam.cli.main import main
from jaxcontam.methods import METHODS, method_words, named_rows
from jaxcontam.proof.page import order_page
from jaxcontam.proof.sentences import verdict_sentence
from jaxcontam.replication.page import REPLICATION_METHODS, replication_words
from jaxcontam.reports.figure import BLUE, GREY, ORANGE
from jaxcontam.reports.page import (
    Badge,
    Code,
    Details,
    Figure,
    Heading,
    Items,
    Page,
    PageWords,
    Paragraph,
    Section,
    Table,
    render,
)
from jaxcontam.reports.report_files import read_report
from tests.support.page_laws import check_page, contrast, text_contrasts
from tests.support.report_documents import audit_report, order_result

pytestmark = pytest.mark.unoptimised

HOSTILE = '<script>"x"</script>'
SVG = '<svg role="img" aria-label="a plot"></svg>'
PAGE = Page(
    title="A page",
    subtitle="of parts",
    sections=(),
    methods=(("adjacency", "an order", "a paper"),),
    kind=PageWords(limits=("what is open",), proves=True),
    command="jaxcontam audit m x",
    check=("see ", Code("verify")),
    provenance=(("seed", "0"),),
)


def page_of(*parts, is_folded=False, **fields):
    section = Section(parts, "A section", "suspected", is_folded)
    page = render(dataclasses.replace(PAGE, sections=(section,), **fields))
    check_page(page)
    return page


def test_every_part_is_shown_and_escaped():
    table = Table(
        ("name", HOSTILE),
        ((HOSTILE, Badge("contaminated")),),
        HOSTILE,
        words=(1,),
        looks=("primary",),
    )
    parts = (
        Paragraph((HOSTILE, Code(HOSTILE)), "lead"),
        Items((HOSTILE,)),
        Heading(HOSTILE),
        table,
        Figure(SVG, HOSTILE, "wide", HOSTILE),
        Figure(SVG, HOSTILE),
        Figure(SVG),
        Details(HOSTILE, ((HOSTILE, HOSTILE),), (Paragraph(HOSTILE, "quiet"),), True),
    )
    section = Section(parts, HOSTILE)
    page = render(dataclasses.replace(PAGE, title=HOSTILE, sections=(section,)))
    assert "<script" not in page and '"x"' not in page
    # Title twice, section, and what the parts say; a cell's column names it, too.
    assert page.count("&lt;script&gt;") == 18
    assert page.count("<svg") == 3
    assert '<tr class="primary">' in page and "<details open>" in page


def test_numbers_are_whole_digests_short_and_folds_closed():
    digest = "sha256:" + "0123456789ab" + "c" * 52
    part = Paragraph("p <= 5.6e-11 by chance")
    page = page_of(part, is_folded=True, provenance=(("seed", digest),))
    assert 'p &lt;= <span class="number">5.6e-11</span> by chance' in page
    start = page.index("<details><summary><h2>A section</h2>")
    assert start < page.index("by chance") < page.index("</details>", start)
    assert "sha256:0123456789ab…" in page and "bccc" not in page


def test_red_is_for_proofs_alone():
    """A verdict that is no proof keeps its word and loses its colour."""
    part = Paragraph((Badge("contaminated"),))
    assert '<body class="ranking">' not in page_of(part)
    assert '<body class="ranking">' in page_of(part, kind=PageWords(limits=("x",)))
    (proof,) = re.findall(r"\n\.contaminated \{ background: (#\w+)", page_of(part))
    (other,) = re.findall(
        r"\.ranking \.contaminated \{[^}]*background: (#\w+)", page_of()
    )
    assert proof != other


def test_a_report_of_many_files_folds_them():
    rows = [order_result(f"set{i}") for i in range(20)]
    page = render(order_page(audit_report(*rows), [None] * 20, method_words()))
    check_page(page)
    assert page.count('<section class="folded">') == 20 + 1


def test_page_has_a_picture_for_every_set_and_needs_no_network(pulse):
    page = (pulse / "report.html").read_text(encoding="utf-8")
    check_page(page)
    # Names of SVG's own language are no addresses that a browser opens.
    places = ("www.w3.org", "purl.org", "creativecommons.org", "matplotlib.org")
    assert {*re.findall(r"https?://([\w.]+)", page)} <= {*places}
    text = re.sub(r"</?span[^>]*>", "", page)
    primary = [r for r in read_report(pulse / "report.json").results if r.primary]
    for result in primary:
        sentence = verdict_sentence(result, method_words()).replace("<=", "&lt;=")
        assert text.count(sentence) == 1
    # The copies; the null of each; the split and the strata of those not silent.
    silent = sum(row.verdict in ("no evidence", "inconclusive") for row in primary)
    assert page.count("<svg") == 1 + len(primary) + 2 * (len(primary) - silent)
    labels = re.findall(r'<svg role="img" aria-label="(How expected)?', page)
    # That of what neighbours gain comes first.
    for result in primary:
        is_silent = result.verdict in ("no evidence", "inconclusive")
        is_first = [bool(label) for label in labels[1 : 2 if is_silent else 4]]
        assert is_first == ([False] if is_silent else [True, False, False])
        del labels[1 : 2 if is_silent else 4]


def test_colours_can_be_read_and_figures_can_be_seen():
    contrasts = text_contrasts(page_of())
    # WCAG 2 AA: 4.5 for text, 3 for what a figure is made of.
    assert {".quiet", ".badge", ".contaminated", ".suspected"} <= set(contrasts)
    assert min(contrast(colour, "#ffffff") for colour in (BLUE, ORANGE, GREY)) >= 3
    # Black on white is 21, and grey #767676 is the lightest that passes.
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)


def test_report_command_renders_the_same_page_again(pulse, tmp_path, capsys):
    for name in ("report.json", "orders.npz"):
        shutil.copy(pulse / name, tmp_path / name)
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    for name in ("report.html", "results.csv"):
        assert (tmp_path / name).read_bytes() == (pulse / name).read_bytes()


def test_every_method_that_a_report_can_name_has_words():
    # Values that `chance_sentence` hands to the words of a method.
    chance = {"p", "n_strata", "n_orders", "s", "n_versions", "orders", "within"}
    for name in [*METHODS, "matrix"]:
        words = method_words([name])[name]
        assert words.name == name and words.finds and words.source and words.label
        assert named_rows([name]) == [(name, words.finds, words.source)]
    for name, words in method_words().items():
        used = {field for _, field, *_ in Formatter().parse(words.proof.chance)}
        assert "p" in used and used - {None} <= chance, name
    for name in [*REPLICATION_METHODS, "bleurt_sign_flip"]:
        row = types.SimpleNamespace(method=name)
        report = dataclasses.replace(audit_report(), results=(row,))
        words = replication_words(report)[name]
        assert words.name == name and words.finds and words.source and words.label
