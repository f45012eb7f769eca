"""Path probe: does a model name the file that the fix of an issue changed?

Without the repository a model cannot look it up. It can know the repository, guess from
how such projects are laid out, or have read the benchmark with its fixes.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxcontam.data.benchmark import fingerprint
from jaxcontam.progress import Progress
from jaxcontam.replication.control import Side, more_copies
from jaxcontam.replication.questions import (
    FILE_PATH,
    ComparisonInputs,
    Found,
    words_version,
)
from jaxcontam.replication.result import ReplicationVerdict
from jaxcontam.replication.ts_guessing import asked_rows, hidden_result
from jaxcontam.reports.terms import SUSPECTED_LEVEL

_MAX_TOKENS = 50
_KNOWN = "Who knows a repository can name its files without having read the benchmark"
_NOT_INDEPENDENT = (
    "The p-value takes issues as independent, which those of one repository are not, "
    "and no record names its repository (repo)"
)


def file_path(asked: ComparisonInputs, progress: Progress | None = None) -> Found:
    """How often the model names the file from the issue alone, beside a control.

    Null hypothesis of the p-value: a file is as easy to name in the control. It is at
    most suspicion: repositories that are better known, or laid out in a plainer way,
    are named more often without the benchmark having been read. Repositories change
    sides whole, as `beside_control` exchanges sources; without their names issues are
    taken as independent. A refusal is a miss in the benchmark and a hit in the control,
    so that none makes the p-value smaller.

    Source:
        Liang, Garg and Moghaddam, "The SWE-Bench Illusion", arXiv:2506.12286: up to
        76 % on SWE-bench Verified, up to 53 % on repositories outside it. The test, and
        leaving out issues that name the file, are ours.
    """
    issues = asked.issues
    texts = [f"{one.text}\n{one.file}" for one in issues]
    names = dataclasses.replace(asked.names, fingerprint=fingerprint(texts))
    hidden = [
        (one.index, one.text, one.file) for one in (*issues, *asked.control_issues)
    ]
    rows = asked_rows(hidden, FILE_PATH, _MAX_TOKENS, asked, progress)
    own, theirs = rows[: len(issues)], rows[len(issues) :]
    found = hidden_result(own, "file_path", names)
    n, n_control = len(own), len(theirs)
    n_refused = sum(row["refused"] for row in theirs)
    n_met = sum(bool(row["found"]) for row in theirs)
    p_value, verdict = None, None
    warnings = [_KNOWN]
    repositories = [one.repository for one in (*issues, *asked.control_issues)]
    if not all(repositories):
        # One value for all would say that they belong together.
        repositories = []
        warnings.append(_NOT_INDEPENDENT)
    words = f"{found.n_found} of {n} files are named"
    if not n_control:
        warnings.append("file_path has no control (--control), so that it says nothing")
    elif found.n_refused < n:
        met = [bool(row["found"]) or row["refused"] for row in theirs]
        control = Side(copies=met, groups=repositories[n:])
        p_value, verdict = _test(own, control, repositories[:n], seed=asked.seed)
        words += f", {n_met} of {n_control} of the control, p {p_value:.2g}"
    if found.n_refused or n_refused:
        words += (
            f"; {found.n_refused} refused, taken as misses, and {n_refused} of the "
            "control, taken as named"
        )
    result = dataclasses.replace(
        found,
        finding=words if found.n_refused < n else "refused",
        setting=words_version("file_path", FILE_PATH),
        n_control=n_control - n_refused,
        n_control_found=n_met,
        n_control_refused=n_refused,
        p_control=p_value,
        verdict=verdict,
        warnings=tuple(warnings),
    )
    return result, rows


def _test(
    rows: Sequence[Mapping[str, Any]],
    control: Side,
    repositories: Sequence[str],
    *,
    seed: int,
) -> tuple[float, ReplicationVerdict]:
    """A p-value, and a verdict if all answers being right could reach one."""
    named = [bool(row["found"]) for row in rows]
    answered = [not row["refused"] for row in rows]
    p_value, smallest = (
        more_copies(
            Side(copies=copies, groups=repositories), control, seed=seed
        ).p_value
        for copies in (named, answered)
    )
    if p_value <= SUSPECTED_LEVEL:
        return p_value, "suspected"
    return p_value, "no evidence" if smallest <= SUSPECTED_LEVEL else "inconclusive"
