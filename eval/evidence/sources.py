"""What finished studies found, method by method, out of the files that they left.

Rows of power that lack a field, as another version may write them, are left out; a file
without any row of use is an error.
"""

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.study import grouped
from jaxcontam.errors import InputError
from jaxcontam.methods import METHODS
from jaxcontam.stats.shares import wilson_interval

Document = Mapping[str, Any]

LEVEL = 0.001
"""Level of the tests whose power is gathered: that of `contaminated`."""

LIRA_STUDY = "eval.lira"
BESIDE_LIRA = ("loss", "min_k")
"""Scores of one pass that are shown of the LiRA study too."""

SHARE_FOUND = f"share of sets with p <= {LEVEL:g}"
AUC = "AUC of members against non-members"
WRITTEN = "instances written from memory; sets found"

# Fields of a row of power that say something.
_NEEDED = {"test", "copies", "level", "n_rejected", "n_models"}
# Variants are named by their method and what is special; one of them by a short name.
_SHORT = {"t": "sharded_t"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a study found by one method.

    Attributes:
        method: A row of METHODS or of `replicate`, `lira`, or a blind baseline.
        variant: Its name in the study, where that is another.
        what: What the numbers are.
        over: What their intervals are over, and of which kind; empty where they have
            none.
        found: Copies -> the number with its interval, in words; 0 is never read.
        cost: Measured, in words; empty where it was not.
        study: Such as `eval.power`.
    """

    method: str
    variant: str = ""
    what: str
    over: str = ""
    found: Mapping[int, str]
    cost: str = ""
    study: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One study's file.

    Attributes:
        study: Such as `eval.power`.
        file: Where it should stand.
        command: That makes it.
        about: On what it was measured, in words; empty where it is missing.
        date: Date of the run.
        code: That ran.
        rows: What it found; none where it is missing.
    """

    study: str
    file: str
    command: str
    about: str = ""
    date: str = ""
    code: str = ""
    rows: tuple[Measured, ...] = ()


def read_source(study: str, file: Path, command: str) -> Source:
    """Read a study's file.

    Args:
        study: One of `READERS`.
        file: As the study wrote it.
        command: That makes it.

    Returns:
        What it found; a source without rows where there is no such file.

    Raises:
        InputError: If the file holds something else.
    """
    source = Source(study=study, file=str(file), command=command)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return source
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"{file}: not readable ({e})") from e
    try:
        document = json.loads(text)
        _check_study(document, study)
        about, rows = READERS[study](document)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise InputError(
            f"{file}: not a file of {study} ({type(e).__name__}: {e})",
            hint=f"make it again: {command}",
        ) from e
    if not rows:
        raise InputError(
            f"{file}: no numbers of {study}", hint=f"make it again: {command}"
        )
    return dataclasses.replace(
        source,
        command=" ".join(("python -m", *document["command"])),
        about=about,
        date=str(document.get("started", ""))[:10],
        code=str(document.get("code") or "")[:12],
        rows=tuple(rows),
    )


def _check_study(document: Document, study: str) -> None:
    """Refuse a file of another study, whose numbers may be of any other thing."""
    found = document["command"][0]
    if found != study:
        raise ValueError(f"it is of {found}")
    wanted = STUDIES[study]
    # A command with several studies writes files that differ in this field alone.
    name = document["study"] if study in SEVERAL else document.get("study", wanted)
    if name != wanted:
        raise ValueError(f"it is the study {name!r}, not {wanted!r}")


def _power(document: Document) -> tuple[str, list[Measured]]:
    """Power at `LEVEL` in the population with the most models, of whole plain sets."""
    cells: dict[str, list[Document]] = {}
    for row in document["power"]:
        is_plain = set(row) >= _NEEDED and not row.get("setting")
        if is_plain and row["level"] == LEVEL:
            cells.setdefault(str(row.get("design", "")), []).append(row)
    if not cells:
        return "", []
    design = max(cells, key=lambda name: max(row["n_models"] for row in cells[name]))
    largest = max(row.get("n_examples", 0) for row in cells[design])
    whole = [row for row in cells[design] if row.get("n_examples", 0) == largest]
    rows = []
    for test, mine in _grouped(whole, "test").items():
        passes = [row["passes"] for row in mine if row.get("passes") is not None]
        rows.append(
            Measured(
                method=_method_of(test),
                variant="" if test in METHODS else test,
                what=SHARE_FOUND,
                over="models (Wilson)",
                found=_by_copies((row["copies"], _share_words(row)) for row in mine),
                cost=f"{statistics.fmean(passes):.1f} passes" if passes else "",
                study="eval.power",
            )
        )
    most = max(row["n_models"] for row in whole)
    of_size = f", sets of {largest}" if largest else ""
    return f"{most} models of population {design!r}{of_size}", rows


def _membership(document: Document) -> tuple[str, list[Measured]]:
    """Rows of the study of copies: others have other things than copies in `x`."""
    n_models = len(document["seeds"])
    cells = [
        *document["cells"],
        *({**one, "method": f"blind: {one['method']}"} for one in document["blind"]),
    ]
    rows = [
        Measured(
            method=name,
            what=AUC,
            over=f"texts, pooled from {n_models} models (DeLong)",
            found=_by_copies((one["x"], _auc_words(one)) for one in mine),
            study="eval.membership",
        )
        for name, mine in _grouped(cells, "method").items()
    ]
    facts = document.get("facts", {})
    size = facts.get("n_parameters")
    of_size = f" of {size:,} parameters" if size else ""
    return f"{n_models} models{of_size}", rows


def _lira(document: Document) -> tuple[str, list[Measured]]:
    """LiRA, and on the same targets and texts the two scores that it is held against.

    The other scores of that study stand in its own table.
    """
    found = _grouped(document["rows"], "score")
    seconds = document.get("design", {}).get("cpu_seconds_a_model")
    n = len(document["seeds"])
    shadows = f"{n - 1} shadow models"
    shadows += f", {seconds:.1f} CPU s each" * bool(seconds)
    lira = [name for name in found if name.startswith("lira")]
    rows = [
        Measured(
            method="lira" if name in lira else name,
            variant=name if name in lira else "",
            what=AUC,
            over="targets and texts (bootstrap)",
            found=_by_copies(
                (row["copies"], _auc_words(row["rates"])) for row in found[name]
            ),
            cost=shadows if name in lira else "",
            study=LIRA_STUDY,
        )
        for name in (*lira, *(name for name in BESIDE_LIRA if name in found))
    ]
    return f"{n} models, each a target once", rows


def _replication(document: Document) -> tuple[str, list[Measured]]:
    """Sets that were asked for in the form in which they were read, and unread ones."""
    copies = int(document["scale"]["copies"])
    asked_as_read = {"formatted": "classification", "raw": "plain"}
    read = [
        row
        for row in document["rows"]
        if asked_as_read.get(row["planted"]) == row["asked"]
    ]
    unread = [row for row in document["rows"] if row["planted"] == "unseen"]
    if not read:
        return "", []
    rows = [
        Measured(
            method="judge_local",
            what=WRITTEN,
            found={0: _written(unread), copies: _written(read)},
            study="eval.replication",
        )
    ]
    for method, field in (
        ("rouge_l_sign_flip", "p_overlap"),
        ("rouge_l_paired_bootstrap", "p_paired_bootstrap"),
    ):
        sides = {
            count: [row[field] for row in some if row.get(field) is not None]
            for count, some in ((0, unread), (copies, read))
        }
        if sides[copies]:
            rows.append(
                Measured(
                    method=method,
                    what=SHARE_FOUND,
                    found={
                        count: f"{sum(p <= LEVEL for p in ps)} of {len(ps)}"
                        for count, ps in sides.items()
                        if ps
                    },
                    study="eval.replication",
                )
            )
    seeds = {row["seed"] for row in document["rows"]}
    return f"{len(seeds)} models, sets read {copies} times as they are asked", rows


def _by_copies(cells: Iterable[tuple[float, str]]) -> dict[int, str]:
    """Copies -> words.

    Raises:
        ValueError: If a number of copies is not whole, or stands there twice.
    """
    found: dict[int, str] = {}
    for copies, words in cells:
        if copies != int(copies) or copies < 0:
            raise ValueError(f"{copies} is no number of copies")
        if copies in found:
            raise ValueError(f"{copies} copies stand there twice")
        found[int(copies)] = words
    return found


STUDIES = {
    "eval.power": "power",
    "eval.membership": "copies",
    "eval.lira": "lira",
    "eval.replication": "replication",
}
"""What the field `study` of their files says."""
SEVERAL = {"eval.membership"}
"""Commands of more than one study; a file of another command may lack the field."""

READERS: Mapping[str, Callable[[Document], tuple[str, list[Measured]]]] = {
    "eval.power": _power,
    "eval.membership": _membership,
    "eval.lira": _lira,
    "eval.replication": _replication,
}


def _grouped(rows: Sequence[Document], field: str) -> dict[str, list[Document]]:
    """Rows by a field."""
    return grouped(rows, lambda row: str(row[field]))


def _method_of(test: str) -> str:
    """The method that a variant is analysed by; its own name where none is known."""
    begin = test.split(", ")[0]
    begin = _SHORT.get(begin, begin)
    return begin if begin in METHODS else test


def _share_words(row: Document) -> str:
    low, high = row.get("low"), row.get("high")
    if low is None or high is None:
        low, high = wilson_interval(row["n_rejected"], row["n_models"])
    return f"{row['n_rejected'] / row['n_models']:.2f} ({low:.2f}-{high:.2f})"


def _auc_words(row: Document) -> str:
    return f"{row['auc']:.3f} ({row['auc_low']:.3f}-{row['auc_high']:.3f})"


def _written(rows: Sequence[Document]) -> str:
    """Copies of all instances, and sets whose verdict is contaminated."""
    written = sum(row["n_exact"] + row["n_near"] for row in rows)
    found = sum(row["verdict"] == "contaminated" for row in rows)
    return (
        f"{written} of {sum(row['n'] for row in rows)}; {found} of {len(rows)} sets"
        if rows
        else ""
    )
