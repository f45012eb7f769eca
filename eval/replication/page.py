"""`replication.html`: the table of the study, with links to the reports behind it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.replication.table import HEADER, note, table_lines
from jaxcontam.report.document import replace_bytes
from jaxcontam.report.page import PAGE_NAME as REPORT_PAGE
from jaxcontam.report.page import render
from jaxcontam.report.page_words import PageWords
from jaxcontam.report.provenance import command_line
from jaxcontam.report.section import (
    Code,
    Items,
    Link,
    Page,
    Paragraph,
    Section,
    Table,
)

PAGE_NAME = "replication.html"
_WORDS = PageWords(
    limits=(
        "One recipe and one size of model. Larger models replicate after fewer copies "
        "(Carlini et al. 2023, arXiv:2202.07646); how many is not answered here.",
        "That a model does not replicate what it read is no proof that it did not "
        "read it; the row of the models that never saw the paragraphs is there for "
        "comparison.",
    )
)


def write_page(document: Mapping[str, Any], out: Path) -> Path:
    """Write the page; returns where it stands."""
    label = "copies by set and way of asking"
    table = Table(HEADER, table_lines(document), label, words=range(len(HEADER)))
    links = [
        (
            Link(
                f"seed {row['seed']}, {row['planted']}, {row['asked']}",
                f"{row['folder']}/{REPORT_PAGE}",
            ),
            f": {row['verdict'] or 'no verdict'}",
        )
        for row in document["rows"]
    ]
    page = Page(
        title="Replication of planted instances",
        subtitle=f"{document['n_instances']} paragraphs, asked of small models that "
        "read them and of models that did not.",
        sections=[
            Section([table, Paragraph(note(document))]),
            Section([Items(links)], "Reports"),
        ],
        limits=_WORDS.limits,
        command=command_line(document["command"]),
        check=(
            "Finished work is not done again; ",
            Code("report.json"),
            " stands beside this file.",
        ),
        provenance=[
            ("code", document["code"] or "unknown"),
            (
                "machine",
                f"{document['cpu']}, {document['cpu_seconds']:,.0f} CPU seconds",
            ),
            ("digest of the corpus", document["corpus_digest"]),
        ],
    )
    replace_bytes(out / PAGE_NAME, render(page).encode())
    return out / PAGE_NAME
