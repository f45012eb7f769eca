"""One HTML file for people: what a page is made of, in the one template there is.

Sections hold paragraphs, lists, tables and figures. Text is escaped when it is
rendered; it is a string, or a tuple of strings, `Code` and `Badge`. Also what every
report says of its run.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import ClassVar, Literal

from jaxcontam.reports.methods import MethodWords, Words
from jaxcontam.reports.report import Report
from jaxcontam.scoring.opened import ModelInfo
from jaxcontam.terminal_text import shell_line, visible


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageWords:
    """Words about a kind of report; where it `proves`, `contaminated` is red."""

    limits: tuple[str, ...]
    assumed: tuple[str, ...] = ()
    proves: bool = False


OF_STUDY = PageWords(limits=(), proves=True)
"""Words of a page that has all its limits of its own."""

THIS_ONE = (
    "The result holds for this checkpoint, this version of the texts and this way of "
    "writing them."
)
"""The last of what no report shows."""


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """Words to type."""

    kind: ClassVar = "code"
    words: str


@dataclasses.dataclass(frozen=True, slots=True)
class Badge:
    """A verdict in its colour."""

    kind: ClassVar = "badge"
    verdict: str


Text = str | tuple[str | Code | Badge, ...]
Cell = str | Badge
"""Content of a cell of a table."""


@dataclasses.dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; `headline` for what a manager reads, `quiet` for small print."""

    kind: ClassVar = "paragraph"
    text: Text
    look: Literal["", "headline", "lead", "quiet"] = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    kind: ClassVar = "items"
    lines: Sequence[Text]


@dataclasses.dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section."""

    kind: ClassVar = "heading"
    words: str


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column names its rows.

    Where the screen is narrow each row of more than three columns becomes a block, in
    which every number stands after the name of its column.

    Attributes:
        label: What it holds, for those who cannot see it.
        words: Columns of words beside the first, which are wrapped; others are numbers.
        is_text: All cells are words.
        looks: Of each row: `primary`, `blind` or ""; may be empty.
    """

    kind: ClassVar = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    label: str
    words: Sequence[int] = ()
    is_text: bool = False
    looks: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its caption; a wide one has a row of its own."""

    kind: ClassVar = "figure"
    svg: str
    caption: str = ""
    look: Literal["", "wide"] = ""
    label: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Details:
    """Texts, each after its name, then other parts, all opened by a click."""

    kind: ClassVar = "details"
    summary: str
    texts: Sequence[tuple[str, str]] = ()
    parts: Sequence["Part"] = ()
    is_open: bool = False


Part = Paragraph | Items | Heading | Table | Figure | Details


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """Parts under one title, after which a verdict may stand; a folded one opens."""

    parts: Sequence[Part]
    title: str = ""
    verdict: str | None = None
    is_folded: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Content of one HTML file; its own `limits` come before those of its kind."""

    title: str
    verdict: str | None = None
    subtitle: str
    sections: Sequence[Section]
    kind: PageWords = OF_STUDY
    methods: Sequence[tuple[str, str, str]] = ()
    limits: Sequence[str] = ()
    command: str
    check: Text
    provenance: Sequence[tuple[str, str]]


# A browser breaks lines after a hyphen, that of 5.6e-11 as well.
_SMALL_NUMBER = re.compile(r"\d(?:\.\d+)?e-\d+")
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_WHOLE = "Digests are shortened here; report.json has them in full."


def report_page(
    report: Report,
    sections: Sequence[Section],
    words: Words,
    *,
    title: str,
    kind: PageWords,
    check: Text,
    subtitle: str = "",
    verdict: str | None = None,
    more: Iterable[tuple[str, str]] = (),
    limits: Sequence[str] = (),
) -> Page:
    """A page with all that every report says of its run; `more` ends its provenance."""
    made = f"Made {report.started} in {report.wall_seconds:.0f} s."
    return Page(
        title=title,
        verdict=verdict,
        subtitle=f"{subtitle}. {made}" if subtitle else made,
        sections=sections,
        kind=kind,
        methods=method_rows(words[n] for n in named_methods(report) if n in words),
        limits=limits,
        command=command_line(report.command),
        check=check,
        provenance=[*provenance_rows(report), *more],
    )


def method_rows(words: Iterable[MethodWords]) -> list[tuple[str, str, str]]:
    """Name, what it finds, and source of each method."""
    return [(one.name, one.finds, one.source) for one in words]


def named_methods(report: Report) -> list[str]:
    """Methods that the numbers of a report come from, in the order of its rows."""
    names: dict[str, None] = {}
    for row in report.results:
        # A set of texts is judged by several scores at once.
        names |= dict.fromkeys([row.method, *getattr(row, "features", ())])
    # Scores without labels stand in no row.
    if report.study is not None:
        names.setdefault(str(report.study.get("primary")))
    return list(names)


def render(page: Page) -> str:
    """The HTML of a page; text from outside is escaped, and shows what it holds."""
    # jinja2 takes a tenth of a second to import: only for a page.
    import jinja2
    import markupsafe

    source = resources.files("jaxcontam.reports").joinpath("page.html.j2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["unbroken"] = lambda text: markupsafe.Markup(
        _SMALL_NUMBER.sub(
            r'<span class="number">\g<0></span>', str(markupsafe.escape(text))
        )
    )
    sections = [*page.sections, *_last_sections(page)]
    template = environment.from_string(source.read_text("utf-8"))
    return visible(template.render(page=page, sections=sections))


def _last_sections(page: Page) -> list[Section]:
    limits = [*page.limits, *page.kind.limits]
    found = [Section([Items(limits)], "What this does not show")]
    if page.kind.assumed:
        found.append(Section([Items(page.kind.assumed)], "What is assumed"))
    rows = [(name, _DIGEST.sub(r"\1…", value)) for name, value in page.provenance]
    provenance = Table(("of", "what"), rows, "provenance", is_text=True)
    again = [
        Paragraph((Code(page.command),)),
        Paragraph(page.check),
        Details("Versions, device, digests", parts=[provenance, Paragraph(_WHOLE)]),
    ]
    found.append(Section(again, "Reproduce and check"))
    if page.methods:
        header, label = ("method", "finds", "source"), "methods and their sources"
        table = Table(header, page.methods, label, is_text=True)
        found.append(Section([table], "Methods", is_folded=True))
    return found


def command_line(words: Sequence[str]) -> str:
    """The line that makes a report again, from the words of its command."""
    # Studies are modules of a checkout, and commands never have a dot.
    is_study = bool(words) and "." in words[0]
    return shell_line(["python", "-m", *words] if is_study else ["jaxcontam", *words])


def looks_sentence(earlier: Sequence[str]) -> str:
    """Say how many other reports asked the same question."""
    n = len(earlier)
    others = "1 other report is" if n == 1 else f"{n} other reports are"
    return (
        f"{others} in the same folder, on this model and a file of this report, so "
        f"this was not the only test: {', '.join(earlier)}."
    )


def model_words(model: ModelInfo) -> str:
    """Size, context and number format of a model; what is unknown is left out."""
    parts = []
    if model.n_parameters is not None:
        parts.append(f"{model.n_parameters:,} parameters")
    if model.context is not None:
        parts.append(f"context {model.context}")
    served = model.served
    parts.append(model.dtype if served is None else f"served ({served.way})")
    return ", ".join(parts)


def provenance_rows(report: Report) -> list[tuple[str, str]]:
    """Name and value of all that made a report, for a table of two columns."""
    rows = [
        ("jaxcontam", report.jaxcontam),
        ("made", f"{report.started}, in {report.wall_seconds:.0f} s"),
        ("seed", str(report.seed)),
    ]
    if (model := report.model) is not None:
        rows.append(("model", f"{model.name}, {model_words(model)}"))
        rows.append(("digest of the model", model.fingerprint))
        if model.precision != "unknown":
            rows.append(("precision of the model", model.precision))
    rows += [
        (f"reference {one.name}", f"{model_words(one)}, {one.fingerprint}")
        for one in report.references
    ]
    if (device := report.device) is not None:
        words = f"{device.n} x {device.kind} ({device.platform})"
        if device.n_model > 1:
            words += f", weights divided among {device.n_model}"
        rows.append(("device", words))
    libraries = ", ".join(f"{name} {at}" for name, at in report.versions.items())
    rows.append(("libraries", libraries))
    digests = _data_digests(report) | report.digests
    return [*rows, *((f"digest of {name}", at) for name, at in digests.items())]


def _data_digests(report: Report) -> dict[str, str]:
    found: dict[str, str] = {}
    for row in report.results:
        found.setdefault(row.benchmark, row.fingerprint)
    study = report.study or {}
    if "fingerprint" in study:
        name = str(study.get("name", "the texts"))
        found.setdefault(name, str(study["fingerprint"]))
    return found
