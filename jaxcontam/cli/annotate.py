"""`jaxcontam annotate`: verdicts of audits beside the scores of a leaderboard."""

import csv
import dataclasses
import functools
import io
import json
import operator
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.cli.flags import Annotate
from jaxcontam.data.files import check_file
from jaxcontam.data.records import MAX_RECORD
from jaxcontam.data.tables import CsvTable
from jaxcontam.errors import InputError, nearest
from jaxcontam.proof.advice import verdict_fields
from jaxcontam.proof.result import OrderResult
from jaxcontam.reports.report_files import (
    REPORT_NAME,
    is_sealed,
    read_report,
    write_new_files,
)
from jaxcontam.reports.table_csv import csv_cell
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import printable

SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".eval")
FIELD = "contamination"
"""Name of what is added, and start of the names of added columns."""

NOT_AUDITED = "not audited"

_MODELS = ("model", "model_name", "name")
_BENCHMARKS = ("benchmark", "task", "dataset")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
# Arguments that may name lm-eval's model: an adapter makes another model of it.
_ARGUMENTS = ("peft", "delta", "pretrained", "model", "path")
# Members of a .eval file: one with everything but the samples, or two of older logs.
_HEADERS = (("header.json",), ("start.json", "results.json"))

Fields = Mapping[str, Any]
"""Words about one score: `verdict` and, if it was audited, what it rests on."""


@dataclasses.dataclass(frozen=True, slots=True)
class ScoredBenchmark:
    """A benchmark that a model has a score of, under names that an audit may use.

    `put` adds what is said of it to the document. A column of a table that may hold
    something else is not `is_sure`.
    """

    model: str
    benchmarks: tuple[str, ...]
    put: Callable[[Fields], None]
    is_sure: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreFile:
    """Scores of a `kind` of file, and its text, to be written with a suffix."""

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
        fitting = ((kind, read) for kind, names, read in _KINDS if names <= {*rows[0]})
        kind, read = next(fitting, ("table", None))
        of_rows = [_table(rows, path)] if read is None else map(read, rows)
        scores = tuple(score for own in of_rows for score in own)
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
        names = row["evaluation_name"], row["source_data"]["dataset_name"]
        details = row["score_details"].setdefault("details", {})
        if not isinstance(details, dict):
            raise TypeError("details is not an object")
        put = functools.partial(_put, details, FIELD, form=str)
        model = str(record["model_info"]["id"])
        scores.append(ScoredBenchmark(model, tuple(dict.fromkeys(names)), put))
    return scores


def _table(rows: list[dict[str, Any]], path: Path) -> Iterator[ScoredBenchmark]:
    """Scores of a table: one a row where a column names the benchmark, else many."""
    columns = {str(name).lower(): name for name in rows[0]}
    model, benchmark = (
        next((columns[name] for name in names if name in columns), None)
        for names in (_MODELS, _BENCHMARKS)
    )
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


_KINDS = (
    ("lm-evaluation-harness", {"results", "config"}, _lm_eval),
    ("Inspect", {"eval", "status"}, _inspect),
    ("Every Eval Ever", {"evaluation_results", "model_info"}, _every_eval_ever),
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
    try:
        with zipfile.ZipFile(path) as file:
            for names in _HEADERS:
                if set(names) <= set(file.namelist()):
                    parts = [json.loads(_member(file, name)) for name in names]
                    return functools.reduce(operator.or_, parts)
    except (zipfile.BadZipFile, RuntimeError, EOFError, zlib.error) as e:
        raise InputError(
            f"{path}: not readable ({e})",
            hint="convert it with `inspect log convert --to json`",
        ) from e
    raise InputError(f"{path}: no finished log (no {_HEADERS[0][0]} in it)")


def _member(file: zipfile.ZipFile, name: str) -> bytes:
    # What another packing unpacks to has no bound.
    known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if file.getinfo(name).compress_type not in known:
        raise zipfile.BadZipFile(f"{name} is not deflated")
    with file.open(name) as member:
        data = member.read(MAX_RECORD + 1)
    if len(data) > MAX_RECORD:
        raise zipfile.BadZipFile(f"{name} is longer than {MAX_RECORD >> 20} MiB")
    return data


_MOST_NAMED = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """The verdict of one benchmark in one report.

    A report calls its model by the word that was typed, and by the name of its folder.
    Of several audits of one question the heaviest counts: whether a reference stands
    beside the model, and when the audit started.
    """

    names: tuple[str, ...]
    benchmark: str
    fields: dict[str, Any]
    weight: tuple[bool, str]


def annotate(command: Annotate) -> None:
    """Match, write, and say what matched and what did not."""
    file = read_scores(command.results)
    audits = [audited for folder in command.audit for audited in _audits_in(folder)]
    same: dict[str, str] = {}
    # Names as reports show them: what a harness wrote may be of the raw folder.
    for word in map(printable, command.same):
        name, _, other = word.partition("=")
        if not (name and other):
            raise InputError(
                f"--same must be A=B, got {word!r}",
                hint="such as --same Pythia=EleutherAI/pythia-160m",
            )
        same[name] = other
    by_model: dict[str, list[Audited]] = {}
    for one in audits:
        for name in map(printable, one.names):
            by_model.setdefault(name, []).append(one)
    known = {printable(one.benchmark) for one in audits}
    used: set[tuple[str, str]] = set()
    without = []
    console = Terminal()
    lines = [f"{printable(command.results)} ({file.kind}):"]
    for score in file.scores:
        name = f"{score.model} on {score.benchmarks[0]}"
        model, *words = map(printable, (score.model, *score.benchmarks))
        benchmarks = {same.get(word, word) for word in words}
        own = by_model.get(same.get(model, model).removesuffix("@main"), [])
        _check_one(own, "model_fingerprint", score.model)
        found = [one for one in own if printable(one.benchmark) in benchmarks]
        _check_one(found, "benchmark_fingerprint", name)
        _check_one(found, "benchmark", name)
        if found:
            chosen = max(found, key=lambda audited: audited.weight)
            fields = chosen.fields
            used |= {(one.fields["report"], one.benchmark) for one in found}
            score.put(fields)
            words = [fields["verdict"], fields["test"], fields["report"]]
            lines.append(f"  {name}: {', '.join(words)}")
            lines += _passed_over(found, chosen)
        elif score.is_sure or known & benchmarks:
            score.put({"verdict": NOT_AUDITED})
            without.append(name)
    if not used:
        raise _nothing(command.results, file.scores, audits)
    out = command.out or command.results.with_suffix(f".annotated{file.suffix}")
    write_new_files([(out, file.text().encode(errors="backslashreplace"), 0o666)])
    if without:
        lines.append(f"{NOT_AUDITED}, {len(without)}: {_few(without)}")
    for one in audits:
        report = one.fields["report"]
        if (report, one.benchmark) not in used:
            words = f"no score for {one.names[0]} on {one.benchmark} ({report})"
            lines.append(words)
    console.say(*lines, f"\nannotated: {printable(out)}")


def _audits_in(folder: Path) -> list[Audited]:
    places = [folder, *sorted(path.parent for path in folder.glob(f"*/{REPORT_NAME}"))]
    reports = [place for place in places if (place / REPORT_NAME).is_file()]
    found = [audited for place in reports for audited in _audits_of(place)]
    if not found:
        raise InputError(
            f"{folder}: no {REPORT_NAME} of an audit, nor in a folder in it",
            hint="name folders that `jaxcontam audit` wrote",
        )
    return found


def _audits_of(folder: Path) -> list[Audited]:
    path = folder / REPORT_NAME
    report = read_report(path)
    if not is_sealed(path.read_bytes(), report.digest):
        raise InputError(
            f"{path}: differs from its digest",
            hint="see jaxcontam verify: it was changed after it was written",
        )
    if report.model is None or report.command[:1] != ("audit",):
        return []
    words = [*report.command[1:2], report.model.name]
    names = tuple(dict.fromkeys(word.removesuffix("@main") for word in words))
    tests = [row for row in report.results if isinstance(row, OrderResult)]
    return [
        Audited(
            names=names,
            benchmark=row.benchmark,
            fields=verdict_fields(report, row, folder.as_posix()),
            weight=(report.reference is not None, report.started),
        )
        for row in (*(test for test in tests if test.primary), *report.unscored)
    ]


def _passed_over(found: Sequence[Audited], chosen: Audited) -> list[str]:
    digest = chosen.fields["report_digest"]
    fields = [one.fields for one in found if one.fields["report_digest"] != digest]
    others = {own["report"]: own["verdict"] for own in fields}
    if not others:
        return []
    kind = "the newest with a reference" if chosen.weight[0] else "the newest"
    said = "; ".join(f"{verdict} in {folder}" for folder, verdict in others.items())
    return [f"    {kind} of {len(others) + 1} audits; not counted: {said}"]


def _check_one(found: Sequence[Audited], field: str, what: str) -> None:
    chosen = {a.fields[field]: f"{a.benchmark} in {a.fields['report']}" for a in found}
    if len(chosen) > 1:
        raise InputError(
            f"{what}: two audits fit ({', '.join(list(chosen.values())[:2])})",
            hint="name one of them with --audit",
        )


def _nothing(
    results: Path, scores: Sequence[ScoredBenchmark], audits: Sequence[Audited]
) -> InputError:
    models = [score.model for score in scores]
    known = [name for audited in audits for name in audited.names]
    benchmarks = [audited.benchmark for audited in audits]
    close = next(filter(None, (nearest(model, known) for model in models)), "")
    return InputError(
        f"{results}: no score of an audited model and benchmark (scores of: "
        f"{_few(models)}; audited: {_few(known)} on {_few(benchmarks)})",
        hint=f"{close}use --same A=B if two names mean one model or one benchmark",
    )


def _few(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = ", ..." if len(distinct) > _MOST_NAMED else ""
    return ", ".join(distinct[:_MOST_NAMED]) + more
