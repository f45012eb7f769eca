"""`replication.html`: the table of the study, with links to the reports behind it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from eval.replication.table import HEADER, note, table_lines
from jaxcontam.report.document import replace_bytes
from jaxcontam.report.template import PAGE_NAME as REPORT_PAGE

PAGE_NAME = "replication.html"
_TEMPLATE = Path(__file__).with_name("page.html.j2")


def write_page(document: Mapping[str, Any], out: Path) -> Path:
    """Write the page; returns where it stands."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        header=HEADER,
        lines=table_lines(document),
        note=note(document),
        reports=[
            (
                f"seed {row['seed']}, {row['planted']}, {row['asked']}",
                row["verdict"],
                f"{row['folder']}/{REPORT_PAGE}",
            )
            for row in document["rows"]
        ],
        provenance=f"{' '.join(document['command'])}; code {document['code']}; "
        f"{document['cpu']}, {document['cpu_seconds']:,.0f} CPU seconds; "
        f"{document['n_instances']} paragraphs, corpus {document['corpus_digest']}",
    )
    replace_bytes(out / PAGE_NAME, page.encode())
    return out / PAGE_NAME
