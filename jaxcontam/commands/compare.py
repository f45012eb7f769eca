"""`jaxcontam compare`: reports of several models or checkpoints on one page."""

import dataclasses
import hashlib
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import tyro

from jaxcontam.analyses.method_notes import method_notes
from jaxcontam.errors import InputError
from jaxcontam.report.comparison import (
    comparison_sentences,
    design_of,
    difference_sentences,
    difference_words,
    write_comparison,
)
from jaxcontam.report.comparison_kinds import ORDER, RANKING, ComparedKind
from jaxcontam.report.document import DAMAGE, REPORT_NAME, read_document
from jaxcontam.results.comparison import ComparedTest
from jaxcontam.results.membership import N_PERMUTATIONS
from jaxcontam.stats.multiple import holm
from jaxcontam.terminal import Terminal
from jaxcontam.verdict import CONTAMINATED_LEVEL

# Fields of a result that a comparison takes as they are.
_TAKEN = ("benchmark", "method", "verdict", "p_value", "p_adjusted")
_TAKEN_OF_ORDER = (
    *("log10_p", "p_floor", "effect", "effect_se", "mde", "effect_unit", "validity"),
    *("n_examples", "n_strata", "n_orders"),
)
# Half the width of a normal 95 % interval, in standard errors.
_NORMAL = 1.96


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Put finished reports of several models or checkpoints on one page.

    Examples:
        # checkpoints side by side
        jaxcontam compare runs/audit/STEP-1000 runs/audit/STEP-2000
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
        """Write the page and the table, print a line a benchmark; the tests."""
        documents = [read_document(path / REPORT_NAME) for path in self.directory]
        folders = list(map(str, self.directory))
        tests, warnings = compared(documents, folders)
        digests = "".join(str(document.get("digest")) for document in documents)
        name = hashlib.sha256(digests.encode()).hexdigest()[:8]
        out = self.out or Path("runs/compare") / name
        words = ["jaxcontam", "compare", *map(str, self.directory), "--out", str(out)]
        notes = method_notes({"results": [{"method": test.method} for test in tests]})
        sentences = comparison_sentences(tests, CONTAMINATED_LEVEL)
        page = write_comparison(
            tests,
            out,
            kind=_kind_of(documents[0], folders[0]),
            sentences=sentences,
            warnings=warnings,
            command=shlex.join(words),
            methods=notes,
        )
        console = Terminal(highlight=False, soft_wrap=True)
        for line in [*sentences, *[f"{w}." for w in warnings]]:
            console.print(line)
        console.print(f"\ncomparison: {page}")
        return tests


def compared(
    documents: Sequence[dict[str, Any]], folders: Sequence[str]
) -> tuple[list[ComparedTest], list[str]]:
    """The deciding tests of several reports, corrected together, and what differs.

    Args:
        documents: As in `report.json`.
        folders: Where each stands.

    Raises:
        InputError: If they are not of one kind that can be compared, or two are of the
            same model and benchmark, or all are of one model.
    """
    kind = _kind_of(documents[0], folders[0])
    found: dict[tuple[str, str], ComparedTest] = {}
    designs: dict[str, list[dict[str, object]]] = {}
    for document, folder in zip(documents, folders, strict=True):
        if (other := _kind_of(document, folder)) is not kind:
            raise InputError(
                f"{folders[0]} has {kind.name}, {folder} has {other.name}",
                hint="compare reports of audit, or reports of membership",
            )
        for test, design in _tests_of(document, folder, kind):
            key = (test.model_fingerprint, test.benchmark)
            if key in found:
                raise InputError(
                    f"{folder}: the same model and benchmark as {found[key].report} "
                    f"({test.model}, {test.benchmark})",
                    hint="name each report once",
                )
            found[key] = test
            designs.setdefault(test.benchmark, []).append(design)
    if len({fingerprint for fingerprint, _ in found}) < 2:
        raise InputError(
            f"all reports are of one model ({documents[0]['model']['name']})",
            hint="its benchmarks stand side by side if one report tests them all",
        )
    labels = _labels(list(found.values()))
    differences = {name: difference_words(rows) for name, rows in designs.items()}
    p_adjusted = holm(np.array([test.p_value for test in found.values()]))
    # Adjusted p-values rise with every p-value: none can be below that of all floors.
    floors = holm(np.array([test.p_floor or 0.0 for test in found.values()]))
    tests = [
        dataclasses.replace(
            test,
            model=labels[test.model_fingerprint],
            p_adjusted_all=adjusted,
            p_adjusted_floor=floor,
            comparable=not differences[test.benchmark],
        )
        for test, adjusted, floor in zip(
            found.values(), p_adjusted.tolist(), floors.tolist(), strict=True
        )
    ]
    return tests, difference_sentences(differences)


def _kind_of(document: dict[str, Any], folder: str) -> ComparedKind:
    """Of the tests that decide; refuses reports of other commands."""
    try:
        rows, made_by = _deciding(document), str(document["command"][0])
        # Studies are modules, whose names have a dot.
        if rows and document["model"] is not None:
            if made_by == "audit" or "." in made_by:
                if all("n_strata" in row for row in rows):
                    return ORDER
            # A set of texts as a whole has no interval.
            elif made_by == "membership" and all("auc_low" in row for row in rows):
                return RANKING
    except DAMAGE as e:
        raise _damaged(folder, e) from e
    raise InputError(
        f"{folder}: no test of a model that can be compared (a report of {made_by})",
        hint="compare reads reports of jaxcontam audit, and of jaxcontam membership "
        "with known members and non-members",
    )


def _damaged(folder: str, error: Exception) -> InputError:
    return InputError(
        f"{folder}: cannot be compared ({error!r})",
        hint="it is damaged, or not of this version; jaxcontam verify says what "
        "differs",
    )


def _deciding(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in document["results"] if row.get("primary")]


def _tests_of(
    document: dict[str, Any], folder: str, kind: ComparedKind
) -> list[tuple[ComparedTest, dict[str, object]]]:
    """The tests of one report, corrected within it alone, each with its design.

    Raises:
        InputError: If a field is missing, of another kind or out of range.
    """
    found = []
    try:
        for row in _deciding(document):
            test = ComparedTest(
                model=document["model"]["name"],
                report=folder,
                model_fingerprint=document["model"]["fingerprint"],
                benchmark_fingerprint=row["fingerprint"],
                p_adjusted_all=row["p_adjusted"],
                p_adjusted_floor=0.0,
                comparable=True,
                **(_ranking(row) if kind is RANKING else _order_test(row)),
            )
            _check_values(test)
            found.append((test, design_of(document, row, kind)))
    except DAMAGE as e:
        raise _damaged(folder, e) from e
    return found


def _check_values(test: ComparedTest) -> None:
    """Refuses what no command writes.

    Raises:
        TypeError: If a value is of another kind than its field.
        ValueError: If one is out of range.
    """
    kinds = get_type_hints(ComparedTest)
    for name, value in dataclasses.asdict(test).items():
        # JSON does not tell 1 from 1.0.
        kind = kinds[name] if kinds[name] in (str, bool) else kinds[name] | int
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
    for name in ("p_value", "p_adjusted"):
        if not 0 <= getattr(test, name) <= 1:
            raise ValueError(f"{name} is {getattr(test, name)}")
    if test.log10_p > 0:
        raise ValueError(f"log10_p is {test.log10_p}")
    ends = (test.effect_low, test.effect, test.effect_high)
    known = [end for end in ends if end is not None]
    if len(known) not in (0, 1, 3) or sorted(known) != known:
        raise ValueError(f"effect and its interval are {ends}")


def _ranking(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of a membership score."""
    return {name: row[name] for name in _TAKEN} | {
        "log10_p": math.log10(row["p_value"]),
        "p_floor": 1 / (1 + N_PERMUTATIONS),
        "effect": row["auc"],
        "effect_se": row["auc_se"],
        "effect_low": row["auc_low"],
        "effect_high": row["auc_high"],
        "mde": None,
        "effect_unit": "AUC",
        "validity": None,
        "n_examples": row["n_members"] + row["n_nonmembers"],
        "n_strata": None,
        "n_orders": None,
    }


def _order_test(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of an order test."""
    low = high = None
    if row["effect"] is not None and row["effect_se"] is not None:
        low = row["effect"] - _NORMAL * row["effect_se"]
        high = row["effect"] + _NORMAL * row["effect_se"]
    taken = {name: row[name] for name in (*_TAKEN, *_TAKEN_OF_ORDER)}
    return taken | {"effect_low": low, "effect_high": high}


def _labels(tests: Sequence[ComparedTest]) -> dict[str, str]:
    """Fingerprint -> the model's name, with a folder where two models share it."""
    models = {test.model_fingerprint: test for test in reversed(tests)}
    names = [test.model for test in models.values()]
    return {
        fingerprint: test.model
        if names.count(test.model) == 1
        else f"{test.model} ({test.report})"
        for fingerprint, test in models.items()
    }
