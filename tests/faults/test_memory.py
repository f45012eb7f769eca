"""Small files that would fill the memory, or a reader that would never end."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from jaxcontam.cli.main import main, run_command
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples, encode_texts
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import read_decoder_config
from jaxcontam.reports.figure import Interval, intervals_plot
from jaxcontam.scoring.api.budget import most_bytes, most_values
from jaxcontam.scoring.api.logprobs import Way
from tests.faults.folders import said
from tests.faults.fuzzed import CONFIG
from tests.faults.test_large_files import PEAK, ROOT
from tests.support.api_server import serving

pytestmark = pytest.mark.unoptimised

GIB = 1 << 30
NEO = {
    "model_type": "gpt_neo",
    "vocab_size": 300,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "max_position_embeddings": 24,
}


def refused_by_a_child(path):
    """What a process says of a benchmark, and the memory that reading it took."""
    code = (
        "import sys, pyarrow.parquet; from jaxcontam.data.benchmark import *\n"
        f"before = {PEAK}\n"
        "try: load_benchmark(sys.argv[1])\n"
        f"except InputError as e: print({PEAK} - before, e)"
    )
    words = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(
        # Should the limit of ours fail, this one keeps the machine.
        ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "_", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    n_bytes, _, message = done.stdout.strip().partition(" ")
    return int(n_bytes), message


def test_a_line_of_200_mb_is_refused_before_it_is_in_memory(tmp_path):
    path = tmp_path / "b.txt"
    path.write_bytes(b"a\n" + b"word " * 40_000_000)
    n_bytes, message = refused_by_a_child(path)
    assert f"{path}:2: a line of over 16,000,000 bytes (at most 4,000,000" in message
    assert n_bytes < 100 << 20


def test_a_file_of_a_gigabyte_is_refused_unread(tmp_path):
    path = tmp_path / "b.json"
    with path.open("wb") as file:
        file.truncate(GIB)
    with pytest.raises(InputError, match=r"1,073,741,824 bytes \(a file of examples"):
        load_benchmark(path)


def test_an_example_longer_than_any_context_is_refused(tmp_path):
    path = tmp_path / "b.json"
    path.write_text(json.dumps(["a" * 4_000_000, "a" * 4_000_001]))
    with pytest.raises(InputError, match="element 2: an example of 4,000,001 char"):
        load_benchmark(path)


def test_a_tiny_table_of_gigabytes_is_one_line(tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "b.parquet"
    words = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array(np.zeros(2000, np.int8)), pyarrow.array(["a" * (2 << 20)])
    )
    table = pyarrow.table({"text": words})
    pyarrow.parquet.write_table(table, path, compression="brotli")
    size = path.stat().st_size
    assert size < 1000
    n_bytes, message = refused_by_a_child(path)
    assert f"{path}: {size} bytes that take more than 1,024 MiB of memory" in message
    assert n_bytes < 1.1 * GIB


@pytest.mark.parametrize("make", [os.mkfifo, lambda p: os.symlink("/dev/zero", p)])
def test_a_pipe_or_a_device_is_one_line_at_once(tmp_path, capsys, make):
    (tmp_path / "docs").mkdir()
    make(tmp_path / "docs/b.txt")
    (tmp_path / "docs/a.txt").write_text("one two\n")
    assert "a pipe or a device" in said(["audit", "m", tmp_path / "docs/b.txt"], capsys)
    words = ["overlap", tmp_path / "docs/b.txt", tmp_path / "docs/a.txt"]
    assert "a pipe or a device" in said(words, capsys)
    assert main(["doctor", str(tmp_path / "docs/b.txt")]) == 2
    assert "docs/b.txt: a pipe or a device" in capsys.readouterr().out
    (tmp_path / "few.txt").write_text("one two three\n")
    words = ["overlap", tmp_path / "docs", tmp_path / "few.txt"]
    done = []
    run = threading.Thread(
        target=lambda: done.append(main([*map(str, words), "--out", str(tmp_path)])),
        daemon=True,
    )
    run.start()
    run.join(30)
    assert done == [0]
    document = json.loads((tmp_path / "overlap.json").read_text())
    assert document["corpus"]["not_read"] == ["b.txt"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "mistral", "num_hidden_layers": 2**40}, "at most 16,777,216"),
        ({"model_type": "mixtral", "num_local_experts": 2**34}, "at most 16,777,216"),
        ({"num_hidden_layers": 10**400}, r"at most 16,777,216, got 10{39}\.\.\.$"),
        ({"rope_theta": 10**400}, "at most 1e\\+15"),
        ({"rope_theta": 1e308}, "at most 1e\\+15, got 1e\\+308"),
        ({"model_type": "mistral", "sliding_window": 10**400}, "sliding_window must"),
        (
            {**NEO, "attention_types": [[["global", "local"], 2**36]]},
            "attention_types must name 2 layers, got 137438953472",
        ),
    ],
)
def test_a_config_of_numbers_that_no_model_has_is_refused(tmp_path, fields, message):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **fields}))
    with pytest.raises(InputError, match=message):
        read_decoder_config(tmp_path)


def tokenizer(**parts):
    """A tokenizer of letters with rules of its own."""
    made = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def test_a_tokenizer_that_makes_texts_longer_is_left(monkeypatch):
    monkeypatch.setattr("jaxcontam.data.encoding._MOST_MEMORY", 1 << 27)
    grows = tokenizer(normalizer=normalizers.Replace("a", "b" * (1 << 20)))
    with pytest.raises(InputError, match="took over 300 s, or 128 MiB of memory"):
        encode_texts(grows, ["a" * 16])


def test_a_tokenizer_that_takes_too_long_is_left(monkeypatch):
    monkeypatch.setattr("jaxcontam.data.encoding._MOST_SECONDS", 0.01)
    slow = tokenizer(pre_tokenizer=pre_tokenizers.Split(Regex("a?a?a?"), "isolated"))
    with pytest.raises(InputError, match=r"took over 0\.01 s"):
        encode_texts(slow, ["a" * (1 << 20)])
    with pytest.raises(InputError, match=r"took over 0\.01 s"):
        encode_examples(slow, ["a"], separator="a" * (1 << 20))


def test_a_tokenizer_that_tries_every_split_is_one_line():
    tries = tokenizer(pre_tokenizer=pre_tokenizers.Split(Regex("(a+)+$"), "isolated"))
    with pytest.raises(InputError, match=r"the tokenizer fails \(Onig.*retry-limit"):
        encode_texts(tries, ["a" * 40 + "b"])


def test_parts_of_texts_have_the_ids_of_the_whole(monkeypatch):
    spaces = tokenizer(pre_tokenizer=pre_tokenizers.Whitespace())
    texts = ["", "a b", "", "b a b a", "a", ""]
    whole = [list(ids) for ids in encode_texts(spaces, texts)]
    assert whole == [[], [0, 1], [], [1, 0, 1, 0], [0], []]
    for size in (1, 3, 8):
        monkeypatch.setattr("jaxcontam.data.encoding._PART_BYTES", size)
        assert [list(ids) for ids in encode_texts(spaces, texts)] == whole


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs the rights of root")
def test_a_file_without_permission_is_one_line(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("a\n")
    path.chmod(0)
    os.chmod(tmp_path, 0o755)
    done = _as_nobody(path)
    assert done == f"jaxcontam: error: {path}: Permission denied\n"


def _as_nobody(path):
    """What opening a file says to somebody without rights."""
    code = (
        "import sys; from jaxcontam.cli.main import run_command\n"
        "from jaxcontam.data.benchmark import load_benchmark\n"
        "import os; fd = os.open(sys.argv[2], os.O_PATH)\n"
        "os.fchdir(fd); os.setuid(65534)\n"
        "sys.exit(run_command(lambda: load_benchmark(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path.name, str(path.parent)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    return done.stderr.replace(f" {path.name}", f" {path}")


def test_a_full_disk_behind_a_pipe_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jaxcontam", "--help"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 3
    assert done.stderr == "jaxcontam: error: output: No space left on device\n"


def test_memory_that_runs_out_is_one_line(capsys):
    assert run_command(lambda: np.zeros((1 << 40, 1 << 10))) == 3
    message = capsys.readouterr().err
    assert message.startswith("jaxcontam: error: memory ran out (Unable to allocate")
    assert message.count("\n") == 2


def test_names_in_a_picture_are_no_formulas():
    names = ["$\\frac{x$", "$^$", "模型"]
    rows = [
        Interval(name=name, value=1, low=0, high=2, colour="black") for name in names
    ]
    picture = intervals_plot(rows, "AUC", nothing=0)
    assert all(f">{name}</text>" in picture for name in names)


READS = """
import sys
from pathlib import Path
from jaxcontam.data.journal import Journal
from jaxcontam.scoring.api.logprobs import Way
from jaxcontam.scoring.remote import ServedPrompts
from tests.support.api_clients import opened

def taken(name):
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0]) << 10

url, folder, n_ids, n_prompts = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
client = opened(url, journal=Journal(Path(folder) / "j.jsonl")).__enter__()
prompts = ServedPrompts(client, Way(echo=True, ids=True, max_tokens=0))
prompts.scores([(0,) * n_ids], None)
before = taken("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
found = prompts.scores([(i, *range(1, n_ids)) for i in range(n_prompts)], None)
print(len(found), len(found[0].logprobs), taken("VmHWM") - before)
"""


def test_largest_answers_that_are_read_take_the_memory_that_is_stated(tmp_path):
    """As docs/threat_model.md says: few of them are held, however many are asked."""
    n_ids, n_prompts = 256, 128
    body = Way(echo=True, ids=True, max_tokens=0).body((0,) * n_ids)
    most, values = most_bytes(body), most_values(body)
    assert most == 2**18 + 2 * 256 * n_ids
    logprobs = [None, *(-i / 7 for i in range(1, n_ids))]
    fields = {f"k{i}": i / 8 for i in range(values - n_ids - 64)}
    choice = {"index": 0, "text": "", "logprobs": {"token_logprobs": logprobs}}
    answer = {"choices": [choice], "x": fields, "y": ""}
    n_left = most - len(json.dumps(answer).encode())
    answer["y"] = "\U0001f600" * (n_left // 4)
    data = json.dumps(answer, ensure_ascii=False).encode()
    assert most - 4 < len(data) <= most
    with serving(lambda *_: (200, data)) as (url, _):
        words = [sys.executable, "-c", READS, url, str(tmp_path)]
        done = subprocess.run(
            [*words, str(n_ids), str(n_prompts)],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    n_found, n_scored, n_bytes = map(int, done.stdout.split())
    assert (n_found, n_scored) == (n_prompts, n_ids - 1)
    ceiling = (32 + 2 * 8) * most + 400 * values
    assert n_bytes < ceiling < n_prompts * most
