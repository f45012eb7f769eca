"""Files of benchmark scores, as harnesses and leaderboards write them.

Read: results of lm-evaluation-harness (0.4), logs of Inspect (.json, and .eval whose
members are deflated), records of Every Eval Ever (schema 0.2), and tables (.csv, .tsv,
.json, .jsonl) with a row a score or a row a model. Each keeps every field that it has;
a verdict goes where its own readers pass over it.
"""

import csv
import dataclasses
import functools
import io
import json
import operator
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxcontam.data.files import check_file
from jaxcontam.data.records import MAX_RECORD
from jaxcontam.data.tables import CsvTable
from jaxcontam.errors import InputError
from jaxcontam.report.table_csv import csv_cell

SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".eval")
FIELD = "contamination"
"""Name of what is added, and start of the names of added columns."""

NOT_AUDITED = "not audited"

_MODELS = ("model", "model_name", "name")
_BENCHMARKS = ("benchmark", "task", "dataset")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
# Of the arguments that may name lm-eval's model: an adapter makes another model of it.
_ARGUMENTS = ("peft", "delta", "pretrained", "model", "path")
# Members of a .eval file: one with everything but the samples, or two of older logs.
_HEADERS = (("header.json",), ("start.json", "results.json"))

Fields = Mapping[str, Any]
"""What is said of one score: `verdict` and, if it was audited, what it rests on."""


@dataclasses.dataclass(frozen=True, slots=True)
class ScoredBenchmark:
    """A benchmark that a model has a score of.

    Attributes:
        model: What the file calls the model.
        benchmarks: What it calls the benchmark; any of them may be an audit's.
        put: Adds what is said of it to the document.
        is_sure: False for a column of a table that may hold something else.
    """

    model: str
    benchmarks: tuple[str, ...]
    put: Callable[[Fields], None]
    is_sure: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreFile:
    """What a file holds.

    Attributes:
        kind: Who writes such files.
        suffix: Of the file that the text belongs in.
    """

    kind: str
    scores: tuple[ScoredBenchmark, ...]
    text: Callable[[], str]
    suffix: str


def read_scores(path: Path) -> ScoreFile:
    """Read a file of scores."""
    check_file(path, SUFFIXES)
    suffix = path.suffix.lower()
    try:
        if suffix == ".eval":
            found, suffix = _zipped(path), ".json"
        elif suffix in _DELIMITERS:
            return _delimited(path, _DELIMITERS[suffix])
        elif suffix == ".jsonl":
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            found = [json.loads(line) for line in lines if line.strip()]
        elif suffix == ".json":
            found = json.loads(path.read_text(encoding="utf-8-sig"))
        else:
            hint = f"one of {', '.join(SUFFIXES)}"
            raise InputError(f"{path}: unknown suffix {path.suffix!r}", hint=hint)
        rows = found if isinstance(found, list) else [found]
        if not rows or not all(isinstance(row, dict) for row in rows):
            raise InputError(f"{path}: expected an object, or a list of objects")
        kind, scores = _scores_of(rows, path)
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not {path.suffix[1:]} ({e})") from e
    except (KeyError, TypeError, AttributeError) as e:
        raise InputError(f"{path}: a field is missing or of another type ({e})") from e

    def text() -> str:
        if suffix == ".jsonl":
            return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        buffer = io.StringIO()
        # A million rows in parts, where `dumps` holds every number as a string.
        json.dump(found, buffer, indent=2, ensure_ascii=False)
        return buffer.getvalue() + "\n"

    return ScoreFile(kind, scores, text, suffix)


def _scores_of(
    rows: list[dict[str, Any]], path: Path
) -> tuple[str, tuple[ScoredBenchmark, ...]]:
    """Kind of a document, by the fields of its first object, and its scores."""
    for kind, names, read in _KINDS:
        if names <= rows[0].keys():
            return kind, tuple(score for row in rows for score in read(row))
    return "table", tuple(_table(rows, path))


def _lm_eval(document: dict[str, Any]) -> list[ScoredBenchmark]:
    """Scores of lm_eval 0.4: `results` by task, how it ran in `config`, `configs`."""
    arguments = document.get("config", {}).get("model_args") or {}
    if isinstance(arguments, str):
        parts = (part.partition("=") for part in arguments.split(","))
        arguments = {name.strip(): value for name, _, value in parts}
    named = [str(arguments[name]) for name in _ARGUMENTS if name in arguments]
    model = str(named[0] if named else document.get("model_name"))
    revision = str(arguments.get("revision") or "main")
    if revision != "main":
        model = f"{model}@{revision}"
    block = document[FIELD] = {}
    scores = []
    for task in document["results"]:
        how = document.get("configs", {}).get(task, {})
        # The split that the harness scores.
        split = how.get("test_split") or how.get("validation_split")
        names = (task, f"{task}-{split}") if split else (task,)
        put = functools.partial(block.__setitem__, task)
        scores.append(ScoredBenchmark(model, names, put))
    return scores


def _inspect(document: dict[str, Any]) -> list[ScoredBenchmark]:
    """The score of an Inspect log, which is of one task; `metadata` is of its user."""
    about, results = document["eval"], document.get("results")
    if results is None:
        raise ValueError(f"a log without results, status {document.get('status')!r}")
    task, dataset = str(about["task"]), about.get("dataset", {}).get("name")
    names = dict.fromkeys((task, task.rpartition("/")[2], dataset))
    metadata = results["metadata"] = results.get("metadata") or {}
    put = functools.partial(metadata.__setitem__, FIELD)
    return [ScoredBenchmark(str(about["model"]), tuple(filter(None, names)), put)]


def _every_eval_ever(record: dict[str, Any]) -> list[ScoredBenchmark]:
    """Scores of a record; its schema allows more fields in `details`, of strings."""
    scores = []
    for row in record["evaluation_results"]:
        names = dict.fromkeys(
            (row["evaluation_name"], row["source_data"]["dataset_name"])
        )
        details = row["score_details"].setdefault("details", {})
        if not isinstance(details, dict):
            raise TypeError("details is no object")
        put = functools.partial(_put, details, FIELD, form=str)
        model = str(record["model_info"]["id"])
        scores.append(ScoredBenchmark(model, tuple(names), put))
    return scores


def _table(rows: list[dict[str, Any]], path: Path) -> Iterator[ScoredBenchmark]:
    """Scores of a table: one a row where a column names the benchmark, else many."""
    columns = {str(name).lower(): name for name in rows[0]}
    model = next((columns[name] for name in _MODELS if name in columns), None)
    benchmark = next((columns[name] for name in _BENCHMARKS if name in columns), None)
    if model is None:
        raise InputError(
            f"{path}: no column {_MODELS[0]!r} (it has: {', '.join(columns)[:200]})",
            hint="results of lm_eval, a log of Inspect, a record of Every Eval Ever, "
            "or a table with a column `model`, and `benchmark` or one a benchmark",
        )
    for row in rows:
        if benchmark is not None:
            places = [(str(row[benchmark]), FIELD)]
        else:
            places = [(name, f"{name}_{FIELD}") for name in columns.values()]
        for name, prefix in places:
            if name == model or FIELD in name:
                continue
            put, is_sure = functools.partial(_put, row, prefix), benchmark is not None
            yield ScoredBenchmark(str(row[model]), (name,), put, is_sure)


def _put(
    row: dict[str, Any],
    prefix: str,
    fields: Fields,
    form: Callable[[Any], Any] = lambda value: value,
) -> None:
    row |= {f"{prefix}_{name}": form(value) for name, value in fields.items()}


_KINDS: tuple[tuple[str, frozenset[str], Callable[..., Iterable[ScoredBenchmark]]], ...]
_KINDS = (
    ("lm-evaluation-harness", frozenset({"results", "config"}), _lm_eval),
    ("Inspect", frozenset({"eval", "status"}), _inspect),
    (
        "Every Eval Ever",
        frozenset({"evaluation_results", "model_info"}),
        _every_eval_ever,
    ),
)


def _delimited(path: Path, delimiter: str) -> ScoreFile:
    with path.open(encoding="utf-8-sig", newline="") as file:
        table = CsvTable(path, file.read(), delimiter)
    rows: list[dict[str, Any]] = [dict(row or {}) for _, _, row in table.rows()]
    if not rows:
        raise InputError(f"{path}: no rows")
    given = list(rows[0])
    scores = tuple(_table(rows, path))

    def text() -> str:
        buffer = io.StringIO()
        added = dict.fromkeys(name for row in rows for name in row)
        writer = csv.writer(buffer, delimiter=delimiter)
        writer.writerow(added)
        writer.writerows(
            [row[name] if name in given else csv_cell(row.get(name)) for name in added]
            for row in rows
        )
        return buffer.getvalue()

    return ScoreFile("table", scores, text, path.suffix.lower())


def _zipped(path: Path) -> dict[str, Any]:
    """An Inspect log without its samples, which can be large."""
    try:
        with zipfile.ZipFile(path) as file:
            for names in _HEADERS:
                if set(names) <= set(file.namelist()):
                    parts = [json.loads(_member(file, name)) for name in names]
                    return functools.reduce(operator.or_, parts)
    except (zipfile.BadZipFile, RuntimeError, EOFError, zlib.error) as e:
        raise InputError(
            f"{path}: not readable ({e})",
            hint="`inspect log convert --to json` writes a log that is",
        ) from e
    raise InputError(f"{path}: no finished log (no {_HEADERS[0][0]} in it)")


def _member(file: zipfile.ZipFile, name: str) -> bytes:
    # What another packing unpacks to has no bound.
    if file.getinfo(name).compress_type not in (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
    ):
        raise zipfile.BadZipFile(f"{name} is not deflated")
    with file.open(name) as member:
        data = member.read(MAX_RECORD + 1)
    if len(data) > MAX_RECORD:
        raise zipfile.BadZipFile(f"{name} is longer than {MAX_RECORD >> 20} MiB")
    return data
