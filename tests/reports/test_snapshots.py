"""Words of reports: each page and table as text, under snapshots/, read as a diff.

`pytest tests/reports/test_snapshots.py --snapshot-update` accepts changes.
"""

import dataclasses
import functools
import io
import json
import re
import textwrap
from html import unescape
from pathlib import Path

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from jaxcontam.data.files import Commitment
from jaxcontam.members.page import membership_page
from jaxcontam.members.result import TextScores
from jaxcontam.methods import method_words
from jaxcontam.proof.advice import AuditedFile, next_steps, why
from jaxcontam.proof.outcome import print_outcome, print_unscored
from jaxcontam.proof.page import order_page
from jaxcontam.proof.result import MembershipResult, Screening, UnscoredFile
from jaxcontam.proof.verdict import decide
from jaxcontam.replication.page import (
    AskedInstance,
    replication_page,
    replication_words,
)
from jaxcontam.reports.archive import typed_rows
from jaxcontam.reports.page import Page, render
from jaxcontam.score_gap.page import inflation_page
from jaxcontam.stats.result import Local, Neighbours, Pretest
from jaxcontam.terminal import Terminal
from tests.support.page_laws import check_page
from tests.support.report_documents import (
    audit_document,
    audit_report,
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


GAINS = {
    "memory": (1.9, 0.1, 0.2, 0.1, 1.7, 0.1),
    "both": (1.9, 0.1, 0.9, 0.1, 1.0, 0.1),
    "alike": (1.0, 0.1, 0.9, 0.1, 0.1, 0.2),
    "nothing": (0.0, 0.1, -0.001, 0.1, 0.0, 0.2),
}


def gains(kind):
    forward, forward_se, backward, backward_se, excess, excess_se = GAINS[kind]
    return Neighbours(
        forward=forward,
        forward_se=forward_se,
        backward=backward,
        backward_se=backward_se,
        excess=excess,
        excess_se=excess_se,
    )


def local(first, last, p):
    return Local(first_example=first, last_example=last, statistic=3.0, p_value=p)


def named(name, *rows):
    """Tests of a file of that name."""
    changes = {"benchmark": name, "fingerprint": f"sha256:{name}"}
    return [dataclasses.replace(row, **changes, content_digest=name) for row in rows]


SORTED = UnscoredFile(
    benchmark="steps",
    fingerprint="sha256:steps",
    order_provenance="published",
    n_examples=30,
    n_repeats=0,
    method="direction",
    null="reversibility",
    pretests=(check("label_trend:level"), FORWARD),
    verdict="invalid design",
)


def several():
    """Files of each verdict, decided together."""
    flags = {"log10_p_all_orders": -30.0, "neighbours": gains("both")}
    seen = order_row(log10_p=-9.0, **flags, **referred(), local=local(11, 40, 4e-4))
    rows = [
        *named("seen", seen, beside("adjacency", -12.0)),
        *named("alike", order_row(log10_p=-0.4), beside("adjacency", -9.0)),
        *named("early", order_row(log10_p=-6.0, neighbours=gains("memory"))),
        *named("fresh", order_row(log10_p=-0.3, neighbours=gains("nothing"))),
        *named("short", order_row(log10_p=-0.3, mde=0.9)),
        *named("flat", order_row(log10_p=0.0, mde=None, effect=0.0)),
        *named("sorted", order_row("adjacency", -9.0, pretests=(ALIKE, *BLIND))),
    ]
    levels = {"seen": (1e-6, 0.01), "alike": (0.9, 0.2), "sorted": (1e-6, 1e-6)}
    screening = tuple(
        Screening(benchmark=name, by=by, e_bh=e) for name, (by, e) in levels.items()
    )
    more = {"screening": screening, "unscored": (SORTED,), "earlier": ("runs/old",)}
    return audit_report(*decide(rows, min_effect=0.5), model="m", **more)


def shuffled():
    """One file, declared shuffled, with all that can stand beside a test."""
    row = order_row(
        "adjacency",
        -30.5,
        **RANDOM,
        **referred(scale=1.3),
        null="within-group exchangeability of blocks",
        group_field="subject",
        block_field="passage",
        neighbours=gains("alike"),
        local=local(1, 100, 4e-4),
        pretests=(check("shared_context:passage"), *UNMOVED),
        n_orders=99_999,
    )
    row = dataclasses.replace(row, warnings=("2 examples were cut",), n_repeats=2)
    score = MembershipResult(
        benchmark="boolq",
        fingerprint="sha256:boolq",
        n_examples=100,
        method="min_k",
        auc=0.881,
        auc_se=0.031,
        reference=("control",),
        tokens_scored=1,
    )
    own = beside("sharded_t", -2.0, **APPROXIMATE, **RANDOM, effect=-0.001)
    return audit_report(*decide([row, own], min_effect=0.5), score, model="m")


def options():
    row = order_row("options", -9.0, effect_unit="nats per item", **referred())
    return audit_report(*decide([row], min_effect=0.5), model="m")


def planted():
    """A study: what was planted in what number of copies."""
    rows = [
        order_row("adjacency", log10_p, copies=n, null="designed randomisation")
        for n, log10_p in ((0, -0.2), (10, -30.5))
    ]
    rows = [
        dataclasses.replace(
            row, order_provenance="seeded", benchmark=f"set-{row.copies}"
        )
        for row in rows
    ]
    study = {"canary_share": 0.025, "n_tokens": 2_000_000}
    rows = decide(rows, min_effect=0.5)
    command = ("eval.quickstart",)
    return audit_report(*rows, model="m", study=study, command=command)


def ownership():
    """Secrets that nobody else can have drawn, together and each alone."""
    commitments = tuple(
        Commitment(file=name, sha256=f"sha256:{name}", made=made, bits=None)
        for name, made in (("s.txt", None), ("h.txt", "2025-01-01"))
    )
    row = order_row("canary", -4.0, **DRAWN, pretests=(), commitments=commitments)
    alone = [
        dataclasses.replace(
            beside("canary_alone", -1.5, **DRAWN, exposure=5.0 - i, pretests=()),
            benchmark=f"secret {i + 1}",
        )
        for i in range(2)
    ]
    rows = [*decide([row], min_effect=0.5), *alone]
    return audit_report(*rows, model="m", command=("canary",))


def matrix():
    changes = {"effect_unit": "score units", "null": "exchangeability (declared)"}
    row = order_row("matrix", -9.0, **changes, **RANDOM, pretests=())
    report = audit_report(*decide([row], min_effect=0.5), command=("prove",))
    return dataclasses.replace(report, model=None, command=("prove", "m.csv"))


FILE = Path(__file__).with_name("documents.json")
ROOMS = json.loads(FILE.read_text(encoding="utf-8"))
"""Reports of other rooms without what every report has, and texts beside them."""


def page_of_room(name):
    """The page of one of them, as the room makes it."""
    document = dict(ROOMS[name])
    texts = document.pop("texts", ())
    found = report_of(audit_document() | document)
    match document["command"][0]:
        case "membership":
            return membership_page(found, [], typed_rows(texts, TextScores))
        case "replicate":
            asked = typed_rows(texts, AskedInstance)
            return replication_page(found, asked, replication_words(found))
    return inflation_page(found)


def page_of(report):
    """The page of order tests, without pictures."""
    words = method_words(["matrix", "min_k"])
    return order_page(report, [None] * len(report.results), words)


def printed(report):
    """What the terminal shows of an audit, 80 columns wide."""
    out = io.StringIO()
    console, words = Terminal(file=out, width=80), method_words()
    print_outcome(list(report.results), report.command, words, console)
    print_unscored(report.unscored, report.command, words, console)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


DOCUMENTS = {
    "audit of several": lambda: page_of(several()),
    "audit of one": lambda: page_of(shuffled()),
    "audit of options": lambda: page_of(options()),
    "study": lambda: page_of(planted()),
    "canary": lambda: page_of(ownership()),
    "prove": lambda: page_of(matrix()),
    **{name: functools.partial(page_of_room, name) for name in ROOMS},
    "terminal of several": lambda: printed(several()),
    "terminal of one": lambda: printed(shuffled()),
    "reasons": lambda: "\n".join(reasons()),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_words_were_reviewed(name, snapshot):
    document = DOCUMENTS[name]()
    if isinstance(document, Page):
        document = render(document)
        check_page(document)
        document = text_of(document)
    assert document == snapshot(extension_class=TextFile)
