"""`replication.html`: the table of the study, with links to the reports behind it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.replication.table import HEADER, note, table_lines
from jaxcontam.report.document import replace_bytes
from jaxcontam.report.page_words import PageWords
from jaxcontam.report.provenance import command_line
from jaxcontam.report.template import PAGE_NAME as REPORT_PAGE
from jaxcontam.report.template import render_fields

PAGE_NAME = "replication.html"
_TEMPLATE = Path(__file__).with_name("page.html.j2")
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
    fields = {
        "title": "Replication of planted instances",
        "subtitle": f"{document['n_instances']} paragraphs, asked of small models that "
        "read them and of models that did not.",
        "header": HEADER,
        "lines": table_lines(document),
        "note": note(document),
        "reports": [
            (
                f"seed {row['seed']}, {row['planted']}, {row['asked']}",
                row["verdict"],
                f"{row['folder']}/{REPORT_PAGE}",
            )
            for row in document["rows"]
        ],
        "methods": [],
        "words": _WORDS,
        "command": command_line(document),
        "provenance": [
            ("code", document["code"] or "unknown"),
            (
                "machine",
                f"{document['cpu']}, {document['cpu_seconds']:,.0f} CPU seconds",
            ),
            ("digest of the corpus", document["corpus_digest"]),
        ],
    }
    page = render_fields(_TEMPLATE, fields)
    replace_bytes(out / PAGE_NAME, page.encode())
    return out / PAGE_NAME
