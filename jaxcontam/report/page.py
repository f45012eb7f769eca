"""One HTML file for people: the sections of a page in the one template there is.

Also what every report says of its run.
"""

import re
from collections.abc import Iterable, Sequence
from importlib import resources

from jaxcontam.report.page_words import PageWords
from jaxcontam.report.section import (
    Code,
    Details,
    Items,
    Page,
    Paragraph,
    Section,
    Table,
    Text,
)
from jaxcontam.results import ModelInfo, Report
from jaxcontam.results.terms import MethodWords, Words
from jaxcontam.terminal import shell_line, visible

_TEMPLATE = "page.html.j2"
# A browser breaks lines after a hyphen, that of 5.6e-11 as well.
_SMALL_NUMBER = re.compile(r"\d(?:\.\d+)?e-\d+")
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_WHOLE = "Digests are cut short here; report.json has them whole."


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
    """A page of a report, with all that every report says of its run.

    `more` are rows at the end of the table of provenance; the others are as in `Page`.
    """
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

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        loader=jinja2.FunctionLoader(_source),
    )
    environment.filters["unbroken"] = _unbroken
    sections = [*page.sections, *_last_sections(page)]
    template = environment.get_template(_TEMPLATE)
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
    found.append(Section(again, "Make it again, check it"))
    if page.methods:
        header, label = ("method", "finds", "source"), "methods and their sources"
        table = Table(header, page.methods, label, is_text=True)
        found.append(Section([table], "Methods", is_folded=True))
    return found


def _source(name: str) -> str:
    return resources.files("jaxcontam.report").joinpath(name).read_text("utf-8")


def _unbroken(text: str) -> str:
    """Escaped text whose small numbers stay on one line."""
    import markupsafe

    safe = str(markupsafe.escape(text))
    return markupsafe.Markup(
        _SMALL_NUMBER.sub(r'<span class="number">\g<0></span>', safe)
    )


def command_line(words: Sequence[str]) -> str:
    """The line that makes a report again, from the words of its command."""
    # Studies are modules of a checkout, and commands never have a dot.
    is_study = bool(words) and "." in words[0]
    return shell_line(["python", "-m", *words] if is_study else ["jaxcontam", *words])


def looks_sentence(earlier: Sequence[str]) -> str:
    """Say how many other reports asked the same question."""
    n = len(earlier)
    return (
        f"{n} other report{'s' * (n > 1)} on this model and a file of this report "
        f"stand{'s' * (n == 1)} beside it, so its p-values are not the only look: "
        f"{', '.join(earlier)}."
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
    """What was run on what: name and value, for a table of two columns."""
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
    """Name of each benchmark or file of texts, with the digest of what was read."""
    found: dict[str, str] = {}
    for row in report.results:
        found.setdefault(row.benchmark, row.fingerprint)
    study = report.study or {}
    if "fingerprint" in study:
        name = str(study.get("name", "the texts"))
        found.setdefault(name, str(study["fingerprint"]))
    return found
