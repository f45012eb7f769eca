"""Words of reports: each page and table as text, under snapshots/, read as a diff.

`pytest tests/reports/test_snapshots.py --snapshot-update` accepts changes.
"""

import dataclasses
import io
import json
import re
import textwrap
from html import unescape
from pathlib import Path

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from jaxcontam.members.page import membership_page
from jaxcontam.members.result import TextScores
from jaxcontam.methods import method_words
from jaxcontam.proof.advice import AuditedFile, next_steps, why
from jaxcontam.proof.outcome import print_outcome, print_unscored
from jaxcontam.proof.page import order_page
from jaxcontam.proof.verdict import decide
from jaxcontam.replication.page import (
    AskedInstance,
    replication_page,
    replication_words,
)
from jaxcontam.reports.archive import typed_rows
from jaxcontam.reports.page import render
from jaxcontam.reports.report_files import result_row
from jaxcontam.score_gap.page import inflation_page
from jaxcontam.stats.result import Pretest
from jaxcontam.terminal import Terminal
from tests.support.page_laws import check_page
from tests.support.report_documents import (
    audit_document,
    order_result,
    reference_result,
    report_of,
)

pytestmark = pytest.mark.unoptimised


class TextFile(SingleFileSnapshotExtension):
    """A snapshot a file, which people read."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    @classmethod
    def dirname(cls, *, test_location):
        return str(Path(__file__).parent / "snapshots" / test_location.basename)


def text_of(page):
    """What a page says: a block a paragraph, a row of a table a line."""
    text = re.sub(r"<svg.*?</svg>", "", page.partition("</style>")[2], flags=re.DOTALL)
    text = re.sub(r"</t[hd]>(?=<t)", " | ", text)
    text = re.sub(r'<span class="badge[^>]*>(.*?)</span>', r"[\1]", text)
    text = re.sub(r"</?code>", "`", text)
    for mark, begins in {
        "\n# ": "h1",
        "\n## ": "h2",
        "\n### ": "h3",
        "- ": "li",
    }.items():
        text = text.replace(f"<{begins}>", mark)
    lines = (unescape(re.sub(r"<[^>]*>", "", line)) for line in text.splitlines())
    return "".join(
        ("\n" if line.startswith("#") else "")
        + textwrap.fill(line, 88, subsequent_indent="  ", break_on_hyphens=False)
        + "\n"
        for line in (" ".join(line.split()) for line in lines)
        if line
    ).lstrip()


OPTIONS = "exchangeability of options"
NULLS = {"direction": "reversibility", "reversal": "reversibility", "options": OPTIONS}
RANDOM = {"order_provenance": "declared"}
DRAWN = {"null": "designed randomisation", "order_provenance": "declared"}
APPROXIMATE = {"validity": "asymptotic"}


def check(name, p_value=0.5, **changes):
    passed = p_value > 0.01
    return Pretest(name=name, statistic=0.4, p_value=p_value, passed=passed, **changes)


FORWARD = check("blind_direction:words", 1e-4, directional=True)
ALIKE = check("tfidf_adjacency", 1e-4)
BLIND = tuple(
    check(f"blind_{name}:{kind}", p)
    for kind in ("words", "characters")
    for name, p in (("attraction", 1e-4), ("lags", 0.5), ("direction", 0.5))
)
UNMOVED = tuple(
    dataclasses.replace(one, p_value=1.0, passed=True, applicable=False)
    for one in BLIND
)


def order_row(method="direction", log10_p=-6.0, verdict=None, **changes):
    """A primary result; where no verdict is given it is decided later."""
    fields = {
        "method": method,
        "null": NULLS.get(method, "exchangeability"),
        "log10_p": log10_p,
        "p_value": 10.0**log10_p,
        "p_adjusted": 10.0**log10_p,
        "verdict": verdict,
        "pretests": (check("length_trend", directional=True),),
    }
    return order_result(**fields | changes)


def beside(method, log10_p, **changes):
    """The same for a test that does not decide."""
    changes |= {"primary": False, "mde_adjusted": None}
    return dataclasses.replace(order_row(method, log10_p, **changes), p_adjusted=None)


def referred(**changes):
    return {"reference": reference_result(**changes)}


def why_cases():
    """Name -> tests of a file, its deciding one first."""
    silent, closer = referred(), referred(difference_p=2e-3)
    for provenance in ("published", "unknown", "declared", "released", "seeded"):
        for method in ("direction", "adjacency", "options"):
            row = order_row(method, **silent, order_provenance=provenance)
            yield f"{method}, {provenance}", [row]
    yield "weak", [order_row(log10_p=-2.0)]
    yield "adjacency alone", [order_row("adjacency")]
    yield "approximate, alone", [order_row("sharded_t", **APPROXIMATE)]
    yield "approximate", [order_row("sharded_t", **APPROXIMATE, **RANDOM)]
    yield "no reference", [order_row()]
    yield "no reference of options", [order_row("options"), beside("direction", -9.0)]
    yield (
        "a proof beside",
        [order_row("adjacency"), beside("direction", -9.0, **silent)],
    )
    yield "attraction", [order_row(log10_p=-0.4), beside("adjacency", -9.0)]
    yield "attraction, weak", [order_row(log10_p=-2.0), beside("adjacency", -9.0)]
    yield "attraction decides", [order_row("adjacency"), beside("direction", -1.0)]
    for name, changes in {
        "may share it": {"half_p": 0.2},
        "may share it, scaled": {"half_p": 0.2, "scale": 3.0},
        "prefers the reverse": {"p_value": 0.995, "effect": -0.2},
        "ignores context": {"p_value": 1.0, "effect_se": 0.0},
        "too close": {"difference_p": 2e-3},
        "too close, and more": {"difference_p": 2e-3, "half_p": 0.2},
    }.items():
        for method in ("direction", "options"):
            yield f"{name}, {method}", [order_row(method, **referred(**changes))]
    prefers = referred(p_value=5e-3, log10_p=-2.3)
    yield "prefers it", [order_row("adjacency"), beside("direction", -9.0, **prefers)]
    yield "of two files", [order_row(**closer), beside("adjacency", -9.0)]
    yield "points forward", [order_row(pretests=(FORWARD,))]
    yield "not random", [order_row("adjacency", pretests=(FORWARD, ALIKE))]
    yield "reference refuses", [order_row(**prefers)]
    yield "reference of options refuses", [order_row("options", **prefers)]
    yield "secrets", [order_row("canary", **DRAWN)]


def reasons():
    """Why, and what next, for each way to stop short of proof or to reach it."""
    command = ("audit", "m", "boolq.jsonl")
    for name, rows in why_cases():
        test, *others = decide(rows, min_effect=0.5)
        file = AuditedFile(test, tuple(others))
        steps = [f"- {step}" for step in next_steps(file, command, method_words())]
        said = why(file) or "(nothing)"
        yield f"{name}: {test.verdict}"
        yield from (textwrap.fill(said, 88, break_on_hyphens=False), *steps, "")


FILE = Path(__file__).with_name("documents.json")
DOCUMENTS = json.loads(FILE.read_text(encoding="utf-8"))
"""Reports without what all have in common. Rows of order tests say what they have
beyond `order_result`, those of other rooms are whole; texts stand beside some."""
OTHERS = ("membership", "replicate", "inflation")


def report_named(name):
    """A report of documents.json, and the texts beside it."""
    document = dict(DOCUMENTS[name])
    common, texts = result_row(order_result()), document.pop("texts", ())
    if document["command"][0] not in OTHERS:
        rows = document["results"]
        document["results"] = [row if "auc" in row else common | row for row in rows]
    return report_of(audit_document(model="m") | document), texts


def page_of(name):
    """The page of a report, as its room makes it; order tests without pictures."""
    found, texts = report_named(name)
    match found.command[0]:
        case "membership":
            return membership_page(found, [], typed_rows(texts, TextScores))
        case "replicate":
            asked = typed_rows(texts, AskedInstance)
            return replication_page(found, asked, replication_words(found))
        case "inflation":
            return inflation_page(found)
    words = method_words(["matrix", "min_k"])
    return order_page(found, [None] * len(found.results), words)


def printed(name):
    """What the terminal shows of an audit, 80 columns wide."""
    out, (report, _) = io.StringIO(), report_named(name)
    console, words = Terminal(file=out, width=80), method_words()
    print_outcome(list(report.results), report.command, words, console)
    print_unscored(report.unscored, report.command, words, console)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_page_was_reviewed(name, snapshot):
    page = render(page_of(name))
    check_page(page)
    assert text_of(page) == snapshot(extension_class=TextFile)


@pytest.mark.parametrize("name", ["audit of several", "audit of one"])
def test_terminal_was_reviewed(name, snapshot):
    assert printed(name) == snapshot(extension_class=TextFile)


def test_reasons_were_reviewed(snapshot):
    assert "\n".join(reasons()) == snapshot(extension_class=TextFile)
