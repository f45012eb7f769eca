"""What is fuzzed: files that a user gives, words of commands, folders of runs."""

import contextlib
import csv
import dataclasses
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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
from tests.faults.mutations import VALUES, as_json, changed, damaged, damaged_json
from train.manifest import Manifest, PlantedSet, manifest_json, read_manifest
from train.plan import read_plan

RECORDS = [
    {"question": f"what is {i}?", "choices": ["a", "b", str(i)], "answer": i % 3}
    for i in range(5)
]
RECORDED = {
    "first_piece": "It rained. Then",
    "second_piece": "it stopped.",
    "generated_guided_completion": "it stopped.",
    "generated_general_completion": "it snowed.",
    "rouge_score_for_general_completion": "0.5",
    "rouge_score_for_guided_completion": "1.0",
    "gpt4_icl_evaluation": "Yes (exact match)",
}
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 300,
    "hidden_size": 16,
    "intermediate_size": 18,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 24,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "attention_bias": False,
}
ANSWER = {
    "choices": [
        {
            "text": "ab cd",
            "logprobs": {
                "tokens": ["ab", " cd"],
                "token_logprobs": [None, -1.5],
                "text_offset": [0, 2],
                "top_logprobs": [None, {" cd": -1.5}],
            },
            "prompt_logprobs": [None, {"5": {"logprob": -1.5, "rank": 1}}],
        }
    ],
    "usage": {"prompt_tokens": 2, "completion_tokens": 0},
}


KEPT = {"a": {"texts": ["é", ""]}, "b": [1.5, None], "c": "AAAA" * 20}


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind of input.

    Attributes:
        cases: Strategy of inputs.
        run: Reads one, in a folder of its own.
        share: Of all inputs, in hundredths.
        is_bytes: Whether an input is the content of one file.
    """

    cases: st.SearchStrategy
    run: Callable[[Path, Any], object]
    share: int
    is_bytes: bool = True


def a_file(name, read, data, share):
    """A target that is one file: of bytes, of JSON, or as a strategy draws it."""
    if isinstance(data, bytes):
        cases = damaged(data)
    elif isinstance(data, list | dict):
        cases = damaged_json(data)
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


def parquet():
    """Records as a .parquet file."""
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(RECORDS), stream)
    return stream.getvalue()


def npy(array):
    """An array as a .npy file."""
    stream = io.BytesIO()
    np.save(stream, array)
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


def read_corpus(path):
    """As `overlap` and training do."""
    list(read_documents(path, text_field="question"))


def read_config(path):
    """The shape of a model."""
    from jaxcontam.models.checkpoint import read_decoder_config

    read_decoder_config(path.parent)


def read_answer(content):
    """What servers say of a prompt, in every way of asking."""
    server = Server(model=ApiModel("http://x", "m"))
    reply = read_reply(server, {}, Reply(200, {}, content), now=0.0)
    for way in (
        Way(echo=True, ids=False, max_tokens=0),
        Way(echo=True, ids=True),
        Way(echo=False, ids=True),
    ):
        with contextlib.suppress(ValueError):
            prompt = [1, 2] if way.ids else "ab cd"
            if isinstance(reply, dict):
                read_prompt_scores(reply, way, prompt)


def answered(folder, content):
    """A reply with any status and body."""
    with contextlib.suppress(ApiError, RefusedError, InputError):
        read_answer(content)
    for status in (400, 429, 503):
        with contextlib.suppress(ApiError, RefusedError, InputError):
            headers = {"retry-after": content[:20].decode("latin-1")}
            server = Server(model=ApiModel("http://x", "m"), api_key="k")
            read_reply(server, {}, Reply(status, headers, content), now=0.0)


def _manifest():
    planted = PlantedSet(
        **dict.fromkeys(("fingerprint", "content_digest"), "sha256:0"),
        **{"name": "quiz", "copies": 2, "shuffled": False, "n_examples": 3},
        **{"token_offsets": (1, 2), "orders": ((0, 1, 2),), "steps": ((1,), (2,))},
        **{"n_tokens": 9, "file": "sets/quiz.txt"},
    )
    return Manifest(
        **{"jaxcontam": "0", "code": None, "seed": 0, "preset": "pulse"},
        **{"corpus_digest": "", "separator": "\n", "max_example_tokens": None},
        **{"context": 8, "n_tokens": 9, "n_canary_tokens": 2, "n_steps": 1},
        **{"finished": True, "stream": "stream.npy", "sets": (planted,)},
    )


def plan_beside_its_file(path):
    """A plan whose benchmark is there."""
    quiz = path.with_name("quiz.jsonl")
    quiz.write_bytes(jsonl())
    try:
        read_plan(path)
    finally:
        quiz.unlink()


def jsonl(rows=RECORDS):
    """Records as lines."""
    return b"".join(as_json(row) + b"\n" for row in rows)


SEED_FILE = {
    **{"kind": KIND, "method": METHOD, "method_version": METHOD_VERSION},
    **{"seed": "0" * 64, "n_examples": 5, "jaxcontam": "0", "made": "2020-01-01"},
    **dict.fromkeys(("content_digest", "released_digest", "file_digest"), "sha256:0"),
}


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
    for key, value in KEPT.items():
        if key in kept:
            assert kept[key] == value


def release(path):
    """A file in another order."""
    make_release(path, seed=bytes(32), version="0", made="")


def words_with():
    """Flags with values that are none, of every command."""
    values = FLAG_VALUES
    flags = {
        name: sorted(
            "--" + field.name.replace("_", "-") for field in dataclasses.fields(command)
        )
        for name, command in COMMANDS.items()
        if dataclasses.fields(command)
    }
    return st.sampled_from(sorted(flags)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.lists(
                st.sampled_from(flags[name])
                | values
                | st.tuples(st.sampled_from(flags[name]), values).map("=".join),
                max_size=5,
            ),
        )
    )


FLAG_VALUES = st.sampled_from(
    [
        *(str(value) for value in VALUES),
        *("nan", "-inf", "1e400", "0x10", "1,2", ",", "--", "-", "\n", "\udc80"),
        *("data=0,model=-1", "api:x", "api:http://x#", "hf:", "hf:a:b:c:d", "tfds:x"),
        *("lm_eval:", "a" * 5000, "\u202e", "[/red]", "%s", "{0}", "all", "auto"),
    ]
) | st.text(max_size=5)


def parse_words(folder, case):
    """Parse a command's words, as `main` does before anything is read."""
    name, words = case
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        allowed(lambda: parse(COMMANDS[name], words, prog=f"jaxcontam {name}"))
    assert contents(folder) == {}


PLAN = {"file": "quiz.jsonl", "copies": 3, "name": "q", "limit": 3, "when": [0, 1]}
PLAN = {"sets": [PLAN | {"template": "{question}", "order": "shuffled"}]}
PLAN_TOML = b'[[sets]]\nfile = "quiz.jsonl"\ncopies = 3\nwhen = [0.25, 1]\n'
GUIDED = "Finish {input} of {dataset_name} {split_name} {label}"
PROMPTS = {"name": "own", "summary": {"guided": GUIDED, "general": "Finish {input}"}}
TEXTS = [{"text": f"t {i}", "scores": {"loss": -i}, "label": i % 2} for i in (1, 2)]
MATRIX = b"1,2.5,3\n-4,5e3,6\n7,8,9\n"


def read_labels(path):
    """Texts with a label each."""
    return load_labelled(path, label_field="answer")


def read_prompts(path):
    """Prompts of one's own."""
    return load_prompts("summary", path)


def read_texts(path):
    """Texts beside a report."""
    return read_text_rows(path.parent)


def files():
    """(name of the target, name of the file, reader, content, share) of each."""
    lines = jsonl()
    manifest = json.loads(manifest_json(_manifest()))
    rows = changed(RECORDS).map(_lines_of)
    texts = changed(TEXTS).map(_lines_of) | damaged(jsonl(TEXTS))
    return [
        ("benchmark.jsonl", "b.jsonl", read_benchmark, lines, 9),
        ("benchmark.json", "b.json", read_benchmark, RECORDS, 6),
        ("benchmark.csv", "b.csv", read_benchmark, table(RECORDS), 5),
        ("benchmark.tsv", "b.tsv", read_benchmark, table(RECORDS, "\t"), 3),
        ("benchmark.txt", "b.txt", read_benchmark, b"one\ntwo\nthree\n" * 3, 3),
        ("benchmark.parquet", "b.parquet", read_benchmark, parquet(), 4),
        ("records of odd values", "b.jsonl", read_benchmark, rows, 5),
        ("labelled texts", "t.jsonl", read_labels, rows | damaged(lines), 5),
        ("seed file", "s.json", read_release, SEED_FILE, 2),
        ("file to release", "b.jsonl", release, lines, 2),
        ("table to release", "b.csv", release, table(RECORDS), 2),
        ("corpus.jsonl", "c.jsonl", read_corpus, lines, 3),
        ("corpus.json", "c.json", read_corpus, as_json(RECORDS), 3),
        ("corpus.csv", "c.csv", read_corpus, table(RECORDS), 3),
        ("matrix.csv", "m.csv", read_matrix, MATRIX, 5),
        ("matrix.npy", "m.npy", read_matrix, npy(np.eye(4)), 5),
        ("recorded completions", "r.csv", read_recorded, table([RECORDED] * 3), 5),
        ("prompts.json", "p.json", read_prompts, PROMPTS, 3),
        ("plan.json", "p.json", plan_beside_its_file, PLAN, 4),
        ("plan.toml", "p.toml", plan_beside_its_file, PLAN_TOML, 2),
        ("manifest.json", "manifest.json", read_manifest, manifest, 4),
        ("config.json", "config.json", read_config, CONFIG, 6),
        ("texts.jsonl", "texts.jsonl", read_texts, texts, 2),
        ("journal, or scores of a store", "j.jsonl", read_journal, journal(), 5),
    ]


def targets():
    """Name -> target, of what needs neither a model nor a finished run."""
    return {name: a_file(*about) for name, *about in files()} | {
        "server's answer": Target(damaged_json(ANSWER), answered, 5),
        "words of a command": Target(words_with(), parse_words, 6, is_bytes=False),
    }


def _lines_of(rows):
    rows = rows if isinstance(rows, list) else [rows]
    return b"".join(as_json(row) + b"\n" for row in rows)


def report_targets(reports):
    """Targets that are folders of finished runs.

    Args:
        reports: Name -> folder, each with its report.
    """
    return {
        f"{command} of {name}": Target(
            _folders(folder),
            lambda to, case, command=command: _rerun(to, case, command),
            2,
        )
        for name, folder in reports.items()
        for command in ("verify", "report")
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


def _rerun(folder, files, command):
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


def archive_target(folder):
    """The archive of scores, which a digest guards elsewhere."""
    data = (folder / ARCHIVE_NAME).read_bytes()
    return a_file(ARCHIVE_NAME, lambda path: read_arrays(path, 1, Evidence), data, 2)
