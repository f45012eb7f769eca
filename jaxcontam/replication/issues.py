"""Issues of a code benchmark, and the file that each fix changes."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.errors import InputError

_ISSUE_FIELDS = ("problem_statement", "issue", "text")
_FILE_FIELDS = ("file", "path")
_CHANGED = re.compile(r"^--- a/(\S+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Issue:
    """An issue, after the name of its repository if that is known, and its file."""

    index: int
    text: str
    file: str
    repository: str = ""


def read_issues(benchmark: Benchmark) -> list[Issue]:
    """Issues whose fix changes one file, which they do not name; copies once.

    Records have `problem_statement`, `issue` or `text`, and `patch` (a unified diff, as
    SWE-bench has it), `file` or `path`; the model is told `repo`, if there is one.
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
    repository = str(row.get("repo") or "")
    asked = f"Repository: {repository}\n\n{text}" if repository else text
    return Issue(index, asked, file, repository)
