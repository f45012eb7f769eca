"""Path probe: does a model name the file that the fix of an issue changed?

Without the repository a model cannot look it up. It can know the repository, guess from
how such projects are laid out, or have read the benchmark with its fixes.
"""

import dataclasses

from jaxcontam.data.benchmark import fingerprint
from jaxcontam.methods.replication.comparison_inputs import ComparisonInputs
from jaxcontam.methods.replication.questions import FILE_PATH, words_version
from jaxcontam.methods.replication.ts_guessing import asked_rows, hidden_result
from jaxcontam.progress import Progress
from jaxcontam.results.replication import ComparisonResult
from jaxcontam.results.terms import SUSPECTED_LEVEL
from jaxcontam.stats.proportions import rate_test

_MAX_TOKENS = 50


def file_path(
    asked: ComparisonInputs, progress: Progress | None = None
) -> tuple[ComparisonResult, list[dict]]:
    """How often the model names the file from the issue alone, beside a control.

    Null hypothesis of the p-value: a file is as easy to name in the control. It is at
    most suspicion: repositories that are better known, or laid out in a plainer way,
    are named more often without the benchmark having been read.

    Args:
        asked: Model, issues of the benchmark, and those of repositories that came after
            the model's cutoff, or none.
        progress: Receives answers done and in total.

    Returns:
        The result, and a row an issue, those of the control last.

    Source:
        Liang, Garg and Moghaddam, "The SWE-Bench Illusion", arXiv:2506.12286: up to
        76 % on SWE-bench Verified, up to 53 % on repositories outside it. The exact
        test, and leaving out issues that name the file, are ours.
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
    n, answered = (sum(not row["refused"] for row in some) for some in (own, theirs))
    n_met = sum(bool(row["found"]) for row in theirs)
    p_value, verdict = None, None
    warnings = [
        "Who knows a repository can name its files without having read the benchmark"
    ]
    words = f"{found.n_found} of {n} files are named"
    if n and answered:
        p_value = rate_test(found.n_found, n, n_met, answered).fisher
        verdict = "suspected" if p_value <= SUSPECTED_LEVEL else "no evidence"
        words += f", {n_met} of {answered} of the control, p {p_value:.2g}"
    else:
        warnings.append("file_path has no control (--control), so that it says nothing")
    result = dataclasses.replace(
        found,
        finding=words if n else "refused",
        setting=words_version("file_path", FILE_PATH),
        n_control=answered,
        n_control_found=n_met,
        p_control=p_value,
        verdict=verdict,
        warnings=tuple(warnings),
    )
    return result, rows
