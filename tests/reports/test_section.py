"""The one template: every part is shown, and nothing from outside is markup."""

import dataclasses
import re

import pytest

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
from tests.support.page_laws import check_page

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


def page_of(*parts, **fields):
    section = Section(parts, "A section", "suspected")
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


def test_small_numbers_are_not_broken_across_lines():
    page = page_of(Paragraph("p <= 5.6e-11 by chance"))
    assert 'p &lt;= <span class="number">5.6e-11</span> by chance' in page


def test_a_folded_section_and_digests_are_short():
    digest = "sha256:" + "0123456789ab" + "c" * 52
    folded = Section((Paragraph("what opens"),), "Folded", "suspected", is_folded=True)
    page = render(
        dataclasses.replace(PAGE, sections=(folded,), provenance=(("seed", digest),))
    )
    check_page(page)
    start = page.index("<details><summary><h2>Folded</h2>")
    assert start < page.index("what opens") < page.index("</details>", start)
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


def test_what_a_page_ends_with_is_there_once():
    kind = PageWords(limits=("what is open",), assumed=("that all is well",))
    page = page_of(kind=kind)
    titles = ("What is assumed", "Methods", "What this does not show")
    assert all(page.count(f"<h2>{title}</h2>") == 1 for title in titles)
    assert "<h2>What is assumed" not in page_of()
    assert page.count("jaxcontam audit m x") == 1
    assert '<span class="badge suspected">suspected</span>' in page
