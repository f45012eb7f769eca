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

from jaxcontam.commands.method_notes import method_notes
from jaxcontam.comparison_results import ComparedTest
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
from jaxcontam.stats.multiple import holm
from jaxcontam.terminal import Terminal
from jaxcontam.verdict import CONTAMINATED_LEVEL

# Fields of a result that a comparison takes as they are.
_TAKEN = ("benchmark", "method", "verdict", "p_value", "p_adjusted")
_TAKEN_OF_ORDER = (
    *("log10_p", "effect", "effect_se", "mde", "effect_unit", "validity"),
    *("n_examples", "n_strata", "n_orders"),
)
# Half the width of a normal 95 % interval, in standard errors.
_NORMAL = 1.96


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Put finished reports of several models or checkpoints on one page."""

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
        for document, folder in zip(documents, folders, strict=True):
            _check_fields(document, folder)
        tests, warnings = compared(documents, folders)
        digests = "".join(document.get("digest", "") for document in documents)
        name = hashlib.sha256(digests.encode()).hexdigest()[:8]
        out = self.out or Path("runs/compare") / name
        words = ["jaxcontam", "compare", *map(str, self.directory), "--out", str(out)]
        rows = [row for document in documents for row in _deciding(document)]
        notes = method_notes({"results": rows})
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
    for document, folder in zip(documents, folders, strict=True):
        if (other := _kind_of(document, folder)) is not kind:
            raise InputError(
                f"{folders[0]} has {kind.name}, {folder} has {other.name}",
                hint="compare reports of audit, or reports of membership",
            )
    found: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any], str]] = {}
    for document, folder in zip(documents, folders, strict=True):
        for row in _deciding(document):
            key = (document["model"]["fingerprint"], row["benchmark"])
            if key in found:
                raise InputError(
                    f"{folder}: the same model and benchmark as {found[key][2]} "
                    f"({document['model']['name']}, {row['benchmark']})",
                    hint="name each report once",
                )
            found[key] = (document, row, folder)
    if len({fingerprint for fingerprint, _ in found}) < 2:
        raise InputError(
            f"all reports are of one model ({documents[0]['model']['name']})",
            hint="its benchmarks stand side by side if one audit tests them all",
        )
    labels = _labels(documents, folders)
    p_adjusted = holm(np.array([row["p_value"] for _, row, _ in found.values()]))
    designs: dict[str, list[dict[str, object]]] = {}
    for document, row, _ in found.values():
        designs.setdefault(row["benchmark"], []).append(design_of(document, row, kind))
    differences = {name: difference_words(rows) for name, rows in designs.items()}
    tests = [
        ComparedTest(
            model=labels[fingerprint],
            report=folder,
            model_fingerprint=fingerprint,
            benchmark_fingerprint=row["fingerprint"],
            p_adjusted_all=adjusted,
            comparable=not differences[benchmark],
            **_numbers(row),
        )
        for ((fingerprint, benchmark), (_, row, folder)), adjusted in zip(
            found.items(), p_adjusted.tolist(), strict=True
        )
    ]
    return tests, difference_sentences(differences)


def _check_fields(document: dict[str, Any], folder: str) -> None:
    """Refuses a report in which a field is missing or of another kind."""
    kinds = get_type_hints(ComparedTest)
    try:
        kind = _kind_of(document, folder)
        for row in _deciding(document):
            if not 0 <= row["p_value"] <= 1:
                raise ValueError(f"p_value is {row['p_value']}")
            design_of(document, row, kind)
            for name, value in _numbers(row).items():
                # JSON does not tell 1 from 1.0.
                allowed = kinds[name] if kinds[name] is str else kinds[name] | int
                if not isinstance(value, allowed):
                    raise TypeError(f"{name} is {value!r}")
        method_notes({"results": _deciding(document)})
    except DAMAGE as e:
        raise InputError(
            f"{folder}: cannot be compared ({e!r})",
            hint="it is damaged, or not of this version; jaxcontam verify says what "
            "differs",
        ) from e


def _kind_of(document: dict[str, Any], folder: str) -> ComparedKind:
    """Of the tests that decide; refuses reports of other commands."""
    rows = _deciding(document)
    if document["model"] is not None:
        if rows and all("n_strata" in row for row in rows):
            return ORDER
        if rows and all("auc" in row for row in rows):
            return RANKING
    made_by = " ".join(document["command"][:1])
    raise InputError(
        f"{folder}: no test of a model that can be compared (a report of {made_by})",
        hint="compare reads reports of jaxcontam audit, and of jaxcontam membership "
        "with known members",
    )


def _deciding(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in document["results"] if row.get("primary")]


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of a test that stand in its own report."""
    taken = {name: row[name] for name in _TAKEN}
    if "auc" in row:
        return taken | {
            "log10_p": math.log10(row["p_value"]),
            "effect": row["auc"],
            "effect_se": row.get("auc_se"),
            "effect_low": row.get("auc_low"),
            "effect_high": row.get("auc_high"),
            "mde": None,
            "effect_unit": "AUC",
            # Of labels that were assigned by chance, by permutation.
            "validity": "exact",
            "n_examples": row["n_members"] + row["n_nonmembers"],
            "n_strata": None,
            "n_orders": None,
        }
    low = high = None
    if row["effect"] is not None and row["effect_se"] is not None:
        low = row["effect"] - _NORMAL * row["effect_se"]
        high = row["effect"] + _NORMAL * row["effect_se"]
    return (
        taken
        | {name: row[name] for name in _TAKEN_OF_ORDER}
        | {"effect_low": low, "effect_high": high}
    )


def _labels(
    documents: Sequence[dict[str, Any]], folders: Sequence[str]
) -> dict[str, str]:
    """Fingerprint -> the model's name, with a folder where two models share it."""
    models = {
        document["model"]["fingerprint"]: (document["model"]["name"], folder)
        for document, folder in zip(documents, folders, strict=True)
    }
    names = [name for name, _ in models.values()]
    return {
        fingerprint: name if names.count(name) == 1 else f"{name} ({folder})"
        for fingerprint, (name, folder) in models.items()
    }
