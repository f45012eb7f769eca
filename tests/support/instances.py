"""Instances that a test writes down."""

import csv
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


def saved(path, rows, delimiter=",", encoding="utf-8"):
    """A file of columns, and the folders that it stands in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def edits(a, b, change=1):
    """Levenshtein's distance by the plain table, its first row and column counted up.

    Where a change costs 2, what is left as it is is the longest common subsequence.
    """
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        last, row = row, [i]
        for j, other in enumerate(b):
            changed = last[j] + change * (one != other)
            row.append(min(last[j + 1] + 1, row[j] + 1, changed))
    return row[-1]
