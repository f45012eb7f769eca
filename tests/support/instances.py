"""Instances that a test writes down."""

import json

from jaxcontam.replication.control import judge_result
from jaxcontam.replication.instances import Instance
from jaxcontam.replication.judges import Judged
from jaxcontam.replication.page import REPLICATION_METHODS
from jaxcontam.reports.methods import words_of

WORDS = {name: words_of(row) for name, row in REPLICATION_METHODS.items()}
"""Words for methods, as a report has them."""


def instance(first, second, *, cut="inside", label=None, index=0):
    """An instance, cut inside its only sentence unless `cut` says otherwise."""
    return Instance(
        index=index, first_piece=first, second_piece=second, label=label, cut=cut
    )


def judged(labels, **more):
    """The row of a judge who gave these labels, or a `Judged`."""
    if not isinstance(labels, Judged):
        n_refused = list(labels).count(None)
        labels = Judged(labels=tuple(labels), n_refused=n_refused)
    more |= {"method": "judge_local", "benchmark": "set", "fingerprint": "sha256:0"}
    return judge_result(labels, judge_version="v", prompt_version=None, **more)


def results(out):
    """Rows of the report in a folder, by method."""
    document = json.loads((out / "report.json").read_text())
    return {row["method"]: row for row in document["results"]}
