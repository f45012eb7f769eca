"""What is fuzzed: files that a user gives, words of commands, folders of runs.

Hypothesis takes what is valid, in `inputs` or here, and damages it a little.
"""

import contextlib
import copy
import csv
import dataclasses
import functools
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from hypothesis import strategies as st

from jaxcontam.cli.main import COMMANDS, main, parse
from jaxcontam.data.answer_options import read_items
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.corpus import read_documents
from jaxcontam.data.journal import Journal
from jaxcontam.data.release import (
    KIND,
    METHOD,
    METHOD_VERSION,
    make_release,
    read_release,
)
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import load_labelled
from jaxcontam.models.checkpoint import read_decoder_config
from jaxcontam.proof.command import read_matrix
from jaxcontam.proof.result import Evidence
from jaxcontam.replication.instances import load_prompts
from jaxcontam.replication.recorded import read_recorded
from jaxcontam.reports.archive import read_arrays, read_text_rows
from jaxcontam.reports.report_files import (
    ARCHIVE_NAME,
    PAGE_NAME,
    REPORT_NAME,
    SUMS_NAME,
    sealed_text,
)
from jaxcontam.reports.table_csv import RESULTS_NAME
from jaxcontam.scoring.api.address import ApiError, ApiModel, RefusedError, Server
from jaxcontam.scoring.api.answers import Reply, read_reply
from jaxcontam.scoring.api.logprobs import Way, read_prompt_scores
from tests.faults.folders import allowed, contents
from tests.support.train_corpus import manifest_of, planted_set
from train.manifest import manifest_json, read_manifest
from train.plant import read_plan

# What readers stumble over: ends of lines, quotes, marks, halves of characters, numbers
# that are none or too large, brackets that nest.
CHUNKS = (
    *(b"", b"\n", b"\r\n", b"\r", b"\x00", b'"', b"'", b",", b"\t", b"{", b"}", b"["),
    *(b"]", b":", b"\\", b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"\xff\xfe", b"\xff"),
    *(b"\xed\xa0\x80", "\u2028".encode(), "\U0001f600".encode(), b"\x1b[2J", b"<b>"),
    *(b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 5000, b"0" * 30, b"null", b"true"),
    *(b"[" * 20_000, b'{"a":' * 20_000, b"{q}", b"{", b"$", b"../x", b"A" * 10_000),
)
VALUES = (
    *(None, True, False, 0, 1, -1, 2**31, -(2**63), 2**64, 10**400, 0.5, 1e308),
    *(float("nan"), float("inf"), "", "a", "\x00", "\ud800", "\x1b]0;x\x07", "<b>"),
    *("[/red]", "$^$", "../x", "9" * 50, [], [[]], [None], {}, {"a": 1}, [1, "a"]),
    -0.0,
)

_values = st.recursive(
    st.sampled_from(VALUES) | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)
_bytes = st.sampled_from(CHUNKS) | st.binary(max_size=6)
_WAYS = st.sampled_from(("replace", "replace", "drop", "rename", "twice", "negate"))


def damaged(data):
    """Strategy of files that a few edits make of `data`: cut, doubled, overwritten."""
    edit = st.tuples(st.floats(0, 1), st.integers(0, 30), _bytes, st.booleans())
    return st.lists(edit, min_size=1, max_size=4).map(lambda edits: _cut(data, edits))


def _cut(data, edits):
    for place, n, chunk, cuts in edits:
        at = int(place * len(data))
        rest = b"" if cuts and n > 25 else data[at + n :]
        # A chunk that stands for itself, and for what it replaces twice.
        data = data[:at] + (chunk or data[at : at + n] * 2) + rest
    return data


def changed(document):
    """Strategy of JSON documents with some values replaced, dropped or renamed."""
    edit = st.tuples(st.integers(0, 10**6), _WAYS, _values)
    edits = st.lists(edit, min_size=1, max_size=3)
    return edits.map(lambda edits: _changed(document, edits))


def _changed(document, edits):
    document = copy.deepcopy(document)
    # Copies: an edit may change what an edit before it put there.
    for pick, way, value in copy.deepcopy(edits):
        places = list(_places(document))
        if not places:
            return value
        holder, key = places[pick % len(places)]
        old = holder[key]
        if way == "replace":
            holder[key] = value
        elif way == "drop":
            del holder[key]
        elif way == "rename" and isinstance(holder, dict):
            holder[str(value)[:20]] = holder.pop(key)
        elif way == "twice" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(old))
        elif way == "negate" and isinstance(old, int | float):
            holder[key] = -old - 1
    return document


def _places(value):
    """Every (container, key) of a document."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(part, dict | list):
            yield from _places(part)


def as_json(document):
    """Bytes of a document; halves of characters stay spelled out."""
    return json.dumps(document).encode()


def jsonl(rows):
    """Records as lines."""
    rows = rows if isinstance(rows, list) else [rows]
    return b"".join(as_json(row) + b"\n" for row in rows)


def _given(name):
    """A valid input."""
    path = Path(__file__).parent / "inputs" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


RECORDS, RECORDED, CONFIG = map(_given, ("records", "recorded", "config"))
KEPT = {"a": {"texts": ["é", ""]}, "b": [1.5, None], "c": "AAAA" * 20}
TEXTS = [{"text": f"t {i}", "scores": {"loss": -i}, "label": i % 2} for i in (1, 2)]
PLAN = b'[[sets]]\nfile = "quiz.jsonl"\ncopies = 3\nname = "q"\nwhen = [0.25, 1]\n'
PLAN += b'limit = 3\norder = "shuffled"\ntemplate = "{question}"\n'
MATRIX = b"1,2.5,3\n-4,5e3,6\n7,8,9\n"
SEED_FILE = {
    **{"kind": KIND, "method": METHOD, "method_version": METHOD_VERSION},
    **{"seed": "0" * 64, "n_examples": 5, "jaxcontam": "0", "made": "2020-01-01"},
    **dict.fromkeys(("content_digest", "released_digest", "file_digest"), "sha256:0"),
}


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind of input.

    Attributes:
        cases: Strategy of inputs.
        run: Reads one, in a folder of its own.
        share: Of all inputs, in hundredths.
    """

    cases: st.SearchStrategy
    run: Callable[[Path, Any], object]
    share: int


def a_file(name, read, data, share):
    """A target that is one file: of bytes, of JSON, or as a strategy draws it."""
    if isinstance(data, bytes):
        cases = damaged(data)
    elif isinstance(data, list | dict):
        cases = changed(data).map(as_json) | damaged(as_json(data))
    else:
        cases = data

    def run(folder, content):
        path = folder / name
        path.write_bytes(content)
        before = contents(folder)
        allowed(lambda: read(path))
        assert contents(folder) == before

    return Target(cases, run, share)


def table(rows, delimiter=","):
    """Rows as .csv or .tsv."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def written(write, value):
    """Bytes of a binary format."""
    stream = io.BytesIO()
    write(value, stream)
    return stream.getvalue()


def read_benchmark(path):
    """In all the ways that flags choose."""
    for flags in (
        {},
        {"limit": 2},
        {"text_field": "question"},
        {"template": "Q: {question} {choices}", "check_fields": True},
    ):
        allowed(lambda flags=flags: load_benchmark(path, **flags).fingerprint)
    allowed(lambda: load_benchmark(path).groups("answer"))
    allowed(lambda: read_items(load_benchmark(path)))


def answered(_, content):
    """A reply with any status and body, to every way of asking."""
    refusals = ApiError, RefusedError, InputError
    server = Server(model=ApiModel("http://x", "m"), api_key="k")
    with contextlib.suppress(*refusals):
        reply = read_reply(server, {}, Reply(200, {}, content), now=0.0)
        for echo, ids, more in (
            (True, False, {"max_tokens": 0}),
            (True, True, {}),
            (False, True, {}),
        ):
            prompt = [1, 2] if ids else "ab cd"
            with contextlib.suppress(ValueError):
                if isinstance(reply, dict):
                    read_prompt_scores(reply, Way(echo=echo, ids=ids, **more), prompt)
    for status in (400, 429, 503):
        with contextlib.suppress(*refusals):
            headers = {"retry-after": content[:20].decode("latin-1")}
            read_reply(server, {}, Reply(status, headers, content), now=0.0)


def manifest():
    """What training writes beside a model."""
    orders = {"token_offsets": (1, 2), "orders": ((0, 1, 2),), "n_examples": 3}
    planted = planted_set("quiz", 2, ((1,), (2,)), **orders, file="sets/quiz.txt")
    return json.loads(manifest_json(manifest_of(planted, context=8, finished=True)))


def plan_beside_its_file(path):
    """A plan whose benchmark is there."""
    quiz = path.with_name("quiz.jsonl")
    quiz.write_bytes(jsonl(RECORDS))
    try:
        read_plan(path)
    finally:
        quiz.unlink()


def journal():
    """Lines as a journal and a store write them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.jsonl"
        for key, value in KEPT.items():
            Journal(path).add(key, value)
        return path.read_bytes()


def read_journal(path):
    """Each value is another's never, and gone at most."""
    kept = Journal(path)
    assert all(kept[key] == KEPT[key] for key in KEPT if key in kept)


def files():
    """(name of the target, name of the file, reader, content, share) of each."""
    lines = jsonl(RECORDS)
    rows = changed(RECORDS).map(jsonl)
    texts = changed(TEXTS).map(jsonl) | damaged(jsonl(TEXTS))
    parquet = written(pyarrow.parquet.write_table, pyarrow.Table.from_pylist(RECORDS))
    npy = written(lambda array, stream: np.save(stream, array), np.eye(4))

    def labels(path):
        load_labelled(path, label_field="answer")

    def release(path):
        make_release(path, seed=bytes(32), version="0", made="")

    def corpus(path):
        list(read_documents(path, text_field="question"))

    def prompts(path):
        load_prompts("summary", path)

    def config(path):
        read_decoder_config(path.parent)

    def texts_beside(path):
        read_text_rows(path.parent)

    return [
        ("benchmark.jsonl", "b.jsonl", read_benchmark, lines, 9),
        ("benchmark.json", "b.json", read_benchmark, RECORDS, 6),
        ("benchmark.csv", "b.csv", read_benchmark, table(RECORDS), 5),
        ("benchmark.tsv", "b.tsv", read_benchmark, table(RECORDS, "\t"), 3),
        ("benchmark.txt", "b.txt", read_benchmark, b"one\ntwo\nthree\n" * 3, 3),
        ("benchmark.parquet", "b.parquet", read_benchmark, parquet, 4),
        ("records of odd values", "b.jsonl", read_benchmark, rows, 5),
        ("labelled texts", "t.jsonl", labels, rows | damaged(lines), 5),
        ("seed file", "s.json", read_release, SEED_FILE, 2),
        ("file to release", "b.jsonl", release, lines, 2),
        ("table to release", "b.csv", release, table(RECORDS), 2),
        ("corpus.jsonl", "c.jsonl", corpus, lines, 3),
        ("corpus.json", "c.json", corpus, as_json(RECORDS), 3),
        ("corpus.csv", "c.csv", corpus, table(RECORDS), 3),
        ("matrix.csv", "m.csv", read_matrix, MATRIX, 5),
        ("matrix.npy", "m.npy", read_matrix, npy, 5),
        ("recorded completions", "r.csv", read_recorded, table([RECORDED] * 3), 5),
        ("prompts.json", "p.json", prompts, _given("prompts"), 3),
        ("plan.toml", "p.toml", plan_beside_its_file, PLAN, 6),
        ("manifest.json", "manifest.json", read_manifest, manifest(), 4),
        ("config.json", "config.json", config, CONFIG, 6),
        ("texts.jsonl", "texts.jsonl", texts_beside, texts, 2),
        ("journal, or scores of a store", "j.jsonl", read_journal, journal(), 5),
    ]


FLAG_VALUES = st.text(max_size=5) | st.sampled_from(
    [
        *(str(value) for value in VALUES),
        *("nan", "-inf", "1e400", "0x10", "1,2", ",", "--", "-", "\n", "\udc80"),
        *("data=0,model=-1", "api:x", "api:http://x#", "hf:", "hf:a:b:c:d", "tfds:x"),
        *("lm_eval:", "a" * 5000, "\u202e", "[/red]", "%s", "{0}", "all", "auto"),
    ]
)


def words_of(name):
    """Flags of a command, and values that are none."""
    fields = dataclasses.fields(COMMANDS[name])
    flag = st.sampled_from(["--" + one.name.replace("_", "-") for one in fields])
    word = flag | FLAG_VALUES | st.tuples(flag, FLAG_VALUES).map("=".join)
    return st.tuples(st.just(name), st.lists(word, max_size=5))


def parse_words(folder, case):
    """Parse a command's words, as `main` does before anything is read."""
    name, words = case
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        allowed(lambda: parse(COMMANDS[name], words, prog=f"jaxcontam {name}"))
    assert contents(folder) == {}


def targets():
    """Name -> target, of what needs neither a model nor a finished run."""
    answer = _given("answer")
    answers = changed(answer).map(as_json) | damaged(as_json(answer))
    commands = sorted(name for name in COMMANDS if dataclasses.fields(COMMANDS[name]))
    words = st.sampled_from(commands).flatmap(words_of)
    return {name: a_file(*about) for name, *about in files()} | {
        "server's answer": Target(answers, answered, 5),
        "words of a command": Target(words, parse_words, 6),
    }


def report_targets(reports):
    """Name -> target, of what needs finished runs.

    Args:
        reports: Name -> folder, each with its report.
    """
    # The archive of scores, which a digest guards elsewhere.
    archive = (reports["prove"] / ARCHIVE_NAME).read_bytes()
    read = functools.partial(read_arrays, n_results=1, kind=Evidence)
    return {"archive": a_file(ARCHIVE_NAME, read, archive, 2)} | {
        f"{command} of {name}": Target(_folders(folder), _RERUNS[command], 2)
        for name, folder in reports.items()
        for command in _RERUNS
    }


def _folders(folder):
    """Strategy of what stands in a run's folder: one file of it changed."""
    kept = {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name in (REPORT_NAME, ARCHIVE_NAME, "texts.jsonl")
    }
    document = json.loads(kept[REPORT_NAME])
    return st.one_of(
        changed(document).map(lambda found: kept | {REPORT_NAME: _sealed(found)}),
        *(
            damaged(data).map(lambda found, name=name: kept | {name: found})
            for name, data in kept.items()
        ),
    )


def _sealed(document):
    """A report under a mended seal, so that more than the digest is looked at."""
    try:
        return sealed_text(document).encode()
    except (ValueError, TypeError):
        return as_json(document)


def _rerun(command, folder, files):
    for name, data in files.items():
        (folder / name).write_bytes(data)
    if command == "report":
        # A report that is refused leaves the page beside it.
        (folder / PAGE_NAME).write_text("page")
    before = contents(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([command, str(folder)])
    assert code in (0, 2, 3), code
    after = contents(folder)
    if command == "report" and code == 0:
        for name in (PAGE_NAME, RESULTS_NAME, SUMS_NAME):
            after.pop(name)
            before.pop(name, None)
    assert after == before
    if code == 2:
        lines = err.getvalue().splitlines()
        assert lines[0].startswith("jaxcontam: error: ") and len(lines) <= 2, lines


_RERUNS = {name: functools.partial(_rerun, name) for name in ("verify", "report")}
