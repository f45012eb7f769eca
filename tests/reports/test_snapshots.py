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
from jaxcontam.proof.result import OrderResult
from jaxcontam.proof.verdict import decide
from jaxcontam.replication.page import (
    AskedInstance,
    replication_page,
    replication_words,
)
from jaxcontam.reports.archive import typed_rows
from jaxcontam.reports.page import render
from jaxcontam.reports.read import read_result
from jaxcontam.reports.report_files import result_row
from jaxcontam.score_gap.page import inflation_page
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
    text = re.sub(r"<h(\d)>", lambda found: "\n" + "#" * int(found[1]) + " ", text)
    text = text.replace("<li>", "- ")
    lines = (unescape(re.sub(r"<[^>]*>", "", line)) for line in text.splitlines())
    return "".join(
        ("\n" if line.startswith("#") else "")
        + textwrap.fill(line, 88, subsequent_indent="  ", break_on_hyphens=False)
        + "\n"
        for line in (" ".join(line.split()) for line in lines)
        if line
    ).lstrip()


def data_of(name):
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


REASONS = data_of("reasons.json")
"""Failed checks of a file, and cases: flags that were typed, and the tests of a file,
the deciding one first, beyond `order_result`."""
NULLS = {
    "direction": "reversibility",
    "options": "exchangeability of options",
    "canary": "designed randomisation",
}


def undecided(i, method="direction", log10_p=-6.0, **changes):
    """A test of a file from its values, the first one primary."""
    fields = {
        **{"method": method, "null": NULLS.get(method, "exchangeability")},
        **{"log10_p": log10_p, "p_value": 10.0**log10_p, "primary": i == 0},
        **{"p_adjusted": None, "mde_adjusted": None, "verdict": None},
    }
    if (found := changes.get("reference")) is not None:
        changes["reference"] = dataclasses.asdict(reference_result(**found))
    if "pretests" in changes:
        changes["pretests"] = [REASONS["checks"][name] for name in changes["pretests"]]
    return read_result(OrderResult, result_row(order_result(**fields)) | changes)


def reasons():
    """Why, and what next, for each way to stop short of proof or to reach it."""
    words = method_words()
    for name, (typed, *rows) in REASONS["cases"].items():
        tests = [undecided(i, **row) for i, row in enumerate(rows)]
        test, *others = decide(tests, min_effect=0.5)
        file = AuditedFile(test, tuple(others))
        command = ["audit", "m", "boolq.jsonl", *typed.split()]
        steps = [f"- {step}" for step in next_steps(file, command, words)]
        # A command that has no such flags is told words alone.
        for step in next_steps(file, ["quickstart"], words):
            assert step.words and not step.flags
        said = why(file) or "(nothing)"
        yield f"{name}: {test.verdict}{f' ({typed})' if typed else ''}"
        yield from (textwrap.fill(said, 88, break_on_hyphens=False), *steps, "")


DOCUMENTS = data_of("documents.json")
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


def printed(name, *, explain):
    """What the terminal shows of an audit, 80 columns wide."""
    out, (report, _) = io.StringIO(), report_named(name)
    console, words = Terminal(file=out, width=80), method_words()
    results, command = list(report.results), report.command
    print_outcome(results, command, words, console, explain=explain)
    print_unscored(report.unscored, command, words, console, explain=explain)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_page_was_reviewed(name, snapshot):
    page = render(page_of(name))
    check_page(page)
    assert text_of(page) == snapshot(extension_class=TextFile)


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("name", ["audit of several", "audit of one"])
def test_terminal_was_reviewed(name, explain, snapshot):
    shown = printed(name, explain=explain)
    assert shown == snapshot(extension_class=TextFile)
    # With what stands around it: 12 lines for a file, 25 for ten.
    assert explain or shown.count("\n") <= (20 if "several" in name else 9)


def test_reasons_were_reviewed(snapshot):
    assert "\n".join(reasons()) == snapshot(extension_class=TextFile)
