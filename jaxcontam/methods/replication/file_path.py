"""Path probe: does a model name the file that the fix of an issue changed?

Without the repository a model cannot look it up. It can know the repository, guess from
how such projects are laid out, or have read the benchmark with its fixes.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.errors import InputError
from jaxcontam.methods.replication.instance import Completer
from jaxcontam.methods.replication.questions import FILE_PATH, Names, words_version
from jaxcontam.methods.replication.ts_guessing import asked_rows, hidden_result
from jaxcontam.progress import Progress
from jaxcontam.results.replication import ComparisonResult
from jaxcontam.results.terms import SUSPECTED_LEVEL
from jaxcontam.stats.proportions import rate_test

_ISSUE_FIELDS = ("problem_statement", "issue", "text")
_FILE_FIELDS = ("file", "path")
_CHANGED = re.compile(r"^--- a/(\S+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Issue:
    """An issue, after the name of its repository if that is known, and its file."""

    index: int
    text: str
    file: str


def read_issues(benchmark: Benchmark) -> list[Issue]:
    """Issues whose fix changes one file, which they do not name; copies once.

    Args:
        benchmark: Records with `problem_statement`, `issue` or `text`, and with `patch`
            (a unified diff, as SWE-bench has it), `file` or `path`; `repo`, if there is
            one, is told to the model.

    Raises:
        InputError: If none is left.
    """
    found: dict[str, Issue] = {}
    for index, row in enumerate(benchmark.rows):
        if row is not None and (issue := _issue(index, row)) is not None:
            found.setdefault(issue.text, issue)
    if not found:
        raise InputError(
            f"{benchmark.name}: file_path: no issue of {len(benchmark)} whose fix "
            "changes one file that it does not name",
            hint="records need problem_statement, issue or text, and patch, file or "
            "path; leave this method out for another benchmark",
        )
    return list(found.values())


def file_path(
    issues: Sequence[Issue],
    control: Sequence[Issue],
    completer: Completer,
    names: Names,
    *,
    max_tokens: int = 50,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[ComparisonResult, list[dict]]:
    """How often the model names the file from the issue alone, beside a control.

    Null hypothesis of the p-value: a file is as easy to name in the control. It is at
    most suspicion: repositories that are better known, or laid out in a plainer way,
    are named more often without the benchmark having been read.

    Args:
        issues: Of the benchmark.
        control: Of repositories that came after the model's cutoff; or none.
        completer: The model.
        names: Of the split.
        max_tokens: Most tokens of an answer.
        seed: Seed of the requests.
        progress: Receives answers done and in total.

    Returns:
        The result, and a row an issue, those of the control last.

    Source:
        Liang, Garg and Moghaddam, "The SWE-Bench Illusion", arXiv:2506.12286: up to
        76 % on SWE-bench Verified, up to 53 % on repositories outside it. The exact
        test, and leaving out issues that name the file, are ours.
    """
    asked = [(one.index, one.text, one.file) for one in (*issues, *control)]
    rows = asked_rows(
        asked,
        FILE_PATH,
        completer,
        names,
        max_tokens=max_tokens,
        seed=seed,
        progress=progress,
    )
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


def _issue(index: int, row: Mapping[str, object]) -> Issue | None:
    text = next((row[name] for name in _ISSUE_FIELDS if name in row), None)
    patch = row.get("patch")
    files = {row[name] for name in _FILE_FIELDS if isinstance(row.get(name), str)}
    if isinstance(patch, str):
        files = {*_CHANGED.findall(patch)}
    if not isinstance(text, str) or len(files) != 1:
        return None
    (file,) = map(str, files)
    if PurePosixPath(file).name.casefold() in text.casefold():
        return None
    repository = row.get("repo")
    return Issue(
        index, f"Repository: {repository}\n\n{text}" if repository else text, file
    )
