"""What all pages share: the base template, and what each says of its run."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jaxcontam.report.page_words import PageWords
from jaxcontam.report.provenance import command_line, provenance_rows

PAGE_NAME = "report.html"

# A browser breaks lines after a hyphen, that of 5.6e-11 as well.
_SMALL_NUMBER = re.compile(r"\d(?:\.\d+)?e-\d+")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MethodNote:
    """What a page says of a method that its numbers come from.

    Attributes:
        name: As it stands in report.json.
        finds: What it can and cannot see.
        source: Paper, and where the code departs from the authors'.
    """

    name: str
    finds: str
    source: str


def render(
    template: str,
    document: Mapping[str, Any],
    fields: Mapping[str, Any],
    *,
    methods: Sequence[MethodNote],
    words: PageWords,
) -> str:
    """A page of its template; every text from outside is escaped.

    Args:
        template: File of this folder; it extends `base.html.j2`.
        document: As in `report.json`.
        fields: What the template itself asks for.
        methods: Methods that the numbers come from.
        words: What holds for every report of this kind.
    """
    return render_fields(
        template,
        {
            "command": command_line(document),
            "provenance": provenance_rows(document),
            "methods": [[note.name, note.finds, note.source] for note in methods],
            "words": words,
            **fields,
        },
    )


def render_fields(template: str | Path, fields: Mapping[str, Any]) -> str:
    """A template with all its fields given.

    Args:
        template: File of this folder by its name, or a file elsewhere by its path,
            which may extend those of this folder.
        fields: What it and the templates that it extends ask for.
    """
    # jinja2 takes a tenth of a second to import: only for a page.
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(_source),
    )
    environment.filters["unbroken"] = _unbroken
    if isinstance(template, Path):
        found = environment.from_string(template.read_text("utf-8"))
    else:
        found = environment.get_template(template)
    return found.render(**fields)


def _source(name: str) -> str:
    return resources.files("jaxcontam.report").joinpath(name).read_text("utf-8")


def _unbroken(text: str) -> str:
    """Escaped text whose small numbers stay on one line."""
    import markupsafe

    safe = str(markupsafe.escape(text))
    return markupsafe.Markup(
        _SMALL_NUMBER.sub(r'<span class="number">\g<0></span>', safe)
    )
