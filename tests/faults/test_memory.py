"""Gigantic lines, a million examples, and small files that would fill the memory."""

import json
import os
import threading

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from jaxcontam.cli.main import main, run_command
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_examples, encode_texts
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import read_decoder_config
from jaxcontam.scoring.api.budget import most_bytes, most_values
from jaxcontam.scoring.api.logprobs import Way
from tests.faults.folders import child, said
from tests.faults.fuzzed import CONFIG
from tests.support.api_server import serving

pytestmark = pytest.mark.unoptimised

GIB = 1 << 30
MILLION = 10**6
# What imports of the command take by themselves, with room for other versions.
_IMPORTS = 700 << 20
# What getrusage says begins with the memory of the process that was forked.
PEAK = (
    "[int(line.split()[1]) << 10 for line in open('/proc/self/status') "
    "if line.startswith('VmHWM')][0]"
)


def refused_by_a_child(path):
    """What a process says of a benchmark, and the memory that reading it took."""
    code = (
        "import resource, sys, pyarrow.parquet\n"
        "from jaxcontam.data.benchmark import *\n"
        # Should the limit of ours fail, this one keeps the machine.
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        f"before = {PEAK}\n"
        "try: load_benchmark(sys.argv[1])\n"
        f"except InputError as e: print({PEAK} - before, e)"
    )
    done = child("-c", code, path, timeout=60)
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
    path.touch()
    os.truncate(path, GIB)
    with pytest.raises(InputError, match="1,073,741,824 bytes, over the 536"):
        load_benchmark(path)


def test_an_example_longer_than_any_context_is_refused(tmp_path):
    path = tmp_path / "b.json"
    path.write_text(json.dumps(["a" * 4_000_000, "a" * 4_000_001]))
    with pytest.raises(InputError, match="element 2: an example of 4,000,001 char"):
        load_benchmark(path)


def test_a_tiny_table_of_gigabytes_is_one_line(tmp_path):
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


def test_a_gigantic_line_is_one_example(tmp_path):
    text = "word " * 400_000
    for name, content in (
        ("a.jsonl", json.dumps({"text": text}) + "\n" + '{"text": "b"}\n'),
        ("a.json", json.dumps([{"text": text}, {"text": "b"}])),
        ("a.csv", f'text\n"{text}"\nb\n'),
        ("a.tsv", f"text\n{text}\nb\n"),
    ):
        (tmp_path / name).write_text(content)
        found = load_benchmark(tmp_path / name, text_field="text")
        assert [len(one) for one in found.texts] == [len(text), 1]


def test_an_error_in_a_gigantic_line_is_a_short_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    giant = "x" * 2_000_000
    for words, content in (
        ("audit m a.jsonl --text q", f'{{"{giant}": 1}}\n' * 2),
        ("audit m b.jsonl --text q", f'{{"a": "{giant}\n'),
        ("audit m a.csv --text q", f"{giant},{giant}\n1,2\n"),
        ("audit m b.csv --text q", f"a,b\n{giant}\n"),
        ("audit m a.json --text q", f'[{{"{giant}": 1}}]'),
        ("prove m.csv", f"1,{giant}\n"),
        (giant, ""),
        (f"audit m b --{giant}", ""),
    ):
        typed = words.split()
        if content:
            next(tmp_path / word for word in typed if "." in word).write_text(content)
        assert len(said(typed, capsys)) < 5_000


def test_a_limit_reads_the_first_examples_of_a_long_file(tmp_path):
    # Behind them nothing is parsed, as in a table.
    lines = [f'{{"text": "line {i}"}}' for i in range(3)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "{" * 9]))
    assert load_benchmark(tmp_path / "a.jsonl", limit=3).texts == tuple(lines)


def test_a_matrix_of_many_rows_needs_memory_in_proportion_to_it(tmp_path):
    def peak(rows):
        np.savetxt(tmp_path / "m.csv", rows, delimiter=",")
        code = (
            "import sys; from jaxcontam.cli.main import main; main(sys.argv[1:]); "
            f"print({PEAK}, file=sys.stderr)"
        )
        done = child("-c", code, "prove", "m.csv", "--out", len(rows), cwd=tmp_path)
        assert (tmp_path / f"{len(rows)}/report.json").is_file(), done.stderr
        return int(done.stderr.splitlines()[-1])

    matrix_KM = np.random.default_rng(0).normal(size=(100_000, 10))
    # The draws of the cross-check and buffers, which do not grow with the matrix.
    most = peak(matrix_KM[:20]) + (40 << 20) + 10 * matrix_KM.nbytes
    assert peak(matrix_KM) < most


@pytest.mark.slow
def test_a_million_examples_need_memory_in_proportion_to_their_file(tmp_path):
    path = tmp_path / "b.jsonl"
    with path.open("w") as file:
        for i in range(MILLION):
            text = f"question {i} " + "abcdefgh " * 9
            file.write(json.dumps({"text": text[:90]}) + "\n")
    code = (
        "import sys; from jaxcontam.data.benchmark import load_benchmark; "
        f"found = load_benchmark(sys.argv[1], limit=None); print(len(found), {PEAK})"
    )
    n, n_bytes = map(int, child("-c", code, path, check=True).stdout.split())
    assert n == MILLION
    # The text, each line, its record and their headers.
    assert n_bytes < _IMPORTS + 12 * path.stat().st_size


@pytest.mark.parametrize("make", [os.mkfifo, lambda p: os.symlink("/dev/zero", p)])
def test_a_pipe_or_a_device_is_one_line_at_once(tmp_path, monkeypatch, capsys, make):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    make(tmp_path / "docs/b.txt")
    (tmp_path / "docs/a.txt").write_text("one two three\n")
    for words in ("audit m docs/b.txt", "overlap docs/b.txt docs/a.txt"):
        assert "docs/b.txt: a pipe or a device" in said(words.split(), capsys)
    assert main(["doctor", "docs/b.txt"]) == 2
    assert "docs/b.txt: a pipe or a device" in capsys.readouterr().out
    words, done = ["overlap", "docs", "docs/a.txt", "--out", "."], []
    run = threading.Thread(target=lambda: done.append(main(words)), daemon=True)
    run.start()
    run.join(30)
    assert done == [0]
    document = json.loads((tmp_path / "overlap.json").read_text())
    assert document["corpus"]["not_read"] == ["b.txt"]


NEO = {"model_type": "gpt_neo", "num_layers": 2, "num_heads": 2}
NEO["attention_types"] = [[["global", "local"], 2**36]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "mistral", "num_hidden_layers": 2**40}, "at most 16,777,216"),
        ({"model_type": "mixtral", "num_local_experts": 2**34}, "at most 16,777,216"),
        ({"num_hidden_layers": 10**400}, r"at most 16,777,216, got 10{39}\.\.\.$"),
        ({"rope_theta": 10**400}, "at most 1e\\+15"),
        ({"rope_theta": 1e308}, "at most 1e\\+15, got 1e\\+308"),
        ({"model_type": "mistral", "sliding_window": 10**400}, "sliding_window must"),
        (NEO, "attention_types must name 2 layers, got 137438953472"),
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


def split_at(pattern):
    """A tokenizer that splits texts by an expression."""
    return tokenizer(pre_tokenizer=pre_tokenizers.Split(Regex(pattern), "isolated"))


def test_a_tokenizer_that_makes_texts_longer_is_left(monkeypatch):
    monkeypatch.setattr("jaxcontam.data.encoding._MOST_MEMORY", 1 << 27)
    grows = tokenizer(normalizer=normalizers.Replace("a", "b" * (1 << 20)))
    with pytest.raises(InputError, match="took over 300 s, or 128 MiB of memory"):
        encode_texts(grows, ["a" * 16])


def test_a_tokenizer_that_takes_too_long_is_left(monkeypatch):
    with pytest.raises(InputError, match=r"the tokenizer fails \(Onig.*retry-limit"):
        encode_texts(split_at("(a+)+$"), ["a" * 40 + "b"])
    monkeypatch.setattr("jaxcontam.data.encoding._MOST_SECONDS", 0.01)
    slow = split_at("a?a?a?")
    with pytest.raises(InputError, match=r"took over 0\.01 s"):
        encode_texts(slow, ["a" * (1 << 20)])
    with pytest.raises(InputError, match=r"took over 0\.01 s"):
        encode_examples(slow, ["a"], separator="a" * (1 << 20))


def test_parts_of_texts_have_the_ids_of_the_whole(monkeypatch):
    spaces = tokenizer(pre_tokenizer=pre_tokenizers.Whitespace())
    texts = ["", "a b", "", "b a b a", "a", ""]
    for size in (1, 3, 8, 1000):
        monkeypatch.setattr("jaxcontam.data.encoding._PART_BYTES", size)
        found = [list(ids) for ids in encode_texts(spaces, texts)]
        assert found == [[], [0, 1], [], [1, 0, 1, 0], [0], []]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs the rights of root")
def test_a_file_without_permission_is_one_line(tmp_path):
    (tmp_path / "b.txt").touch(mode=0)
    tmp_path.chmod(0o755)
    code = (
        "import os, sys; from jaxcontam.cli.main import run_command\n"
        "from jaxcontam.data.benchmark import load_benchmark\n"
        "os.fchdir(os.open(sys.argv[1], os.O_PATH)); os.setuid(65534)\n"
        "sys.exit(run_command(lambda: load_benchmark('b.txt')))"
    )
    done = child("-c", code, tmp_path)
    assert done.returncode == 2
    assert done.stderr == "jaxcontam: error: b.txt: Permission denied\n"


def test_a_full_disk_behind_a_pipe_is_one_line():
    with open("/dev/full", "w") as full:
        done = child("-m", "jaxcontam", "--help", stdout=full)
    assert done.returncode == 3
    assert done.stderr == "jaxcontam: error: output: No space left on device\n"


def test_memory_that_runs_out_is_one_line(capsys):
    assert run_command(lambda: np.zeros((1 << 40, 1 << 10))) == 3
    message = capsys.readouterr().err
    assert message.startswith("jaxcontam: error: memory ran out (Unable to allocate")
    assert message.count("\n") == 2


READS = """
import sys
from pathlib import Path
from jaxcontam.data.journal import Journal
from jaxcontam.scoring.api.logprobs import Way
from jaxcontam.scoring.remote import ServedPrompts
from tests.support.api_transport import opened

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
        done = child("-c", READS, url, tmp_path, n_ids, n_prompts)
    assert done.returncode == 0, done.stderr
    n_found, n_scored, n_bytes = map(int, done.stdout.split())
    assert (n_found, n_scored) == (n_prompts, n_ids - 1)
    ceiling = (32 + 2 * 8) * most + 400 * values
    assert n_bytes < ceiling < n_prompts * most
