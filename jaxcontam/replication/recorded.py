"""Completions and labels read back: of other people's files, of sheets, of a report.

Files have the layout of those that came with the paper: a row holds both pieces, or the
two sentences of a pair, and what the model wrote with either instruction; scores and
judgements may stand beside. On a sheet people judge completions without knowing what
others say of them. A report's own rows give its results again.

Dimension key
    N  instances
"""

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.benchmark import check_characters, parse_records, read_text
from jaxcontam.data.tables import Record
from jaxcontam.data.templates import field_of, is_missing
from jaxcontam.errors import InputError
from jaxcontam.progress import Bar, silent
from jaxcontam.replication.control import independence_words
from jaxcontam.replication.flags import ReplicationDesign
from jaxcontam.replication.hidden import COMPARISONS
from jaxcontam.replication.instances import (
    Instance,
    instances_fingerprint,
    sentence_starts,
)
from jaxcontam.replication.judges import (
    ByPerson,
    Judged,
    Judgement,
    People,
    judge_version,
    judgement_of,
    parse_judgement,
)
from jaxcontam.replication.judging import (
    ARMS,
    CONTROL,
    HUMAN,
    JUDGES,
    LLM,
    LOCAL,
    OF_REFERENCE,
    PARTITION,
    Arm,
    Partition,
    measured,
)
from jaxcontam.replication.overlap import ROUGE_L, Measure, measure_and_test
from jaxcontam.replication.page import (
    AskedInstance,
    ReplicationReport,
    replication_page,
    replication_words,
)
from jaxcontam.reports.archive import ASKED, TEXTS_NAME, read_text_rows, typed_rows
from jaxcontam.reports.page import Page
from jaxcontam.reports.recompute import Rebuilt, Row, kind_of_texts
from jaxcontam.reports.report import Report
from jaxcontam.reports.report_files import replace_bytes
from jaxcontam.scoring.completer import Completion
from jaxcontam.terminal_text import cell_text, printable

_PIECES = (("first_piece", "second_piece"), ("sentence1", "sentence2"))
_COMPLETION = "generated_{}_completion"
_SCORES = {
    "rouge_l": "rouge_score_for_{}_completion",
    "bleurt": "bleurt_score_for_{}_completion",
}
_ARMS, _REFERENCE = ("guided", "general"), "reference"
_MODEL_JUDGE = "gpt4_icl_evaluation"
_PEOPLE = ("annotator1_evaluation", "annotator2_evaluation")
_KNOWN = {
    *(name for pair in _PIECES for name in pair),
    *(_COMPLETION.format(arm) for arm in (*_ARMS, _REFERENCE)),
    *(column.format(arm) for column in _SCORES.values() for arm in _ARMS),
    *("text", "label", _MODEL_JUDGE, *_PEOPLE),
}
_TAKEN_FOR_BLEURT_20 = (
    "the file's BLEURT scores are assumed to be those of BLEURT-20, since it does not "
    "name the model"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A partition with completions, scores and labels, as far as the file has them.

    Scores are guided and general ones by measure, nan for an empty cell.
    """

    name: str
    instances: tuple[Instance, ...]
    guided: tuple[Completion, ...]
    general: tuple[Completion, ...] | None
    reference: tuple[Completion, ...] | None
    scores: Mapping[str, tuple[np.ndarray, np.ndarray]]
    model_judge: Judged | None
    people: ByPerson
    others: tuple[Mapping[str, object], ...]


def recorded_partition(
    path: Path,
    design: ReplicationDesign,
    *,
    measures: Sequence[Measure] = (),
    bar: Bar = silent,
) -> Partition:
    """Read completions, those of the control as well, and measure them."""
    group_field = design.named("document")
    recorded = read_recorded(path, group_field=group_field)
    files, warnings = {PARTITION: recorded}, []
    if design.control is not None:
        files[CONTROL] = read_recorded(design.control, group_field=group_field)
        others = [row for file in files.values() for row in file.others]
        warnings += independence_words(others, read=(), group_field=group_field)
    arms = {
        name: Arm(instances=file.instances, guided=file.guided)
        for name, file in files.items()
    }
    arms[PARTITION] = dataclasses.replace(arms[PARTITION], general=recorded.general)
    of_reference, judged = {}, {}
    for name, file in files.items():
        if (guided := file.reference) is not None:
            of_reference[OF_REFERENCE[name]] = Arm(
                instances=file.instances, guided=guided
            )
        if file.model_judge is not None:
            judged[name] = file.model_judge
    if len(of_reference) == len(OF_REFERENCE):
        arms |= of_reference
    humans = None
    if recorded.people:
        humans = People(labels=recorded.people, source="people's labels in the file")
    partition = Partition(
        name=recorded.name,
        fingerprint=instances_fingerprint(recorded.instances),
        prompt_version=None,
        arms=arms,
        group_field=group_field,
        llm=judged if PARTITION in judged else {},
        llm_version="recorded with the completions" if PARTITION in judged else None,
        llm_decides=False,
        humans=humans,
        warnings=tuple(warnings),
    )
    partition = measured(partition, measures, bar=bar)
    bleurt_20 = {
        name: file.scores["bleurt"][0]
        for name, file in files.items()
        if "bleurt" in file.scores
    }
    if bleurt_20 and "bleurt" not in partition.overlaps:
        words = (*partition.warnings, _TAKEN_FOR_BLEURT_20)
        partition = dataclasses.replace(partition, bleurt_20=bleurt_20, warnings=words)
    # What can be measured again is; a score of a model that is not here is kept.
    measured_here = partition.overlaps
    overlaps = {**measured_here, **recorded.scores, **measured_here}
    return dataclasses.replace(partition, overlaps=overlaps)


def read_recorded(path: Path, *, group_field: str | None = None) -> Recorded:
    """Read one partition; `group_field` is the column of instances' sources.

    Source:
        The results that came with Golchin and Surdeanu, arXiv:2308.08493.
    """
    records = parse_records(path, read_text(path))
    if not records:
        raise InputError(f"{path}: no rows")
    check_characters(records)
    where, _, row = records[0]
    if row is None:
        raise InputError(f"{where}: no columns", hint="expected a table of completions")
    columns = set(row)
    pieces = next((pair for pair in _PIECES if set(pair) <= columns), None)
    if pieces is None or _COMPLETION.format("guided") not in columns:
        raise InputError(
            f"{path}: no file of completions (columns: {', '.join(sorted(columns))})",
            hint="name columns first_piece and second_piece (or sentence1 and "
            "sentence2) and generated_guided_completion; to compare instructions, also "
            "generated_general_completion",
        )

    def completions(arm: str) -> tuple[Completion, ...] | None:
        column = _COMPLETION.format(arm)
        if column not in columns:
            return None
        return tuple(Completion(text=_cell(record, column)) for record in records)

    scores: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for measure, column in _SCORES.items():
        if {column.format(arm) for arm in _ARMS} <= columns:
            guided_N, general_N = (
                _numbers(records, column.format(arm)) for arm in _ARMS
            )
            scores[measure] = guided_N, general_N
    judged = None
    if _MODEL_JUDGE in columns:
        labels: tuple[Judgement | None, ...] = tuple(
            parse_judgement(_cell(record, _MODEL_JUDGE)) for record in records
        )
        judged = Judged(labels=labels, n_unparsed=labels.count(None))
    has_label = "label" in columns
    return Recorded(
        name=printable(path.stem),
        instances=tuple(
            _instance(record, i, *pieces, has_label=has_label, group_field=group_field)
            for i, record in enumerate(records)
        ),
        guided=completions("guided") or (),
        general=completions("general"),
        reference=completions(_REFERENCE),
        scores=scores,
        model_judge=judged,
        people=tuple(
            tuple(_label(record, column) for record in records)
            for column in _PEOPLE
            if column in columns
        ),
        others=tuple(
            {name: value for name, value in (row or {}).items() if name not in _KNOWN}
            for _, _, row in records
        ),
    )


def _cell(record: Record, column: str) -> str:
    where, _, row = record
    value = row.get(column) if row is not None else None
    if not isinstance(value, str):
        raise InputError(f"{where}: column {column!r}: no text")
    return value


def _instance(
    record: Record,
    index: int,
    first: str,
    second: str,
    *,
    has_label: bool,
    group_field: str | None,
) -> Instance:
    where, _, row = record
    group = None
    if group_field is not None:
        hint = f"--fields document={group_field} must name a column"
        group = field_of(row, group_field, where, hint=hint)
        if is_missing(group):
            raise InputError(
                f"{where}: {group_field} is null",
                hint="give each row a value, and one of its own to a row that shares "
                "its source with no other",
            )
    before, after = (_cell(record, column).strip() for column in (first, second))
    for piece, column in ((before, first), (after, second)):
        if not piece:
            raise InputError(f"{where}: column {column!r}: empty")
    is_whole = len(before) + 1 in sentence_starts(f"{before} {after}")
    label = row.get("label") if row is not None and has_label else None
    return Instance(
        index=index,
        first_piece=before,
        second_piece=after,
        # As text, whatever JSON made it.
        label=None if is_missing(label) or label == "" else str(label),
        cut="pair" if first == "sentence1" else "sentence" if is_whole else "inside",
        group=None if group is None else str(group),
    )


def _numbers(records: list[Record], column: str) -> np.ndarray:
    """Numbers (N,) float64; nan for an empty cell."""
    numbers_N = np.full(len(records), np.nan)
    for i, (where, _, row) in enumerate(records):
        cell = (row or {}).get(column)
        if cell in (None, ""):
            continue
        with contextlib.suppress(ValueError):
            numbers_N[i] = float(str(cell))
        if not np.isfinite(numbers_N[i]):
            raise InputError(f"{where}: column {column!r}: not a number ({cell!r})")
    return numbers_N


def _label(record: Record, column: str) -> Judgement | None:
    cell = _cell(record, column)
    if not cell.strip():
        return None
    label = judgement_of(cell)
    if label is None:
        raise InputError(
            f"{record[0]}: column {column!r}: unknown judgement {cell!r}",
            hint="one of: Yes (exact match), Yes (near-exact match), No",
        )
    return label


SHEET_NAME = "annotate.csv"
"""Blind sheet in a run's folder for people's labels."""

ANNOTATORS = ("label_1", "label_2")
"""Columns to fill in, one per person; the second may stay empty."""

_TEXTS = ("reference", "candidate")
_COLUMNS = ("id", *_TEXTS, *ANNOTATORS)
# Spreadsheets take a file without it for one of an older encoding than UTF-8.
_MARK = "\ufeff"
_HINT = "fill in exact, near or no; leave a cell empty to skip it"


def kept_sheet(
    instances: Sequence[Instance],
    guided: Sequence[Completion],
    *,
    seed: int,
    out: Path,
) -> Path:
    """Write the blind sheet to a folder; returns where it is.

    One that somebody may have filled in is never replaced: that of this run stays, and
    beside that of another run the next number is taken.
    """
    number, sheet = 1, out / SHEET_NAME
    while sheet.exists():
        try:
            if not is_filled(sheet):
                break
            read_sheet(sheet, instances, guided, seed=seed)
            return sheet
        except InputError:
            # No sheet, or that of another run: what people wrote there stays.
            number += 1
            sheet = out / f"annotate-{number}.csv"
    replace_bytes(sheet, sheet_text(instances, guided, seed=seed).encode())
    return sheet


def sheet_text(
    instances: Sequence[Instance], guided: Sequence[Completion], *, seed: int
) -> str:
    """The empty sheet as CSV, in a random order of its rows."""
    rows = [*_sheet_rows(instances, guided, seed).items()]
    order = np.random.default_rng([seed, len(rows)]).permutation(len(rows))
    buffer = io.StringIO(newline="")
    buffer.write(_MARK)
    writer = csv.writer(buffer)
    writer.writerow(_COLUMNS)
    for i in order:
        name, (_, *texts) = rows[i]
        writer.writerow([name, *map(cell_text, texts), *("" for _ in ANNOTATORS)])
    return buffer.getvalue()


def is_filled(path: Path) -> bool:
    """True if somebody wrote a label into a sheet; InputError if it is no sheet."""
    rows = _read_sheet(path)
    return any(row.get(name, "").strip() for row in rows for name in ANNOTATORS)


def read_sheet(
    path: Path,
    instances: Sequence[Instance],
    guided: Sequence[Completion],
    *,
    seed: int,
) -> People:
    """Read a sheet back, in any order of rows, wholly or partly filled.

    Columns may be split by commas, semicolons or tabs. InputError names a row that is
    of another run, occurs twice or with other texts, or has an unknown label.
    """
    rows = _sheet_rows(instances, guided, seed)
    labels: list[list[Judgement | None]] = [[None] * len(instances) for _ in ANNOTATORS]
    seen: set[str] = set()
    for number, cells in enumerate(_read_sheet(path), 2):
        where, name = f"{path}: row {number}", cells["id"].strip()
        if name not in rows:
            raise InputError(
                f"{where}: unknown id {cells['id']!r}",
                hint="give the sheet of this run, model and seed",
            )
        if name in seen:
            raise InputError(f"{where}: id {name!r} occurs twice")
        seen.add(name)
        place, *texts = rows[name]
        if [_plain(cells[column]) for column in _TEXTS] != [*map(_plain, texts)]:
            raise InputError(
                f"{where}: texts differ from those of id {name!r}",
                hint="check that no column was sorted without the others",
            )
        for person, column in enumerate(ANNOTATORS):
            word = cells.get(column, "").strip()
            label = judgement_of(word)
            if word and label is None:
                raise InputError(
                    f"{where}: {column}: unknown label {word!r}", hint=_HINT
                )
            labels[person][place] = label
    given = tuple(tuple(of_person) for of_person in labels if any(of_person))
    if not given:
        raise InputError(f"{path}: no label is filled in", hint=_HINT)
    return People(labels=given, source="a sheet that people filled in")


def _sheet_rows(
    instances: Sequence[Instance], guided: Sequence[Completion], seed: int
) -> dict[str, tuple[int, str, str]]:
    """Name of each row -> place of its instance, reference and candidate."""
    found = {}
    for place, (instance, one) in enumerate(zip(instances, guided, strict=True)):
        if one.refused:
            continue
        reference, candidate = instance.second_piece, one.text.strip()
        key = [seed, place, instance.first_piece, reference, candidate]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        # Digits alone, or 1e5, would be a number to a spreadsheet.
        found["row-" + digest[:12]] = place, reference, candidate
    return found


def _read_sheet(path: Path) -> list[dict[str, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e
    except UnicodeDecodeError as e:
        raise InputError(
            f"{path}: byte {e.start}: not UTF-8", hint="save it as CSV UTF-8"
        ) from e
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    reader = csv.DictReader(
        io.StringIO(text, newline=""), delimiter=delimiter, restval=""
    )
    for name in ("id", *_TEXTS, ANNOTATORS[0]):
        if name not in (reader.fieldnames or ()):
            raise InputError(
                f"{path}: no column {name!r}", hint=f"a sheet has {', '.join(_COLUMNS)}"
            )
    try:
        return [row for row in reader if any(row.values())]
    except csv.Error as e:
        raise InputError(f"{path}: row {reader.line_num}: not CSV ({e})") from e


def _plain(text: str) -> str:
    """A text without marks and spaces that a spreadsheet may change."""
    return " ".join(text.replace("'", "").split())


def partition_from_rows(
    stated: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> Partition:
    """Undo `Partition.rows`; what can be measured without a model is measured again.

    `stated` are rows of the report without further methods.
    """
    by_method = {row["method"]: row for row in stated}
    local, llm, human = by_method[LOCAL], by_method.get(LLM), by_method.get(HUMAN)
    of_arm = {name: [row for row in rows if row["arm"] == name] for name in ARMS}
    of_arm = {name: own for name, own in of_arm.items() if own}
    in_question = of_arm[PARTITION]
    arms = {
        name: Arm(
            instances=tuple(
                Instance(
                    index=row["id"],
                    first_piece=row["first_piece"],
                    second_piece=row["second_piece"],
                    label=row["label"],
                    cut=row["cut"],
                    group=row.get("group"),
                )
                for row in own
            ),
            guided=_completions(own, "guided"),
            general=_completions(own, "general") if "general" in own[0] else None,
        )
        for name, own in of_arm.items()
    }
    overlaps = {}
    for name in (measure_and_test(m)[0] for m in by_method if m not in JUDGES):
        guided_N, general_N = (_floats(in_question, f"{name}_{arm}") for arm in _ARMS)
        overlaps[name] = guided_N, general_N
    if arms[PARTITION].general is not None and "rouge_l" in overlaps:
        overlaps["rouge_l"] = arms[PARTITION].overlaps(ROUGE_L)
    has_bleurt = local["judge_version"] == judge_version(with_bleurt=True)
    humans = None
    if human is not None:
        labels = (tuple(row[HUMAN] for row in in_question),)
        humans = People(labels=labels, source=human["judge_version"])
    return Partition(
        name=local["benchmark"],
        fingerprint=instances_fingerprint(arms[PARTITION].instances),
        prompt_version=local["prompt_version"],
        arms=arms,
        group_field=local.get("group_field"),
        overlaps=overlaps,
        bleurt_20={
            name: _floats(own, "bleurt_guided")
            for name, own in of_arm.items()
            if has_bleurt
        },
        llm={
            name: _judged(name, own, llm)
            for name, own in of_arm.items()
            if llm is not None and LLM in own[0]
        },
        llm_version=None if llm is None else llm["judge_version"],
        llm_decides=llm is not None and llm["primary"],
        humans=humans,
    )


def _judged(
    name: str, rows: Sequence[Mapping[str, Any]], stated: Mapping[str, Any]
) -> Judged:
    labels = tuple(row[LLM] for row in rows)
    if name in (PARTITION, CONTROL):
        n = "n" if name == PARTITION else "n_control"
        return Judged(
            labels=labels,
            n_unparsed=stated[f"{n}_unparsed"],
            n_refused=stated[f"{n}_refused"],
        )
    # Both arms of a reference share one count.
    n_refused = 0
    if name == OF_REFERENCE[PARTITION]:
        n_refused = (stated.get("reference") or {}).get("n_refused", 0)
    return Judged(labels=labels, n_refused=n_refused)


def _completions(
    rows: Sequence[Mapping[str, Any]], kind: str
) -> tuple[Completion, ...]:
    return tuple(
        Completion(text=row[kind], refused=row[f"{kind}_refused"]) for row in rows
    )


def _floats(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else row[name] for row in rows])


def _page(report: Report, directory: Path) -> Page:
    rows = [row for row in read_text_rows(directory, ASKED) if "first_piece" in row]
    asked = typed_rows(rows, AskedInstance)
    return replication_page(report, asked, replication_words(report))


def _again(document: Row, rows: Sequence[Row]) -> Rebuilt:
    """Overlaps, judges and tests of a replication report; further methods stay."""
    others = [row for row in document["results"] if row["method"] in COMPARISONS]
    stated = [row for row in document["results"] if row not in others]
    partition = partition_from_rows(stated, rows)
    answers = [row for row in rows if row["arm"] not in ARMS]
    return {
        "results": [*partition.results(seed=document["seed"]), *others],
        TEXTS_NAME: [*partition.rows(), *answers],
    }


REPLICATION = kind_of_texts(
    report=ReplicationReport,
    words=replication_words,
    page=_page,
    rebuild=_again,
    checked="ROUGE-L, the local judge, counts, p-values, verdicts and digests agree; "
    "other measures, other judges and further methods need their models and were not "
    "run again",
    fields=ASKED,
    skip=("warnings",),
)
"""Reports of `replicate`: their rows, page and check."""
