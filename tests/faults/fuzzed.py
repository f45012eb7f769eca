"""What is fuzzed: every kind of file that a user gives, and the words of commands."""

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
from jaxcontam.replication.instances import load_prompts
from jaxcontam.replication.recorded import read_recorded
from jaxcontam.reports.archive import read_text_rows
from jaxcontam.scoring.api.address import ApiError, ApiModel, RefusedError, Server
from jaxcontam.scoring.api.answers import Reply, read_reply
from jaxcontam.scoring.api.logprobs import Way, read_prompt_scores
from tests.faults.folders import allowed, contents
from tests.faults.fuzzed_words import FLAG_VALUES, parse_words, words_with
from tests.faults.mutations import as_json, changed, damaged, damaged_json
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


def a_file(name, read, data, share, *, cases=None):
    """A target that is one file."""

    def run(folder, content):
        path = folder / name
        path.write_bytes(content)
        before = contents(folder)
        allowed(lambda: read(path))
        assert contents(folder) == before

    return Target(damaged(data) if cases is None else cases, run, share)


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
        name="quiz",
        copies=2,
        shuffled=False,
        n_examples=3,
        fingerprint="sha256:0",
        content_digest="sha256:0",
        token_offsets=(1, 2),
        orders=((0, 1, 2),),
        steps=((1,), (2,)),
        n_tokens=9,
        file="sets/quiz.txt",
    )
    return Manifest(
        jaxcontam="0",
        code=None,
        seed=0,
        preset="pulse",
        corpus_digest="",
        separator="\n",
        max_example_tokens=None,
        context=8,
        n_tokens=9,
        n_canary_tokens=2,
        n_steps=1,
        finished=True,
        stream="stream.npy",
        sets=(planted,),
    )


def _plan():
    keys = {"file": "quiz.jsonl", "copies": 3, "name": "q", "limit": 3, "when": [0, 1]}
    return {"sets": [{**keys, "template": "{question}", "order": "shuffled"}]}


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


def _prompts():
    guided = "Finish {input} of {dataset_name} {split_name} {label}"
    return {"name": "own", "summary": {"guided": guided, "general": "Finish {input}"}}


def _texts():
    return [{"text": f"t {i}", "scores": {"loss": -i}, "label": i % 2} for i in (1, 2)]


def _seed_file():
    return {
        "kind": KIND,
        "method": METHOD,
        "method_version": METHOD_VERSION,
        "seed": "0" * 64,
        "n_examples": 5,
        "content_digest": "sha256:0",
        "released_digest": "sha256:0",
        "file_digest": "sha256:0",
        "jaxcontam": "0",
        "made": "2020-01-01",
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


def targets():
    """Name -> target, of what needs neither a model nor a finished run."""
    recorded = table([RECORDED] * 3)
    lines = jsonl()
    return {
        "benchmark.jsonl": a_file("b.jsonl", read_benchmark, lines, 9),
        "benchmark.json": a_file(
            "b.json", read_benchmark, b"", 6, cases=damaged_json(RECORDS)
        ),
        "benchmark.csv": a_file("b.csv", read_benchmark, table(RECORDS), 5),
        "benchmark.tsv": a_file("b.tsv", read_benchmark, table(RECORDS, "\t"), 3),
        "benchmark.txt": a_file("b.txt", read_benchmark, b"one\ntwo\nthree\n" * 3, 3),
        "benchmark.parquet": a_file("b.parquet", read_benchmark, parquet(), 4),
        "records of odd values": a_file(
            "b.jsonl", read_benchmark, b"", 5, cases=changed(RECORDS).map(_lines_of)
        ),
        "labelled texts": a_file(
            "t.jsonl",
            lambda path: load_labelled(path, label_field="answer"),
            b"",
            5,
            cases=changed(RECORDS).map(_lines_of) | damaged(lines),
        ),
        "seed file": a_file(
            "s.json", read_release, b"", 2, cases=damaged_json(_seed_file())
        ),
        "file to release": a_file("b.jsonl", release, lines, 2),
        "table to release": a_file("b.csv", release, table(RECORDS), 2),
        "corpus.jsonl": a_file("c.jsonl", read_corpus, lines, 3),
        "corpus.json": a_file("c.json", read_corpus, as_json(RECORDS), 3),
        "corpus.csv": a_file("c.csv", read_corpus, table(RECORDS), 3),
        "matrix.csv": a_file("m.csv", read_matrix, b"1,2.5,3\n-4,5e3,6\n7,8,9\n", 5),
        "matrix.npy": a_file("m.npy", read_matrix, npy(np.eye(4)), 5),
        "recorded completions": a_file("r.csv", read_recorded, recorded, 5),
        "prompts.json": a_file(
            "p.json",
            lambda path: load_prompts("summary", path),
            b"",
            3,
            cases=damaged_json(_prompts()),
        ),
        "plan.json": a_file(
            "p.json", plan_beside_its_file, b"", 4, cases=damaged_json(_plan())
        ),
        "plan.toml": a_file(
            "p.toml",
            plan_beside_its_file,
            b'[[sets]]\nfile = "quiz.jsonl"\ncopies = 3\nwhen = [0.25, 1]\n',
            2,
        ),
        "manifest.json": a_file(
            "manifest.json",
            read_manifest,
            b"",
            4,
            cases=damaged_json(json.loads(manifest_json(_manifest()))),
        ),
        "config.json": a_file(
            "config.json", read_config, b"", 6, cases=damaged_json(CONFIG)
        ),
        "texts.jsonl": a_file(
            "texts.jsonl",
            lambda path: read_text_rows(path.parent),
            b"",
            2,
            cases=changed(_texts()).map(_lines_of) | damaged(jsonl(_texts())),
        ),
        "journal, or scores of a store": a_file("j.jsonl", read_journal, journal(), 5),
        "server's answer": Target(damaged_json(ANSWER), answered, 5),
        "words of a command": Target(
            words_with(FLAG_VALUES), parse_words, 6, is_bytes=False
        ),
    }


def _lines_of(rows):
    rows = rows if isinstance(rows, list) else [rows]
    return b"".join(as_json(row) + b"\n" for row in rows)
