"""`jaxcontam compare`: reports of several models or checkpoints on one page."""

import dataclasses
import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from jaxcontam.analyses.flag_words import path_word
from jaxcontam.analyses.method_notes import method_words
from jaxcontam.errors import InputError
from jaxcontam.report.comparison import (
    ORDER,
    PAGE_NAME,
    RANKING,
    TABLE_NAME,
    ComparedKind,
    comparison_page,
    comparison_sentences,
    design_of,
    difference_sentences,
    difference_words,
)
from jaxcontam.report.page import render
from jaxcontam.report.report_files import (
    REPORT_NAME,
    make_folder,
    read_report,
    replace_files,
)
from jaxcontam.report.table_csv import csv_text
from jaxcontam.results import OrderResult, Report
from jaxcontam.results.comparison import ComparedTest
from jaxcontam.results.membership import N_PERMUTATIONS, ScoreResult, SetResult
from jaxcontam.stats.multiple import holm
from jaxcontam.terminal import Terminal, printable, shell_line
from jaxcontam.verdict import CONTAMINATED_LEVEL

# Half the width of a normal 95 % interval, in standard errors.
_NORMAL = 1.96


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Put finished reports of several models, checkpoints or tests on one page.

    Examples:
        # checkpoints side by side
        jaxcontam compare runs/audit/STEP-1000 runs/audit/STEP-2000
        # two tests of one model
        jaxcontam compare runs/audit/M-direction runs/audit/M-reversal
        # three models
        jaxcontam compare runs/a runs/b runs/c --out runs/compare/abc
    """

    directory: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR...")
    ]
    """Folders of finished runs of audit, or of membership, in the order to be shown."""
    out: Path | None = None
    """Folder for comparison.html and comparison.csv (default: runs/compare/DIGEST)."""

    def __post_init__(self) -> None:
        if len(self.directory) < 2:
            raise InputError(
                f"{len(self.directory)} report: nothing to compare it with",
                hint="name the folders of two or more finished runs",
            )

    def run(self) -> list[ComparedTest]:
        """Write the page and the table, print a line per benchmark; the tests."""
        folders = list(map(path_word, self.directory))
        reports = [_read(path) for path in self.directory]
        tests, warnings = compared(reports, folders)
        digests = "".join(report.digest for report in reports)
        name = hashlib.sha256(digests.encode()).hexdigest()[:8]
        out = self.out or Path("runs/compare") / name
        sentences = comparison_sentences(tests, CONTAMINATED_LEVEL)
        page = comparison_page(
            tests,
            kind=_kind_of(reports[0], folders[0]),
            sentences=sentences,
            warnings=warnings,
            command=shell_line(
                ["jaxcontam", "compare", *folders, "--out", path_word(out)]
            ),
            words=method_words(test.method for test in tests),
        )
        make_folder(out)
        table = csv_text([dataclasses.asdict(test) for test in tests])
        files = {out / TABLE_NAME: table, out / PAGE_NAME: render(page)}
        replace_files({path: text.encode() for path, text in files.items()})
        console = Terminal()
        for line in (*sentences, *(f"{warning}." for warning in warnings)):
            console.print(line)
        console.say(f"\ncomparison: {printable(out / PAGE_NAME)}")
        return tests


def compared(
    reports: Sequence[Report], folders: Sequence[str]
) -> tuple[list[ComparedTest], list[str]]:
    """The deciding tests of several reports, corrected together, and what differs.

    Raises:
        InputError: If they are not of one kind that can be compared, or two are of the
            same model, benchmark and test, or all are one test of one model.
    """
    kind = _kind_of(reports[0], folders[0])
    found: dict[tuple[str, str, str], ComparedTest] = {}
    designs: dict[tuple[str, str, str], dict[str, object]] = {}
    for report, folder in zip(reports, folders, strict=True):
        if (other := _kind_of(report, folder)) is not kind:
            raise InputError(
                f"{folders[0]} has {kind.name}, {folder} has {other.name}",
                hint="compare reports of audit, or reports of membership",
            )
        for test, design in _tests_of(report, folder, kind):
            key = (test.model_fingerprint, test.method, test.benchmark)
            if key in found:
                said = ", ".join((test.model, test.benchmark, test.method))
                other = difference_words([designs[key], design])
                raise InputError(
                    f"{folder}: the same model, benchmark and test as "
                    f"{found[key].report} ({said})"
                    + f", but not made alike ({other})"
                    * bool(other),
                    hint="name one of the two" if other else "name each report once",
                )
            found[key], designs[key] = test, design
    if len({key[:2] for key in found}) < 2:
        (name, *_) = {f"{test.model}, {test.method}" for test in found.values()}
        raise InputError(
            f"all reports are of one model and test ({name})",
            hint="its benchmarks stand side by side if one report tests them all",
        )
    labels = _labels(list(found.values()))
    differences = {
        name: difference_words([own for key, own in designs.items() if key[2] == name])
        for _, _, name in designs
    }
    p_adjusted = holm(np.array([test.p_value for test in found.values()]))
    # Adjusted p-values rise with every p-value: none can be below that of all floors.
    floors = holm(np.array([test.p_floor or 0.0 for test in found.values()]))
    tests = [
        dataclasses.replace(
            test,
            model=labels[test.model_fingerprint, test.method],
            p_adjusted_all=adjusted,
            p_adjusted_floor=floor,
            comparable=not differences[test.benchmark],
        )
        for test, adjusted, floor in zip(
            found.values(), p_adjusted.tolist(), floors.tolist(), strict=True
        )
    ]
    return tests, difference_sentences(differences)


def _read(directory: Path) -> Report:
    try:
        return read_report(directory / REPORT_NAME)
    except InputError as e:
        raise _damaged(str(directory), e) from e


def _deciding(report: Report) -> list[OrderResult | ScoreResult | SetResult]:
    return [
        row
        for row in report.results
        if isinstance(row, OrderResult | ScoreResult | SetResult) and row.primary
    ]


def _kind_of(report: Report, folder: str) -> ComparedKind:
    """The kind of the tests that decide; refuses reports of other commands."""
    rows, made_by = _deciding(report), report.command[0]
    # Studies are modules, whose names have a dot.
    is_audit = made_by == "audit" or "." in made_by
    # A set of texts as a whole has no interval.
    wanted = OrderResult if is_audit else ScoreResult
    if rows and report.model and all(isinstance(row, wanted) for row in rows):
        if is_audit:
            return ORDER
        if made_by == "membership":
            return RANKING
    raise InputError(
        f"{folder}: no test of a model that can be compared (a report of {made_by})",
        hint="compare reads reports of jaxcontam audit, and of jaxcontam membership "
        "with known members and non-members",
    )


def _damaged(folder: str, error: Exception) -> InputError:
    return InputError(
        f"{folder}: cannot be compared ({error})",
        hint="it is damaged, or not of this version; jaxcontam verify says what "
        "differs",
    )


def _tests_of(
    report: Report, folder: str, kind: ComparedKind
) -> list[tuple[ComparedTest, dict[str, object]]]:
    """The tests of one report, corrected within it alone, each with its design."""
    found = []
    model = report.model
    assert model is not None
    for row in _deciding(report):
        assert not isinstance(row, SetResult)
        columns = _columns(row)
        if None in (columns["p_value"], row.p_adjusted, row.verdict):
            raise _damaged(folder, ValueError("a deciding test without a verdict"))
        columns |= {
            "model": model.name,
            "report": folder,
            "model_fingerprint": model.fingerprint,
            "benchmark_fingerprint": row.fingerprint,
            "p_adjusted_all": row.p_adjusted,
            "p_adjusted_floor": 0.0,
            "comparable": True,
        }
        test = ComparedTest(**columns)
        try:
            _check_values(test)
        except ValueError as e:
            raise _damaged(folder, e) from e
        found.append((test, design_of(report, model, row, kind)))
    return found


def _check_values(test: ComparedTest) -> None:
    """Raise ValueError for what no command writes."""
    for name in ("p_value", "p_adjusted"):
        if not 0 <= getattr(test, name) <= 1:
            raise ValueError(f"{name} is {getattr(test, name)}")
    if test.log10_p > 0:
        raise ValueError(f"log10_p is {test.log10_p}")
    ends = (test.effect_low, test.effect, test.effect_high)
    known = [end for end in ends if end is not None]
    if len(known) not in (0, 1, 3) or sorted(known) != known:
        raise ValueError(f"effect and its interval are {ends}")


def _columns(row: OrderResult | ScoreResult) -> dict[str, Any]:
    """What a test says of itself, under the names of `ComparedTest`."""
    numbers = getattr(row, "numbers", row)
    columns: dict[str, Any] = {
        field.name: getattr(numbers, field.name, getattr(row, field.name, None))
        for field in dataclasses.fields(ComparedTest)
    }
    if isinstance(row, ScoreResult):
        return columns | {
            "log10_p": math.log10(row.p_value) if row.p_value else -math.inf,
            "p_floor": 1 / (1 + N_PERMUTATIONS),
            "effect": row.auc,
            "effect_se": row.auc_se,
            "effect_low": row.auc_low,
            "effect_high": row.auc_high,
            "effect_unit": "AUC",
            "n_examples": row.n_members + row.n_nonmembers,
        }
    effect, se = row.numbers.effect, row.numbers.effect_se
    if effect is not None and se is not None:
        columns["effect_low"] = effect - _NORMAL * se
        columns["effect_high"] = effect + _NORMAL * se
    return columns


def _labels(tests: Sequence[ComparedTest]) -> dict[tuple[str, str], str]:
    """(Fingerprint, test) -> the model's name, and what else tells it from the rest.

    A folder where two models have one name, the test where a model took several.
    """
    models = {test.model_fingerprint: test for test in reversed(tests)}
    shared = os.path.commonpath([Path(test.report).parent for test in tests])
    names = [test.model for test in models.values()]
    kinds = dict.fromkeys((test.model_fingerprint, test.method) for test in tests)
    asked = [fingerprint for fingerprint, _ in kinds]
    labels = {}
    for fingerprint, method in kinds:
        test = models[fingerprint]
        own = os.path.relpath(test.report, shared)
        folder = f" ({own})" * (names.count(test.model) > 1)
        several = f", {method}" * (asked.count(fingerprint) > 1)
        labels[fingerprint, method] = f"{test.model}{folder}{several}"
    return labels
